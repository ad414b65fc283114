//! The records under `_scafo/`: their keys, their text, and the conditional write whose doubts are resolved by reading
//! back (design, section 6).
//!
//! It decides nothing about the fleet. It answers [`Request`]s of the core, never guesses what a lost answer meant, and
//! takes nothing that cannot be read for absent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::bucket::probe::{self, Fault};
use crate::bucket::{Bucket, BucketError, Reply, StoreTime};
use crate::core::fleet_time::Sample;
use crate::core::node::{Answer, Request, Trouble, Wrote};
use crate::core::records::{Held, Key};
use crate::core::types::BootMs;
use crate::error::{Code, Error, Field};
use crate::host::clock::Clock;
use crate::state::identity::Identity;

mod codec;
mod desk;
mod hint;
pub mod keys;
mod signature;
mod view;
mod write;

pub use desk::Desk;
pub use view::{NodesRead, read_identities, read_lease, read_nodes};

/// The registry of one installation, as one process uses it.
pub struct Registry {
    bucket: Arc<dyn Bucket>,
    clock: Arc<dyn Clock>,
    /// Signs this node's peer record.
    identity: Option<Arc<Identity>>,
    view: Mutex<view::View>,
    hint: Mutex<hint::Seen>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// A registry in `bucket`; `identity` is the node's, where there is one to sign with.
    pub fn new(bucket: Arc<dyn Bucket>, clock: Arc<dyn Clock>, identity: Option<Arc<Identity>>) -> Self {
        Self {
            bucket,
            clock,
            identity,
            view: Mutex::default(),
            hint: Mutex::default(),
        }
    }

    /// Carries out one request of the core. Always answers, within the limits of the bucket's own time-outs; beside the
    /// answer stand the store's dates that were seen on the way.
    pub async fn answer(&self, request: Request) -> (Answer, Vec<Sample>) {
        let mut samples = Vec::new();
        let answer = match request {
            Request::Probe => Answer::Done(self.probe().await),
            Request::Read(key) => Answer::Read(self.read(&key, &mut samples).await),
            Request::Create(key, record) => Answer::Wrote(self.write(&key, None, record, &mut samples).await),
            Request::Replace(key, held, record) => {
                Answer::Wrote(self.write(&key, Some(held), record, &mut samples).await)
            }
            Request::Remove(key) => Answer::Done(self.remove(&key).await),
            Request::Refresh => Answer::Refreshed(self.refresh(&mut samples).await),
            Request::PollHint => Answer::Hinted(self.poll_hint().await),
            Request::WriteHint(kind) => Answer::Hinted(self.write_hint(kind).await),
        };
        (answer, samples)
    }

    /// The same for a request that is worth nothing after `limit`. What was sent by then may still land.
    pub async fn answer_within(&self, request: Request, limit: Duration) -> (Answer, Vec<Sample>) {
        let is_read = matches!(request, Request::Read(_));
        match tokio::time::timeout(limit, self.answer(request)).await {
            Ok(answered) => answered,
            Err(_) => {
                let trouble = Trouble::Transient(format!("no answer within {} s", limit.as_secs_f32()));
                (
                    if is_read {
                        Answer::Read(Err(trouble))
                    } else {
                        Answer::Wrote(Wrote::Trouble(trouble))
                    },
                    Vec::new(),
                )
            }
        }
    }

    /// Reads one record.
    async fn read(&self, key: &Key, samples: &mut Vec<Sample>) -> Result<Option<Held>, Trouble> {
        let path = keys::path(key);
        let sent = self.clock.now().boot;
        let reply = self
            .bucket
            .get(&path)
            .await
            .map_err(|error| trouble(&self.bucket.name(), error))?;
        let StoreTime {
            date_ms,
            last_modified_ms,
        } = reply.time;
        let Some(object) = self.noted(sent, reply, samples) else {
            return Ok(None);
        };
        let held = codec::decode(key, &object).map_err(|reason| unreadable(&path, &reason))?;
        let store_age_ms = date_ms
            .zip(last_modified_ms)
            .map(|(date, modified)| date.saturating_sub(modified));
        Ok(Some(Held { store_age_ms, ..held }))
    }

    async fn remove(&self, key: &Key) -> Result<(), Trouble> {
        let removed = self.bucket.remove(&keys::path(key)).await;
        removed.map_err(|error| trouble(&self.bucket.name(), error))
    }

    async fn probe(&self) -> Result<(), Trouble> {
        let name = self.bucket.name();
        match probe::run(self.bucket.as_ref(), self.clock.now().wall.0).await {
            Ok(warnings) => {
                warnings.iter().for_each(|warning| tracing::warn!("{name}: {warning}"));
                Ok(())
            }
            Err(Fault::Inconclusive(why)) => Err(Trouble::Transient(why)),
            Err(Fault::Refused(error)) => Err(trouble(&name, error)),
            Err(Fault::Violation { condition, seen }) => Err(Trouble::Refused(
                Error::capability(format!("the store does not keep a rule that a fleet rests on: {condition}"))
                    .field(Field::new("bucket.url", name).because(seen))
                    .help("use a store with working conditional writes, for example Amazon S3, Cloudflare R2 or SeaweedFS 4.48"),
            )),
        }
    }

    /// Takes note of the store's date in a reply, and hands out what it says.
    fn noted<T>(&self, sent: BootMs, reply: Reply<T>, samples: &mut Vec<Sample>) -> T {
        note(sent, self.clock.now().boot, reply.time, samples);
        reply.value
    }
}

fn note(sent: BootMs, received: BootMs, time: StoreTime, samples: &mut Vec<Sample>) {
    if let Some(date_ms) = time.date_ms {
        samples.push(Sample {
            date_ms,
            sent,
            received,
        });
    }
}

/// What a failure of the bucket means to whoever asked.
pub(crate) fn trouble(bucket: &str, error: BucketError) -> Trouble {
    if error.is_transient() {
        Trouble::Transient(error.to_string())
    } else {
        Trouble::Refused(refusal(bucket, &error))
    }
}

/// The error that a person sees when the bucket itself does not do what was asked.
pub fn refusal(bucket: &str, error: &BucketError) -> Error {
    let (code, help) = match error {
        BucketError::Unreachable(_) | BucketError::Throttled(_) => {
            (Code::Unavailable, "try again when the store can be reached")
        }
        BucketError::Denied(_) => (
            Code::Unauthorized,
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key that may read, write and list this bucket",
        ),
        BucketError::NoSuchBucket(_) => (Code::NotFound, "create the bucket, or name the right one with --bucket"),
        BucketError::Unsupported(_) => (
            Code::CapabilityMissing,
            "use a store with conditional writes, for example Amazon S3 or Cloudflare R2",
        ),
        BucketError::Invalid(_) => (
            Code::InvalidInput,
            "check --bucket, --bucket-endpoint and --bucket-region",
        ),
    };
    Error::new(code, error.to_string())
        .field(Field::new("bucket.url", bucket))
        .help(help)
}

fn unreadable(path: &str, reason: &str) -> Trouble {
    Trouble::Refused(
        Error::invalid(format!(
            "the record {path} cannot be read, and what cannot be read is never overwritten"
        ))
        .field(Field::new(path, "unreadable").because(reason))
        .help("mend or remove that object in the bucket by hand, then start again"),
    )
}

//! A bucket in memory, with faults from a seed: for tests and the simulation.
//!
//! Time is tokio's, so it runs under a paused clock; nothing here draws randomness of its own. One store is shared by
//! cloning it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Bucket, BucketError, Changed, ETag, Entry, Object, Reply, StoreTime, WriteOutcome};
use crate::core::backoff::Jitter;

/// How often each fault strikes, in thousandths of all calls, and how slow the store is.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The request never reaches the store.
    pub lost_request: u64,
    /// The store carries it out and the answer is lost.
    pub lost_answer: u64,
    /// The answer is lost, and a write lands only after `late_by`.
    pub late_write: u64,
    /// The store asks for fewer requests.
    pub throttled: u64,
    /// A write meets another one (409), and is not carried out.
    pub contended: u64,
    /// Milliseconds that an answer takes.
    pub latency_ms: Range<u64>,
    /// Milliseconds after which a late write lands.
    pub late_by_ms: Range<u64>,
    /// How far the store's clock is ahead of the others', in milliseconds.
    pub skew_ms: i64,
}

impl Default for Faults {
    /// None at all.
    fn default() -> Self {
        Self {
            lost_request: 0,
            lost_answer: 0,
            late_write: 0,
            throttled: 0,
            contended: 0,
            latency_ms: 0..1,
            late_by_ms: 0..1,
            skew_ms: 0,
        }
    }
}

/// A store in memory. Clones are the same store.
#[derive(Clone, Debug)]
pub struct MemoryBucket {
    store: Arc<Mutex<Store>>,
}

#[derive(Debug)]
struct Store {
    objects: BTreeMap<String, (Object, u64)>,
    versions: u64,
    faults: Faults,
    luck: Jitter,
    away: bool,
    /// What the store's clock showed at the instant.
    started: (Instant, u64),
}

/// What strikes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Well,
    LostRequest,
    LostAnswer,
    Late(u64),
    Throttled,
    Contended,
}

#[derive(Clone, Debug)]
enum Condition {
    Absent,
    Is(ETag),
}

impl MemoryBucket {
    /// An empty store whose clock shows `epoch_ms` now.
    pub fn new(seed: u64, epoch_ms: u64, faults: Faults) -> Self {
        let store = Store {
            objects: BTreeMap::new(),
            versions: 0,
            faults,
            luck: Jitter::new(seed),
            away: false,
            started: (Instant::now(), epoch_ms),
        };
        Self {
            store: Arc::new(Mutex::new(store)),
        }
    }

    /// Changes the faults.
    pub fn set_faults(&self, faults: Faults) {
        self.store().faults = faults;
    }

    /// Takes the store away, or brings it back.
    pub fn set_away(&self, away: bool) {
        self.store().away = away;
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call's latency pass, and says what becomes of it.
    async fn call(&self, is_write: bool) -> Fate {
        let (fate, latency) = {
            let mut store = self.store();
            let latency = store.pick(|faults| faults.latency_ms.clone());
            (store.fate(is_write), latency)
        };
        tokio::time::sleep(Duration::from_millis(latency)).await;
        fate
    }

    async fn read<T>(&self, read: impl FnOnce(&Store) -> (T, Option<u64>)) -> Result<Reply<T>, BucketError> {
        match self.call(false).await {
            Fate::Well | Fate::Contended => {
                let store = self.store();
                let (value, last_modified_ms) = read(&store);
                Ok(Reply {
                    value,
                    time: store.time(last_modified_ms),
                })
            }
            Fate::Throttled => Err(BucketError::Throttled("SlowDown".to_owned())),
            Fate::LostRequest | Fate::LostAnswer | Fate::Late(_) => {
                Err(BucketError::Unreachable("no answer".to_owned()))
            }
        }
    }

    async fn write(&self, key: &str, condition: Condition, body: Vec<u8>) -> Reply<WriteOutcome> {
        let silent = |value| Reply {
            value,
            time: StoreTime::default(),
        };
        match self.call(true).await {
            Fate::Well => {
                let mut store = self.store();
                let value = store.write(key, &condition, body);
                Reply {
                    value,
                    time: store.time(None),
                }
            }
            Fate::LostRequest => silent(WriteOutcome::Unknown("no answer".to_owned())),
            Fate::LostAnswer => {
                self.store().write(key, &condition, body);
                silent(WriteOutcome::Unknown("the answer was lost".to_owned()))
            }
            Fate::Late(after) => {
                let (store, key) = (self.clone(), key.to_owned());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                    store.store().write(&key, &condition, body);
                });
                silent(WriteOutcome::Unknown("no answer yet".to_owned()))
            }
            Fate::Throttled => silent(WriteOutcome::Throttled),
            Fate::Contended => silent(WriteOutcome::Contended),
        }
    }
}

impl Store {
    fn pick(&mut self, range: impl FnOnce(&Faults) -> Range<u64>) -> u64 {
        let range = range(&self.faults);
        range.start + self.luck.below(range.end.saturating_sub(range.start))
    }

    fn fate(&mut self, is_write: bool) -> Fate {
        if self.away {
            return Fate::LostRequest;
        }
        let mut strikes = |rate: u64| rate > 0 && self.luck.below(1_000) < rate;
        let Faults {
            lost_request,
            lost_answer,
            late_write,
            throttled,
            contended,
            ..
        } = self.faults;
        if strikes(lost_request) {
            Fate::LostRequest
        } else if strikes(lost_answer) {
            Fate::LostAnswer
        } else if is_write && strikes(late_write) {
            Fate::Late(self.pick(|faults| faults.late_by_ms.clone()))
        } else if strikes(throttled) {
            Fate::Throttled
        } else if is_write && strikes(contended) {
            Fate::Contended
        } else {
            Fate::Well
        }
    }

    fn now_ms(&self) -> u64 {
        let (started, epoch_ms) = self.started;
        let elapsed = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        epoch_ms
            .saturating_add(elapsed)
            .saturating_add_signed(self.faults.skew_ms)
    }

    fn time(&self, last_modified_ms: Option<u64>) -> StoreTime {
        StoreTime {
            date_ms: Some(self.now_ms() / 1_000 * 1_000),
            last_modified_ms,
        }
    }

    fn write(&mut self, key: &str, condition: &Condition, body: Vec<u8>) -> WriteOutcome {
        let found = self.objects.get(key).map(|(object, _)| &object.etag);
        let holds = match condition {
            Condition::Absent => found.is_none(),
            Condition::Is(etag) => found == Some(etag),
        };
        if !holds {
            return WriteOutcome::Rejected;
        }
        self.versions += 1;
        let Some(etag) = ETag::new(format!("\"v{}\"", self.versions)) else {
            return WriteOutcome::Unknown("no tag".to_owned());
        };
        let modified = self.now_ms();
        self.objects.insert(
            key.to_owned(),
            (
                Object {
                    body,
                    etag: etag.clone(),
                },
                modified,
            ),
        );
        WriteOutcome::Applied(etag)
    }
}

#[async_trait]
impl Bucket for MemoryBucket {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    async fn get(&self, key: &str) -> Result<Reply<Option<Object>>, BucketError> {
        self.read(|store| {
            let found = store.objects.get(key);
            (
                found.map(|(object, _)| object.clone()),
                found.map(|(_, modified)| *modified),
            )
        })
        .await
    }

    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Reply<Changed>, BucketError> {
        self.read(|store| match store.objects.get(key) {
            None => (Changed::Absent, None),
            Some((object, modified)) if object.etag == *etag => (Changed::Unchanged, Some(*modified)),
            Some((object, modified)) => (Changed::Changed(object.clone()), Some(*modified)),
        })
        .await
    }

    async fn list(&self, prefix: &str) -> Result<Reply<Vec<Entry>>, BucketError> {
        self.read(|store| {
            let matching = store
                .objects
                .range(prefix.to_owned()..)
                .take_while(|(key, _)| key.starts_with(prefix));
            let entries = matching.map(|(key, (object, modified))| Entry {
                key: key.clone(),
                etag: Some(object.etag.clone()),
                last_modified_ms: Some(*modified),
            });
            (entries.collect(), None)
        })
        .await
    }

    async fn create(&self, key: &str, body: Vec<u8>) -> Reply<WriteOutcome> {
        self.write(key, Condition::Absent, body).await
    }

    async fn replace(&self, key: &str, etag: &ETag, body: Vec<u8>) -> Reply<WriteOutcome> {
        self.write(key, Condition::Is(etag.clone()), body).await
    }

    async fn remove(&self, key: &str) -> Result<(), BucketError> {
        self.read(|_| ((), None)).await?;
        self.store().objects.remove(key);
        Ok(())
    }
}

//! The bucket: the one thing that nodes share (design, section 6).
//!
//! A [`Bucket`] reads, lists and writes whole objects, every write under a condition. It carries no rule of Scafo's: it
//! never retries a conditional write and never decides what a lost answer meant. It reports one of six outcomes, and
//! `registry` resolves the uncertain ones by reading back.
//!
//! Keys are given whole and relative to the installation's root, for example `_scafo/nodes/n-1.json`. An
//! implementation adds its own prefix (`s3://NAME/PREFIX`) and strips it again in listings.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use self::url::BucketUrl;

pub mod dir;
pub mod memory;
pub mod probe;
pub mod s3;
pub mod url;

/// The store's opaque version of one object. Never empty; compared for equality and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ETag(String);

impl ETag {
    /// The tag as the store gave it; `None` for an empty one, which would turn a condition into none at all.
    pub fn new(tag: impl Into<String>) -> Option<Self> {
        let tag = tag.into();
        (!tag.is_empty()).then_some(Self(tag))
    }

    /// The tag as the store gave it, quotes included.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An object as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The whole body.
    pub body: Vec<u8>,
    /// The version that was read.
    pub etag: ETag,
}

/// The store's own clock as one reply showed it, in milliseconds since the Unix epoch. A cache's reply (one with an
/// `Age`) shows neither, since its date is not the store's present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTime {
    /// The reply's `Date`. Whole seconds in HTTP, cut off, so the true instant is up to 999 ms later.
    pub date_ms: Option<u64>,
    /// The object's `Last-Modified` of the same reply, where there was an object.
    pub last_modified_ms: Option<u64>,
}

/// What a call answered, with the store's clock beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<T> {
    /// The answer.
    pub value: T,
    /// The store's clock in that answer.
    pub time: StoreTime,
}

/// A conditional read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The object still has the tag that was sent.
    Unchanged,
    /// It has another one.
    Changed(Object),
    /// There is no such object.
    Absent,
}

/// One key of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The whole key, relative to the installation's root.
    pub key: String,
    /// Its version, where the store lists one.
    pub etag: Option<ETag>,
    /// When it was last written, by the store's clock.
    pub last_modified_ms: Option<u64>,
}

/// How a conditional write ended. Only `Applied` and `Rejected` say what happened to the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is written, and this is its version.
    Applied(ETag),
    /// The condition did not hold (412, or 404 for a replace of a missing key), on the only attempt: not written.
    Rejected,
    /// Another write was under way (409): nothing is promised, read back.
    Contended,
    /// The store wants fewer requests (429, 503): probably not written, read back.
    Throttled,
    /// No answer, or one that says nothing (time-out, lost reply, 500, 2xx without a tag): read back.
    Unknown(String),
    /// The store refuses such requests (401, 403, 400, 501, no such bucket): a matter of configuration.
    Fatal(BucketError),
}

/// Why the bucket did not answer, in terms of what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// No answer in time, no connection, a server's error: try again later.
    #[error("{0}")]
    Unreachable(String),
    /// The store wants fewer requests.
    #[error("the store asks for fewer requests: {0}")]
    Throttled(String),
    /// The credentials are missing, wrong or not allowed to do this.
    #[error("{0}")]
    Denied(String),
    /// The bucket itself does not exist.
    #[error("{0}")]
    NoSuchBucket(String),
    /// The store does not know such a request.
    #[error("{0}")]
    Unsupported(String),
    /// The request or the configuration makes no sense to the store (a bad region, an invalid name).
    #[error("{0}")]
    Invalid(String),
}

impl BucketError {
    /// Whether the same request may succeed later without anybody mending anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Throttled(_))
    }
}

/// An object store with conditional writes. Every method may be called from many tasks at once, and every
/// implementation is safe against other processes on the same store.
#[async_trait]
pub trait Bucket: Send + Sync + fmt::Debug {
    /// What people call it, for example `s3://fleet/eu at https://s3.example`. Never a credential.
    fn name(&self) -> String;

    /// Reads an object; `None` when there is none. A body that cannot be had whole is an error, never absence.
    async fn get(&self, key: &str) -> Result<Reply<Option<Object>>, BucketError>;

    /// Reads an object only if its version is no longer `etag`.
    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Reply<Changed>, BucketError>;

    /// Every key that begins with `prefix`, in order, across as many pages as it takes.
    async fn list(&self, prefix: &str) -> Result<Reply<Vec<Entry>>, BucketError>;

    /// Writes an object only if there is none. One attempt.
    async fn create(&self, key: &str, body: Vec<u8>) -> Reply<WriteOutcome>;

    /// Writes an object only if its version is `etag`. One attempt.
    async fn replace(&self, key: &str, etag: &ETag, body: Vec<u8>) -> Reply<WriteOutcome>;

    /// Removes an object, whatever its version; no object is no error. For reaped things only: what must not be undone
    /// is overwritten instead, since many stores ignore a condition on a removal.
    async fn remove(&self, key: &str) -> Result<(), BucketError>;

    /// Sends tags without their quotes from now on, as some stores want them in conditions. False where there is no
    /// other dialect left to try.
    fn switch_etag_dialect(&self) -> bool {
        false
    }
}

/// Opens the bucket at `url`. Nothing is sent to a store yet; a directory is made where it is missing.
pub fn open(url: &BucketUrl, endpoint: Option<String>, region: Option<String>) -> Result<Arc<dyn Bucket>, BucketError> {
    Ok(match url {
        BucketUrl::S3 { name, prefix } => {
            let (bucket, prefix) = (name.clone(), prefix.clone());
            let credentials = s3::Credentials::Ambient;
            Arc::new(s3::S3Bucket::open(s3::S3Options {
                bucket,
                prefix,
                endpoint,
                region,
                credentials,
            }))
        }
        BucketUrl::Dir(path) => Arc::new(dir::DirBucket::open(path)?),
    })
}

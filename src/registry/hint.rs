//! The change hint: one small object that writers bump and everybody polls by a conditional read. Best effort both
//! ways; whatever a hint misses, the refresh timer finds.

use super::{Registry, codec, keys, trouble};
use crate::bucket::{Changed, ETag, Object};
use crate::core::node::Trouble;
use crate::core::records::{HintRecord, Key, Record};
use crate::host::random;

/// The version of the hint that this process knows of.
#[derive(Debug, Default)]
pub(super) struct Seen {
    etag: Option<ETag>,
    /// Whether the hint was looked at before.
    looked: bool,
}

impl Registry {
    /// Whether somebody may have hinted since the last look.
    pub(super) async fn poll_hint(&self) -> Result<bool, Trouble> {
        let path = keys::path(&Key::Hint);
        let mut seen = self.hint.lock().await;
        let failed = |error| trouble(&self.bucket.name(), error);
        let etag = match &seen.etag {
            Some(etag) => match self.bucket.get_if_changed(&path, etag).await.map_err(failed)?.value {
                Changed::Unchanged => return Ok(false),
                Changed::Changed(object) => Some(object.etag),
                Changed::Absent => None,
            },
            None => self
                .bucket
                .get(&path)
                .await
                .map_err(failed)?
                .value
                .map(|object| object.etag),
        };
        // Nobody knows whether what the first look finds was written before or after the records were last read.
        let moved = !seen.looked || seen.etag != etag;
        *seen = Seen { etag, looked: true };
        Ok(moved)
    }

    /// Bumps the hint. A rejected write just means that somebody else hinted at the same moment.
    pub(super) async fn write_hint(&self, kind: &str) -> Result<bool, Trouble> {
        let path = keys::path(&Key::Hint);
        let failed = |error| trouble(&self.bucket.name(), error);
        let found = self.bucket.get(&path).await.map_err(failed)?.value;
        // A hint that cannot be read says nothing that could be lost.
        let counter = found.as_ref().map_or(0, counter);
        let record = Record::Hint(HintRecord {
            counter: counter.wrapping_add(1),
            kind: kind.to_owned(),
        });
        let body = codec::encode(None, &record, &random::id().map_err(Trouble::Refused)?).into_bytes();
        match found {
            Some(Object { etag, .. }) => self.bucket.replace(&path, &etag, body).await,
            None => self.bucket.create(&path, body).await,
        };
        Ok(false)
    }
}

fn counter(object: &Object) -> u64 {
    match codec::decode(&Key::Hint, object).map(|held| held.record) {
        Ok(Record::Hint(hint)) => hint.counter,
        _ => 0,
    }
}

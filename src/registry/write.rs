//! The conditional write. One outcome of the store says that it is done and one that it is not; every other one is
//! resolved by reading back and looking for one's own `writeId`, of this try or an earlier one (`s3.md` C4).

use std::time::Duration;

use super::{Registry, codec, keys, trouble, unreadable};
use crate::bucket::{ETag, WriteOutcome};
use crate::core::fleet_time::Sample;
use crate::core::node::{Trouble, Wrote};
use crate::core::records::{Held, Key, Record};
use crate::host::random;

/// How often one write is tried while nobody can say what became of it.
const TRIES: u32 = 3;

/// The pause before another try, growing with each.
const PAUSE: Duration = Duration::from_millis(150);

impl Registry {
    /// Writes `record` over `held`, or where there is nothing.
    pub(super) async fn write(
        &self,
        key: &Key,
        held: Option<Held>,
        record: Record,
        samples: &mut Vec<Sample>,
    ) -> Wrote {
        let path = keys::path(key);
        let record = self.signed(record);
        // Writes of this call that may have landed or may still land. A write that was given up on can arrive minutes
        // later, so none is ever forgotten while the call lasts.
        let mut tries: Vec<(String, String)> = Vec::new();
        let mut doubt = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(PAUSE * attempt).await;
            }
            let write_id = match random::id() {
                Ok(id) => id,
                Err(error) => return Wrote::Trouble(Trouble::Refused(error)),
            };
            let body = codec::encode(held.as_ref(), &record, &write_id);
            tries.push((write_id, body.clone()));
            let sent = self.clock.now().boot;
            let reply = match held.as_ref().map(|held| ETag::new(&held.etag)) {
                None => self.bucket.create(&path, body.clone().into_bytes()).await,
                Some(Some(etag)) => self.bucket.replace(&path, &etag, body.clone().into_bytes()).await,
                // An empty tag would be no condition at all.
                Some(None) => return Wrote::Trouble(unreadable(&path, "the store gave no ETag")),
            };
            match self.noted(sent, reply, samples) {
                WriteOutcome::Applied(etag) => {
                    return Wrote::Applied(Held {
                        record,
                        etag: etag.as_str().to_owned(),
                        body,
                        store_age_ms: None,
                    });
                }
                WriteOutcome::Fatal(error) => return Wrote::Trouble(trouble(&self.bucket.name(), error)),
                WriteOutcome::Rejected => "the store rejects a condition that holds".clone_into(&mut doubt),
                WriteOutcome::Contended => "another write was under way".clone_into(&mut doubt),
                WriteOutcome::Throttled => "the store asks for fewer requests".clone_into(&mut doubt),
                WriteOutcome::Unknown(why) => doubt = why,
            }
            match self
                .read_back(&path, key, held.as_ref(), &record, &tries, samples)
                .await
            {
                Ok(Some(wrote)) => return wrote,
                Ok(None) => {}
                Err(trouble) => return Wrote::Trouble(trouble),
            }
        }
        Wrote::Trouble(Trouble::Transient(doubt))
    }

    /// What stands there now: our own write, somebody else's, or (`None`) still what the write was meant to replace.
    async fn read_back(
        &self,
        path: &str,
        key: &Key,
        held: Option<&Held>,
        record: &Record,
        tries: &[(String, String)],
        samples: &mut Vec<Sample>,
    ) -> Result<Option<Wrote>, Trouble> {
        let sent = self.clock.now().boot;
        let reply = self
            .bucket
            .get(path)
            .await
            .map_err(|error| trouble(&self.bucket.name(), error))?;
        let Some(object) = self.noted(sent, reply, samples) else {
            return Ok(held.is_some().then_some(Wrote::Lost(None)));
        };
        if let Some(found) = codec::write_id(&object.body)
            && let Some((_, body)) = tries.iter().find(|(write_id, _)| *write_id == found)
        {
            let etag = object.etag.as_str().to_owned();
            return Ok(Some(Wrote::Applied(Held {
                record: record.clone(),
                etag,
                body: body.clone(),
                store_age_ms: None,
            })));
        }
        if held.is_some_and(|held| held.etag == object.etag.as_str()) {
            return Ok(None);
        }
        let found = codec::decode(key, &object).map_err(|reason| unreadable(path, &reason))?;
        Ok(Some(Wrote::Lost(Some(found))))
    }
}

#[cfg(test)]
mod tests;

//! What one command of an operator's does to the registry: read, decide, write, and once more when somebody else was
//! quicker. The daemon has the core for that.

use std::sync::Arc;

use super::Registry;
use crate::bucket::Bucket;
use crate::core::fleet_time::FleetTime;
use crate::core::node::{Answer, Request, Trouble, Wrote};
use crate::core::records::{Held, Key, Record};
use crate::core::types::UnixMs;
use crate::error::{Error, Result};
use crate::host::clock::{Clock, SystemClock};

/// How often a command starts over when others write the same record.
const TRIES: u32 = 8;

/// One command's view of the registry.
#[derive(Debug)]
pub struct Desk {
    registry: Registry,
    time: FleetTime,
}

impl Desk {
    /// A desk at `bucket`.
    pub fn new(bucket: Arc<dyn Bucket>) -> Self {
        Self {
            registry: Registry::new(bucket, Arc::new(SystemClock), None),
            time: FleetTime::default(),
        }
    }

    /// Fleet time, as the store's replies to this command showed it.
    pub fn now(&self) -> UnixMs {
        self.time.at(SystemClock.now())
    }

    /// Reads a record.
    pub async fn read(&mut self, key: Key) -> Result<Option<Held>> {
        match self.ask(Request::Read(key)).await {
            Answer::Read(read) => read.map_err(error),
            other => Err(unexpected(&other)),
        }
    }

    /// Brings a record to what `decide` makes of what stands there. `decide` may be asked again, when somebody else wrote
    /// meanwhile; `None` leaves the record as it is.
    pub async fn change(
        &mut self,
        key: Key,
        decide: impl Fn(Option<&Record>, UnixMs) -> Result<Option<Record>>,
    ) -> Result<()> {
        let mut held = self.read(key.clone()).await?;
        for _ in 0..TRIES {
            let Some(record) = decide(held.as_ref().map(|held| &held.record), self.now())? else {
                return Ok(());
            };
            let request = match held {
                Some(held) => Request::Replace(key.clone(), held, record),
                None => Request::Create(key.clone(), record),
            };
            match self.ask(request).await {
                Answer::Wrote(Wrote::Applied(_)) => return Ok(()),
                Answer::Wrote(Wrote::Lost(found)) => held = found,
                Answer::Wrote(Wrote::Trouble(trouble)) => return Err(error(trouble)),
                other => return Err(unexpected(&other)),
            }
        }
        Err(Error::unavailable("others keep writing the same record").help("try again"))
    }

    /// Tells the nodes that something changed; best effort.
    pub async fn hint(&mut self, kind: &'static str) {
        // A node that misses the hint finds the change at its next refresh.
        self.ask(Request::WriteHint(kind)).await;
    }

    async fn ask(&mut self, request: Request) -> Answer {
        let (answer, samples) = self.registry.answer(request).await;
        samples.into_iter().for_each(|sample| self.time.observe(sample));
        answer
    }
}

fn error(trouble: Trouble) -> Error {
    match trouble {
        Trouble::Refused(error) => error,
        Trouble::Transient(why) => {
            Error::unavailable(format!("the bucket gives no answer that can be relied on: {why}")).help("try again")
        }
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::internal(format!("the registry answered {answer:?}"))
}

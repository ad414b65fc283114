//! The coordinator lease as one node sees it (seed, "The coordinator lease"; design, section 8; `s3.md`, part C).
//!
//! Acquire, renew, lose, release, decided on the boot clock alone: no instant of another machine is ever compared with one
//! of this machine. The lease gives order, not exclusion; what makes an old decision harmless is the fence, which grows
//! with every acquisition and never falls.
//!
//! Drive it so: while nothing is in flight and [`due`](Lease::due) has come, carry out what [`next`](Lease::next) asks
//! and hand the answer back.

use serde::{Deserialize, Serialize};

use super::backoff::Jitter;
use super::types::{BootMs, Id, UnixMs};

#[cfg(test)]
mod tests;

/// `coordinator/lease.json`. Never deleted: a fence that starts over would let old decisions in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseRecord {
    /// The node that holds it, or held it until `released`.
    pub holder: Id,
    /// The boot of that node.
    pub boot_id: String,
    /// Grows with every acquisition.
    pub fence: u64,
    /// How long it lasts without a renewal, in milliseconds.
    pub ttl_ms: u64,
    /// Whether the holder gave it back.
    #[serde(default)]
    pub released: bool,
    /// When it was last renewed, in fleet time; for people, and for no decision.
    pub renewed_at: UnixMs,
}

/// The lengths of time that a lease is made of, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long the lease lasts without a renewal.
    pub ttl_ms: u64,
    /// How often the holder renews it, and a candidate looks at it.
    pub renew_ms: u64,
}

/// The TTL that the margins are stated for; below it they shrink in proportion (design, section 4).
const FULL_TTL_MS: u64 = 90_000;

impl Timing {
    /// `ms`, shrunk in proportion when the TTL is below the full one, so that whole tenures can be tried in seconds.
    pub fn scaled(self, ms: u64) -> u64 {
        (ms * self.ttl_ms.min(FULL_TTL_MS)) / FULL_TTL_MS
    }

    /// How long after the moment before a renewing request was sent the holder may act: until 12 s before the TTL.
    pub fn authority_ms(self) -> u64 {
        self.ttl_ms - self.scaled(12_000)
    }

    /// How long it may begin new work: 6 s less than that.
    pub fn new_work_ms(self) -> u64 {
        self.authority_ms() - self.scaled(6_000)
    }

    /// How much older than the TTL one reply's own dates must show a lease to be before it counts as dead. Two seconds at
    /// the full TTL. One of them never shrinks: HTTP cuts both dates to whole seconds, so their difference can be up to
    /// a second too large.
    fn dates_ms(self) -> u64 {
        self.ttl_ms + 1_000 + self.scaled(1_000)
    }

    /// The pause before a request that got no answer is made again, so that three fit between a renewal and its deadline.
    fn retry_ms(self) -> u64 {
        (self.renew_ms / 5).max(1)
    }

    /// Candidates that find a dead lease spread over this much time.
    fn spread_ms(self) -> u64 {
        self.scaled(5_000)
    }
}

/// One version of the lease as read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version<T> {
    /// What it says.
    pub record: LeaseRecord,
    /// The store's version of it; compared for equality alone.
    pub etag: String,
    /// Whatever the writer needs to replace this very version.
    pub held: T,
}

/// What should be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask<T> {
    /// Read the lease.
    Read,
    /// Write the lease over this version, or where there is none.
    Write {
        /// The version that is to be replaced.
        over: Option<Version<T>>,
        /// What is to stand there.
        record: LeaseRecord,
    },
}

/// How a write ended, once doubts were resolved as far as they can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written<T> {
    /// It stands.
    Applied(Version<T>),
    /// It does not, and this does.
    Lost(Option<Version<T>>),
    /// Nobody knows, or the bucket did not answer.
    Unknown,
}

/// The right to coordinate at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// What decisions are stamped with.
    pub fence: u64,
    /// Whether new work may begin; later, only what is under way may be finished.
    pub may_begin: bool,
}

/// The lease, from one boot of one node.
#[derive(Clone, Debug)]
pub struct Lease<T> {
    me: Id,
    boot_id: String,
    timing: Timing,
    highest_fence: u64,
    state: State<T>,
    /// When the next thing is due.
    at: BootMs,
}

#[derive(Clone, Debug)]
enum State<T> {
    /// Somebody else holds it, or nobody; what was seen last, and since when.
    Candidate { seen: Option<(Version<T>, BootMs)> },
    /// It is there for the taking, once the spread is over.
    Taking { over: Option<Version<T>> },
    /// The taking is on its way, sent after this instant.
    Sent { anchor: BootMs },
    /// It is ours.
    Holder(Term<T>),
    /// It is being given back.
    Releasing,
    /// It was given back, and nothing more is wanted of it.
    Released,
}

/// One tenure.
#[derive(Clone, Debug)]
struct Term<T> {
    version: Version<T>,
    /// The moment before the last request that renewed it was sent; the authority counts from it.
    anchor: BootMs,
    /// When the renewal that is in flight was sent.
    renewing: Option<BootMs>,
    /// When the first renewal since then was sent of which nobody knows whether it landed.
    doubt: Option<BootMs>,
}

impl<T: Clone> Lease<T> {
    /// A candidate that has seen nothing. `highest_fence` is the highest one that this node ever saw anywhere.
    pub fn new(me: Id, boot_id: String, timing: Timing, highest_fence: u64) -> Self {
        Self {
            me,
            boot_id,
            timing,
            highest_fence,
            state: State::Candidate { seen: None },
            at: BootMs(0),
        }
    }

    /// When [`next`](Self::next) has something to ask; `None` while an answer is awaited or nothing is wanted any more.
    pub fn due(&self) -> Option<BootMs> {
        match &self.state {
            State::Sent { .. } | State::Releasing | State::Released => None,
            State::Holder(term) if term.renewing.is_some() => None,
            State::Candidate { .. } | State::Taking { .. } | State::Holder(_) => Some(self.at),
        }
    }

    /// The right to coordinate, if this node has it at `now`.
    pub fn authority(&self, now: BootMs) -> Option<Authority> {
        let State::Holder(term) = &self.state else { return None };
        let age = now.since(term.anchor);
        (age < self.timing.authority_ms()).then(|| Authority {
            fence: term.version.record.fence,
            may_begin: age < self.timing.new_work_ms(),
        })
    }

    /// Who holds the lease, as far as this node knows.
    pub fn holder(&self) -> Option<&LeaseRecord> {
        let record = match &self.state {
            State::Candidate { seen } => seen.as_ref().map(|(version, _)| &version.record),
            State::Holder(term) => Some(&term.version.record),
            State::Taking { .. } | State::Sent { .. } | State::Releasing | State::Released => None,
        };
        record.filter(|record| !record.released)
    }

    /// The highest fence seen; it is kept on disk, and nothing stamped lower is acted on.
    pub fn highest_fence(&self) -> u64 {
        self.highest_fence
    }

    /// A fence was seen elsewhere, on a placement for example.
    pub fn on_fence(&mut self, fence: u64) {
        self.highest_fence = self.highest_fence.max(fence);
    }

    /// What to send now. `stamp` is fleet time, for people who read the record.
    pub fn next(&mut self, now: BootMs, stamp: UnixMs, jitter: &mut Jitter) -> Option<Ask<T>> {
        self.due().filter(|due| *due <= now)?;
        match &mut self.state {
            State::Candidate { .. } => {
                // Looked at again at the pace of renewals, or when the lease turns out dead, whichever comes first.
                self.at = now.plus(jitter.around(self.timing.renew_ms));
                Some(Ask::Read)
            }
            State::Taking { over } => {
                let over = over.clone();
                let before = over.as_ref().map_or(0, |version| version.record.fence);
                let record = self.record(self.highest_fence.max(before) + 1, stamp);
                self.state = State::Sent { anchor: now };
                Some(Ask::Write { over, record })
            }
            State::Holder(term) if now.since(term.anchor) >= self.timing.authority_ms() => {
                // Nobody may have noticed, but the authority is over, and what is over is acquired again.
                self.state = State::Taking {
                    over: Some(term.version.clone()),
                };
                self.at = now;
                self.next(now, stamp, jitter)
            }
            State::Holder(term) => {
                term.renewing = Some(now);
                let record = LeaseRecord {
                    renewed_at: stamp,
                    ..term.version.record.clone()
                };
                Some(Ask::Write {
                    over: Some(term.version.clone()),
                    record,
                })
            }
            State::Sent { .. } | State::Releasing | State::Released => None,
        }
    }

    fn record(&self, fence: u64, renewed_at: UnixMs) -> LeaseRecord {
        LeaseRecord {
            holder: self.me.clone(),
            boot_id: self.boot_id.clone(),
            fence,
            ttl_ms: self.timing.ttl_ms,
            released: false,
            renewed_at,
        }
    }

    /// A candidate's read was answered: with the lease, with its absence, or (an outer `None`) not at all.
    /// `store_age_ms` is the same reply's `Date` less its `Last-Modified`, both by the store's own clock.
    pub fn on_read(
        &mut self,
        now: BootMs,
        answer: Option<Option<Version<T>>>,
        store_age_ms: Option<u64>,
        jitter: &mut Jitter,
    ) {
        let State::Candidate { seen } = &mut self.state else {
            return;
        };
        let Some(found) = answer else {
            self.at = now.plus(self.timing.retry_ms());
            return;
        };
        let Some(version) = found else {
            return self.take(now, None, jitter);
        };
        self.highest_fence = self.highest_fence.max(version.record.fence);
        let since = match seen {
            Some((before, since)) if before.etag == version.etag => *since,
            _ => now,
        };
        // The TTL that the record was written under counts, whatever this node's own configuration says, unless that is
        // longer.
        let ttl = version.record.ttl_ms.max(self.timing.ttl_ms);
        let dates = self.timing.dates_ms() + (ttl - self.timing.ttl_ms);
        let dead = version.record.released
            // A write of this very boot that was given up on and landed after all.
            || (version.record.holder == self.me && version.record.boot_id == self.boot_id)
            || now.since(since) >= ttl
            || store_age_ms.is_some_and(|age| age >= dates);
        if dead {
            return self.take(now, Some(version), jitter);
        }
        // The exact moment at which it would be dead, if nothing changes.
        self.at = self.at.min(since.plus(ttl)).max(now.plus(1));
        self.state = State::Candidate {
            seen: Some((version, since)),
        };
    }

    fn take(&mut self, now: BootMs, over: Option<Version<T>>, jitter: &mut Jitter) {
        self.state = State::Taking { over };
        self.at = now.plus(jitter.below(self.timing.spread_ms() + 1));
    }

    /// A write of this node's was answered.
    pub fn on_written(&mut self, now: BootMs, written: Written<T>) {
        match std::mem::replace(&mut self.state, State::Candidate { seen: None }) {
            State::Sent { anchor } => self.on_taken(now, anchor, written),
            State::Holder(Term {
                renewing: Some(sent),
                version,
                anchor,
                doubt,
            }) => {
                let term = Term {
                    version,
                    anchor,
                    renewing: None,
                    doubt,
                };
                self.on_renewed(now, term, sent, written);
            }
            State::Releasing => self.state = State::Released,
            // An answer to something that is no longer asked changes nothing.
            other => self.state = other,
        }
    }

    fn on_taken(&mut self, now: BootMs, anchor: BootMs, written: Written<T>) {
        match written {
            Written::Applied(version) => {
                self.highest_fence = self.highest_fence.max(version.record.fence);
                self.hold(now, version, anchor, anchor);
            }
            Written::Lost(found) => self.saw(now, found),
            Written::Unknown => self.at = now.plus(self.timing.retry_ms()),
        }
    }

    fn on_renewed(&mut self, now: BootMs, term: Term<T>, sent: BootMs, written: Written<T>) {
        match written {
            Written::Applied(version) => self.hold(now, version, term.anchor, sent),
            // An earlier renewal landed although its answer was lost. The lease counts from before that one was sent.
            Written::Lost(Some(found)) if self.is_of(&found, term.version.record.fence) => {
                let landed = term.doubt.unwrap_or(term.anchor);
                self.hold(now, found, term.anchor, landed);
            }
            Written::Lost(found) => self.saw(now, found),
            Written::Unknown => {
                // Not renewed, or perhaps it was: the authority that there is runs on, and the same version is tried again.
                self.at = now.plus(self.timing.retry_ms());
                self.state = State::Holder(Term {
                    doubt: term.doubt.or(Some(sent)),
                    ..term
                });
            }
        }
    }

    fn is_of(&self, version: &Version<T>, fence: u64) -> bool {
        let LeaseRecord {
            holder,
            boot_id,
            fence: found,
            released,
            ..
        } = &version.record;
        *holder == self.me && *boot_id == self.boot_id && *found == fence && !released
    }

    /// Takes up a write that stands. `deadline_of` is the anchor of the authority under which it was waited for: an
    /// answer that comes after that ran out restores nothing.
    fn hold(&mut self, now: BootMs, version: Version<T>, deadline_of: BootMs, anchor: BootMs) {
        if now.since(deadline_of) >= self.timing.authority_ms() {
            self.state = State::Taking { over: Some(version) };
            self.at = now;
            return;
        }
        self.at = anchor.plus(self.timing.renew_ms).max(now);
        self.state = State::Holder(Term {
            version,
            anchor,
            renewing: None,
            doubt: None,
        });
    }

    /// What stands instead of what was written.
    fn saw(&mut self, now: BootMs, found: Option<Version<T>>) {
        if let Some(version) = &found {
            self.highest_fence = self.highest_fence.max(version.record.fence);
        }
        self.state = State::Candidate {
            seen: found.map(|version| (version, now)),
        };
        self.at = now.plus(self.timing.retry_ms());
    }

    /// Something changed: a candidate looks at once rather than at its own pace.
    pub fn look_now(&mut self, now: BootMs) {
        if let State::Candidate { .. } = self.state {
            self.at = now;
        }
    }

    /// The machine's clocks moved against each other: it may have been stopped for a time that no clock of its own shows.
    /// The authority is void until the lease was written again.
    pub fn on_clock_jump(&mut self, now: BootMs) {
        if let State::Holder(term) = &self.state {
            self.state = State::Taking {
                over: Some(term.version.clone()),
            };
            self.at = now;
        }
    }

    /// Gives the lease back, after all work under it has stopped. What is to be written, when there is something to give
    /// back; from here on nothing is acquired any more.
    pub fn release(&mut self, stamp: UnixMs) -> Option<Ask<T>> {
        match std::mem::replace(&mut self.state, State::Released) {
            State::Holder(Term {
                version,
                renewing: None,
                ..
            }) => {
                self.state = State::Releasing;
                let record = LeaseRecord {
                    released: true,
                    renewed_at: stamp,
                    ..version.record.clone()
                };
                Some(Ask::Write {
                    over: Some(version),
                    record,
                })
            }
            // A request is in flight whose version is not known yet: the lease runs out by itself.
            _ => None,
        }
    }
}

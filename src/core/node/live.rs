//! A registered node: beats, and leaving (seed, "Heartbeat and liveness" and "Draining").

use super::register::{Doing, removed};
use super::{DRAIN_LIMIT_MS, Effect, Node, Phase, Request, Wrote, info, warn};
use crate::core::records::{Held, Key, NodeRecord, Record};
use crate::core::types::{BootMs, Now};
use crate::error::{Error, Field};

/// The way out.
#[derive(Debug)]
pub(super) struct Leaving {
    /// After this nothing is waited for.
    pub(super) deadline: BootMs,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// `drainingAt` has to be written.
    Say,
    /// The others have to be told.
    Tell,
    /// The telling is under way.
    Telling,
    /// The lease is on its way back.
    Releasing,
    /// The others are being told of that as well, so that one of them takes it at once.
    TellingOfRelease,
}

impl Node {
    /// Beats when one is due.
    pub(super) fn advance_beat(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if now.boot < self.beat_at {
            return;
        }
        let beat = self.time.at(now);
        let Some((held, record)) = self.amended(|record| record.heartbeat_at = Some(beat)) else {
            return;
        };
        // Counted from before the request went out, so that a slow store does not stretch the rhythm.
        self.beat_at = now.boot.plus(self.jitter.around(self.settings.heartbeat_interval_ms));
        let request = Request::Replace(Key::Node(self.settings.id.clone()), held, record);
        self.ask_own(Doing::Beat, request, effects);
    }

    /// The node record with one thing changed, and the version that it is to replace.
    fn amended(&self, change: impl FnOnce(&mut NodeRecord)) -> Option<(Held, Record)> {
        let mut record = self.own_record()?.clone();
        change(&mut record);
        Some((self.record.clone()?, Record::Node(record)))
    }

    pub(super) fn on_beat(&mut self, now: Now, wrote: Wrote, effects: &mut Vec<Effect>) {
        match wrote {
            Wrote::Applied(held) => self.record = Some(held),
            Wrote::Lost(found) => {
                if self.adopt(found, effects) {
                    self.beat_at = now.boot;
                }
            }
            Wrote::Trouble(_) => {}
        }
    }

    /// Takes up what somebody else made of this node's record. False when there is nothing to go on with.
    fn adopt(&mut self, found: Option<Held>, effects: &mut Vec<Effect>) -> bool {
        let found = found.and_then(|held| match &held.record {
            Record::Node(record) => Some((record.boot_id.clone(), held)),
            _ => None,
        });
        match found {
            Some((boot_id, held)) if boot_id == self.settings.boot_id => {
                self.record = Some(held);
                true
            }
            // The newest boot owns the record; two machines that serve under one id would lose writes.
            Some(_) => {
                let id = &self.settings.id;
                let error = Error::conflict(format!("another daemon has booted as {id} since this one did"))
                    .field(Field::new("node.id", id))
                    .help("two machines run on copies of one state directory: stop one, and give it a state directory of its own");
                self.exit(Some(error), effects);
                false
            }
            None => {
                effects.push(warn("this node's record is gone from the bucket; registering again"));
                self.record = None;
                self.milestones.forget_registration(self.settings.tunnel.is_some());
                true
            }
        }
    }

    /// The fleet's identities no longer hold this node's key.
    pub(super) fn on_removed(&mut self, effects: &mut Vec<Effect>) {
        let error = removed(&self.settings.id);
        self.exit(Some(error), effects);
    }

    pub(super) fn on_asked_to_leave(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.leaving.is_some() || self.record.is_none() {
            return self.exit(None, effects);
        }
        self.phase = Phase::Draining;
        self.own.not_before = BootMs(0);
        self.retry.reset();
        self.leaving = Some(Leaving {
            deadline: now.boot.plus(DRAIN_LIMIT_MS),
            step: Step::Say,
        });
        effects.push(info("draining"));
    }

    pub(super) fn advance_leaving(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(Leaving { deadline, step }) = &self.leaving else {
            return;
        };
        if now.boot >= *deadline {
            if *step == Step::Say {
                effects.push(warn("the bucket was not told in time that this node is leaving"));
            }
            return self.exit(None, effects);
        }
        match step {
            Step::Say if self.own.is_free(now.boot) => {
                let at = self.time.at(now);
                let Some((held, record)) = self.amended(|record| record.draining_at = Some(at)) else {
                    return self.exit(None, effects);
                };
                let request = Request::Replace(Key::Node(self.settings.id.clone()), held, record);
                self.ask_own(Doing::WriteDrain, request, effects);
            }
            Step::Tell if self.hint.pending.is_none() => {
                self.set_step(Step::Telling);
                self.tell(effects, "draining");
            }
            Step::Telling if self.hint.pending.is_none() => {
                // A renewal in flight has to come back first, or nobody knows what to give back.
                if self.coordinator.is_busy() {
                    return;
                }
                if self.release_lease(now, effects) {
                    self.set_step(Step::Releasing);
                } else {
                    self.exit(None, effects);
                }
            }
            Step::Releasing if !self.coordinator.is_busy() => {
                self.set_step(Step::TellingOfRelease);
                self.tell(effects, "lease");
            }
            Step::TellingOfRelease if self.hint.pending.is_none() => self.exit(None, effects),
            Step::Say | Step::Tell | Step::Telling | Step::Releasing | Step::TellingOfRelease => {}
        }
    }

    pub(super) fn on_drain_written(&mut self, wrote: Wrote, effects: &mut Vec<Effect>) {
        match wrote {
            Wrote::Applied(held) => {
                self.record = Some(held);
                self.set_step(Step::Tell);
            }
            Wrote::Lost(found) => {
                if self.adopt(found, effects) && self.record.is_none() {
                    // Nothing says that this node is here, so nothing need say that it leaves.
                    self.exit(None, effects);
                }
            }
            Wrote::Trouble(_) => {}
        }
    }

    /// Leaving is best effort, but a store that stumbles once is asked again within the limit.
    pub(super) fn drain_failed(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self
            .leaving
            .as_ref()
            .is_some_and(|leaving| self.own.not_before > leaving.deadline)
        {
            effects.push(warn("the bucket was not told that this node is leaving"));
            self.exit(None, effects);
        } else {
            self.own.not_before = self.own.not_before.max(now.boot);
        }
    }

    /// Whether the bucket has still to be told that this node leaves.
    pub(super) fn is_saying(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.step == Step::Say)
    }

    fn set_step(&mut self, step: Step) {
        if let Some(leaving) = &mut self.leaving {
            leaving.step = step;
        }
    }
}

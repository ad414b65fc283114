//! The coordinator's loop, which every node runs: one lane of its own for the lease, so that a renewal never queues behind
//! anything else (seed, "The coordinator lease").

use super::{Answer, Effect, Lane, Node, OpId, Phase, Request, Trouble, Wrote, info, warn};
use crate::core::lease::{Ask, Authority, Lease, LeaseRecord, Version, Written};
use crate::core::records::{Held, Key, Record};
use crate::core::types::{BootMs, Now};

/// The machine's two clocks may drift apart by this much between two looks. More means that it was stopped, or its wall
/// clock set; either way the node becomes less sure of its lease, never more.
const CLOCK_JUMP_MS: u64 = 2_000;

/// This node's part in coordinating the fleet.
#[derive(Debug)]
pub(super) struct Coordinator {
    lease: Lease<Held>,
    lane: Lane<()>,
    /// The fence that was last said to be held.
    said: Option<u64>,
    /// The highest fence that is on disk.
    saved: u64,
    clocks: Option<Now>,
    trouble: Option<String>,
}

impl Coordinator {
    pub(super) fn new(lease: Lease<Held>) -> Self {
        let saved = lease.highest_fence();
        Self {
            lease,
            lane: Lane::default(),
            said: None,
            saved,
            clocks: None,
            trouble: None,
        }
    }

    pub(super) fn take(&mut self, op: OpId) -> bool {
        self.lane.take(op).is_some()
    }

    /// When the lease wants something, if it may ask.
    pub(super) fn due(&self) -> Option<BootMs> {
        self.lease.due().and_then(|at| self.lane.due(at))
    }

    /// Whether this node held the lease at the last look.
    pub(super) fn was_holder(&self) -> bool {
        self.said.is_some()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.lane.pending.is_some()
    }
}

impl Node {
    /// The right to coordinate, if this node has it at `now`.
    pub fn authority(&self, now: BootMs) -> Option<Authority> {
        self.coordinator.lease.authority(now)
    }

    pub(super) fn advance_coordinator(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.compare_clocks(now);
        if self.phase == Phase::Live && self.coordinator.lane.is_free(now.boot) {
            let stamp = self.time.at(now);
            if let Some(ask) = self.coordinator.lease.next(now.boot, stamp, &mut self.jitter) {
                self.ask_lease(ask, effects);
            }
        }
        self.say_authority(now, effects);
        let highest = self.coordinator.lease.highest_fence();
        if highest > self.coordinator.saved {
            self.coordinator.saved = highest;
            effects.push(Effect::SaveFence(highest));
        }
    }

    fn compare_clocks(&mut self, now: Now) {
        if let Some(before) = self.coordinator.clocks.replace(now) {
            let wall = i128::from(now.wall.0) - i128::from(before.wall.0);
            let boot = i128::from(now.boot.0) - i128::from(before.boot.0);
            if (wall - boot).unsigned_abs() > u128::from(CLOCK_JUMP_MS) {
                self.coordinator.lease.on_clock_jump(now.boot);
            }
        }
    }

    fn say_authority(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let fence = self.authority(now.boot).map(|authority| authority.fence);
        if fence == self.coordinator.said {
            return;
        }
        self.coordinator.said = fence;
        effects.push(match fence {
            Some(fence) => info(format!("holds the coordinator lease, fence {fence}")),
            None => info("no longer holds the coordinator lease"),
        });
    }

    fn ask_lease(&mut self, ask: Ask<Held>, effects: &mut Vec<Effect>) {
        let request = match ask {
            Ask::Read => Request::Read(Key::Lease),
            Ask::Write { over: None, record } => Request::Create(Key::Lease, Record::Lease(record)),
            Ask::Write {
                over: Some(over),
                record,
            } => Request::Replace(Key::Lease, over.held, Record::Lease(record)),
        };
        let op = self.op();
        self.coordinator.lane.pending = Some((op, ()));
        effects.push(Effect::Registry(op, request));
    }

    pub(super) fn on_lease(&mut self, now: Now, answer: Answer, effects: &mut Vec<Effect>) {
        let boot = now.boot;
        match answer {
            Answer::Read(Ok(found)) => {
                self.coordinator.trouble = None;
                let age = found.as_ref().and_then(|held| held.store_age_ms);
                let found = found.and_then(version);
                self.coordinator.lease.on_read(boot, Some(found), age, &mut self.jitter);
            }
            Answer::Read(Err(trouble)) => {
                self.lease_trouble(trouble, effects);
                self.coordinator.lease.on_read(boot, None, None, &mut self.jitter);
            }
            Answer::Wrote(wrote) => {
                let written = match wrote {
                    Wrote::Applied(held) => version(held).map_or(Written::Unknown, Written::Applied),
                    Wrote::Lost(found) => Written::Lost(found.and_then(version)),
                    Wrote::Trouble(trouble) => {
                        self.lease_trouble(trouble, effects);
                        Written::Unknown
                    }
                };
                self.coordinator.lease.on_written(boot, written);
            }
            _ => {}
        }
    }

    /// A bucket that is away is said by the beats; what is said here is what they do not meet.
    fn lease_trouble(&mut self, trouble: Trouble, effects: &mut Vec<Effect>) {
        if let Trouble::Refused(error) = trouble
            && self.coordinator.trouble.as_ref() != Some(&error.message)
        {
            effects.push(warn(format!("the coordinator lease cannot be used: {}", error.message)));
            self.coordinator.trouble = Some(error.message);
        }
    }

    /// Somebody hinted at a change of the lease: a holder that left is followed at once.
    pub(super) fn on_lease_hint(&mut self, now: Now) {
        self.coordinator.lease.look_now(now.boot);
    }

    /// Gives the lease back. False when there is none to give.
    pub(super) fn release_lease(&mut self, now: Now, effects: &mut Vec<Effect>) -> bool {
        let stamp = self.time.at(now);
        match self.coordinator.lease.release(stamp) {
            Some(ask) => {
                self.ask_lease(ask, effects);
                true
            }
            None => false,
        }
    }
}

fn version(held: Held) -> Option<Version<Held>> {
    let Record::Lease(record) = &held.record else {
        return None;
    };
    let record: LeaseRecord = record.clone();
    Some(Version {
        record,
        etag: held.etag.clone(),
        held,
    })
}

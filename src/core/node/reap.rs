//! The holder's reaping: one key at a time, each read again before it is removed, and nothing without the authority.

use std::collections::VecDeque;

use super::{Answer, Effect, Lane, Node, OpId, Request, info};
use crate::core::reap;
use crate::core::records::Key;
use crate::core::types::{BootMs, Now};

/// How often a holder reaps, at the full TTL (design, section 8).
const INTERVAL_MS: u64 = 600_000;

/// The pause before a holder looks again whether it can reap.
const LOOK_AGAIN_MS: u64 = 1_000;

/// What is left to remove.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    lane: Lane<Reaping>,
    queue: VecDeque<Key>,
    at: BootMs,
}

/// What the request in the lane is for.
#[derive(Clone, Debug)]
pub(super) enum Reaping {
    /// Reading once more what is to be removed.
    Read(Key),
    /// Removing it.
    Remove(Key),
}

impl Reaper {
    pub(super) fn take(&mut self, op: OpId) -> Option<Reaping> {
        self.lane.take(op)
    }

    pub(super) fn due(&self) -> Option<BootMs> {
        let at = if self.queue.is_empty() { self.at } else { BootMs(0) };
        self.lane.due(at)
    }
}

impl Node {
    pub(super) fn advance_reaper(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.authority(now.boot).is_some_and(|authority| authority.may_begin) {
            // Whoever holds the lease next makes a plan of its own.
            self.reaper.queue.clear();
            return self.reap_later(now);
        }
        if !self.reaper.lane.is_free(now.boot) {
            return;
        }
        if self.reaper.queue.is_empty() {
            if now.boot < self.reaper.at {
                return;
            }
            let Some(fleet) = self.watch.fleet() else {
                return self.reap_later(now);
            };
            self.reaper.queue = reap::plan(fleet, self.time.at(now), self.settings.liveness_window_ms).into();
            self.reaper.at = now.boot.plus(self.settings.lease.scaled(INTERVAL_MS));
        }
        if let Some(key) = self.reaper.queue.pop_front() {
            self.ask_reaper(Reaping::Read(key.clone()), Request::Read(key), effects);
        }
    }

    /// Looks again in a moment: what is missing comes by itself.
    fn reap_later(&mut self, now: Now) {
        self.reaper.at = self.reaper.at.max(now.boot.plus(LOOK_AGAIN_MS));
    }

    fn ask_reaper(&mut self, reaping: Reaping, request: Request, effects: &mut Vec<Effect>) {
        let op = self.op();
        self.reaper.lane.pending = Some((op, reaping));
        effects.push(Effect::Registry(op, request));
    }

    pub(super) fn on_reaping(&mut self, now: Now, reaping: Reaping, answer: Answer, effects: &mut Vec<Effect>) {
        let may_act = self.authority(now.boot).is_some();
        match (reaping, answer) {
            (Reaping::Read(key), Answer::Read(Ok(Some(held)))) if may_act => {
                let window = self.settings.liveness_window_ms;
                let due = self
                    .watch
                    .fleet()
                    .is_some_and(|fleet| reap::still_due(&held.record, fleet, self.time.at(now), window));
                if due {
                    self.ask_reaper(Reaping::Remove(key.clone()), Request::Remove(key), effects);
                }
            }
            (Reaping::Remove(key), Answer::Done(Ok(()))) => effects.push(info(format!("reaped {}", spoken(&key)))),
            // Gone already, unreadable, or no answer: the next round looks again.
            _ => {}
        }
    }
}

fn spoken(key: &Key) -> String {
    match key {
        Key::Node(id) => format!("the record of {id}"),
        Key::Peer(id) => format!("the peer record of {id}"),
        Key::Address(address) => format!("the claim of {address}"),
        other => format!("{other:?}"),
    }
}

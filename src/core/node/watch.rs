//! What everybody else's records say: the refresh on its timer, the hint between two of them, and the mesh's peers.
//!
//! A death is written by nobody, so it is found by the timer and never by a hint (seed, "Heartbeat and liveness").

use std::collections::BTreeMap;

use super::{Answer, Effect, Node, Phase, Request, Trouble, info, warn};
use crate::core::guards::{self, Verdict};
use crate::core::peers::{self, Me, Peers, Refusal};
use crate::core::records::{Fleet, IdentityKind, Unreadable};
use crate::core::types::{BootMs, Id, Now};

/// What the node knows of the others.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) refresh_at: BootMs,
    pub(super) poll_at: BootMs,
    /// The fleet as it was last read.
    fleet: Option<Fleet>,
    peers: Peers,
    refused: BTreeMap<Id, Refusal>,
    unreadable: Vec<Unreadable>,
    /// What the others have not been told yet.
    untold: Option<&'static str>,
    /// The last refresh failed with this.
    trouble: Option<String>,
}

/// What the request in the hint lane is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hinting {
    Poll,
    Write,
}

impl Watch {
    pub(super) fn new(peers: Peers) -> Self {
        Self {
            refresh_at: BootMs(0),
            poll_at: BootMs(0),
            fleet: None,
            peers,
            refused: BTreeMap::new(),
            unreadable: Vec::new(),
            untold: None,
            trouble: None,
        }
    }

    pub(super) fn fleet(&self) -> Option<&Fleet> {
        self.fleet.as_ref()
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.peers
    }

    pub(super) fn something_to_tell(&mut self, kind: &'static str) {
        self.untold = Some(kind);
    }
}

impl Node {
    /// Others' records are read as soon as the store is known to keep its contract.
    pub(super) fn watching(&self) -> bool {
        self.milestones.probed && matches!(self.phase, Phase::Registering | Phase::Live)
    }

    pub(super) fn advance_watch(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.watching() {
            return;
        }
        if self.view.is_free(now.boot) && self.watch.refresh_at <= now.boot {
            let op = self.op();
            self.view.pending = Some((op, ()));
            self.watch.refresh_at = now
                .boot
                .plus(self.jitter.around(self.settings.node_refresh_interval_ms));
            effects.push(Effect::Registry(op, Request::Refresh));
        }
        if self.phase != Phase::Live || self.hint.pending.is_some() {
            return;
        }
        if let Some(kind) = self.watch.untold.take() {
            self.tell(effects, kind);
        } else if self.watch.poll_at <= now.boot {
            let op = self.op();
            self.hint.pending = Some((op, Hinting::Poll));
            self.watch.poll_at = now.boot.plus(self.jitter.around(self.settings.hint_poll_interval_ms));
            effects.push(Effect::Registry(op, Request::PollHint));
        }
    }

    /// Hints that something changed.
    pub(super) fn tell(&mut self, effects: &mut Vec<Effect>, kind: &'static str) {
        let op = self.op();
        self.hint.pending = Some((op, Hinting::Write));
        effects.push(Effect::Registry(op, Request::WriteHint(kind)));
    }

    pub(super) fn on_hint(&mut self, now: Now, hinting: Hinting, answer: Answer) {
        // A hint that could not be read or written costs nothing but time: the refresh timer finds the same.
        if let (Hinting::Poll, Answer::Hinted(Ok(true))) = (hinting, answer) {
            self.watch.refresh_at = now.boot;
            self.on_lease_hint(now);
        }
    }

    pub(super) fn on_view(&mut self, now: Now, answer: Answer, effects: &mut Vec<Effect>) {
        match answer {
            Answer::Refreshed(Ok(fleet)) => {
                if self.watch.trouble.take().is_some() {
                    effects.push(info("the fleet's records can be read again"));
                }
                self.on_fleet(&fleet, effects);
                self.watch.fleet = Some(fleet);
            }
            Answer::Refreshed(Err(trouble)) => {
                let why = match trouble {
                    Trouble::Transient(why) => why,
                    Trouble::Refused(error) => error.message,
                };
                // The timer asks again; while a hint stands, not later than one retry.
                let retry = now.boot.plus(self.jitter.around(super::RETRY_MS.1));
                self.watch.refresh_at = self.watch.refresh_at.min(retry);
                if self.watch.trouble.as_ref() != Some(&why) {
                    effects.push(warn(format!("the fleet's records cannot be read: {why}")));
                    self.watch.trouble = Some(why);
                }
            }
            _ => {}
        }
    }

    fn on_fleet(&mut self, fleet: &Fleet, effects: &mut Vec<Effect>) {
        if self.watch.unreadable != fleet.unreadable {
            for record in fleet
                .unreadable
                .iter()
                .filter(|record| !self.watch.unreadable.contains(record))
            {
                effects.push(warn(format!(
                    "skipping an unreadable record: {}: {}",
                    record.key, record.reason
                )));
            }
            self.watch.unreadable.clone_from(&fleet.unreadable);
        }
        if self.phase == Phase::Live
            && let Some(identity) = fleet.identities.get(&self.settings.id)
            && guards::judge(Some(identity), IdentityKind::Node, &self.settings.public_key) == Verdict::Revoked
        {
            return self.on_removed(effects);
        }
        self.choose_peers(fleet, effects);
    }

    fn choose_peers(&mut self, fleet: &Fleet, effects: &mut Vec<Effect>) {
        let Some(tunnel) = &self.settings.tunnel else { return };
        let me = Me {
            id: &self.settings.id,
            tunnel_key: &tunnel.key_text,
            address: self.settings.address,
        };
        let (peers, refused) = peers::choose(fleet, &me, &self.watch.peers);
        for (id, refusal) in refused
            .iter()
            .filter(|(id, refusal)| self.watch.refused.get(*id) != Some(*refusal))
        {
            effects.push(warn(format!("the peer record of {id} is not followed: {refusal}")));
        }
        self.watch.refused = refused;
        if peers == self.watch.peers {
            return;
        }
        for id in peers.keys().filter(|id| !self.watch.peers.contains_key(*id)) {
            effects.push(info(format!("new peer {id} at {}", peers[id].address)));
        }
        for id in self.watch.peers.keys().filter(|id| !peers.contains_key(*id)) {
            effects.push(info(format!("peer {id} is gone")));
        }
        self.watch.peers.clone_from(&peers);
        if self.milestones.tunnel_is_open() {
            effects.push(Effect::SetPeers(peers));
        }
    }

    pub(super) fn on_endpoints(&mut self, endpoints: Vec<String>, effects: &mut Vec<Effect>) {
        let Some(tunnel) = &mut self.settings.tunnel else {
            return;
        };
        if tunnel.endpoints == endpoints {
            return;
        }
        effects.push(info(format!(
            "this node's underlay endpoints are now {}",
            endpoints.join(", ")
        )));
        tunnel.endpoints = endpoints;
        self.milestones.peer = false;
    }
}

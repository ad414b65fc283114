//! Registration: the milestones of a boot, in order, each by read, decide, write (design, sections 5 and 6).
//!
//! A milestone that turns out undone later (an operator deleted the record, the endpoints changed) is simply reached
//! again.

use std::net::IpAddr;

use super::{Answer, Effect, Node, Phase, Request, Settings, Trouble, TunnelSettings, Wrote, info};
use crate::core::address::derive_address;
use crate::core::guards::{self, Verdict};
use crate::core::records::{
    AddressRecord, Held, IdentityKind, IdentityRecord, Key, NetworkRecord, NodeRecord, PeerRecord, Record,
};
use crate::core::types::{BootMs, Id, Now};
use crate::error::{Error, Field};

/// How many derived tunnel addresses are tried before the network counts as full.
const ADDRESS_TRIES: u32 = 1_024;

/// What has been reached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Milestones {
    tunnel: bool,
    serving: bool,
    pub(super) probed: bool,
    network: bool,
    identity: bool,
    address: bool,
    saved: bool,
    pub(super) peer: bool,
    node: bool,
    address_tries: u32,
}

impl Milestones {
    pub(super) fn new(settings: &Settings) -> Self {
        let mesh = settings.tunnel.is_some();
        let claimed = settings.tunnel.as_ref().is_some_and(|tunnel| tunnel.claimed);
        // What a node without a mesh has no need of counts as reached.
        Self {
            tunnel: !mesh,
            network: !mesh,
            address: !mesh,
            saved: !mesh || claimed,
            peer: !mesh,
            ..Self::default()
        }
    }

    pub(super) fn tunnel_is_open(self) -> bool {
        self.tunnel
    }

    pub(super) fn all(self) -> bool {
        self.tunnel
            && self.serving
            && self.probed
            && self.network
            && self.identity
            && self.address
            && self.saved
            && self.peer
            && self.node
    }

    /// Registers again from the identity on: the bucket no longer has what this node wrote.
    pub(super) fn forget_registration(&mut self, mesh: bool) {
        self.identity = false;
        self.address = !mesh;
        self.peer = !mesh;
        self.node = false;
    }
}

/// What the request in the own lane is for.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    OpenTunnel,
    Serve,
    Probe,
    ReadNetwork,
    CreateNetwork,
    ReadIdentity,
    /// Reading the node record of whoever holds the id, to say when that node last beat.
    ReadHolder,
    WriteIdentity,
    ReadAddress,
    /// Reading the identity of whoever holds the address, in this version of the claim: a removed node holds nothing.
    ReadAddressHolder(Box<Held>),
    WriteAddress,
    SaveAddress,
    ReadPeer,
    WritePeer,
    ReadNode,
    WriteNode,
    Beat,
    WriteDrain,
}

impl Node {
    /// The next thing that the own lane has to do: a missing milestone, else a beat that is due.
    pub(super) fn advance_own(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let reached = self.milestones;
        // An address that an earlier boot claimed is this node's: its mesh and its API come up before the bucket
        // answers, so that a node which boots while the bucket is away rejoins the mesh anyway.
        let address_is_final = self.settings.tunnel.as_ref().is_none_or(|_| reached.saved);
        if !reached.tunnel && address_is_final {
            let op = self.op();
            self.own.pending = Some((op, Doing::OpenTunnel));
            return effects.push(Effect::OpenTunnel(op, self.settings.address));
        }
        if !reached.serving && address_is_final {
            let op = self.op();
            self.own.pending = Some((op, Doing::Serve));
            return effects.push(Effect::Serve(op, self.settings.address));
        }
        let id = self.settings.id.clone();
        let (doing, request) = if !reached.probed {
            (Doing::Probe, Request::Probe)
        } else if !reached.network {
            (Doing::ReadNetwork, Request::Read(Key::Network))
        } else if !reached.identity {
            (Doing::ReadIdentity, Request::Read(Key::Identity(id)))
        } else if !reached.address {
            (Doing::ReadAddress, Request::Read(Key::Address(self.settings.address)))
        } else if !reached.saved {
            let op = self.op();
            self.own.pending = Some((op, Doing::SaveAddress));
            return effects.push(Effect::SaveAddress(op, self.settings.address));
        } else if !reached.peer {
            (Doing::ReadPeer, Request::Read(Key::Peer(id)))
        } else if !reached.node {
            (Doing::ReadNode, Request::Read(Key::Node(id)))
        } else {
            return self.advance_beat(now, effects);
        };
        self.ask_own(doing, request, effects);
    }

    /// An answer in the own lane.
    pub(super) fn on_own(&mut self, now: Now, doing: Doing, answer: Answer, effects: &mut Vec<Effect>) {
        let trouble = match &answer {
            Answer::Read(Err(trouble)) | Answer::Wrote(Wrote::Trouble(trouble)) | Answer::Done(Err(trouble)) => {
                Some(trouble.clone())
            }
            Answer::Serving(Err(error)) => Some(Trouble::Refused(error.clone())),
            _ => None,
        };
        if let Some(trouble) = trouble {
            return self.on_own_trouble(now, doing, trouble, effects);
        }
        if !matches!(doing, Doing::OpenTunnel | Doing::Serve | Doing::SaveAddress) {
            self.answered(effects);
        }
        match (doing, answer) {
            (Doing::OpenTunnel, Answer::Done(Ok(()))) => {
                self.milestones.tunnel = true;
                effects.push(Effect::SetPeers(self.watch.peers().clone()));
            }
            (Doing::Serve, Answer::Serving(Ok(port))) => {
                self.milestones.serving = true;
                self.settings.api_port = port;
            }
            (Doing::Probe, Answer::Done(Ok(()))) => self.milestones.probed = true,
            (Doing::ReadNetwork, Answer::Read(Ok(held))) => self.on_network(held, effects),
            (Doing::CreateNetwork, Answer::Wrote(wrote)) => self.on_network(standing(wrote), effects),
            (Doing::ReadIdentity, Answer::Read(Ok(held))) => self.on_identity(now, held, effects),
            (Doing::WriteIdentity, Answer::Wrote(Wrote::Applied(_))) => {
                self.milestones.identity = true;
                effects.push(info(format!("claimed the id {}", self.settings.id)));
            }
            (Doing::WriteIdentity, Answer::Wrote(Wrote::Lost(held))) => self.on_identity(now, held, effects),
            (Doing::ReadHolder, Answer::Read(Ok(held))) => {
                let error = self.held_by_node(now, held);
                self.exit(Some(error), effects);
            }
            (Doing::ReadAddress, Answer::Read(Ok(held))) => self.on_address(now, held, effects),
            (Doing::ReadAddressHolder(claim), Answer::Read(Ok(held))) => {
                self.on_address_holder(now, *claim, held, effects);
            }
            (Doing::WriteAddress, Answer::Wrote(wrote)) => self.on_address(now, standing(wrote), effects),
            (Doing::SaveAddress, Answer::Done(Ok(()))) => {
                self.milestones.saved = true;
                effects.push(info(format!("claimed the tunnel address {}", self.settings.address)));
            }
            (Doing::ReadPeer, Answer::Read(Ok(held))) => self.write_peer(now, held, effects),
            (Doing::WritePeer, Answer::Wrote(Wrote::Applied(_))) => {
                self.milestones.peer = true;
                self.watch.something_to_tell("peers");
            }
            (Doing::WritePeer, Answer::Wrote(Wrote::Lost(held))) => self.write_peer(now, held, effects),
            (Doing::ReadNode, Answer::Read(Ok(held))) => self.write_node(now, held, effects),
            (Doing::WriteNode, Answer::Wrote(Wrote::Lost(held))) => self.write_node(now, held, effects),
            (Doing::WriteNode, Answer::Wrote(Wrote::Applied(held))) => self.on_registered(now, held, effects),
            (Doing::Beat, Answer::Wrote(wrote)) => self.on_beat(now, wrote, effects),
            (Doing::WriteDrain, Answer::Wrote(wrote)) => self.on_drain_written(wrote, effects),
            (doing, answer) => {
                let error = Error::internal(format!("the answer to {doing:?} was {answer:?}"));
                self.exit(Some(error), effects);
            }
        }
    }

    fn on_own_trouble(&mut self, now: Now, doing: Doing, trouble: Trouble, effects: &mut Vec<Effect>) {
        match trouble {
            Trouble::Transient(why) => self.put_off(now, why, effects),
            // A node that has been live keeps serving what it serves, whatever becomes of its credentials: the mesh
            // and the runtimes need no bucket. A node that is only booting says it and stops.
            Trouble::Refused(error) if self.phase == Phase::Registering => self.exit(Some(error), effects),
            Trouble::Refused(error) => self.put_off(now, error.message, effects),
        }
        match doing {
            // A beat that may be missing is tried again as soon as the pause allows, not a whole interval later.
            Doing::Beat => self.beat_at = now.boot,
            Doing::WriteDrain => self.drain_failed(now, effects),
            _ => {}
        }
    }

    fn on_network(&mut self, held: Option<Held>, effects: &mut Vec<Effect>) {
        let Some(tunnel) = &self.settings.tunnel else { return };
        let ours = tunnel.network.trunc().to_string();
        match held.map(|held| held.record) {
            None => {
                let record = Record::Network(NetworkRecord { network: ours });
                self.ask_own(Doing::CreateNetwork, Request::Create(Key::Network, record), effects);
            }
            Some(Record::Network(fleet)) if fleet.network == ours => self.milestones.network = true,
            Some(Record::Network(fleet)) => {
                let error = Error::invalid("this node's mesh network is not the fleet's")
                    .field(
                        Field::new("fleet.network", &ours)
                            .from("wireguard.json")
                            .because(format!("the fleet's is {}", fleet.network)),
                    )
                    .help(format!(
                        "move wireguard.json out of the state directory and run: scafo wg init --fleet-network {}",
                        fleet.network
                    ));
                self.exit(Some(error), effects);
            }
            Some(_) => {}
        }
    }

    fn on_identity(&mut self, now: Now, held: Option<Held>, effects: &mut Vec<Effect>) {
        let id = self.settings.id.clone();
        let stored = match held.as_ref().map(|held| &held.record) {
            Some(Record::Identity(identity)) => Some(identity.clone()),
            _ => None,
        };
        let claim = IdentityRecord {
            kind: IdentityKind::Node,
            public_key: self.settings.public_key.clone(),
            created_at: self.time.at(now),
            revoked_at: None,
            revoked_keys: Vec::new(),
        };
        match (
            guards::judge(stored.as_ref(), IdentityKind::Node, &self.settings.public_key),
            held,
            stored,
        ) {
            (Verdict::Ours, ..) => self.milestones.identity = true,
            (Verdict::Reclaim, Some(held), Some(stored)) => {
                let record = Record::Identity(guards::reclaim(&stored, claim));
                self.ask_own(
                    Doing::WriteIdentity,
                    Request::Replace(Key::Identity(id), held, record),
                    effects,
                );
            }
            (Verdict::Claim | Verdict::Reclaim, ..) => {
                let request = Request::Create(Key::Identity(id), Record::Identity(claim));
                self.ask_own(Doing::WriteIdentity, request, effects);
            }
            (Verdict::HeldByNode, ..) => self.ask_own(Doing::ReadHolder, Request::Read(Key::Node(id)), effects),
            (Verdict::HeldByOperator, ..) => {
                let error = Error::conflict(format!("the id {id} belongs to an operator"))
                    .field(Field::new("node.id", &id))
                    .help("nodes and operators share one keyspace: give this node another id with --node-id");
                self.exit(Some(error), effects);
            }
            (Verdict::Revoked, ..) => {
                let error = removed(&id);
                self.exit(Some(error), effects);
            }
        }
    }

    fn held_by_node(&self, now: Now, held: Option<Held>) -> Error {
        let id = &self.settings.id;
        let beat = match held.map(|held| held.record) {
            Some(Record::Node(node)) => node.heartbeat_at,
            _ => None,
        };
        let seen = match beat {
            Some(beat) => format!(
                "that node last beat {} ago",
                ago(self.time.at(now).0.saturating_sub(beat.0))
            ),
            None => "that node has never beaten".to_owned(),
        };
        Error::conflict(format!("the id {id} belongs to a node with another key; {seen}"))
            .field(Field::new("node.id", id))
            .help(format!(
                "if that node is gone for good, free its id: scafo fleet remove {id}"
            ))
            .help("if this is that node, bring its state directory back: a node is its key, which is in node.json")
    }

    fn on_address(&mut self, now: Now, held: Option<Held>, effects: &mut Vec<Effect>) {
        let Some(held) = held else {
            return self.write_address(now, None, effects);
        };
        match &held.record {
            Record::Address(claim) if claim.id == self.settings.id => self.milestones.address = true,
            Record::Address(claim) => {
                let holder = Key::Identity(claim.id.clone());
                self.ask_own(Doing::ReadAddressHolder(Box::new(held)), Request::Read(holder), effects);
            }
            _ => {}
        }
    }

    fn write_address(&mut self, now: Now, over: Option<Held>, effects: &mut Vec<Effect>) {
        let record = Record::Address(AddressRecord {
            id: self.settings.id.clone(),
            claimed_at: self.time.at(now),
        });
        let request = write(Key::Address(self.settings.address), over, record);
        self.ask_own(Doing::WriteAddress, request, effects);
    }

    /// A claim of a node that was removed, or whose identity somebody deleted, is there for the taking.
    fn on_address_holder(&mut self, now: Now, claim: Held, holder: Option<Held>, effects: &mut Vec<Effect>) {
        let stands = match holder.map(|held| held.record) {
            Some(Record::Identity(identity)) => identity.revoked_at.is_none(),
            _ => false,
        };
        match &claim.record {
            Record::Address(held) if stands => {
                let id = held.id.clone();
                self.on_address_taken(self.settings.address, &id, effects);
            }
            _ => self.write_address(now, Some(claim), effects),
        }
    }

    fn on_address_taken(&mut self, address: IpAddr, holder: &Id, effects: &mut Vec<Effect>) {
        let Some(TunnelSettings {
            key,
            network,
            stated,
            claimed,
            ..
        }) = &self.settings.tunnel
        else {
            return;
        };
        self.milestones.address_tries += 1;
        if *stated || *claimed || self.milestones.tunnel || self.milestones.address_tries >= ADDRESS_TRIES {
            let error = Error::conflict(format!("the tunnel address {address} belongs to the node {holder}"))
                .field(Field::new("node.address", address).from("wireguard.json"))
                .help(format!(
                    "if {holder} is gone for good, free its address: scafo fleet remove {holder}"
                ))
                .help("else move wireguard.json out of the state directory and run: scafo wg init");
            return self.exit(Some(error), effects);
        }
        self.settings.address = derive_address(key, *network, self.milestones.address_tries);
        effects.push(info(format!(
            "the tunnel address {address} belongs to {holder}; trying {}",
            self.settings.address
        )));
    }

    fn write_peer(&mut self, now: Now, held: Option<Held>, effects: &mut Vec<Effect>) {
        let Some(tunnel) = &self.settings.tunnel else { return };
        let id = self.settings.id.clone();
        let key_since = match held.as_ref().map(|held| &held.record) {
            Some(Record::Peer(before)) if before.tunnel_key == tunnel.key_text => before.key_since,
            _ => self.time.at(now),
        };
        let record = Record::Peer(PeerRecord {
            id: id.clone(),
            tunnel_key: tunnel.key_text.clone(),
            address: self.settings.address,
            endpoints: tunnel.endpoints.clone(),
            key_since,
            signature: String::new(),
        });
        let request = write(Key::Peer(id), held, record);
        self.ask_own(Doing::WritePeer, request, effects);
    }

    fn write_node(&mut self, now: Now, held: Option<Held>, effects: &mut Vec<Effect>) {
        let at = self.time.at(now);
        let id = self.settings.id.clone();
        let record = NodeRecord {
            id: id.clone(),
            boot_id: self.settings.boot_id.clone(),
            public_key: self.settings.public_key.clone(),
            transport: self.settings.transport,
            address: self.settings.address,
            api_port: self.settings.api_port,
            labels: self.settings.labels.clone(),
            versions: self.settings.versions.clone(),
            serving: Vec::new(),
            started_at: at,
            heartbeat_at: Some(at),
            draining_at: None,
            clock_skew_ms: self.time.skew_ms(now),
        };
        self.beat_at = now.boot.plus(self.jitter.around(self.settings.heartbeat_interval_ms));
        let request = write(Key::Node(id), held, Record::Node(record));
        self.ask_own(Doing::WriteNode, request, effects);
    }

    fn on_registered(&mut self, now: Now, held: Held, effects: &mut Vec<Effect>) {
        self.record = Some(held);
        self.milestones.node = true;
        self.own.not_before = BootMs(0);
        self.watch.something_to_tell("nodes");
        self.watch.poll_at = now.boot;
        if self.phase == Phase::Registering {
            self.phase = Phase::Live;
            let Settings {
                id, address, api_port, ..
            } = &self.settings;
            effects.push(info(format!(
                "live as {id} at {}",
                std::net::SocketAddr::new(*address, *api_port)
            )));
        }
    }
}

/// What stands in the bucket after a write of a record that anybody may have written.
fn standing(wrote: Wrote) -> Option<Held> {
    match wrote {
        Wrote::Applied(held) => Some(held),
        Wrote::Lost(held) => held,
        Wrote::Trouble(_) => None,
    }
}

fn write(key: Key, held: Option<Held>, record: Record) -> Request {
    match held {
        Some(held) => Request::Replace(key, held, record),
        None => Request::Create(key, record),
    }
}

/// The answer to a machine that was removed from the fleet.
pub(super) fn removed(id: &Id) -> Error {
    Error::conflict(format!(
        "this machine was removed from the fleet: the key it has for the id {id} is revoked"
    ))
    .field(Field::new("node.id", id))
    .help(
        "to bring the machine back as a new node, start it on an empty state directory: scafo wg init --state-dir NEW",
    )
}

/// An age for a sentence, in its largest unit.
fn ago(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

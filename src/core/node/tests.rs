//! Whole nodes on one small bucket and one virtual clock.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::core::liveness::{self, State};
use crate::core::records::{IdentityKind, IdentityRecord, NetworkRecord, SignedPeer};
use crate::core::types::UnixMs;
use crate::error::Code;

const EPOCH: u64 = 1_700_000_000_000;

/// A bucket whose writes all end at once, and whose clock is the virtual one.
#[derive(Default)]
struct Store {
    records: BTreeMap<Key, Held>,
    versions: u64,
    away: bool,
    refused: Option<Error>,
    hint: u64,
    writes: Vec<Key>,
}

impl Store {
    fn put(&mut self, key: Key, record: Record) -> Held {
        self.versions += 1;
        let held = Held {
            record,
            etag: format!("v{}", self.versions),
            body: String::new(),
            store_age_ms: None,
        };
        self.records.insert(key.clone(), held.clone());
        self.writes.push(key);
        held
    }

    fn node(&self, id: &str) -> &NodeRecord {
        match &self.records[&Key::Node(id.parse().unwrap())].record {
            Record::Node(node) => node,
            other => panic!("{other:?}"),
        }
    }

    fn fleet(&self) -> Fleet {
        let mut fleet = Fleet::default();
        for (key, held) in &self.records {
            match (key, held.record.clone()) {
                (Key::Node(id), Record::Node(node)) => drop(fleet.nodes.insert(id.clone(), node)),
                (Key::Identity(id), Record::Identity(identity)) => drop(fleet.identities.insert(id.clone(), identity)),
                (Key::Peer(id), Record::Peer(record)) => {
                    fleet.peers.insert(
                        id.clone(),
                        SignedPeer {
                            record,
                            authentic: true,
                        },
                    );
                }
                (Key::Address(address), Record::Address(claim)) => drop(fleet.addresses.insert(*address, claim)),
                _ => {}
            }
        }
        fleet
    }

    fn answer(&mut self, request: Request, seen_hint: &mut u64) -> Answer {
        let trouble = if self.away {
            Some(Trouble::Transient("no answer".into()))
        } else {
            self.refused.clone().map(Trouble::Refused)
        };
        match (request, trouble) {
            (Request::Probe, trouble) => Answer::Done(trouble.map_or(Ok(()), Err)),
            (Request::Read(_), Some(trouble)) => Answer::Read(Err(trouble)),
            (Request::Create(..) | Request::Replace(..), Some(trouble)) => Answer::Wrote(Wrote::Trouble(trouble)),
            (Request::Refresh, Some(trouble)) => Answer::Refreshed(Err(trouble)),
            (Request::PollHint | Request::WriteHint(_), Some(trouble)) => Answer::Hinted(Err(trouble)),
            (Request::Read(key), None) => Answer::Read(Ok(self.records.get(&key).cloned())),
            (Request::Create(key, record), None) => match self.records.get(&key) {
                Some(held) => Answer::Wrote(Wrote::Lost(Some(held.clone()))),
                None => Answer::Wrote(Wrote::Applied(self.put(key, record))),
            },
            (Request::Replace(key, held, record), None) => match self.records.get(&key) {
                Some(found) if found.etag == held.etag => Answer::Wrote(Wrote::Applied(self.put(key, record))),
                found => Answer::Wrote(Wrote::Lost(found.cloned())),
            },
            (Request::Remove(_), Some(trouble)) => Answer::Done(Err(trouble)),
            (Request::Remove(key), None) => {
                self.records.remove(&key);
                Answer::Done(Ok(()))
            }
            (Request::Refresh, None) => Answer::Refreshed(Ok(self.fleet())),
            (Request::WriteHint(_), None) => {
                self.hint += 1;
                Answer::Hinted(Ok(false))
            }
            (Request::PollHint, None) => {
                let moved = *seen_hint != self.hint;
                *seen_hint = self.hint;
                Answer::Hinted(Ok(moved))
            }
        }
    }
}

/// One machine: the node, what it was told to do, and the clock by which it runs.
struct Machine {
    node: Node,
    done: Vec<Effect>,
    exit: Option<Option<Error>>,
    seen_hint: u64,
    wall_is_off_by: u64,
}

impl Machine {
    fn new(settings: Settings) -> Self {
        Self {
            node: Node::new(settings),
            done: Vec::new(),
            exit: None,
            seen_hint: 0,
            wall_is_off_by: 0,
        }
    }

    fn give(&mut self, store: &mut Store, boot: u64, event: Event) {
        let now = Now {
            wall: UnixMs(EPOCH + boot + self.wall_is_off_by),
            boot: BootMs(boot),
        };
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.node.handle(now, event) {
                self.done.push(effect.clone());
                let (op, answer) = match effect {
                    Effect::Registry(op, request) => (op, store.answer(request, &mut self.seen_hint)),
                    Effect::OpenTunnel(op, _) | Effect::SaveAddress(op, _) => (op, Answer::Done(Ok(()))),
                    Effect::Serve(op, _) => (op, Answer::Serving(Ok(7300))),
                    Effect::Exit(error) => {
                        self.exit = Some(error);
                        continue;
                    }
                    Effect::SetPeers(_) | Effect::SaveFence(_) | Effect::Notice(_) => continue,
                };
                let date_ms = (EPOCH + boot) / 1_000 * 1_000;
                let samples = if store.away {
                    vec![]
                } else {
                    vec![Sample {
                        date_ms,
                        sent: BootMs(boot),
                        received: BootMs(boot),
                    }]
                };
                events.push_back(Event::Answered { op, answer, samples });
            }
        }
    }

    fn peers(&self) -> Vec<&str> {
        let set = self.done.iter().rev().find_map(|effect| match effect {
            Effect::SetPeers(peers) => Some(peers.keys().map(Id::as_str).collect()),
            _ => None,
        });
        set.unwrap_or_default()
    }

    fn error(&self) -> &Error {
        self.exit.as_ref().unwrap().as_ref().unwrap()
    }

    fn notices(&self) -> Vec<&str> {
        self.done
            .iter()
            .filter_map(|effect| match effect {
                Effect::Notice(notice) => Some(notice.text.as_str()),
                _ => None,
            })
            .collect()
    }
}

#[derive(Default)]
struct World {
    store: Store,
    boot: u64,
    machines: Vec<Machine>,
}

impl World {
    fn start(&mut self, settings: Settings) -> usize {
        let mut machine = Machine::new(settings);
        machine.give(&mut self.store, self.boot, Event::Started);
        self.machines.push(machine);
        self.machines.len() - 1
    }

    /// Runs every machine's timers, in order, for `ms` milliseconds.
    fn run(&mut self, ms: u64) {
        let end = self.boot + ms;
        loop {
            let due = self
                .machines
                .iter()
                .filter_map(|machine| machine.node.poll_timeout())
                .min();
            let Some(due) = due.filter(|due| due.0 <= end) else {
                break;
            };
            self.boot = self.boot.max(due.0);
            for machine in &mut self.machines {
                if machine.node.poll_timeout().is_some_and(|due| due.0 <= self.boot) {
                    machine.give(&mut self.store, self.boot, Event::TimerDue);
                }
            }
        }
        self.boot = end;
    }

    fn give(&mut self, machine: usize, event: Event) {
        self.machines[machine].give(&mut self.store, self.boot, event);
    }

    fn state(&self, id: &str) -> State {
        liveness::state(self.store.node(id), UnixMs(EPOCH + self.boot), 90_000)
    }
}

fn settings(id: &str, number: u8) -> Settings {
    Settings {
        id: id.parse().unwrap(),
        public_key: PublicKeyText(format!("identity-{number}")),
        boot_id: format!("boot-{id}-{number}"),
        transport: Transport::Wireguard,
        address: IpAddr::from([10, 88, 0, number]),
        api_port: 0,
        labels: Labels::new(),
        versions: Versions::default(),
        tunnel: Some(TunnelSettings {
            key: [number; 32],
            key_text: PublicKeyText(format!("tunnel-{number}")),
            network: "10.88.0.0/16".parse().unwrap(),
            stated: false,
            claimed: false,
            endpoints: vec![format!("172.31.0.{number}:51820")],
            cached_peers: Peers::new(),
        }),
        heartbeat_interval_ms: 30_000,
        liveness_window_ms: 90_000,
        node_refresh_interval_ms: 30_000,
        hint_poll_interval_ms: 5_000,
        lease: Timing {
            ttl_ms: 90_000,
            renew_ms: 30_000,
        },
        highest_fence: 0,
        seed: u64::from(number),
    }
}

fn tunnel(settings: &mut Settings) -> &mut TunnelSettings {
    settings.tunnel.as_mut().unwrap()
}

#[test]
fn three_machines_become_one_mesh() {
    let mut world = World::default();
    for number in 1..=3 {
        world.start(settings(&format!("n-{number}"), number));
        world.run(100);
    }
    // A hint away, not a refresh away.
    world.run(6_000);
    assert_eq!(world.machines[0].peers(), ["n-2", "n-3"]);
    assert_eq!(world.machines[1].peers(), ["n-1", "n-3"]);
    assert_eq!(world.machines[2].peers(), ["n-1", "n-2"]);
    for (id, number) in [("n-1", 1), ("n-2", 2), ("n-3", 3)] {
        assert_eq!(world.state(id), State::Live);
        assert_eq!(world.store.node(id).address, IpAddr::from([10, 88, 0, number]));
        assert_eq!(world.store.node(id).api_port, 7300);
    }
}

#[test]
fn the_boot_writes_in_order_and_the_node_record_last() {
    let mut world = World::default();
    let machine = world.start(settings("n-1", 1));
    let id: Id = "n-1".parse().unwrap();
    let expected = [
        Key::Network,
        Key::Identity(id.clone()),
        Key::Address("10.88.0.1".parse().unwrap()),
        Key::Peer(id.clone()),
        Key::Node(id),
    ];
    assert_eq!(world.store.writes, expected);
    let position = |wanted: fn(&Effect) -> bool| world.machines[machine].done.iter().position(wanted).unwrap();
    let saved = position(|effect| matches!(effect, Effect::SaveAddress(..)));
    let opened = position(|effect| matches!(effect, Effect::OpenTunnel(..)));
    let served = position(|effect| matches!(effect, Effect::Serve(..)));
    assert!(
        saved < opened && opened < served,
        "an unclaimed address is neither opened nor served"
    );
}

#[test]
fn a_claimed_address_comes_up_before_the_bucket_answers() {
    let mut world = World::default();
    world.store.away = true;
    let mut settings = settings("n-1", 1);
    tunnel(&mut settings).claimed = true;
    let peer = crate::core::peers::Peer {
        tunnel_key: PublicKeyText("tunnel-2".into()),
        address: "10.88.0.2".parse().unwrap(),
        endpoints: vec![],
    };
    tunnel(&mut settings).cached_peers.insert("n-2".parse().unwrap(), peer);
    let machine = world.start(settings);
    assert_eq!(world.machines[machine].peers(), ["n-2"]);
    assert!(
        world.machines[machine]
            .done
            .iter()
            .any(|effect| matches!(effect, Effect::Serve(..)))
    );
    world.run(60_000);
    assert_eq!(world.machines[machine].node.waiting(), Some("no answer"));
    assert!(world.store.writes.is_empty());
    world.store.away = false;
    world.run(16_000);
    assert_eq!(world.state("n-1"), State::Live);
    let said = world.machines[machine].notices();
    assert_eq!(
        said.iter()
            .filter(|notice| notice.starts_with("waiting for the bucket"))
            .count(),
        1,
        "{said:?}"
    );
    assert!(said.contains(&"the bucket answers again"));
}

#[test]
fn a_taken_derived_address_moves_on_and_a_stated_one_is_a_conflict() {
    let mut world = World::default();
    world.start(settings("n-1", 1));
    let mut second = settings("n-2", 2);
    second.address = "10.88.0.1".parse().unwrap();
    world.start(second.clone());
    assert_ne!(world.store.node("n-2").address, second.address);

    let mut third = settings("n-3", 3);
    third.address = "10.88.0.1".parse().unwrap();
    tunnel(&mut third).stated = true;
    let machine = world.start(third);
    assert_eq!(world.machines[machine].error().code, Code::Conflict);
    assert!(
        world.machines[machine]
            .error()
            .message
            .contains("10.88.0.1 belongs to the node n-1")
    );
    assert!(!world.store.records.contains_key(&Key::Node("n-3".parse().unwrap())));
}

#[test]
fn an_id_with_another_key_is_refused_and_the_owner_goes_on() {
    let mut world = World::default();
    let owner = world.start(settings("n-1", 1));
    world.run(45_000);
    let stranger = world.start(settings("n-1", 9));
    insta::assert_snapshot!(world.machines[stranger].error(), @r"
    error[conflict]: the id n-1 belongs to a node with another key; that node last beat 15 s ago
      node.id = n-1
    help: if that node is gone for good, free its id: scafo fleet remove n-1
    help: if this is that node, bring its state directory back: a node is its key, which is in node.json
    ");
    assert!(!world.store.writes.contains(&Key::Address("10.88.0.9".parse().unwrap())));
    world.run(60_000);
    assert!(world.machines[owner].exit.is_none());
    assert_eq!(world.state("n-1"), State::Live);
}

#[test]
fn an_operator_s_id_is_refused() {
    let mut world = World::default();
    let identity = IdentityRecord {
        kind: IdentityKind::Operator,
        public_key: PublicKeyText("identity-1".into()),
        created_at: UnixMs(0),
        revoked_at: None,
        revoked_keys: Vec::new(),
    };
    world
        .store
        .put(Key::Identity("n-1".parse().unwrap()), Record::Identity(identity));
    let machine = world.start(settings("n-1", 1));
    insta::assert_snapshot!(world.machines[machine].error(), @r"
    error[conflict]: the id n-1 belongs to an operator
      node.id = n-1
    help: nodes and operators share one keyspace: give this node another id with --node-id
    ");
}

fn revoke(world: &mut World, id: &str) {
    let key = Key::Identity(id.parse().unwrap());
    let Record::Identity(mut identity) = world.store.records[&key].record.clone() else {
        panic!()
    };
    identity.revoked_at = Some(UnixMs(EPOCH + world.boot));
    identity.revoked_keys.push(identity.public_key.clone());
    world.store.put(key, Record::Identity(identity));
}

#[test]
fn a_removed_node_leaves_and_stays_out_and_its_peers_forget_it() {
    let mut world = World::default();
    let removed = world.start(settings("n-1", 1));
    let other = world.start(settings("n-2", 2));
    world.run(6_000);
    assert_eq!(world.machines[other].peers(), ["n-1"]);
    revoke(&mut world, "n-1");
    world.run(31_000);
    assert_eq!(world.machines[removed].error().code, Code::Conflict);
    assert!(world.machines[other].peers().is_empty());
    let again = world.start(settings("n-1", 1));
    assert_eq!(world.machines[again].error().code, Code::Conflict);
    // The id can be had by another machine.
    let fresh = world.start(settings("n-1", 7));
    assert!(world.machines[fresh].exit.is_none());
    assert_eq!(world.state("n-1"), State::Live);
}

#[test]
fn a_fleet_of_another_network_is_refused() {
    let mut world = World::default();
    world.store.put(
        Key::Network,
        Record::Network(NetworkRecord {
            network: "10.99.0.0/16".into(),
        }),
    );
    let machine = world.start(settings("n-1", 1));
    insta::assert_snapshot!(world.machines[machine].error(), @r"
    error[invalid-input]: this node's mesh network is not the fleet's
      fleet.network = 10.88.0.0/16 (from wireguard.json): the fleet's is 10.99.0.0/16
    help: move wireguard.json out of the state directory and run: scafo wg init --fleet-network 10.99.0.0/16
    ");
}

#[test]
fn a_beat_touches_its_own_field_only() {
    let mut world = World::default();
    world.start(settings("n-1", 1));
    let before = world.store.node("n-1").clone();
    world.run(31_000);
    let after = world.store.node("n-1").clone();
    assert!(after.heartbeat_at > before.heartbeat_at);
    assert_eq!(
        NodeRecord {
            heartbeat_at: None,
            ..after
        },
        NodeRecord {
            heartbeat_at: None,
            ..before
        }
    );
}

#[test]
fn a_drain_by_somebody_else_is_never_undone_by_a_beat() {
    let mut world = World::default();
    world.start(settings("n-1", 1));
    let drained = NodeRecord {
        draining_at: Some(UnixMs(EPOCH + 5)),
        ..world.store.node("n-1").clone()
    };
    world
        .store
        .put(Key::Node("n-1".parse().unwrap()), Record::Node(drained));
    world.run(120_000);
    assert_eq!(world.store.node("n-1").draining_at, Some(UnixMs(EPOCH + 5)));
    assert!(
        liveness::answering(world.store.node("n-1"), UnixMs(EPOCH + world.boot), 90_000),
        "it still beats"
    );
}

#[test]
fn leaving_says_so_first_tells_the_others_and_exits() {
    let mut world = World::default();
    let machine = world.start(settings("n-1", 1));
    world.run(1_000);
    let hint = world.store.hint;
    world.give(machine, Event::AskedToLeave);
    assert_eq!(world.state("n-1"), State::Draining);
    assert_eq!(world.store.hint, hint + 1);
    assert_eq!(world.machines[machine].exit, Some(None));
}

#[test]
fn leaving_while_the_bucket_is_away_tries_for_five_seconds_at_most_and_is_no_error() {
    let mut world = World::default();
    let machine = world.start(settings("n-1", 1));
    world.run(1_000);
    world.store.away = true;
    world.give(machine, Event::AskedToLeave);
    world.run(1_000);
    assert!(world.machines[machine].exit.is_none());
    world.run(4_000);
    assert_eq!(world.machines[machine].exit, Some(None));
}

#[test]
fn the_second_signal_skips_the_waits() {
    let mut world = World::default();
    let machine = world.start(settings("n-1", 1));
    world.store.away = true;
    world.give(machine, Event::AskedToLeave);
    world.give(machine, Event::AskedToLeave);
    assert_eq!(world.machines[machine].exit, Some(None));
}

#[test]
fn a_rebooted_node_clears_draining_and_keeps_its_id_and_address() {
    let mut world = World::default();
    let machine = world.start(settings("n-1", 1));
    world.give(machine, Event::AskedToLeave);
    let mut again = settings("n-1", 1);
    again.boot_id = "boot-2".into();
    tunnel(&mut again).claimed = true;
    world.start(again);
    assert_eq!(world.state("n-1"), State::Live);
    assert_eq!(world.store.node("n-1").boot_id, "boot-2");
}

#[test]
fn of_two_clones_the_newest_boot_stays() {
    let mut world = World::default();
    let older = world.start(settings("n-1", 1));
    world.run(1_000);
    let mut clone = settings("n-1", 1);
    clone.boot_id = "clone".into();
    let newer = world.start(clone);
    world.run(31_000);
    assert_eq!(world.machines[older].error().code, Code::Conflict);
    world.run(100_000);
    assert!(world.machines[newer].exit.is_none());
    assert_eq!(world.store.node("n-1").boot_id, "clone");
}

#[test]
fn a_record_that_vanished_is_registered_again() {
    let mut world = World::default();
    let machine = world.start(settings("n-1", 1));
    world.run(1_000);
    world.store.records.clear();
    world.run(31_000);
    assert!(world.machines[machine].exit.is_none());
    assert_eq!(world.state("n-1"), State::Live);
    assert!(
        world
            .store
            .records
            .contains_key(&Key::Address("10.88.0.1".parse().unwrap()))
    );
}

#[test]
fn wrong_credentials_stop_a_boot_and_not_a_live_node() {
    let mut world = World::default();
    let live = world.start(settings("n-1", 1));
    world.store.refused = Some(Error::new(Code::Unauthorized, "the key is unknown"));
    let booting = world.start(settings("n-2", 2));
    assert_eq!(world.machines[booting].error().code, Code::Unauthorized);
    world.run(100_000);
    assert!(world.machines[live].exit.is_none());
    world.store.refused = None;
    world.run(16_000);
    assert_eq!(world.state("n-1"), State::Live);
}

#[test]
fn one_missed_beat_is_made_up_for_at_once() {
    let mut world = World::default();
    world.start(settings("n-1", 1));
    world.run(23_000);
    world.store.away = true;
    world.run(8_000);
    world.store.away = false;
    world.run(15_000);
    let beat = world.store.node("n-1").heartbeat_at.unwrap();
    assert!(beat.0 > EPOCH + 31_000, "{}", beat.0 - EPOCH);
}

#[test]
fn a_clock_that_is_an_hour_off_judges_and_is_judged_right() {
    let mut world = World::default();
    let mut off = Machine::new(settings("n-1", 1));
    off.wall_is_off_by = 3_600_000;
    off.give(&mut world.store, 0, Event::Started);
    world.machines.push(off);
    world.run(31_000);
    assert_eq!(world.state("n-1"), State::Live);
    let beat = world.store.node("n-1").heartbeat_at.unwrap().0;
    assert!(beat.abs_diff(EPOCH + 31_000) < 15_000);
    let skew = world.store.node("n-1").clock_skew_ms.unwrap();
    assert!(skew.abs_diff(3_600_000) <= 1_000, "{skew}");
    assert!(
        world.machines[0]
            .notices()
            .iter()
            .any(|notice| notice.contains("s ahead of the bucket's"))
    );
}

#[test]
fn new_endpoints_are_published_and_followed() {
    let mut world = World::default();
    let mover = world.start(settings("n-1", 1));
    world.start(settings("n-2", 2));
    world.run(10_000);
    world.give(mover, Event::EndpointsChanged(vec!["172.31.9.9:51820".into()]));
    world.run(6_000);
    let followed = world.machines[1].done.iter().rev().find_map(|effect| match effect {
        Effect::SetPeers(peers) => peers.get(&"n-1".parse().unwrap()).map(|peer| peer.endpoints.clone()),
        _ => None,
    });
    assert_eq!(followed, Some(vec!["172.31.9.9:51820".to_owned()]));
    assert!(world.machines[mover].exit.is_none());
}

#[test]
fn a_loopback_node_needs_no_mesh() {
    let mut world = World::default();
    let machine = world.start(Settings {
        transport: Transport::Loopback,
        address: "127.0.0.1".parse().unwrap(),
        tunnel: None,
        ..settings("n-1", 1)
    });
    assert_eq!(world.state("n-1"), State::Live);
    assert!(
        !world.machines[machine]
            .done
            .iter()
            .any(|effect| matches!(effect, Effect::OpenTunnel(..)))
    );
    assert_eq!(world.store.writes.len(), 2);
}

impl World {
    fn holders(&self) -> Vec<usize> {
        (0..self.machines.len())
            .filter(|index| self.machines[*index].node.authority(BootMs(self.boot)).is_some())
            .collect()
    }

    fn fleet_of_three(&mut self) {
        for number in 1..=3 {
            self.start(settings(&format!("n-{number}"), number));
        }
        self.run(60_000);
    }
}

#[test]
fn one_of_the_fleet_holds_the_lease_and_goes_on_holding_it() {
    let mut world = World::default();
    world.fleet_of_three();
    let holders = world.holders();
    assert_eq!(holders.len(), 1);
    world.run(600_000);
    assert_eq!(world.holders(), holders);
    let saved = |machine: &Machine| machine.done.contains(&Effect::SaveFence(1));
    assert!(world.machines.iter().all(saved), "everybody remembers the fence");
}

#[test]
fn a_holder_that_leaves_gives_the_lease_back_and_is_followed_at_once() {
    let mut world = World::default();
    world.fleet_of_three();
    let holder = world.holders()[0];
    world.give(holder, Event::AskedToLeave);
    assert_eq!(world.machines[holder].exit, Some(None));
    let Record::Lease(lease) = &world.store.records[&Key::Lease].record else {
        panic!()
    };
    assert!(lease.released && lease.fence == 1);
    // A look at the hint and the spread of the candidates, not a whole TTL.
    world.run(11_000);
    let next = world.holders();
    assert_eq!(next.len(), 1);
    assert_ne!(next[0], holder);
    assert_eq!(
        world.machines[next[0]]
            .node
            .authority(BootMs(world.boot))
            .unwrap()
            .fence,
        2
    );
}

#[test]
fn a_holder_that_dies_is_followed_after_the_ttl() {
    let mut world = World::default();
    world.fleet_of_three();
    let holder = world.holders()[0];
    let died = world.boot;
    world.machines.remove(holder);
    world.run(60_000);
    assert!(world.holders().is_empty(), "not before the TTL is over");
    world.run(40_000);
    assert_eq!(world.holders().len(), 1, "{} s after", (world.boot - died) / 1_000);
}

#[test]
fn a_machine_that_was_stopped_is_sure_of_nothing() {
    let mut world = World::default();
    world.fleet_of_three();
    let holder = world.holders()[0];
    // The hypervisor stopped it: its boot clock stood still and its wall clock did not.
    world.machines[holder].wall_is_off_by += 300_000;
    let machine = &mut world.machines[holder];
    world.store.away = true;
    machine.give(&mut world.store, world.boot, Event::TimerDue);
    assert!(machine.node.authority(BootMs(world.boot)).is_none());
    world.store.away = false;
    world.run(120_000);
    assert_eq!(world.holders().len(), 1);
}

#[test]
fn the_address_of_a_removed_node_can_be_had() {
    let mut world = World::default();
    world.start(settings("n-1", 1));
    let mut second = settings("n-2", 2);
    second.address = "10.88.0.1".parse().unwrap();
    tunnel(&mut second).stated = true;
    let refused = world.start(second.clone());
    assert_eq!(world.machines[refused].error().code, Code::Conflict);
    revoke(&mut world, "n-1");
    world.start(second);
    assert_eq!(world.state("n-2"), State::Live);
    assert_eq!(world.store.node("n-2").address.to_string(), "10.88.0.1");
}

#[test]
fn the_holder_reaps_what_a_removed_node_left_and_nothing_else() {
    let mut world = World::default();
    world.fleet_of_three();
    let removed = (world.holders()[0] + 1) % 3;
    let id = format!("n-{}", removed + 1);
    revoke(&mut world, &id);
    world.run(61_000);
    assert!(world.machines[removed].exit.is_some());
    world.run(700_000);
    let left: Vec<&Key> = world
        .store
        .records
        .keys()
        .filter(|key| format!("{key:?}").contains(&id))
        .collect();
    assert_eq!(
        left,
        [&Key::Identity(id.parse().unwrap())],
        "the identity stays, so that the key stays out"
    );
    let claims = world
        .store
        .records
        .keys()
        .filter(|key| matches!(key, Key::Address(_)))
        .count();
    assert_eq!(claims, 2);
    assert_eq!(world.holders().len(), 1);
}

#[test]
fn who_holds_no_lease_reaps_nothing() {
    let mut world = World::default();
    let machine = world.start(settings("n-1", 1));
    world.run(60_000);
    assert_eq!(world.holders(), [machine]);
    revoke(&mut world, "n-1");
    world.machines.clear();
    // A fleet whose lease somebody else holds, as far as anybody can see.
    world.start(settings("n-2", 2));
    world.run(20_000);
    assert!(world.store.records.contains_key(&Key::Node("n-1".parse().unwrap())));
}

#[test]
fn nothing_is_due_in_the_past_for_long() {
    // A timer that stays in the past would turn the daemon in circles.
    let mut world = World::default();
    world.fleet_of_three();
    for step in 0..4_000 {
        world.boot += 100;
        for machine in &mut world.machines {
            let mut turns = 0;
            while machine.node.poll_timeout().is_some_and(|due| due.0 <= world.boot) {
                machine.give(&mut world.store, world.boot, Event::TimerDue);
                turns += 1;
                assert!(turns < 20, "at step {step}");
            }
        }
        world.store.away = step % 1_000 > 700;
    }
}

//! The main job, end to end, on real parts: three machines (network namespaces) become one mesh-only fleet through a real
//! S3 store.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use scafo_lab::celld;
use scafo_lab::machines::{Lab, Machine, Process};
use scafo_lab::node::Node;
use scafo_lab::store::Store;
use scafo_lab::wait::{eventually, throughout};
use serde_json::Value;

const API: u16 = 7300;
const SOON: Duration = Duration::from_secs(30);

/// Machines with a store beside them, each with a tunnel and a daemon.
struct Fleet {
    lab: Lab,
    store: Store,
    nodes: Vec<Node>,
    daemons: Vec<Process>,
}

impl Fleet {
    fn new(count: usize) -> Self {
        let lab = Lab::new();
        let store = Store::on(&lab.neighbour());
        let mut fleet = Self {
            lab,
            store,
            nodes: Vec::new(),
            daemons: Vec::new(),
        };
        for number in 1..=count {
            let node = fleet.node(&format!("m{number}"));
            node.wg_init(&[]).ok();
            fleet.daemons.push(node.sail(&["--node-id", &format!("n-{number}")]));
            fleet.nodes.push(node);
        }
        if count > 0 {
            fleet.wait_for(&vec!["live"; count]);
        }
        fleet
    }

    /// A machine that is ready for `scafo`.
    fn node(&self, name: &str) -> Node {
        let machine = self.lab.add_machine(name);
        let binary = celld::standin(machine.folder(), "0.6.2");
        Node::new(&machine, env!("CARGO_BIN_EXE_scafo"))
            .envs(self.store.env())
            .env("SCAFO_RUNTIME_BINARY", binary.display())
    }

    fn rows(&self) -> Vec<Value> {
        let listing = self.nodes[0].fleet_nodes();
        listing
            .map(|listing| listing["nodes"].as_array().unwrap().clone())
            .unwrap_or_default()
    }

    fn states(&self) -> Vec<String> {
        self.rows()
            .iter()
            .map(|row| row["state"].as_str().unwrap().to_owned())
            .collect()
    }

    fn wait_for(&self, states: &[&str]) {
        eventually(
            SOON,
            &format!("the fleet to be {states:?}; the logs:\n{}", self.logs()),
            || (self.states() == states).then_some(()),
        );
    }

    fn logs(&self) -> String {
        self.daemons
            .iter()
            .map(|daemon| daemon.log_tail(15))
            .collect::<Vec<_>>()
            .join("\n--\n")
    }

    /// Tunnel addresses by number of the node.
    fn addresses(&self) -> Vec<IpAddr> {
        self.rows()
            .iter()
            .map(|row| row["address"].as_str().unwrap().parse().unwrap())
            .collect()
    }

    /// Every machine reaches every tunnel address, its own too, by ping and at the API.
    fn assert_all_reach_all(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            for address in self.addresses() {
                let from = format!("m{} to {address}; the logs:\n{}", number + 1, self.logs());
                eventually(SOON, &format!("a ping from {from}"), || {
                    (node.machine.run("ping", &["-c1", "-W1", &address.to_string()]).code == Some(0)).then_some(())
                });
                eventually(SOON, &format!("an answer from {from}"), || {
                    health(&node.machine, address)
                });
            }
        }
    }
}

/// The answer of the API at a tunnel address, asked from `machine`.
fn health(machine: &Machine, address: IpAddr) -> Option<Value> {
    let answer = machine.get(SocketAddr::new(address, API), "/v1/health").ok()?;
    (answer.status == 200).then(|| answer.json())
}

fn tunnel_peers(node: &Node) -> Vec<Value> {
    node.run(&["wg", "show", "--json"]).ok().json()["peers"]
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn three_machines_become_one_mesh_only_fleet() {
    let mut fleet = Fleet::new(3);
    fleet.assert_all_reach_all();

    // Handshakes, by Scafo's own word and by WireGuard's own tool.
    for node in &fleet.nodes {
        let peers = eventually(SOON, "handshakes with both peers", || {
            let peers = tunnel_peers(node);
            (peers.len() == 2 && peers.iter().all(|peer| peer["up"] == true)).then_some(peers)
        });
        assert!(
            peers.iter().all(|peer| peer["rxBytes"].as_u64().unwrap() > 0),
            "{peers:?}"
        );
        let shown = node
            .machine
            .run("wg", &["show", "scafo0", "latest-handshakes"])
            .ok()
            .stdout;
        let recent = shown.lines().filter(|line| !line.ends_with("\t0")).count();
        assert_eq!(recent, 2, "{shown}");
    }

    // Nothing listens on the underlay but WireGuard's port, and the API is bound to the tunnel's address and devices.
    for (node, address) in fleet.nodes.iter().zip(fleet.addresses()) {
        for socket in node.machine.listening() {
            if socket.protocol == "udp" {
                assert_eq!(
                    (socket.port, socket.address.is_unspecified()),
                    (51_820, true),
                    "{socket:?}"
                );
            } else {
                assert_eq!((socket.port, socket.address), (API, address), "{socket:?}");
            }
        }
    }

    // SIGTERM: draining is what the others see first, then the peer is away, and the rest stays up.
    fleet.daemons[2].terminate();
    assert!(
        fleet.daemons[2].wait_exit(SOON).success(),
        "{}",
        fleet.daemons[2].log_tail(20)
    );
    assert_eq!(fleet.states(), ["live", "live", "draining"]);
    let [first, second, third] = fleet.addresses()[..] else {
        panic!()
    };
    throughout(Duration::from_secs(3), "the others stay up", || {
        health(&fleet.nodes[0].machine, second).is_some() && health(&fleet.nodes[1].machine, first).is_some()
    });
    assert!(health(&fleet.nodes[0].machine, third).is_none());
    let gone = fleet.nodes[2].machine.run("ip", &["link", "show", "scafo0"]);
    assert_ne!(gone.code, Some(0), "the interface goes with the daemon");
    let tables = fleet.nodes[2].machine.run("nft", &["list", "tables"]).ok().stdout;
    assert!(!tables.contains("scafo"), "{tables}");

    // SIGKILL: nobody says anything, and the window does.
    fleet.daemons[1].kill();
    fleet.wait_for(&["live", "stale", "draining"]);

    // Both come back as the nodes that they were.
    fleet.daemons[1] = fleet.nodes[1].sail(&["--node-id", "n-2"]);
    fleet.daemons[2] = fleet.nodes[2].sail(&["--node-id", "n-3"]);
    fleet.wait_for(&["live"; 3]);
    assert_eq!(fleet.addresses(), [first, second, third]);
    fleet.assert_all_reach_all();
}

#[test]
fn another_machine_with_the_same_id_is_refused() {
    let fleet = Fleet::new(1);
    let stranger = fleet.node("stranger");
    stranger.wg_init(&[]).ok();
    let mut daemon = stranger.sail(&["--node-id", "n-1"]);
    assert_eq!(daemon.wait_exit(SOON).code(), Some(4));
    let log = daemon.log();
    assert!(
        log.contains("error[conflict]: the id n-1 belongs to a node with another key; that node last beat"),
        "{log}"
    );
    assert!(log.contains("scafo fleet remove n-1"), "{log}");
    assert_eq!(fleet.states(), ["live"]);
}

#[test]
fn a_state_directory_on_a_new_machine_is_the_same_node_and_its_peers_follow() {
    let mut fleet = Fleet::new(3);
    fleet.assert_all_reach_all();
    let before = fleet.addresses();
    fleet.daemons[2].terminate();
    fleet.daemons[2].wait_exit(SOON);
    let new = fleet.node("m4");
    fleet.nodes[2].machine.move_state_to(&new.machine);
    fleet.daemons[2] = new.sail(&["--node-id", "n-3"]);
    fleet.nodes[2] = new;
    fleet.wait_for(&["live"; 3]);
    assert_eq!(fleet.addresses(), before);
    fleet.assert_all_reach_all();
    let there = fleet.nodes[2].machine.address().to_string();
    eventually(SOON, "a peer to follow the node to its new underlay address", || {
        let peers = tunnel_peers(&fleet.nodes[0]);
        let moved = peers.iter().find(|peer| peer["id"] == "n-3")?;
        moved["endpoint"].as_str()?.starts_with(&there).then_some(())
    });
}

#[test]
fn a_neighbour_on_the_underlay_gets_in_nowhere() {
    let fleet = Fleet::new(2);
    fleet.assert_all_reach_all();
    let [first, second] = fleet.addresses()[..] else {
        panic!()
    };
    let victim = &fleet.nodes[0].machine;
    let neighbour = fleet.lab.neighbour();
    neighbour.add_route(&format!("10.88.0.0/16 via {}", victim.address()));

    // Something that knows nothing of devices and guards, as a runtime does: it just binds the tunnel address.
    let runtime = victim.inside(|| victim.listen(first, 7400)).unwrap();
    let dial = |from: &Machine| {
        from.connect(SocketAddr::new(first, 7400), Duration::from_secs(2))
            .is_ok()
    };
    eventually(SOON, "the runtime to answer inside the mesh", || {
        dial(&fleet.nodes[1].machine).then_some(())
    });
    assert!(dial(victim), "and on its own machine");
    assert!(!dial(&neighbour), "the neighbour reaches a runtime");
    assert!(health(&neighbour, first).is_none(), "the neighbour reaches the API");
    assert!(
        neighbour
            .connect(SocketAddr::new(victim.address().into(), API), Duration::from_secs(2))
            .is_err()
    );

    // It is the guard that keeps the neighbour from the runtime, or this test proves nothing; it is mended so soon that
    // the neighbour may need a few tries. The bound device keeps it from the API even then.
    eventually(SOON, "the neighbour to get in without the guard", || {
        victim.run("nft", &["delete", "table", "inet", "scafo_scafo0"]);
        let got_in = dial(&neighbour);
        assert!(health(&neighbour, first).is_none(), "the neighbour reaches the API");
        got_in.then_some(())
    });
    eventually(SOON, "the guard to be mended", || (!dial(&neighbour)).then_some(()));
    assert!(health(&fleet.nodes[1].machine, first).is_some() && health(victim, second).is_some());
    drop(runtime);
}

#[test]
fn a_boot_with_the_bucket_away_waits_and_says_so_and_goes_on() {
    let mut fleet = Fleet::new(2);
    fleet.assert_all_reach_all();
    let [first, _] = fleet.addresses()[..] else { panic!() };
    fleet.store.stop();
    fleet.daemons[1].kill();
    let log_before = fleet.daemons[1].log();
    assert!(log_before.contains("live as n-2"));
    fleet.daemons[1] = fleet.nodes[1].sail(&["--node-id", "n-2"]);
    fleet.daemons[1].wait_log(SOON, "waiting for the bucket");
    // The mesh is up all the same, from what the node remembers.
    eventually(SOON, "the mesh without the bucket", || {
        health_any(&fleet.nodes[1].machine, first)
    });
    fleet.store.run();
    fleet.wait_for(&["live"; 2]);
    assert!(fleet.daemons[1].log().contains("the bucket answers again"));
}

fn health_any(machine: &Machine, address: IpAddr) -> Option<()> {
    machine.get(SocketAddr::new(address, API), "/v1/health").ok().map(drop)
}

#[test]
fn a_host_without_ipv6_is_a_node_like_any_other() {
    let mut fleet = Fleet::new(1);
    let plain = fleet.node("plain");
    plain.machine.disable_ipv6();
    plain.wg_init(&[]).ok();
    fleet.daemons.push(plain.sail(&["--node-id", "n-2"]));
    fleet.nodes.push(plain);
    fleet.wait_for(&["live"; 2]);
    fleet.assert_all_reach_all();
}

#[test]
fn wrong_credentials_and_a_missing_bucket_are_said_plainly() {
    let fleet = Fleet::new(1);
    let refused = |name: &str, value: &str| {
        let node = fleet.node(&format!("r{}", name.len())).env(name, value);
        node.wg_init(&[]).ok();
        let mut daemon = node.sail(&[]);
        let status = daemon.wait_exit(SOON);
        let text = daemon.log().replace(&fleet.store.endpoint(), "ENDPOINT");
        let error: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("error[")).collect();
        format!("{}\nexit code {}", error.join("\n"), status.code().unwrap())
    };
    insta::assert_snapshot!("wrong-secret", refused("AWS_SECRET_ACCESS_KEY", "wrong"));
    insta::assert_snapshot!("wrong-key", refused("AWS_ACCESS_KEY_ID", "wrong"));
    insta::assert_snapshot!("missing-bucket", refused("SCAFO_BUCKET", "s3://nonesuch"));
}

#[test]
fn a_machine_under_another_id_is_another_node_with_a_tunnel_of_its_own() {
    let mut fleet = Fleet::new(2);
    let before = fleet.addresses();
    fleet.daemons[1].terminate();
    fleet.daemons[1].wait_exit(SOON);
    fleet.daemons[1] = fleet.nodes[1].sail(&["--node-id", "n-3"]);
    fleet.wait_for(&["live", "draining", "live"]);
    let [first, second, third] = fleet.addresses()[..] else {
        panic!()
    };
    assert_eq!([first, second], before[..]);
    assert_ne!(third, second);
    eventually(SOON, "the new node to answer", || {
        health(&fleet.nodes[0].machine, third)
    });
}

#[test]
fn a_mesh_over_ipv6_addresses() {
    let mut fleet = Fleet::new(0);
    for number in 1..=2 {
        let node = fleet.node(&format!("m{number}"));
        node.wg_init(&["--fleet-network", "fd88::/64"]).ok();
        fleet.daemons.push(node.sail(&["--node-id", &format!("n-{number}")]));
        fleet.nodes.push(node);
    }
    fleet.wait_for(&["live"; 2]);
    assert!(fleet.addresses().iter().all(IpAddr::is_ipv6));
    fleet.assert_all_reach_all();
}

/// Who holds the lease, and at which fence.
fn lease(node: &Node) -> (String, u64, String) {
    let lease = node.run(&["fleet", "lease", "--json"]).ok().json();
    let text = |key: &str| lease[key].as_str().unwrap_or_default().to_owned();
    (
        text("holder"),
        lease["fence"].as_u64().unwrap_or_default(),
        text("state"),
    )
}

#[test]
fn the_lease_is_held_by_one_and_moves_when_its_holder_leaves_or_dies() {
    let mut fleet = Fleet::new(3);
    let (first, fence, _) = eventually(SOON, "a holder", || {
        Some(lease(&fleet.nodes[0])).filter(|lease| lease.2 == "held")
    });
    assert_eq!(fence, 1);
    throughout(Duration::from_secs(4), "the holder stays", || {
        lease(&fleet.nodes[0]).0 == first
    });
    let number = |id: &str| id.trim_start_matches("n-").parse::<usize>().unwrap() - 1;

    fleet.daemons[number(&first)].terminate();
    fleet.daemons[number(&first)].wait_exit(SOON);
    assert!(
        fleet.daemons[number(&first)]
            .log()
            .contains("holds the coordinator lease, fence 1")
    );
    let (second, fence, _) = eventually(SOON, "another holder", || {
        Some(lease(&fleet.nodes[0])).filter(|lease| lease.0 != first && lease.2 == "held")
    });
    assert_eq!(fence, 2);

    fleet.daemons[number(&second)].kill();
    let (third, fence, _) = eventually(SOON, "a third holder", || {
        Some(lease(&fleet.nodes[0])).filter(|lease| lease.0 != second && lease.2 == "held")
    });
    assert_eq!(fence, 3);
    assert_ne!(third, first);
}

#[test]
fn a_holder_that_is_stopped_for_longer_than_its_ttl_acts_no_more() {
    let mut fleet = Fleet::new(2);
    let (first, ..) = eventually(SOON, "a holder", || {
        Some(lease(&fleet.nodes[0])).filter(|lease| lease.2 == "held")
    });
    let stopped = usize::from(first == "n-2");
    fleet.daemons[stopped].pause();
    let (second, fence, _) = eventually(SOON, "another holder", || {
        Some(lease(&fleet.nodes[0])).filter(|lease| lease.0 != first && lease.2 == "held")
    });
    fleet.daemons[stopped].resume();
    fleet.daemons[stopped].wait_log(SOON, "no longer holds the coordinator lease");
    throughout(Duration::from_secs(4), "the new holder stays", || {
        let (holder, now, _) = lease(&fleet.nodes[0]);
        (holder.as_str(), now) == (second.as_str(), fence)
    });
}

#[test]
fn a_removed_machine_is_out_within_moments_and_for_good() {
    let mut fleet = Fleet::new(3);
    fleet.assert_all_reach_all();
    let third = fleet.addresses()[2];
    fleet.nodes[0].run(&["operator", "init", "ana"]).ok();
    assert!(
        fleet.nodes[0]
            .run(&["fleet", "remove", "n-9"])
            .exits(5)
            .stderr
            .contains("there is no node n-9")
    );
    fleet.nodes[0].run(&["fleet", "remove", "n-3"]).ok();
    assert_eq!(fleet.daemons[2].wait_exit(SOON).code(), Some(4));
    assert!(
        fleet.daemons[2]
            .log()
            .contains("this machine was removed from the fleet")
    );
    for node in &fleet.nodes[..2] {
        eventually(SOON, "the peers to forget it", || {
            (tunnel_peers(node).len() == 1).then_some(())
        });
    }
    let mut again = fleet.nodes[2].sail(&["--node-id", "n-3"]);
    assert_eq!(again.wait_exit(SOON).code(), Some(4));
    // The holder of the lease takes what is left of it out of the listings.
    fleet.wait_for(&["live"; 2]);

    // The id and the address are free for another machine.
    let other = fleet.node("m4");
    other.wg_init(&["--address", &third.to_string()]).ok();
    fleet.daemons[2] = other.sail(&["--node-id", "n-3"]);
    fleet.nodes[2] = other;
    fleet.wait_for(&["live"; 3]);
    assert_eq!(fleet.addresses()[2], third);
    fleet.assert_all_reach_all();
}

#[test]
fn nodes_on_a_private_network_are_reached_where_they_say() {
    let mut fleet = Fleet::new(0);
    for number in 1..=2 {
        let node = fleet.node(&format!("m{number}"));
        let address = node.machine.address().to_string();
        let id = format!("n-{number}");
        fleet
            .daemons
            .push(node.sail(&["--node-id", &id, "--transport", "private", "--address", &address]));
        fleet.nodes.push(node);
    }
    fleet.wait_for(&["live"; 2]);
    let there: Vec<IpAddr> = fleet.nodes.iter().map(|node| node.machine.address().into()).collect();
    assert_eq!(fleet.addresses(), there);
    fleet.assert_all_reach_all();
    assert!(
        fleet
            .nodes
            .iter()
            .all(|node| node.machine.run("ip", &["link", "show", "scafo0"]).code != Some(0)),
        "no tunnel"
    );
}

#[test]
fn of_two_clones_the_newest_boot_stays() {
    let mut fleet = Fleet::new(2);
    let clone = fleet.node("clone");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([fleet.nodes[1].machine.state_dir(), clone.machine.state_dir()])
        .status();
    assert!(copied.unwrap().success());
    fleet.daemons.push(clone.sail(&["--node-id", "n-2"]));
    assert_eq!(fleet.daemons[1].wait_exit(SOON).code(), Some(4));
    assert!(
        fleet.daemons[1].log().contains("another daemon has booted as n-2"),
        "{}",
        fleet.daemons[1].log()
    );
    fleet.wait_for(&["live"; 2]);
    assert_eq!(
        fleet.nodes[1].machine.run("ip", &["link", "show", "scafo0"]).code,
        Some(1),
        "its tunnel is gone"
    );
    fleet.nodes[1] = clone;
    fleet.assert_all_reach_all();
}

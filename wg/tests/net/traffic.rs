//! Packets between devices, and between a device and other implementations.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::lab::{LIMIT, Lab, MESH, Node, must, pair, permitted, run, wait_for};

/// Sends `size` bytes over TCP from one machine to another's tunnel address, and checks every one of them.
pub(crate) fn copy(from: &Node, to: &Node, size: usize) {
    let at = SocketAddr::new(to.tunnel(), 0);
    let listener = to.inside(move || TcpListener::bind(at).unwrap());
    let at = listener.local_addr().unwrap();
    let contents: Vec<u8> = (0..size).map(|place| (place * 31 + place / 251) as u8).collect();
    let sent = contents.clone();
    let sender = from.begin_inside(move || {
        let mut stream = TcpStream::connect_timeout(&at, LIMIT).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream.write_all(&sent).unwrap();
    });
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut arrived = Vec::new();
    stream.read_to_end(&mut arrived).unwrap();
    sender.join().unwrap();
    assert_eq!(arrived.len(), size);
    assert!(arrived == contents, "what arrived is not what was sent");
}

#[test]
fn two_devices_ping_and_carry_tcp_both_ways() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, _at_b) = pair(&lab);
    b.reaches(a);
    copy(a, b, 5_000_000);
    copy(b, a, 5_000_000);
    let said = at_a.peer(b);
    assert_eq!(said.endpoint, b.endpoint().parse().ok());
    assert!(said.sent > 5_000_000 && said.received > 5_000_000, "{said:?}");
    assert_eq!(at_a.number("wrong_source"), 0);
    // Every size that fits, whole and in fragments.
    for size in [0, 1, 15, 16, 17, 1_391, 1_392, 1_393, 9_000, 40_000] {
        let command = format!("ping -c 1 -W 2 -n -s {size} {}", b.tunnel());
        a.must(&command);
    }
}

#[test]
fn the_underlay_may_be_ipv6() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, mut at_b) = (a.device(), b.device());
    at_a.ask(&b.as_peer("[fd31::2]:51820"));
    at_b.ask(&a.as_peer("-"));
    a.reaches(b);
    copy(b, a, 2_000_000);
    assert_eq!(at_b.peer(a).endpoint, "[fd31::1]:51820".parse().ok());
}

#[test]
fn a_source_that_the_peer_may_not_use_is_dropped() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, mut at_b) = (a.device(), b.device());
    let strange = format!("peer n-2 {} 10.88.0.9/32 - -", b.public_key());
    at_a.ask(&strange);
    at_b.ask(&a.as_peer(&a.endpoint()));
    wait_for("a packet with a wrong source", || {
        assert!(!b.pings(a.tunnel()));
        at_a.number("wrong_source") > 0
    });
    // The session is there: with the right address the same packet passes.
    at_a.ask(&b.as_peer("-"));
    b.reaches(a);
}

#[test]
fn a_packet_for_nobody_and_one_for_a_peer_without_an_endpoint_are_counted() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let mut at_a = a.device();
    at_a.ask(&b.as_peer("-"));
    let before = at_a.number("no_peer");
    assert!(!a.pings("10.88.0.77".parse().unwrap()));
    assert!(at_a.number("no_peer") > before);
    assert!(!a.pings(b.tunnel()));
    assert!(at_a.number("no_endpoint") > 0);
}

#[test]
fn wg_shows_the_device_through_the_socket() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let b = &lab.nodes[1];
    let (mut at_a, _at_b) = pair(&lab);
    let name = format!("wgu{}", std::process::id());
    let path = format!("/var/run/wireguard/{name}.sock");
    // A dead process's file is replaced.
    std::fs::create_dir_all("/var/run/wireguard").unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path));
    at_a.ask(&format!("uapi {path}"));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let dump = must(&format!("wg show {name} dump"));
    let mut lines = dump.lines();
    assert!(lines.next().unwrap().contains("51820"), "{dump}");
    let peer: Vec<&str> = lines.next().unwrap().split('\t').collect();
    assert_eq!(
        [peer[0], peer[2], peer[3]],
        [&b.public_key(), &b.endpoint(), "10.88.0.2/32"]
    );
    assert!(peer[4].parse::<u64>().unwrap() > 1_700_000_000, "{dump}");
    let set = run(&format!("wg set {name} listen-port 1"));
    assert!(!set.status.success(), "the registry says what the peers are");
    assert!(
        at_a.try_ask(&format!("uapi {path}")).is_err(),
        "a live socket is not replaced"
    );
    at_a.ask("close");
    assert!(!Path::new(&path).exists());
}

#[test]
fn wireguard_go_is_a_peer_like_any_other() {
    if !permitted() {
        return;
    }
    if Command::new("wireguard-go").arg("--version").output().is_err() {
        return eprintln!("skipped: wireguard-go is not installed");
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let mut at_a = a.device();
    at_a.ask(&b.as_peer("-"));
    // Its socket's path comes from the interface's name, which all namespaces share.
    let name = format!("wgg{}", std::process::id());
    let mut go = Command::new("ip")
        .args(["netns", "exec", &b.namespace, "wireguard-go", "-f", &name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("wireguard-go", || run(&format!("wg show {name}")).status.success());
    let mut key = Command::new("wg")
        .args(["set", &name, "private-key", "/dev/stdin", "listen-port", "51820"])
        .args(["peer", &a.public_key(), "endpoint", &a.endpoint(), "allowed-ips", MESH])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    key.stdin.take().unwrap().write_all(b.private_key().as_bytes()).unwrap();
    assert!(key.wait().unwrap().success());
    b.ip(&format!("address add {}/16 dev {name}", b.tunnel()));
    b.ip(&format!("link set {name} up"));
    b.reaches(a);
    a.reaches(b);
    copy(a, b, 3_000_000);
    copy(b, a, 3_000_000);
    assert!(at_a.peer(b).handshake.is_some());
    go.kill().unwrap();
    go.wait().unwrap();
    let _ = std::fs::remove_file(format!("/var/run/wireguard/{name}.sock"));
}

#[test]
fn many_flows_to_many_peers_at_once_arrive_whole() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(4);
    let mut devices: Vec<_> = lab.nodes.iter().map(Node::device).collect();
    for (node, device) in lab.nodes.iter().zip(&mut devices) {
        for other in lab.nodes.iter().filter(|other| other.number != node.number) {
            device.ask(&other.as_peer(&other.endpoint()));
        }
    }
    let pairs: Vec<_> = lab
        .nodes
        .iter()
        .flat_map(|from| lab.nodes.iter().map(move |to| (from.clone(), to.clone())))
        .filter(|(from, to)| from.number != to.number)
        .collect();
    let copies: Vec<_> = pairs
        .into_iter()
        .map(|(from, to)| std::thread::spawn(move || copy(&from, &to, 1_000_000)))
        .collect();
    for copy in copies {
        copy.join().unwrap();
    }
    for device in &mut devices {
        assert_eq!((device.number("wrong_source"), device.number("tun_errors")), (0, 0));
    }
}

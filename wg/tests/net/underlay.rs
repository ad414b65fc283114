//! An underlay that moves, is narrow, or lacks IPv6.

use crate::lab::{Lab, pair, permitted, wait_for};
use crate::traffic::copy;

#[test]
fn traffic_goes_on_when_the_underlay_address_changes() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, mut at_b) = pair(&lab);
    let before = at_a.peer(b).handshake;
    a.ip("address add 172.31.0.101/24 dev eth0");
    a.ip("address delete 172.31.0.1/24 dev eth0");
    a.ip("address replace 172.31.0.101/24 dev eth0");
    a.reaches(b);
    copy(b, a, 1_000_000);
    assert_eq!(at_b.peer(a).endpoint, "172.31.0.101:51820".parse().ok());
    assert_eq!(at_a.peer(b).handshake, before, "the session is the same");
}

#[test]
fn errors_of_the_socket_end_nothing() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, _at_b) = pair(&lab);
    a.ip("link set eth0 down");
    wait_for("an error", || {
        assert!(!a.pings(b.tunnel()));
        at_a.number("udp_errors") > 0
    });
    a.ip("link set eth0 up");
    a.reaches(b);
}

#[test]
fn a_host_without_ipv6_is_no_worse() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    for node in &lab.nodes {
        node.must("sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    }
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, _at_b) = pair(&lab);
    copy(a, b, 1_000_000);
    assert_eq!(at_a.number("udp_errors"), 0);
}

#[test]
fn a_candidate_that_is_dead_does_not_stick() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, mut at_b) = (a.device(), b.device());
    at_b.ask(&a.as_peer("-"));
    at_a.ask(&b.as_peer(&format!("10.88.0.2:51820,172.31.0.77:51820,{}", b.endpoint())));
    a.reaches(b);
    assert_eq!(at_a.peer(b).endpoint, b.endpoint().parse().ok());
}

#[test]
fn what_waits_at_the_end_that_knows_no_endpoint_goes_out_when_the_other_calls() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, mut at_b) = (a.device(), b.device());
    at_b.ask(&a.as_peer("-"));
    let (pinging, address) = (b.clone(), a.tunnel());
    // Less than the time after which its own handshake would be tried again.
    let ping = std::thread::spawn(move || pinging.run(&format!("ping -c 1 -W 4 -n {address}")));
    wait_for("a packet that waits", || at_b.number("no_endpoint") > 0);
    at_a.ask(&b.as_peer(&b.endpoint()));
    assert!(ping.join().unwrap().status.success());
}

#[test]
fn an_endpoint_may_be_a_name() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    // `ip netns exec` shows the files of this folder in place of the machine's.
    let folder = std::path::PathBuf::from(format!("/etc/netns/{}", a.namespace));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("hosts"), "172.31.0.2 far.test\n").unwrap();
    let (mut at_a, mut at_b) = (a.device(), b.device());
    at_b.ask(&a.as_peer("-"));
    at_a.ask(&b.as_peer("far.test:51820"));
    wait_for("a handshake", || at_a.peer(b).handshake.is_some());
    assert_eq!(at_a.peer(b).endpoint, b.endpoint().parse().ok());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_mtu_follows_the_underlay_and_a_stated_one_wins() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(1);
    let a = &lab.nodes[0];
    for (underlay, asked, tunnel) in [
        (1_500, "-", 1_420),
        (1_400, "-", 1_320),
        (1_300, "-", 1_280),
        (9_000, "-", 8_920),
        (1_500, "1380", 1_380),
    ] {
        a.ip(&format!("link set eth0 mtu {underlay}"));
        let mut at_a = a.process();
        at_a.ask(&a.open_line().replace(" -", &format!(" {asked}")));
        at_a.ask(&format!("address {}", a.tunnel()));
        assert_eq!(at_a.number("mtu"), tunnel);
        let link = a.ip("link show scafo0");
        assert!(link.contains(&format!("mtu {tunnel} ")), "{link}");
        at_a.ask("close");
    }
}

#[test]
fn a_path_that_is_narrower_than_both_ends_still_carries_tcp() {
    if !permitted() {
        return;
    }
    // 1 and 2 on one switch, 3 behind 2, which forwards over a link that takes less.
    let lab = Lab::new(3);
    let [a, router, c] = &lab.nodes[..] else { panic!() };
    c.ip("link delete eth0");
    let (inner, outer) = (&router.namespace, &c.namespace);
    crate::lab::must(&format!(
        "ip link add eth1 netns {inner} type veth peer name eth0 netns {outer}"
    ));
    router.ip("address add 172.31.9.2/24 dev eth1");
    router.ip("link set eth1 mtu 1300 up");
    router.must("sysctl -q -w net.ipv4.ip_forward=1");
    // The far end believes in 1500, as machines behind a tunnel of their provider's do.
    c.ip("address add 172.31.9.3/24 dev eth0");
    c.ip("link set eth0 up");
    c.ip("route add 172.31.0.0/24 via 172.31.9.2");
    a.ip("route add 172.31.9.0/24 via 172.31.0.2");
    let (mut at_a, mut at_c) = (a.device(), c.device());
    at_a.ask(&c.as_peer("172.31.9.3:51820"));
    at_c.ask(&a.as_peer("-"));
    a.reaches(c);
    copy(a, c, 1_000_000);
    assert_eq!(at_a.number("mtu"), 1_420);
    drop(at_c);
}

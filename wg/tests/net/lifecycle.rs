//! Devices that come and go, what stands in their way, and what happens to peers that are not concerned.

use std::net::UdpSocket;

use crate::lab::{INTERFACE, Lab, MESH, Process, pair, permitted, wait_for};

#[test]
fn a_third_peer_comes_and_goes_and_the_first_one_notices_nothing() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(3);
    let [a, b, c] = &lab.nodes[..] else { panic!() };
    let (mut at_a, _at_b) = pair(&lab);
    let mut at_c = c.device();
    at_c.ask(&a.as_peer(&a.endpoint()));
    // Let the last packets between the two arrive.
    let mut before = at_a.peer(b);
    wait_for("silence", || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = at_a.peer(b);
        std::mem::replace(&mut before, now) == now
    });
    assert_eq!(at_a.ask(&c.as_peer(&c.endpoint())), "add=n-3 amend= remove=");
    a.reaches(c);
    assert_eq!(at_a.peer(b), before, "the same handshake, not a byte sent or received");
    assert_eq!(at_a.ask(&c.as_peer("-")), "add= amend=n-3 remove=");
    assert_eq!(at_a.ask("unpeer n-3"), "add= amend= remove=n-3");
    assert!(!a.pings(c.tunnel()), "a removed peer is gone");
    assert!(!c.pings(a.tunnel()), "and gets nothing in");
    assert_eq!(at_a.peer(b), before);
    // Nothing to change is nothing done.
    assert_eq!(at_a.ask(&b.as_peer(&b.endpoint())), "add= amend= remove=");
    a.reaches(b);
    let after = at_a.peer(b);
    assert_eq!(after.handshake, before.handshake);
    assert!(after.sent > before.sent);
}

#[test]
fn a_peer_with_a_new_key_is_one_peer() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, at_b) = pair(&lab);
    at_b.kill();
    let mut at_b = b.process();
    // Another machine's key will do as a new one.
    let other = Lab::new(3).nodes[2].clone();
    let open = format!("open {INTERFACE} {} 51820 {MESH} -", other.private_key());
    at_b.ask(&open);
    at_b.ask(&format!("address {}", b.tunnel()));
    at_b.ask(&a.as_peer(&a.endpoint()));
    let peer = format!("peer n-2 {} {}/32 {} -", other.public_key(), b.tunnel(), b.endpoint());
    assert_eq!(at_a.ask(&peer), "add=n-2 amend= remove=n-2");
    a.reaches(b);
    assert_eq!(at_a.ask("status").matches(" peer ").count(), 1);
}

#[test]
fn leftovers_are_taken_over_and_what_is_not_ours_is_not() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (at_a, _at_b) = pair(&lab);
    // A crash.
    at_a.kill();
    let mut at_a = a.device();
    at_a.ask(&b.as_peer(&b.endpoint()));
    a.reaches(b);
    let second = format!("open {INTERFACE} {} 0 {MESH} -", a.private_key());
    let refused = a.process().try_ask(&second).unwrap_err();
    assert!(refused.contains("InterfaceTaken(\"scafo0\")"), "held: {refused}");
    a.reaches(b);
    at_a.ask("close");
    assert!(!a.has(INTERFACE));
    drop(at_a);

    // A TUN that was made to last, with an address of another run.
    a.ip(&format!("tuntap add {INTERFACE} mode tun"));
    a.ip(&format!("address add 10.88.0.200/16 dev {INTERFACE}"));
    let mut at_a = a.device();
    at_a.ask(&b.as_peer(&b.endpoint()));
    a.reaches(b);
    assert!(!a.ip("address show").contains("10.88.0.200"));
    at_a.ask("close");
    assert!(!a.has(INTERFACE), "a leftover that was taken over goes too");

    for kind in ["bridge", "veth"] {
        a.ip(&format!("link add {INTERFACE} type {kind}"));
        let refused = a.process().try_ask(&a.open_line()).unwrap_err();
        assert!(refused.contains("InterfaceTaken(\"scafo0\")"), "{kind}: {refused}");
        assert!(a.has(INTERFACE), "what is not ours stays");
        a.ip(&format!("link delete {INTERFACE}"));
    }
    a.ip(&format!("tuntap add {INTERFACE} mode tap"));
    let refused = a.process().try_ask(&a.open_line()).unwrap_err();
    assert!(refused.contains("InterfaceTaken(\"scafo0\")"), "tap: {refused}");
}

#[test]
fn a_taken_port_is_named_and_no_interface_comes_of_it() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(1);
    let a = &lab.nodes[0];
    for address in ["0.0.0.0:51820", "172.31.0.1:51820", "[::]:51820"] {
        // A socket that was closed lives on for a moment in a child of this process that is about to be another program.
        let held = a.inside(move || {
            let mut held = None;
            wait_for("the port", || {
                held = UdpSocket::bind(address).ok();
                held.is_some()
            });
            held
        });
        let refused = a.process().try_ask(&a.open_line()).unwrap_err();
        assert!(refused.contains("PortTaken(51820)"), "{address}: {refused}");
        assert!(!a.has(INTERFACE));
        drop(held);
    }
    let mut at_a = a.process();
    let any = a.open_line().replace("51820", "0");
    at_a.ask(&any);
    assert_ne!(at_a.number("port"), 0);
}

#[test]
fn a_route_of_the_host_s_that_overlaps_is_named() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(1);
    let a = &lab.nodes[0];
    a.ip("route add default via 172.31.0.99");
    let mut at_a = a.process();
    at_a.ask(&format!("check {MESH} {INTERFACE}"));
    a.ip("route add 10.88.5.0/24 via 172.31.0.98");
    let refused = at_a.try_ask(&format!("check {MESH} {INTERFACE}")).unwrap_err();
    assert!(refused.contains("the route 10.88.5.0/24 by eth0 overlaps"), "{refused}");
    at_a.ask(&a.open_line());
    assert!(at_a.try_ask(&format!("address {}", a.tunnel())).is_err());
    a.ip("route replace 10.0.0.0/8 via 172.31.0.98");
    a.ip("route delete 10.88.5.0/24");
    let refused = at_a.try_ask(&format!("address {}", a.tunnel())).unwrap_err();
    assert!(refused.contains("10.0.0.0/8"), "{refused}");
    a.ip("route delete 10.0.0.0/8");
    at_a.ask(&format!("address {}", a.tunnel()));
    // Its own route is in nobody's way.
    at_a.ask(&format!("check {MESH} {INTERFACE}"));
    at_a.ask(&format!("address {}", a.tunnel()));
}

#[test]
fn what_was_lost_is_mended() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, _at_b) = pair(&lab);
    assert_eq!(at_a.ask("mend"), "");
    for (damage, mended) in [
        (format!("link set {INTERFACE} down"), "the interface's state"),
        (format!("link set {INTERFACE} mtu 1300"), "the interface's state"),
        (format!("address delete 10.88.0.1/16 dev {INTERFACE}"), "the address"),
        (format!("route delete {MESH} dev {INTERFACE}"), "the route"),
    ] {
        a.ip(&damage);
        assert_eq!(at_a.ask("mend"), mended, "{damage}");
        assert_eq!(at_a.ask("mend"), "", "{damage}");
        a.reaches(b);
    }
}

#[test]
fn the_right_to_administer_networks_is_enough_and_is_needed() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(2);
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let with = |capabilities: &str| {
        let inheritable = format!("--inh-caps={capabilities}");
        let ambient = format!("--ambient-caps={capabilities}");
        let bounding = format!("--bounding-set={capabilities}");
        let wrapper = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let wrapper = [&wrapper[..], &[&inheritable, &ambient, &bounding]].concat();
        Process::start(&a.namespace, &wrapper)
    };
    let refused = with("-all").try_ask(&a.open_line()).unwrap_err();
    assert!(refused.contains("NotPermitted"), "{refused}");
    let mut at_a = with("-all,+net_admin");
    at_a.ask(&a.open_line());
    at_a.ask(&format!("address {}", a.tunnel()));
    at_a.ask(&format!("guard {}", a.tunnel()));
    at_a.ask(&b.as_peer(&b.endpoint()));
    let mut at_b = b.device();
    at_b.ask(&a.as_peer(&a.endpoint()));
    a.reaches(b);
    assert_eq!(at_a.ask("mend"), "");
    at_a.ask("close");
    assert!(!a.has(INTERFACE));
}

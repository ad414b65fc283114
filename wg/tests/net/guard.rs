//! The guard: the tunnel address is reached through the tunnel alone.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::lab::{INTERFACE, Lab, Node, permitted};

/// Long enough for a connection in one machine, short enough to wait for one that never comes.
const TRY: Duration = Duration::from_millis(700);

fn connects(from: &Node, to: SocketAddr) -> bool {
    from.inside(move || TcpStream::connect_timeout(&to, TRY).is_ok())
}

#[test]
fn a_neighbour_does_not_reach_the_tunnel_address() {
    if !permitted() {
        return;
    }
    let lab = Lab::new(3);
    let [a, b, neighbour] = &lab.nodes[..] else { panic!() };
    let (mut at_a, _at_b) = crate::lab::pair(&lab);
    let at = SocketAddr::new(a.tunnel(), 0);
    let listener = a.inside(move || TcpListener::bind(at).unwrap());
    let at = listener.local_addr().unwrap();
    neighbour.ip("route add 10.88.0.1/32 via 172.31.0.1");
    assert!(connects(neighbour, at), "without the guard the neighbour gets in");

    a.must("nft add table inet other");
    a.must("nft add chain inet other input { type filter hook input priority 0 ; policy accept ; }");
    let before = a.must("nft list table inet other");
    at_a.ask(&format!("guard {}", a.tunnel()));
    assert!(!connects(neighbour, at), "the guard drops the neighbour");
    assert!(connects(b, at), "a peer gets in");
    assert!(connects(a, at), "so does the machine itself");
    assert!(!neighbour.pings(a.tunnel()), "not even a ping passes");

    // A crash leaves the guard; the next start puts its own in place of it.
    at_a.kill();
    assert!(a.must("nft list tables").contains("scafo_scafo0"));
    let mut at_a = a.device();
    at_a.ask(&b.as_peer(&b.endpoint()));
    at_a.ask(&format!("guard {}", a.tunnel()));
    assert_eq!(a.must("nft list table inet scafo_scafo0").matches("drop").count(), 1);
    assert!(!connects(neighbour, at));

    a.must("nft delete table inet scafo_scafo0");
    assert!(
        connects(neighbour, at),
        "with the guard gone the neighbour gets in again"
    );
    assert_eq!(at_a.ask("mend"), "the guard");
    assert_eq!(at_a.ask("mend"), "");
    assert!(!connects(neighbour, at));
    at_a.ask("close");
    assert_eq!(a.must("nft list tables").trim(), "table inet other");
    assert_eq!(
        a.must("nft list table inet other"),
        before,
        "other tables are as they were"
    );
    assert!(!a.has(INTERFACE));
}

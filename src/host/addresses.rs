//! The addresses that this machine has, and the one that a packet to somewhere would leave from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;

/// Every address of every interface, loopback included, in the order of the interfaces.
pub fn all() -> Vec<IpAddr> {
    named().into_iter().map(|(_, address)| address).collect()
}

/// Every address with the name of its interface.
fn named() -> Vec<(String, IpAddr)> {
    let Ok(interfaces) = getifaddrs() else {
        return Vec::new();
    };
    interfaces
        .filter_map(|interface| {
            let address = interface.address?;
            let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => IpAddr::V4(v4.ip()),
                (_, Some(v6)) => IpAddr::V6(v6.ip()),
                _ => return None,
            };
            Some((interface.interface_name, ip))
        })
        .collect()
}

/// The address that a packet to `target` would leave from; `None` where there is no route. Nothing is sent: connecting
/// a UDP socket only asks the routing table.
pub fn source_towards(target: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(target).ok()?;
    let source = socket.local_addr().ok()?.ip();
    (!source.is_unspecified()).then_some(source)
}

/// The address that packets to the world leave from, or, without a default route, the first address that is neither
/// loopback nor link-local nor on the interface `except`.
pub fn outward(except: &str) -> Option<IpAddr> {
    // Documentation addresses (RFC 5737, RFC 3849) stand for "the world": nobody has them, and nothing is sent anyway.
    let worlds = [
        SocketAddr::from(([192, 0, 2, 1], 9)),
        SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9)),
    ];
    let routed = worlds
        .into_iter()
        .find_map(source_towards)
        .filter(|source| !source.is_loopback());
    routed.or_else(|| {
        named()
            .into_iter()
            .filter(|(interface, _)| interface != except)
            .map(|(_, address)| address)
            .find(|address| !address.is_loopback() && !is_link_local(*address))
    })
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_the_addresses_and_leaves_from_itself() {
        assert!(all().contains(&IpAddr::from([127, 0, 0, 1])));
        assert_eq!(
            source_towards(SocketAddr::from(([127, 0, 0, 1], 9))),
            Some(IpAddr::from([127, 0, 0, 1]))
        );
    }
}

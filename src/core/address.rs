//! Tunnel addresses that follow from a tunnel key (design, section 10).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// The address that the node with this X25519 public key tries at `attempt`, counted from 0. Never the network's own
/// address, the first host (people give that one to routers) or an IPv4 broadcast address.
///
/// A public key is as good as random, so its first 16 bytes choose the first host and the next 8 an odd stride. Hosts
/// are a power of two in number, so the strides visit every one of them before any comes twice. Fixed for all time: a
/// node that lost its record must derive the same address again.
pub fn derive_address(public_key: &[u8; 32], network: IpNet, attempt: u32) -> IpAddr {
    let host_bits = u32::from(network.max_prefix_len() - network.prefix_len());
    let mask = 1u128.checked_shl(host_bits).map_or(u128::MAX, |hosts| hosts - 1);
    let first = number(&public_key[..16]);
    let stride = number(&public_key[16..24]) | 1;
    let usable = |host: u128| host > 1 && (host != mask || network.addr().is_ipv6());
    let candidates = (0u128..).map(|step| first.wrapping_add(step.wrapping_mul(stride)) & mask);
    let nth = usize::try_from(attempt).unwrap_or(usize::MAX);
    // A network without a usable host is refused where the configuration is read; its own address would be the answer.
    let host = if mask < 3 {
        0
    } else {
        candidates.filter(|host| usable(*host)).nth(nth).unwrap_or(0)
    };
    match network.trunc().addr() {
        IpAddr::V4(base) => {
            // The mask keeps `host` within 32 bits.
            let host = u32::try_from(host).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(base) | host))
        }
        IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from(u128::from(base) | host)),
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| (number << 8) | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn test_vectors() {
        let key: [u8; 32] = std::array::from_fn(|index| u8::try_from(index * 7).unwrap());
        let derive = |network, attempt| derive_address(&key, net(network), attempt).to_string();
        assert_eq!(derive("10.88.0.0/16", 0), "10.88.98.105");
        assert_eq!(derive("10.88.0.0/16", 1), "10.88.253.10");
        assert_eq!(derive("10.88.3.7/24", 0), "10.88.3.105");
        assert_eq!(derive("fd00:88::/64", 0), "fd00:88::383f:464d:545b:6269");
    }

    #[test]
    fn a_small_network_is_walked_whole() {
        let found: BTreeSet<IpAddr> = (0..5)
            .map(|attempt| derive_address(&[9; 32], net("10.0.0.0/29"), attempt))
            .collect();
        let expected: BTreeSet<IpAddr> = (2..7).map(|host| IpAddr::from([10, 0, 0, host])).collect();
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn an_address_is_a_usable_host_of_its_network(key in any::<[u8; 32]>(), attempt in 0u32..50, prefix in 8u8..=29) {
            let network = IpNet::new("10.0.0.0".parse().unwrap(), prefix).unwrap();
            let address = derive_address(&key, network, attempt);
            prop_assert!(network.contains(&address));
            prop_assert!(address != network.network() && address != network.broadcast());
        }
    }
}

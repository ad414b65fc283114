//! Allowed IPs: by destination, which peer a packet goes to; by source, which peer it may come from (WireGuard paper,
//! section 2, "cryptokey routing").

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

/// Networks with an owner each; the longest prefix that contains an address decides.
///
/// A mesh's allowed IPs are single addresses, so there is one prefix length per family and a look-up is one search in
/// an ordered map.
#[derive(Clone, Debug)]
pub struct AllowedIps<T> {
    // By prefix length from the longest on, per family: IPv4 and IPv6 prefixes never contain each other.
    v4: Vec<(u8, BTreeMap<IpAddr, T>)>,
    v6: Vec<(u8, BTreeMap<IpAddr, T>)>,
}

impl<T> Default for AllowedIps<T> {
    fn default() -> Self {
        Self {
            v4: Vec::new(),
            v6: Vec::new(),
        }
    }
}

impl<T> AllowedIps<T> {
    /// Gives `network` to `owner`, and hands back whoever had exactly this network before.
    pub fn insert(&mut self, network: IpNet, owner: T) -> Option<T> {
        let lengths = if network.addr().is_ipv4() {
            &mut self.v4
        } else {
            &mut self.v6
        };
        let length = network.prefix_len();
        let place = match lengths.binary_search_by(|(other, _)| length.cmp(other)) {
            Ok(place) => place,
            Err(place) => {
                lengths.insert(place, (length, BTreeMap::new()));
                place
            }
        };
        lengths[place].1.insert(network.network(), owner)
    }

    /// The owner of the longest prefix that contains `address`.
    pub fn get(&self, address: IpAddr) -> Option<&T> {
        let lengths = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        lengths.iter().find_map(|(length, networks)| {
            // The length came from a network of this family, so it fits.
            let network = IpNet::new(address, *length).ok()?.network();
            networks.get(&network)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(networks: &[(IpNet, usize)], address: IpAddr) -> Option<usize> {
        let mut best: Option<(u8, usize)> = None;
        for (network, owner) in networks {
            if network.contains(&address) && best.is_none_or(|(length, _)| network.prefix_len() >= length) {
                best = Some((network.prefix_len(), *owner));
            }
        }
        best.map(|(_, owner)| owner)
    }

    fn network() -> impl Strategy<Value = IpNet> {
        // Few distinct bits, so that prefixes do contain each other.
        let v4 = (0u32..16, 0u8..=32).prop_map(|(bits, length)| {
            IpNet::new(IpAddr::V4((bits << 28 | bits).into()), length)
                .unwrap()
                .trunc()
        });
        let v6 = (0u128..16, 0u8..=128).prop_map(|(bits, length)| {
            IpNet::new(IpAddr::V6((bits << 124 | bits).into()), length)
                .unwrap()
                .trunc()
        });
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn it_answers_like_a_search_through_all(networks in proptest::collection::vec(network(), 0..12), bits in 0u32..16) {
            let owned: Vec<(IpNet, usize)> = networks.into_iter().enumerate().map(|(owner, network)| (network, owner)).collect();
            let mut allowed = AllowedIps::default();
            for (network, owner) in &owned {
                allowed.insert(*network, *owner);
            }
            for address in [IpAddr::V4((bits << 28 | bits).into()), IpAddr::V6((u128::from(bits) << 124 | u128::from(bits)).into())] {
                prop_assert_eq!(allowed.get(address).copied(), naive(&owned, address));
            }
        }
    }
}

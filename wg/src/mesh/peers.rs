//! The peers as they should be, and what has to change for that. A peer that is as it was is never touched: its session,
//! its endpoint and its counters stay (`mesh.md` rows 4, 9 and 10).

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::key::PublicKey;

/// One peer as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Its name, for people; there is one peer per name.
    pub name: String,
    /// Its public key.
    pub public_key: PublicKey,
    /// What it may send from, and what is sent to it.
    pub allowed_ips: Vec<IpNet>,
    /// Where it may be reached, as `host:port`, in the order of preference.
    pub endpoints: Vec<String>,
    /// Seconds between keepalives; `None` for none.
    pub keepalive: Option<u16>,
}

/// What has to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Peers that go, by name. A peer with a new key or a new keepalive goes and comes again.
    pub remove: Vec<String>,
    /// Peers that come.
    pub add: Vec<PeerConfig>,
    /// Peers that keep their session and get other endpoints or allowed IPs.
    pub amend: Vec<PeerConfig>,
}

impl Changes {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty() && self.amend.is_empty()
    }
}

/// What has to change from `current` to `desired`, both by name. Of two desired peers with one key, the first by name
/// counts: a key names one peer.
pub fn changes(current: &BTreeMap<String, PeerConfig>, desired: impl IntoIterator<Item = PeerConfig>) -> Changes {
    let mut by_name = BTreeMap::new();
    for peer in desired {
        by_name.entry(peer.name.clone()).or_insert(peer);
    }
    let mut keys = BTreeMap::new();
    by_name.retain(|name, peer| keys.entry(peer.public_key).or_insert_with(|| name.clone()) == name);
    let mut changes = Changes::default();
    for name in current.keys().filter(|name| !by_name.contains_key(*name)) {
        changes.remove.push(name.clone());
    }
    for (name, peer) in by_name {
        match current.get(&name) {
            None => changes.add.push(peer),
            Some(before) if *before == peer => {}
            Some(before) if before.public_key == peer.public_key && before.keepalive == peer.keepalive => {
                changes.amend.push(peer);
            }
            Some(_) => {
                changes.remove.push(name);
                changes.add.push(peer);
            }
        }
    }
    changes
}

/// `current` after `changes`.
pub fn apply(current: &mut BTreeMap<String, PeerConfig>, changes: &Changes) {
    for name in &changes.remove {
        current.remove(name);
    }
    for peer in changes.add.iter().chain(&changes.amend) {
        current.insert(peer.name.clone(), peer.clone());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peer() -> impl Strategy<Value = PeerConfig> {
        (0u8..4, 0u8..4, 0u8..3, 0u8..3, proptest::option::of(20u16..22)).prop_map(
            |(name, key, address, endpoint, keepalive)| PeerConfig {
                name: format!("n-{name}"),
                public_key: PublicKey::from([key; 32]),
                allowed_ips: vec![IpNet::new([10, 88, 0, address].into(), 32).unwrap()],
                endpoints: vec![format!("172.31.0.{endpoint}:51820")],
                keepalive,
            },
        )
    }

    fn distinct(peers: Vec<PeerConfig>) -> BTreeMap<String, PeerConfig> {
        let mut by_name = BTreeMap::new();
        let changes = changes(&by_name, peers);
        apply(&mut by_name, &changes);
        by_name
    }

    proptest! {
        #[test]
        fn the_changes_lead_to_what_is_desired_and_touch_nothing_else(
            current in proptest::collection::vec(peer(), 0..5), desired in proptest::collection::vec(peer(), 0..5),
        ) {
            let current = distinct(current);
            let desired = distinct(desired);
            let changes = changes(&current, desired.values().cloned());
            for (name, peer) in &current {
                if desired.get(name) == Some(peer) {
                    prop_assert!(!changes.remove.contains(name));
                    prop_assert!(changes.add.iter().chain(&changes.amend).all(|other| other.name != *name));
                }
            }
            let mut after = current;
            apply(&mut after, &changes);
            prop_assert_eq!(after, desired);
        }
    }

    #[test]
    fn a_new_key_removes_the_old_peer_in_the_same_change() {
        let before = PeerConfig {
            name: "n-1".into(),
            public_key: PublicKey::from([1; 32]),
            allowed_ips: vec![],
            endpoints: vec![],
            keepalive: None,
        };
        let after = PeerConfig {
            public_key: PublicKey::from([2; 32]),
            ..before.clone()
        };
        let current = distinct(vec![before]);
        let changes = changes(&current, [after.clone()]);
        assert_eq!(
            changes,
            Changes {
                remove: vec!["n-1".into()],
                add: vec![after],
                amend: vec![]
            }
        );
    }
}

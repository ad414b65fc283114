//! Where each record lives, both ways.

use crate::core::records::Key;

/// Node records.
pub const NODES: &str = "_scafo/nodes/";
/// Identities of nodes and operators.
pub const IDENTITIES: &str = "_scafo/identities/";
/// Everything of Scafo's.
pub const ALL: &str = "_scafo/";

const PEERS: &str = "_scafo/wireguard/peers/";
const ADDRESSES: &str = "_scafo/wireguard/addresses/";
const NETWORK: &str = "_scafo/wireguard/network.json";
const FREEZE: &str = "_scafo/freeze.json";
const HINT: &str = "_scafo/hint.json";
const LEASE: &str = "_scafo/coordinator/lease.json";

/// The whole key in the bucket.
pub fn path(key: &Key) -> String {
    match key {
        Key::Node(id) => format!("{NODES}{id}.json"),
        Key::Identity(id) => format!("{IDENTITIES}{id}.json"),
        Key::Peer(id) => format!("{PEERS}{id}.json"),
        Key::Address(address) => format!("{ADDRESSES}{address}.json"),
        Key::Network => NETWORK.to_owned(),
        Key::Freeze => FREEZE.to_owned(),
        Key::Hint => HINT.to_owned(),
        Key::Lease => LEASE.to_owned(),
    }
}

/// Which record lives at `path`; `None` for keys that this build does not know, which a newer one may have written.
pub fn parse(path: &str) -> Option<Key> {
    let name = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix(".json");
    match path {
        NETWORK => return Some(Key::Network),
        FREEZE => return Some(Key::Freeze),
        HINT => return Some(Key::Hint),
        LEASE => return Some(Key::Lease),
        _ => {}
    }
    if let Some(id) = name(NODES) {
        id.parse().ok().map(Key::Node)
    } else if let Some(id) = name(IDENTITIES) {
        id.parse().ok().map(Key::Identity)
    } else if let Some(id) = name(PEERS) {
        id.parse().ok().map(Key::Peer)
    } else if let Some(address) = name(ADDRESSES) {
        address.parse().ok().map(Key::Address)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_leads_back_to_itself() {
        let id = || "n-1".parse().unwrap();
        for key in [
            Key::Node(id()),
            Key::Identity(id()),
            Key::Peer(id()),
            Key::Address("10.88.0.1".parse().unwrap()),
            Key::Address("fd00::1".parse().unwrap()),
            Key::Network,
            Key::Freeze,
            Key::Hint,
            Key::Lease,
        ] {
            assert_eq!(parse(&path(&key)), Some(key));
        }
    }

    #[test]
    fn foreign_keys_are_none_of_ours() {
        for path in [
            "_scafo/nodes/A.json",
            "_scafo/nodes/a",
            "_scafo/nodes/a/b.json",
            "_scafo/probe/x",
            "x",
            "",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
    }
}

//! What the holder of the lease removes for good (design, section 8): records of nodes that are gone, and what removed
//! nodes leave behind. Never anything of a node that is answering.
//!
//! Identities are never reaped: a revoked key has to stay out, and an id stays with whoever has it.

use super::liveness;
use super::records::{Fleet, IdentityKind, IdentityRecord, Key, NodeRecord, Record};
use super::types::{Id, UnixMs};

/// A node that has not beaten for this long is gone; its identity stays claimed.
pub const GONE_AFTER_MS: u64 = 24 * 3_600_000;

/// What can be removed, in an order that leaves the node record for last: as long as it stands, the rest is looked at
/// again.
pub fn plan(fleet: &Fleet, now: UnixMs, window_ms: u64) -> Vec<Key> {
    let mut keys = Vec::new();
    // What cannot be read hides what it says, so whatever it may be about is left alone.
    if !fleet.unreadable.is_empty() {
        return keys;
    }
    let answering = |id: &Id| {
        fleet
            .nodes
            .get(id)
            .is_some_and(|node| liveness::answering(node, now, window_ms))
    };
    let removed = |id: &Id| is_removed(fleet.identities.get(id)) && !answering(id);
    keys.extend(fleet.peers.keys().filter(|id| removed(id)).cloned().map(Key::Peer));
    keys.extend(
        fleet
            .addresses
            .iter()
            .filter(|(_, claim)| removed(&claim.id))
            .map(|(address, _)| Key::Address(*address)),
    );
    let gone = |id: &Id, node: &NodeRecord| removed(id) || is_gone(node, now);
    keys.extend(
        fleet
            .nodes
            .iter()
            .filter(|(id, node)| gone(id, node))
            .map(|(id, _)| Key::Node(id.clone())),
    );
    keys
}

/// Whether a record that was planned for removal may still be removed, now that it was read again. A machine may have
/// claimed the id or the address anew meanwhile.
pub fn still_due(record: &Record, fleet: &Fleet, now: UnixMs, window_ms: u64) -> bool {
    let removed = |id: &Id| is_removed(fleet.identities.get(id));
    match record {
        Record::Node(node) => !liveness::answering(node, now, window_ms) && (removed(&node.id) || is_gone(node, now)),
        Record::Peer(peer) => removed(&peer.id),
        Record::Address(claim) => removed(&claim.id),
        _ => false,
    }
}

fn is_removed(identity: Option<&IdentityRecord>) -> bool {
    identity.is_some_and(|identity| identity.kind == IdentityKind::Node && identity.revoked_at.is_some())
}

fn is_gone(node: &NodeRecord, now: UnixMs) -> bool {
    let heard = node.heartbeat_at.unwrap_or(node.started_at);
    now.0.saturating_sub(heard.0) > GONE_AFTER_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::liveness::tests::node;
    use crate::core::records::{AddressRecord, PeerRecord, PublicKeyText, SignedPeer, Unreadable};

    const NOW: u64 = 10 * GONE_AFTER_MS;

    fn fleet(beat_ago: u64, revoked: bool) -> Fleet {
        let id: Id = "n-1".parse().unwrap();
        let mut fleet = Fleet::default();
        fleet.nodes.insert(id.clone(), node("n-1", Some(NOW - beat_ago), None));
        let identity = IdentityRecord {
            kind: IdentityKind::Node,
            public_key: PublicKeyText("k".into()),
            created_at: UnixMs(1),
            revoked_at: revoked.then_some(UnixMs(2)),
            revoked_keys: vec![],
        };
        fleet.identities.insert(id.clone(), identity);
        let address = "10.88.0.7".parse().unwrap();
        fleet.addresses.insert(
            address,
            AddressRecord {
                id: id.clone(),
                claimed_at: UnixMs(1),
            },
        );
        let record = PeerRecord {
            id: id.clone(),
            tunnel_key: PublicKeyText("t".into()),
            address,
            endpoints: vec![],
            key_since: UnixMs(1),
            signature: String::new(),
        };
        fleet.peers.insert(
            id,
            SignedPeer {
                record,
                authentic: true,
            },
        );
        fleet
    }

    fn planned(fleet: &Fleet) -> usize {
        plan(fleet, UnixMs(NOW), 90_000).len()
    }

    #[test]
    fn a_removed_node_leaves_nothing_but_its_identity() {
        let fleet = fleet(100_000, true);
        let keys = plan(&fleet, UnixMs(NOW), 90_000);
        assert_eq!(keys.len(), 3);
        assert!(matches!(keys[2], Key::Node(_)), "the node record goes last");
    }

    #[test]
    fn a_node_that_is_only_away_keeps_its_place_and_after_a_day_loses_its_record_alone() {
        assert_eq!(planned(&fleet(100_000, false)), 0);
        assert_eq!(planned(&fleet(GONE_AFTER_MS, false)), 0);
        let long_gone = fleet(GONE_AFTER_MS + 1, false);
        assert_eq!(
            plan(&long_gone, UnixMs(NOW), 90_000),
            [Key::Node("n-1".parse().unwrap())]
        );
    }

    #[test]
    fn nothing_of_a_node_that_answers_is_touched() {
        assert_eq!(planned(&fleet(1_000, true)), 0);
    }

    #[test]
    fn nothing_is_removed_while_something_cannot_be_read() {
        let mut fleet = fleet(100_000, true);
        fleet.unreadable.push(Unreadable {
            key: "_scafo/nodes/x.json".into(),
            reason: "cut".into(),
        });
        assert_eq!(planned(&fleet), 0);
    }

    #[test]
    fn what_came_back_meanwhile_stays() {
        let removed = fleet(100_000, true);
        let due = |record: Record, fleet: &Fleet| still_due(&record, fleet, UnixMs(NOW), 90_000);
        assert!(due(Record::Node(node("n-1", Some(NOW - 100_000), None)), &removed));
        assert!(
            !due(Record::Node(node("n-1", Some(NOW - 1_000), None)), &removed),
            "it beats again"
        );
        let claim = |id: &str| {
            Record::Address(AddressRecord {
                id: id.parse().unwrap(),
                claimed_at: UnixMs(1),
            })
        };
        assert!(due(claim("n-1"), &removed));
        assert!(!due(claim("n-2"), &removed), "another node has the address now");
        assert!(!due(claim("n-1"), &fleet(100_000, false)), "the id was claimed anew");
    }
}

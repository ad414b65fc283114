//! A peer record is signed by its node's identity, so that nobody who may merely write to the bucket's listing can
//! put a machine of theirs into everybody's mesh under another node's name.

use super::Registry;
use crate::core::records::{Fleet, IdentityRecord, PeerRecord, Record};
use crate::state::identity;

/// What is signed: a tag of this very use, then every field that a reader acts on, as one JSON list. Lists keep their
/// order and texts are quoted, so no two records share these bytes.
fn signed_bytes(peer: &PeerRecord) -> Vec<u8> {
    let fields = serde_json::json!([
        "scafo peer record 1",
        peer.id.as_str(),
        peer.tunnel_key.0,
        peer.address.to_string(),
        peer.endpoints,
        peer.key_since.0,
    ]);
    fields.to_string().into_bytes()
}

impl Registry {
    /// The record with this node's signature, where it is one that carries a signature.
    pub(super) fn signed(&self, record: Record) -> Record {
        match (record, &self.identity) {
            (Record::Peer(mut peer), Some(identity)) => {
                peer.signature = identity.sign(&signed_bytes(&peer));
                Record::Peer(peer)
            }
            (record, _) => record,
        }
    }
}

/// Whether `identity` signed exactly this record.
pub(super) fn is_authentic(peer: &PeerRecord, identity: &IdentityRecord) -> bool {
    identity::verify(&identity.public_key.0, &signed_bytes(peer), &peer.signature)
}

/// Checks every peer record of `fleet` against the identity of the same id.
pub(super) fn authenticate(fleet: &mut Fleet) {
    for (id, peer) in &mut fleet.peers {
        peer.authentic = fleet
            .identities
            .get(id)
            .is_some_and(|identity| is_authentic(&peer.record, identity));
    }
}

//! Which registered nodes become WireGuard peers (design, section 10; `mesh.md` rows 7 and 9).
//!
//! Every other node whose peer record its own identity signed, at an address that it holds the claim of, with a tunnel
//! key that nobody had before it. Liveness does not matter: a node that is away comes back to a mesh that knows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::records::{Fleet, IdentityKind, PublicKeyText, SignedPeer};
use super::types::Id;

/// One peer of this node's mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its tunnel key.
    pub tunnel_key: PublicKeyText,
    /// Its tunnel address: the one allowed IP.
    pub address: IpAddr,
    /// Where it may be reached on the underlay, in the order of preference.
    pub endpoints: Vec<String>,
}

/// Peers by node id: one per node, so that a changed key replaces the old one.
pub type Peers = BTreeMap<Id, Peer>;

/// Why a peer record is not followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// No node identity of this id, so nothing vouches for the record.
    Unregistered,
    /// The identity was revoked.
    Revoked,
    /// The signature is not the identity's, or the record speaks for another id.
    Forged,
    /// The address is claimed by nobody, or by somebody else.
    AddressNotHeld(Option<Id>),
    /// The tunnel key belongs to another node.
    KeyHeldBy(Id),
    /// The record claims this node's own address or tunnel key.
    Ours,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unregistered => f.write_str("no identity is registered under this id"),
            Self::Revoked => f.write_str("its identity was revoked"),
            Self::Forged => f.write_str("it is not signed by the identity of this id"),
            Self::AddressNotHeld(None) => f.write_str("nobody has claimed its tunnel address"),
            Self::AddressNotHeld(Some(holder)) => write!(f, "its tunnel address is claimed by {holder}"),
            Self::KeyHeldBy(holder) => write!(f, "its tunnel key belongs to {holder}"),
            Self::Ours => f.write_str("it claims this node's own tunnel address or key"),
        }
    }
}

/// What this node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me<'a> {
    /// The node's id.
    pub id: &'a Id,
    /// Its tunnel key.
    pub tunnel_key: &'a PublicKeyText,
    /// Its tunnel address.
    pub address: IpAddr,
}

/// Chooses the peers, and says whose records are not followed and why. `current` are the peers chosen last time: a key
/// stays with the node that had it, and a peer whose records cannot be read right now stays as it was, since
/// unreadable is not absent.
pub fn choose(fleet: &Fleet, me: &Me<'_>, current: &Peers) -> (Peers, BTreeMap<Id, Refusal>) {
    let unreadable: BTreeSet<&str> = fleet.unreadable.iter().map(|record| record.key.as_str()).collect();
    let hidden = |id: &Id, address: IpAddr| {
        [
            format!("nodes/{id}"),
            format!("identities/{id}"),
            format!("wireguard/peers/{id}"),
            format!("wireguard/addresses/{address}"),
        ]
        .iter()
        .any(|key| unreadable.contains(format!("_scafo/{key}.json").as_str()))
    };
    let mut peers = Peers::new();
    let mut refused = BTreeMap::new();
    for (id, peer) in current
        .iter()
        .filter(|(id, peer)| *id != me.id && hidden(id, peer.address))
    {
        peers.insert(id.clone(), peer.clone());
    }
    // Whoever had its key first goes first, so that a later claim of the same key meets the holder.
    let mut claims: Vec<(&Id, &SignedPeer)> = fleet.peers.iter().filter(|(id, _)| *id != me.id).collect();
    claims.sort_by_key(|(id, claim)| {
        let holds_already = current
            .get(*id)
            .is_some_and(|peer| peer.tunnel_key == claim.record.tunnel_key);
        (!holds_already, claim.record.key_since, (*id).clone())
    });
    for (id, claim) in claims {
        if peers.contains_key(id) {
            continue;
        }
        match judge(fleet, me, id, claim, &peers) {
            Ok(peer) => {
                peers.insert(id.clone(), peer);
            }
            Err(refusal) => {
                refused.insert(id.clone(), refusal);
            }
        }
    }
    (peers, refused)
}

fn judge(fleet: &Fleet, me: &Me<'_>, id: &Id, claim: &SignedPeer, chosen: &Peers) -> Result<Peer, Refusal> {
    let record = &claim.record;
    let identity = fleet
        .identities
        .get(id)
        .filter(|identity| identity.kind == IdentityKind::Node);
    let identity = identity.ok_or(Refusal::Unregistered)?;
    if identity.revoked_at.is_some() {
        return Err(Refusal::Revoked);
    }
    if !claim.authentic || record.id != *id {
        return Err(Refusal::Forged);
    }
    if record.address == me.address || record.tunnel_key == *me.tunnel_key {
        return Err(Refusal::Ours);
    }
    match fleet.addresses.get(&record.address) {
        Some(held) if held.id == *id => {}
        other => return Err(Refusal::AddressNotHeld(other.map(|held| held.id.clone()))),
    }
    if let Some((holder, _)) = chosen.iter().find(|(_, peer)| peer.tunnel_key == record.tunnel_key) {
        return Err(Refusal::KeyHeldBy(holder.clone()));
    }
    Ok(Peer {
        tunnel_key: record.tunnel_key.clone(),
        address: record.address,
        endpoints: record.endpoints.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::records::{AddressRecord, IdentityRecord, PeerRecord, Unreadable};
    use crate::core::types::UnixMs;

    fn id(text: &str) -> Id {
        text.parse().unwrap()
    }

    fn key(text: &str) -> PublicKeyText {
        PublicKeyText(text.into())
    }

    fn add(fleet: &mut Fleet, name: &str, tunnel_key: &str, address: &str, since: u64) {
        let address: IpAddr = address.parse().unwrap();
        fleet.identities.insert(
            id(name),
            IdentityRecord {
                kind: IdentityKind::Node,
                public_key: key("identity"),
                created_at: UnixMs(0),
                revoked_at: None,
                revoked_keys: Vec::new(),
            },
        );
        fleet.addresses.entry(address).or_insert(AddressRecord {
            id: id(name),
            claimed_at: UnixMs(0),
        });
        let record = PeerRecord {
            id: id(name),
            tunnel_key: key(tunnel_key),
            address,
            endpoints: vec!["10.0.0.1:51820".into()],
            key_since: UnixMs(since),
            signature: String::new(),
        };
        fleet.peers.insert(
            id(name),
            SignedPeer {
                record,
                authentic: true,
            },
        );
    }

    fn fleet() -> Fleet {
        let mut fleet = Fleet::default();
        add(&mut fleet, "me", "my-key", "10.88.0.1", 0);
        add(&mut fleet, "a", "key-a", "10.88.0.2", 5);
        add(&mut fleet, "b", "key-b", "10.88.0.3", 6);
        fleet
    }

    fn choose_from(fleet: &Fleet, current: &Peers) -> (Peers, BTreeMap<Id, Refusal>) {
        let me = id("me");
        let tunnel_key = key("my-key");
        choose(
            fleet,
            &Me {
                id: &me,
                tunnel_key: &tunnel_key,
                address: "10.88.0.1".parse().unwrap(),
            },
            current,
        )
    }

    #[test]
    fn every_other_node_is_a_peer() {
        let (peers, refused) = choose_from(&fleet(), &Peers::new());
        assert_eq!(peers.keys().map(Id::as_str).collect::<Vec<_>>(), ["a", "b"]);
        assert!(refused.is_empty());
    }

    #[test]
    fn a_record_without_a_good_signature_is_not_followed() {
        let mut fleet = fleet();
        fleet.peers.get_mut(&id("a")).unwrap().authentic = false;
        let (peers, refused) = choose_from(&fleet, &Peers::new());
        assert!(!peers.contains_key(&id("a")));
        assert_eq!(refused[&id("a")], Refusal::Forged);
    }

    #[test]
    fn a_revoked_or_unregistered_node_is_not_a_peer() {
        let mut fleet = fleet();
        fleet.identities.get_mut(&id("a")).unwrap().revoked_at = Some(UnixMs(9));
        fleet.identities.remove(&id("b"));
        let (peers, refused) = choose_from(&fleet, &Peers::new());
        assert!(peers.is_empty());
        assert_eq!(refused[&id("a")], Refusal::Revoked);
        assert_eq!(refused[&id("b")], Refusal::Unregistered);
    }

    #[test]
    fn an_address_belongs_to_the_holder_of_its_claim() {
        let mut fleet = fleet();
        add(&mut fleet, "thief", "key-t", "10.88.0.2", 0);
        let (peers, refused) = choose_from(&fleet, &Peers::new());
        assert_eq!(peers[&id("a")].address, "10.88.0.2".parse::<IpAddr>().unwrap());
        assert_eq!(refused[&id("thief")], Refusal::AddressNotHeld(Some(id("a"))));
    }

    #[test]
    fn a_key_stays_with_whoever_had_it() {
        let mut fleet = fleet();
        // The thief even claims to have had the key for longer.
        add(&mut fleet, "thief", "key-a", "10.88.0.9", 1);
        let (before, _) = choose_from(&self::fleet(), &Peers::new());
        let (peers, refused) = choose_from(&fleet, &before);
        assert_eq!(peers[&id("a")].tunnel_key, key("key-a"));
        assert_eq!(refused[&id("thief")], Refusal::KeyHeldBy(id("a")));
    }

    #[test]
    fn nobody_takes_this_node_s_own_address_or_key() {
        let mut fleet = fleet();
        add(&mut fleet, "x", "my-key", "10.88.0.8", 0);
        add(&mut fleet, "y", "key-y", "10.88.0.1", 0);
        let (_, refused) = choose_from(&fleet, &Peers::new());
        assert_eq!(refused[&id("x")], Refusal::Ours);
        assert_eq!(refused[&id("y")], Refusal::Ours);
    }

    #[test]
    fn a_changed_key_replaces_the_old_one() {
        let (before, _) = choose_from(&fleet(), &Peers::new());
        let mut fleet = fleet();
        add(&mut fleet, "a", "key-a2", "10.88.0.2", 9);
        let (peers, _) = choose_from(&fleet, &before);
        assert_eq!(peers.len(), 2);
        assert_eq!(peers[&id("a")].tunnel_key, key("key-a2"));
    }

    #[test]
    fn unreadable_is_not_absent() {
        let (before, _) = choose_from(&fleet(), &Peers::new());
        let mut fleet = fleet();
        fleet.peers.remove(&id("a"));
        fleet.unreadable.push(Unreadable {
            key: "_scafo/wireguard/peers/a.json".into(),
            reason: "cut".into(),
        });
        fleet.identities.remove(&id("b"));
        let (peers, _) = choose_from(&fleet, &before);
        assert_eq!(peers.keys().map(Id::as_str).collect::<Vec<_>>(), ["a"]);
    }
}

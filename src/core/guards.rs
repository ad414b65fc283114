//! The registration guards (design, section 6): may this key register under this id, given what the keyspace holds?

use super::records::{IdentityKind, IdentityRecord, PublicKeyText};
use super::types::UnixMs;

/// What to do about the id before the node record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody holds the id: create the identity.
    Claim,
    /// It is ours already: boot again under it.
    Ours,
    /// It was revoked, and this is a key it never had: replace the identity.
    Reclaim,
    /// Another machine holds it.
    HeldByNode,
    /// An operator holds it.
    HeldByOperator,
    /// This very key was revoked: a removed machine stays out for good.
    Revoked,
}

/// Judges `key`, of a node or an operator as `kind` says, against what the keyspace holds for its id.
pub fn judge(held: Option<&IdentityRecord>, kind: IdentityKind, key: &PublicKeyText) -> Verdict {
    let Some(held) = held else { return Verdict::Claim };
    let revoked = held.revoked_at.is_some();
    if held.revoked_keys.contains(key) || (revoked && held.public_key == *key) {
        return Verdict::Revoked;
    }
    match held.kind {
        _ if revoked => Verdict::Reclaim,
        held_by if held_by == kind && held.public_key == *key => Verdict::Ours,
        IdentityKind::Operator => Verdict::HeldByOperator,
        IdentityKind::Node => Verdict::HeldByNode,
    }
}

/// The identity that replaces a revoked one: the new key, and every key that was ever revoked under the id.
pub fn reclaim(held: &IdentityRecord, claim: IdentityRecord) -> IdentityRecord {
    let mut revoked_keys = held.revoked_keys.clone();
    if !revoked_keys.contains(&held.public_key) {
        revoked_keys.push(held.public_key.clone());
    }
    IdentityRecord { revoked_keys, ..claim }
}

/// The identity with its key taken out for good; `None` when it is out already.
pub fn revoke(identity: &IdentityRecord, now: UnixMs) -> Option<IdentityRecord> {
    if identity.revoked_at.is_some() {
        return None;
    }
    let mut revoked = IdentityRecord {
        revoked_at: Some(now),
        ..identity.clone()
    };
    if !revoked.revoked_keys.contains(&identity.public_key) {
        revoked.revoked_keys.push(identity.public_key.clone());
    }
    Some(revoked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a node's boot asks.
    fn judge(held: Option<&IdentityRecord>, key: &PublicKeyText) -> Verdict {
        super::judge(held, IdentityKind::Node, key)
    }

    fn key(text: &str) -> PublicKeyText {
        PublicKeyText(text.into())
    }

    fn identity(kind: IdentityKind, public_key: &str, revoked: bool) -> IdentityRecord {
        IdentityRecord {
            kind,
            public_key: key(public_key),
            created_at: UnixMs(1),
            revoked_at: revoked.then_some(UnixMs(2)),
            revoked_keys: Vec::new(),
        }
    }

    #[test]
    fn the_table_row_by_row() {
        use IdentityKind::{Node, Operator};
        assert_eq!(judge(None, &key("k")), Verdict::Claim);
        assert_eq!(judge(Some(&identity(Node, "k", false)), &key("k")), Verdict::Ours);
        assert_eq!(
            judge(Some(&identity(Node, "other", false)), &key("k")),
            Verdict::HeldByNode
        );
        assert_eq!(
            judge(Some(&identity(Operator, "other", false)), &key("k")),
            Verdict::HeldByOperator
        );
        assert_eq!(
            judge(Some(&identity(Operator, "k", false)), &key("k")),
            Verdict::HeldByOperator
        );
        assert_eq!(judge(Some(&identity(Node, "k", true)), &key("k")), Verdict::Revoked);
        assert_eq!(judge(Some(&identity(Node, "other", true)), &key("k")), Verdict::Reclaim);
        assert_eq!(
            judge(Some(&identity(Operator, "other", true)), &key("k")),
            Verdict::Reclaim
        );
    }

    #[test]
    fn an_operator_is_judged_by_the_same_table() {
        use IdentityKind::{Node, Operator};
        let judge = |held: &IdentityRecord, name: &str| super::judge(Some(held), Operator, &key(name));
        assert_eq!(super::judge(None, Operator, &key("k")), Verdict::Claim);
        assert_eq!(judge(&identity(Operator, "k", false), "k"), Verdict::Ours);
        assert_eq!(judge(&identity(Operator, "other", false), "k"), Verdict::HeldByOperator);
        assert_eq!(judge(&identity(Node, "k", false), "k"), Verdict::HeldByNode);
        assert_eq!(judge(&identity(Operator, "k", true), "k"), Verdict::Revoked);
        assert_eq!(judge(&identity(Node, "other", true), "k"), Verdict::Reclaim);
    }

    #[test]
    fn a_revoked_key_stays_out_after_others_came_and_went() {
        let first = identity(IdentityKind::Node, "k1", true);
        let second = reclaim(&first, identity(IdentityKind::Node, "k2", false));
        assert_eq!(judge(Some(&second), &key("k1")), Verdict::Revoked);
        assert_eq!(judge(Some(&second), &key("k2")), Verdict::Ours);
        let third = reclaim(
            &IdentityRecord {
                revoked_at: Some(UnixMs(3)),
                ..second
            },
            identity(IdentityKind::Node, "k3", false),
        );
        for old in ["k1", "k2"] {
            assert_eq!(judge(Some(&third), &key(old)), Verdict::Revoked, "{old}");
        }
    }
}

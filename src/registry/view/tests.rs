//! What a refresh makes of a bucket: signatures checked, the unreadable named, the foreign left alone.

use std::sync::Arc;

use super::*;
use crate::bucket::memory::{Faults, MemoryBucket};
use crate::core::node::{Answer, Request, Wrote};
use crate::core::records::{IdentityKind, IdentityRecord, PeerRecord, PublicKeyText};
use crate::core::types::UnixMs;
use crate::host::clock::SystemClock;
use crate::state::StateDir;
use crate::state::identity::Identity;

struct Nodes {
    _folder: tempfile::TempDir,
    bucket: MemoryBucket,
    registry: Registry,
    identity: Arc<Identity>,
}

impl Nodes {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (identity, _) =
            Identity::load_or_create(&StateDir::at(folder.path()), Some(&"n-1".parse().unwrap())).unwrap();
        let identity = Arc::new(identity);
        let bucket = MemoryBucket::new(1, 1_700_000_000_000, Faults::default());
        let registry = Registry::new(Arc::new(bucket.clone()), Arc::new(SystemClock), Some(identity.clone()));
        Self {
            _folder: folder,
            bucket,
            registry,
            identity,
        }
    }

    async fn write(&self, key: Key, record: Record) {
        let (answer, _) = self.registry.answer(Request::Create(key, record)).await;
        assert!(matches!(answer, Answer::Wrote(Wrote::Applied(_))), "{answer:?}");
    }

    async fn register(&self, public_key: &str) {
        let identity = IdentityRecord {
            kind: IdentityKind::Node,
            public_key: PublicKeyText(public_key.to_owned()),
            created_at: UnixMs(1),
            revoked_at: None,
            revoked_keys: vec![],
        };
        self.write(Key::Identity("n-1".parse().unwrap()), Record::Identity(identity))
            .await;
        let peer = PeerRecord {
            id: "n-1".parse().unwrap(),
            tunnel_key: PublicKeyText("tunnel".into()),
            address: "10.88.0.7".parse().unwrap(),
            endpoints: vec!["172.31.0.7:51820".into()],
            key_since: UnixMs(1),
            signature: String::new(),
        };
        self.write(Key::Peer("n-1".parse().unwrap()), Record::Peer(peer)).await;
    }

    async fn fleet(&self) -> Fleet {
        self.registry.refresh(&mut Vec::new()).await.unwrap()
    }

    /// Changes the text of a record behind everybody's back.
    async fn tamper(&self, path: &str, from: &str, to: &str) {
        let object = self.bucket.get(path).await.unwrap().value.unwrap();
        let text = String::from_utf8(object.body).unwrap();
        assert!(text.contains(from), "{text}");
        self.bucket
            .replace(path, &object.etag, text.replace(from, to).into_bytes())
            .await;
    }
}

fn is_authentic(fleet: &Fleet) -> bool {
    fleet.peers[&"n-1".parse().unwrap()].authentic
}

#[tokio::test]
async fn a_peer_record_is_its_identity_s_or_nobody_s() {
    let nodes = Nodes::new();
    nodes.register(&nodes.identity.public_key()).await;
    assert!(is_authentic(&nodes.fleet().await));
    for (from, to) in [
        ("172.31.0.7", "172.31.0.8"),
        ("\"tunnel\"", "\"tunnex\""),
        ("10.88.0.7", "10.88.0.8"),
        ("\"keySince\":1", "\"keySince\":2"),
    ] {
        let path = "_scafo/wireguard/peers/n-1.json";
        nodes.tamper(path, from, to).await;
        assert!(!is_authentic(&nodes.fleet().await), "{from} became {to}");
        nodes.tamper(path, to, from).await;
        assert!(is_authentic(&nodes.fleet().await));
    }
    let other = Nodes::new();
    other.register(&nodes.identity.public_key()).await;
    assert!(
        !is_authentic(&other.fleet().await),
        "signed by another key than the identity's"
    );
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_stops_nobody() {
    let nodes = Nodes::new();
    nodes.register(&nodes.identity.public_key()).await;
    for (path, body) in [
        ("_scafo/nodes/n-2.json", "{"),
        ("_scafo/nodes/n-3.json", r#"{"id":"n-9"}"#),
        ("_scafo/nodes/of-a-newer-build/x.json", "{"),
        ("_scafo/something/else.json", "{"),
        ("_scafo/probe/0123-one", "x"),
        ("_scafo/hint.json", "{"),
        ("shop/deploy/current.json", "{"),
    ] {
        nodes.bucket.create(path, body.into()).await;
    }
    let fleet = nodes.fleet().await;
    let named: Vec<&str> = fleet.unreadable.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(named, ["_scafo/nodes/n-2.json", "_scafo/nodes/n-3.json"]);
    assert_eq!((fleet.identities.len(), fleet.peers.len()), (1, 1));
    // Once mended, it is read; once gone, it is gone.
    nodes.bucket.remove("_scafo/nodes/n-2.json").await.unwrap();
    nodes.bucket.remove("_scafo/identities/n-1.json").await.unwrap();
    let fleet = nodes.fleet().await;
    assert_eq!(fleet.unreadable.len(), 1);
    assert!(
        fleet.identities.is_empty() && !is_authentic(&fleet),
        "without an identity nothing vouches for it"
    );
}

#[tokio::test]
async fn a_refresh_is_all_or_nothing() {
    let nodes = Nodes::new();
    nodes.register(&nodes.identity.public_key()).await;
    nodes.bucket.set_away(true);
    assert!(nodes.registry.refresh(&mut Vec::new()).await.is_err());
    nodes.bucket.set_away(false);
    assert_eq!(nodes.fleet().await.peers.len(), 1);
}

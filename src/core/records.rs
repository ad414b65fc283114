//! What the records under `_scafo/` say (design, section 6), as the core decides from it.
//!
//! How they are written, read back and kept apart from fields of newer versions is `registry`'s business. Every stamp is
//! fleet time in milliseconds since the Unix epoch.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::lease::LeaseRecord;
use super::types::{Id, Labels, Transport, UnixMs};

/// An Ed25519 or X25519 public key, in base64 as WireGuard prints keys. Compared as text; parsed where it is used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublicKeyText(pub String);

/// The versions that a daemon booted with. Written at boot and never by a beat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Scafo's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scafo: Option<String>,
    /// celld's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub celld: Option<String>,
}

/// One application that a node serves right now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// The application's name.
    pub app: String,
    /// The public port of its runtime, at the node's address.
    pub port: u16,
    /// The fence of the placement that it serves under.
    pub fence: u64,
}

/// `nodes/<id>.json`: written by its node alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// The node's id.
    pub id: Id,
    /// One per start of the daemon. The newest boot owns the record.
    pub boot_id: String,
    /// The node's Ed25519 key.
    pub public_key: PublicKeyText,
    /// By what network the addresses below can be reached.
    pub transport: Transport,
    /// Where its API and its runtimes are reached. Never an underlay address of a mesh node.
    pub address: IpAddr,
    /// The port of its API.
    pub api_port: u16,
    /// What selectors match against.
    #[serde(default)]
    pub labels: Labels,
    /// What the running daemon started as.
    #[serde(default)]
    pub versions: Versions,
    /// What it serves.
    #[serde(default)]
    pub serving: Vec<Serving>,
    /// When this boot registered.
    pub started_at: UnixMs,
    /// The last beat; absent for a node that has never beaten.
    #[serde(default)]
    pub heartbeat_at: Option<UnixMs>,
    /// When the node said that it is leaving.
    #[serde(default)]
    pub draining_at: Option<UnixMs>,
    /// The machine's wall clock less fleet time, as measured at boot.
    #[serde(default)]
    pub clock_skew_ms: Option<i64>,
}

/// Who an identity belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentityKind {
    /// A machine.
    Node,
    /// A person or a pipeline.
    Operator,
}

/// `identities/<id>.json`: who owns an id. Nodes and operators share one keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityRecord {
    /// Node or operator.
    pub kind: IdentityKind,
    /// The key that owns the id, or owned it until `revokedAt`.
    pub public_key: PublicKeyText,
    /// When the id was first claimed.
    pub created_at: UnixMs,
    /// When it was taken back; a revoked id can be claimed again, by a new key.
    #[serde(default)]
    pub revoked_at: Option<UnixMs>,
    /// Every key that was ever revoked under this id; none of them comes back.
    #[serde(default)]
    pub revoked_keys: Vec<PublicKeyText>,
}

/// `wireguard/peers/<id>.json`: how a node's tunnel is reached, signed by its identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerRecord {
    /// The node's id.
    pub id: Id,
    /// The tunnel's X25519 key.
    pub tunnel_key: PublicKeyText,
    /// The tunnel address; its one allowed IP.
    pub address: IpAddr,
    /// Underlay endpoints as `host:port`, in the order in which they should be tried.
    pub endpoints: Vec<String>,
    /// When this tunnel key was first published under this id.
    pub key_since: UnixMs,
    /// The node's Ed25519 signature over the fields above, in base64; empty until `registry` has signed.
    #[serde(default)]
    pub signature: String,
}

/// `wireguard/addresses/<ip>.json`: who holds a tunnel address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressRecord {
    /// The holder.
    pub id: Id,
    /// When it was claimed.
    pub claimed_at: UnixMs,
}

/// `wireguard/network.json`: the mesh network that every node agrees on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRecord {
    /// In CIDR form, for example `10.88.0.0/16`.
    pub network: String,
}

/// `freeze.json`: a deploy freeze.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeRecord {
    /// Since when.
    pub since: UnixMs,
    /// By which operator.
    pub by: String,
    /// Why.
    pub why: String,
    /// Whether it has been lifted; a freeze is overwritten, never deleted.
    #[serde(default)]
    pub lifted: bool,
}

/// `hint.json`: the change hint. A poller that sees another counter reads the registry again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintRecord {
    /// Grows with every registry write that somebody hinted at.
    pub counter: u64,
    /// What kind of thing changed last, for people.
    #[serde(default)]
    pub kind: String,
}

/// Where a record lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `nodes/<id>.json`.
    Node(Id),
    /// `identities/<id>.json`.
    Identity(Id),
    /// `wireguard/peers/<id>.json`.
    Peer(Id),
    /// `wireguard/addresses/<ip>.json`.
    Address(IpAddr),
    /// `wireguard/network.json`.
    Network,
    /// `freeze.json`.
    Freeze,
    /// `hint.json`.
    Hint,
    /// `coordinator/lease.json`.
    Lease,
}

/// What a record says, by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// At [`Key::Node`].
    Node(NodeRecord),
    /// At [`Key::Identity`].
    Identity(IdentityRecord),
    /// At [`Key::Peer`].
    Peer(PeerRecord),
    /// At [`Key::Address`].
    Address(AddressRecord),
    /// At [`Key::Network`].
    Network(NetworkRecord),
    /// At [`Key::Freeze`].
    Freeze(FreezeRecord),
    /// At [`Key::Hint`].
    Hint(HintRecord),
    /// At [`Key::Lease`].
    Lease(LeaseRecord),
}

/// One version of a stored record. The core looks at `record`; `etag` and `body` are opaque to it and go back with a
/// write, so that fields of a newer version outlive this one's writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What it says.
    pub record: Record,
    /// The store's version of it.
    pub etag: String,
    /// The body as read or written.
    pub body: String,
    /// How old the store's own clock shows it to be in the reply that it came in, in milliseconds. Both of the dates that
    /// this is the difference of are cut to whole seconds.
    pub store_age_ms: Option<u64>,
}

/// A record that is there and cannot be read: skipped and named, never taken for absent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unreadable {
    /// The whole key in the bucket.
    pub key: String,
    /// Why, naming the field where one is to blame.
    pub reason: String,
}

/// The registry as one refresh read it: everything that a node decides from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Node records, by id.
    pub nodes: BTreeMap<Id, NodeRecord>,
    /// Identities, by id.
    pub identities: BTreeMap<Id, IdentityRecord>,
    /// Peer records, by id, each with whether its signature is its identity's.
    pub peers: BTreeMap<Id, SignedPeer>,
    /// Address claims.
    pub addresses: BTreeMap<IpAddr, AddressRecord>,
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// A peer record after its signature was checked against the identity of the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedPeer {
    /// What it says.
    pub record: PeerRecord,
    /// Whether the identity's key signed exactly this.
    pub authentic: bool,
}

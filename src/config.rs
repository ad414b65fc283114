//! What people say: the configuration file, the environment and the flags, with the origin of every value (design,
//! section 4).
//!
//! Loading never stops at the first fault: a value that cannot be used is noted and its default stands in, so that all
//! faults of one boot are told together.

use std::fmt;
use std::path::PathBuf;

use ipnet::IpNet;

use crate::bucket::url::BucketUrl;
use crate::core::types::{Id, Labels, Transport};
use crate::error::{Error, Field, Result};

pub mod layers;
pub mod settings;
pub mod transport;
mod values;

pub use layers::{Sources, load};
pub use values::checked_endpoint;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The configuration file at this path.
    File(PathBuf),
    /// This environment variable.
    Variable(String),
    /// This flag, dashes included.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub origin: Origin,
}

/// Ports from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

/// Which WireGuard carries the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Scafo's own, in this process.
    Embedded,
    /// The kernel's.
    Kernel,
}

/// Every setting. Times are in milliseconds unless the name says otherwise.
#[derive(Clone, Debug)]
pub struct Config {
    /// `bucket.*`.
    pub bucket: BucketSettings,
    /// `state.dir`.
    pub state_dir: Sourced<PathBuf>,
    /// `node.*`.
    pub node: NodeSettings,
    /// `api.*`.
    pub api: ApiSettings,
    /// `runtime.*`.
    pub runtime: RuntimeSettings,
    /// `registry.*`.
    pub registry: RegistrySettings,
    /// `coordinator.*`.
    pub coordinator: CoordinatorSettings,
    /// `wireguard.*`.
    pub wireguard: WireguardSettings,
    /// `fleet.network`.
    pub network: Sourced<IpNet>,
    /// `operator.file`.
    pub operator_file: Sourced<Option<PathBuf>>,
    /// Every setting as text, in the order of the table, for `scafo config show`.
    pub effective: Vec<Effective>,
}

/// One setting as `scafo config show` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The key.
    pub key: &'static str,
    /// The value; `None` when there is none.
    pub value: Option<String>,
    /// Where it came from.
    pub origin: Origin,
}

/// Which store.
#[derive(Clone, Debug)]
pub struct BucketSettings {
    /// `bucket.url`.
    pub url: Sourced<Option<BucketUrl>>,
    /// `bucket.endpoint`.
    pub endpoint: Sourced<Option<String>>,
    /// `bucket.region`.
    pub region: Sourced<Option<String>>,
}

/// What the node is.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// `node.id`.
    pub id: Sourced<Option<Id>>,
    /// `node.labels`.
    pub labels: Sourced<Labels>,
    /// `node.transport`.
    pub transport: Sourced<Option<Transport>>,
    /// `node.address`, as it stands; `transport` judges it.
    pub address: Sourced<Option<String>>,
}

/// Where the API listens.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// `api.host`, as it stands; `transport` judges it.
    pub host: Sourced<Option<String>>,
    /// `api.port`.
    pub port: Sourced<u16>,
}

/// How celld is run.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// `runtime.binary`.
    pub binary: Sourced<String>,
    /// `runtime.bindHost`, as it stands; `transport` judges it.
    pub bind_host: Sourced<Option<String>>,
    /// `runtime.ports`.
    pub ports: Sourced<PortRange>,
}

/// Beats and reads.
#[derive(Clone, Debug)]
pub struct RegistrySettings {
    /// `registry.heartbeatIntervalMs`.
    pub heartbeat_interval_ms: Sourced<u64>,
    /// `registry.livenessWindowMs`.
    pub liveness_window_ms: Sourced<u64>,
    /// `registry.nodeRefreshIntervalMs`.
    pub node_refresh_interval_ms: Sourced<u64>,
    /// `registry.hintPollIntervalMs`.
    pub hint_poll_interval_ms: Sourced<u64>,
}

/// The coordinator's lease.
#[derive(Clone, Debug)]
pub struct CoordinatorSettings {
    /// `coordinator.leaseTtlMs`.
    pub lease_ttl_ms: Sourced<u64>,
    /// `coordinator.renewIntervalMs`.
    pub renew_interval_ms: Sourced<u64>,
}

/// The tunnel.
#[derive(Clone, Debug)]
pub struct WireguardSettings {
    /// `wireguard.interface`.
    pub interface: Sourced<String>,
    /// `wireguard.listenPort`; 0 lets the kernel choose.
    pub listen_port: Sourced<u16>,
    /// `wireguard.endpoints`; empty means detected.
    pub endpoints: Sourced<Vec<String>>,
    /// `wireguard.mtu`; `None` means detected.
    pub mtu: Sourced<Option<u16>>,
    /// `wireguard.keepaliveSeconds`; 0 turns it off.
    pub keepalive_seconds: Sourced<u16>,
    /// `wireguard.backend`.
    pub backend: Sourced<Backend>,
    /// `wireguard.guard`.
    pub guard: Sourced<bool>,
}

/// A configuration, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Defaults stand where a value could not be used.
    pub config: Config,
    /// Everything that is wrong.
    pub faults: Faults,
}

impl Loaded {
    /// The configuration, if nothing is wrong with it.
    pub fn require(self) -> Result<Config> {
        self.faults.into_result(self.config)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The sentence that stands for it when nothing else is wrong.
    pub summary: &'static str,
    /// The field, its value, its origin and the reason.
    pub field: Field,
    /// What mends it.
    pub help: Option<String>,
}

/// Everything that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Notes a fault.
    pub fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// Notes more faults, but not about fields that are at fault already.
    pub fn merge(&mut self, more: Self) {
        for fault in more.0 {
            if !self.is_at_fault(&fault.field.name) {
                self.0.push(fault);
            }
        }
    }

    /// Whether this key is at fault.
    pub fn is_at_fault(&self, key: &str) -> bool {
        self.0.iter().any(|fault| fault.field.name == key)
    }

    /// `value`, or one error with every fault.
    pub fn into_result<T>(self, value: T) -> Result<T> {
        let Some(first) = self.0.first() else { return Ok(value) };
        let alike = self.0.iter().all(|fault| fault.summary == first.summary);
        let message = if alike {
            first.summary.to_owned()
        } else {
            format!("{} settings are wrong", self.0.len())
        };
        let mut error = Error::invalid(message);
        for mut fault in self.0 {
            error.help.extend(fault.help.filter(|help| !error.help.contains(help)));
            // Without its sentence at the top, a field has to say itself what is wrong with it.
            if !alike && fault.field.reason.is_none() {
                fault.field.reason = Some(fault.summary.to_owned());
            }
            error.fields.push(fault.field);
        }
        Err(error)
    }
}

impl Config {
    /// The bucket, with the one default that there is: a directory in the state directory, which only a node that
    /// nobody else can reach may use.
    pub fn bucket_url(&self) -> BucketUrl {
        self.bucket
            .url
            .value
            .clone()
            .unwrap_or_else(|| BucketUrl::Dir(self.state_dir.value.join("bucket")))
    }
}

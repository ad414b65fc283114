//! `scafo sail`: what is checked before anything is written or bound, then the actor. The only place that wires
//! everything.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket;
use crate::bucket::url::BucketUrl;
use crate::config::transport::{self, Exposure, TunnelFacts};
use crate::config::{Backend, Config, Loaded};
use crate::core::lease::Timing;
use crate::core::node::{Settings, TunnelSettings};
use crate::core::records::{PublicKeyText, Versions};
use crate::core::types::Transport;
use crate::error::{Error, Field, Result};
use crate::host::clock::SystemClock;
use crate::host::{addresses, random};
use crate::mesh::{self, Mesh, MeshOptions};
use crate::registry::{self, Registry};
use crate::runtime::version_probe::{self, Celld};
use crate::state::identity::{Came, Identity};
use crate::state::tunnel::TunnelState;
use crate::state::{StateDir, fence, mesh_cache};

use self::actor::{Actor, Parts};
use self::endpoints::Endpoints;

mod actor;
mod endpoints;

/// How long `celld --version` may take (design, section 9).
const CELLD_LIMIT: Duration = Duration::from_secs(5);

/// Runs a node until it leaves. Refuses before anything is written or bound, with every fault at once.
pub async fn sail(loaded: Loaded) -> Result<()> {
    let state = StateDir::at(loaded.config.state_dir.value.clone());
    let (config, exposure, tunnel) = decide(loaded, TunnelState::load(&state))?;
    let celld = probe_celld(&config).await?;
    let on_mesh = exposure.transport == Transport::Wireguard;
    let tunnel = tunnel.filter(|_| on_mesh);
    if let Some(tunnel) = &tunnel {
        refuse_kernel_backend(&config)?;
        mesh::check_overlap(tunnel.network, &config.wireguard.interface.value).await?;
    }
    state.create()?;
    let _lock = state.lock()?;
    // An identity that cannot be read is found out before an interface or a port is taken; a new one is made after that,
    // so that a machine whose port is taken does not get a name for nothing.
    let stored = Identity::load(&state)?;
    let tunnel = match tunnel {
        Some(tunnel) if tunnel.claimed && becomes_another(&config, stored.as_ref()) => Some(renew(&tunnel, &state)?),
        tunnel => tunnel,
    };
    let mesh = match tunnel.clone() {
        Some(tunnel) => Some(Arc::new(start_mesh(&config, &state, tunnel).await?)),
        None => None,
    };
    // From here on the interface is there, and has to be taken away again whatever happens.
    let ended = run(&config, exposure, &state, &celld, tunnel, mesh.clone()).await;
    if let Some(mesh) = mesh {
        mesh.close().await;
    }
    ended
}

/// What the node exposes, with every fault of the configuration, the transport and the tunnel's file in one error.
fn decide(loaded: Loaded, tunnel: Result<Option<TunnelState>>) -> Result<(Config, Exposure, Option<TunnelState>)> {
    let Loaded { config, mut faults } = loaded;
    let tunnel = match tunnel {
        Ok(tunnel) => tunnel,
        Err(unusable) => {
            let Err(others) = faults.into_result(()) else {
                return Err(unusable);
            };
            let helps = others
                .help
                .into_iter()
                .filter(|help| !unusable.help.contains(help))
                .collect::<Vec<_>>();
            return Err(helps.into_iter().fold(unusable.fields(others.fields), Error::help));
        }
    };
    let facts = tunnel.as_ref().map(|tunnel| TunnelFacts {
        address: tunnel.address,
        network: tunnel.network,
    });
    let exposure = transport::resolve(&config, facts, &addresses::all());
    let exposure = exposure.map_err(|more| faults.merge(more));
    let exposure = faults.into_result(exposure)?;
    let exposure = exposure.map_err(|()| Error::internal("a transport was refused without a reason"))?;
    Ok((config, exposure, tunnel))
}

/// Whether this boot makes the machine a node that it was not before.
fn becomes_another(config: &Config, stored: Option<&Identity>) -> bool {
    match (stored, &config.node.id.value) {
        (None, _) => true,
        (Some(stored), Some(pinned)) => stored.id() != pinned,
        (Some(_), None) => false,
    }
}

fn renew(tunnel: &TunnelState, state: &StateDir) -> Result<TunnelState> {
    let renewed = tunnel.renew(state)?;
    tracing::warn!(
        "this machine becomes another node, so its tunnel gets a new key, and {} stays the old node's",
        tunnel.address
    );
    Ok(renewed)
}

async fn probe_celld(config: &Config) -> Result<Celld> {
    let binary = &config.runtime.binary;
    let search = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    version_probe::probe(&binary.value, &binary.origin.to_string(), &search, CELLD_LIMIT).await
}

fn refuse_kernel_backend(config: &Config) -> Result<()> {
    if config.wireguard.backend.value == Backend::Embedded {
        return Ok(());
    }
    Err(
        Error::capability("this build carries the tunnel itself and cannot hand it to the kernel")
            .field(Field::new("wireguard.backend", "kernel").from(&config.wireguard.backend.origin))
            .help("leave wireguard.backend out, or set it to embedded"),
    )
}

async fn start_mesh(config: &Config, state: &StateDir, tunnel: TunnelState) -> Result<Mesh> {
    let wireguard = &config.wireguard;
    let stated = wireguard.listen_port.origin != crate::config::Origin::Default;
    let listen_port = if stated { None } else { tunnel.listen_port };
    let options = MeshOptions {
        interface: wireguard.interface.value.clone(),
        listen_port: listen_port.unwrap_or(wireguard.listen_port.value),
        mtu: wireguard.mtu.value,
        keepalive_seconds: wireguard.keepalive_seconds.value,
        guard: wireguard.guard.value,
    };
    Mesh::start(state.clone(), tunnel, options).await
}

async fn run(
    config: &Config,
    exposure: Exposure,
    state: &StateDir,
    celld: &Celld,
    tunnel: Option<TunnelState>,
    mesh: Option<Arc<Mesh>>,
) -> Result<()> {
    let (identity, came) = Identity::load_or_create(state, config.node.id.value.as_ref())?;
    match came {
        Came::Back => {}
        Came::New => tracing::info!("this machine is the node {} from now on", identity.id()),
        Came::Instead(old) => tracing::warn!(
            "the pinned id {} takes the place of {old}, whose key is gone",
            identity.id()
        ),
    }
    let url = config.bucket_url();
    let bucket = bucket::open(
        &url,
        config.bucket.endpoint.value.clone(),
        config.bucket.region.value.clone(),
    )
    .map_err(|error| registry::refusal(&url.to_string(), &error))?;
    if let BucketUrl::Dir(_) = url {
        tracing::warn!("the bucket is a directory: good for trying out on one machine; celld itself needs s3://");
    }
    tracing::info!(
        "scafo {} with celld {} ({}) on {}, transport {}",
        env!("CARGO_PKG_VERSION"),
        celld.version,
        celld.path.display(),
        bucket.name(),
        exposure.transport
    );
    let endpoints = match (&tunnel, &mesh) {
        (Some(tunnel), Some(mesh)) => Some(endpoints_of(config, tunnel, mesh, &url)),
        _ => None,
    };
    let published = match &endpoints {
        Some(endpoints) => endpoints.current().await,
        None => Vec::new(),
    };
    let settings = Settings {
        id: identity.id().clone(),
        public_key: PublicKeyText(identity.public_key()),
        boot_id: random::id()?,
        transport: exposure.transport,
        address: exposure.address,
        api_port: 0,
        labels: config.node.labels.value.clone(),
        versions: Versions {
            scafo: Some(env!("CARGO_PKG_VERSION").to_owned()),
            celld: Some(celld.version.to_string()),
        },
        tunnel: tunnel.map(|tunnel| tunnel_settings(&tunnel, published, state)),
        heartbeat_interval_ms: config.registry.heartbeat_interval_ms.value,
        liveness_window_ms: config.registry.liveness_window_ms.value,
        node_refresh_interval_ms: config.registry.node_refresh_interval_ms.value,
        hint_poll_interval_ms: config.registry.hint_poll_interval_ms.value,
        lease: Timing {
            ttl_ms: config.coordinator.lease_ttl_ms.value,
            renew_ms: config.coordinator.renew_interval_ms.value,
        },
        highest_fence: fence::load(state)?,
        seed: u64::from_le_bytes(random::bytes()?),
    };
    let registry = Arc::new(Registry::new(bucket, Arc::new(SystemClock), Some(Arc::new(identity))));
    let celld = celld.version.to_string();
    let api_port = config.api.port.value;
    Actor::new(Parts {
        settings,
        registry,
        exposure,
        api_port,
        mesh,
        endpoints,
        state: state.clone(),
        celld,
    })
    .run()
    .await
}

fn endpoints_of(config: &Config, tunnel: &TunnelState, mesh: &Mesh, url: &BucketUrl) -> Endpoints {
    let stated = &config.wireguard.endpoints.value;
    let bucket = match url {
        BucketUrl::S3 { .. } => {
            let region = config.bucket.region.value.as_deref().unwrap_or("us-east-1");
            let endpoint = config.bucket.endpoint.value.clone();
            endpoints::host_and_port(&endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com")))
        }
        BucketUrl::Dir(_) => None,
    };
    Endpoints {
        stated: if stated.is_empty() {
            tunnel.endpoints.clone()
        } else {
            stated.clone()
        },
        bucket,
        port: mesh.listen_port(),
        network: tunnel.network,
        interface: mesh.interface().to_owned(),
    }
}

fn tunnel_settings(tunnel: &TunnelState, endpoints: Vec<String>, state: &StateDir) -> TunnelSettings {
    let cached_peers = mesh_cache::load(state).unwrap_or_else(|error| {
        tracing::warn!(
            "the last known peers cannot be read, so the mesh waits for the bucket: {}",
            error.message
        );
        Default::default()
    });
    TunnelSettings {
        key: tunnel.public_key(),
        key_text: PublicKeyText(tunnel.public_key_text()),
        network: tunnel.network,
        stated: tunnel.stated,
        claimed: tunnel.claimed,
        endpoints,
        cached_peers,
    }
}

//! The mesh: carries addresses, peers and the guard from the core to `scafo-wg`, and says in Scafo's own errors what
//! could not be done.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ipnet::IpNet;
use scafo_wg::{AddressError, Device, DeviceConfig, GuardError, OpenError, PeerConfig, PrivateKey};

use crate::core::peers::Peers;
use crate::error::{Error, Field, Result};
use crate::state::tunnel::TunnelState;
use crate::state::{StateDir, mesh_cache};

/// Where `wg show` looks for the sockets of userspace WireGuard.
const WG_SOCKETS: &str = "/var/run/wireguard";

/// What the mesh is made of, apart from its key.
#[derive(Clone, Debug)]
pub struct MeshOptions {
    /// The interface's name.
    pub interface: String,
    /// The UDP port.
    pub listen_port: u16,
    /// The MTU; `None` follows the underlay.
    pub mtu: Option<u16>,
    /// Seconds between keepalives; 0 for none.
    pub keepalive_seconds: u16,
    /// Whether the guard is installed.
    pub guard: bool,
}

/// This node's end of the mesh.
#[derive(Debug)]
pub struct Mesh {
    device: Device,
    options: MeshOptions,
    tunnel: TunnelState,
    state: StateDir,
}

/// The socket on which the daemon of this state directory tells how its tunnel goes.
pub fn socket(state: &StateDir) -> PathBuf {
    state.join("wireguard.sock")
}

/// What a running daemon tells of its tunnel.
#[derive(Clone, Debug)]
pub struct Told {
    /// The UDP port.
    pub listen_port: u16,
    /// The peers.
    pub peers: Vec<ToldPeer>,
}

/// What it tells of a peer.
#[derive(Clone, Debug)]
pub struct ToldPeer {
    /// The public key in base64.
    pub public_key: String,
    /// Its allowed IPs; in a mesh, its tunnel address.
    pub address: String,
    /// Where it is reached right now.
    pub endpoint: Option<SocketAddr>,
    /// The last handshake that was completed.
    pub last_handshake: Option<SystemTime>,
    /// Bytes received from it.
    pub received: u64,
    /// Bytes sent to it.
    pub sent: u64,
    /// Seconds between keepalives.
    pub keepalive: Option<u16>,
}

/// Asks the daemon behind `socket` how its tunnel goes.
pub async fn query(socket: &Path) -> io::Result<Told> {
    let host = scafo_wg::uapi::query(socket).await?;
    let peers = host.peers.into_values().map(|peer| ToldPeer {
        public_key: peer.public_key.to_string(),
        address: peer
            .allowed_ips
            .iter()
            .map(|allowed| allowed.address.to_string())
            .collect::<Vec<_>>()
            .join(","),
        endpoint: peer.endpoint,
        last_handshake: peer.last_handshake,
        received: peer.rx_bytes,
        sent: peer.tx_bytes,
        keepalive: peer.persistent_keepalive_interval.filter(|seconds| *seconds > 0),
    });
    Ok(Told {
        listen_port: host.listen_port,
        peers: peers.collect(),
    })
}

/// Refuses a mesh network that overlaps a route of this host's. Looks only; makes nothing.
pub async fn check_overlap(network: IpNet, interface: &str) -> Result<()> {
    Device::check_overlap(network, interface).await.map_err(address_error)
}

impl Mesh {
    /// Opens the interface and the UDP port. Nothing is exposed: the interface has no address yet.
    pub async fn start(state: StateDir, tunnel: TunnelState, options: MeshOptions) -> Result<Self> {
        let config = DeviceConfig {
            interface: options.interface.clone(),
            private_key: PrivateKey::from(tunnel.private_key().clone()),
            listen_port: options.listen_port,
            mtu: options.mtu.map(u32::from),
            network: tunnel.network,
        };
        let device = Device::open(config).await.map_err(open_error)?;
        if options.guard {
            // A guard that cannot be had is found out before anything reaches the bucket. An address that moves on takes
            // the guard with it.
            device.install_guard(tunnel.address).await.map_err(guard_error)?;
        }
        // `scafo wg show` needs this one; `wg show` the other, which only one node per machine can have.
        let own = socket(&state);
        device.serve_uapi(&own).map_err(|error| {
            Error::invalid(format!("the tunnel's socket cannot be made: {error}"))
                .field(Field::new("state.dir", own.display()))
                .help("name a state directory with a shorter path, on a file system that takes sockets")
        })?;
        let shared = Path::new(WG_SOCKETS).join(format!("{}.sock", options.interface));
        if let Err(error) = device.serve_uapi(&shared) {
            tracing::warn!(
                "wg show will not see this tunnel: {}: {error}; scafo wg show does",
                shared.display()
            );
        }
        Ok(Self {
            device,
            options,
            tunnel,
            state,
        })
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        self.device.interface()
    }

    /// The UDP port that is bound.
    pub fn listen_port(&self) -> u16 {
        self.device.listen_port()
    }

    /// Gives the tunnel its address, and puts the guard before it.
    pub async fn open(&self, address: IpAddr) -> Result<()> {
        if self.options.guard {
            // Before the address exists, so that there is no moment in which it can be reached from outside.
            self.device.install_guard(address).await.map_err(guard_error)?;
        }
        self.device.set_address(address).await.map_err(address_error)
    }

    /// Remembers that the fleet knows this node by `address`.
    pub fn save_address(&self, address: IpAddr) -> Result<()> {
        self.tunnel.save_claim(&self.state, address)
    }

    /// Brings the peers to what the registry says, and remembers them for a boot without a bucket.
    pub fn set_peers(&self, peers: Peers) {
        let mut configs = Vec::new();
        for (id, peer) in &peers {
            // Records come from the bucket, and a key that is none must not stop the others.
            let Ok(public_key) = peer.tunnel_key.0.parse() else {
                tracing::warn!("the tunnel key of {id} is not one; it is left out of the mesh");
                continue;
            };
            configs.push(PeerConfig {
                name: id.to_string(),
                public_key,
                // The peer's own address and nothing wider.
                allowed_ips: vec![IpNet::from(peer.address)],
                endpoints: peer.endpoints.clone(),
                keepalive: Some(self.options.keepalive_seconds).filter(|seconds| *seconds > 0),
            });
        }
        self.device.set_peers(configs);
        if let Err(error) = mesh_cache::save(&self.state, &peers) {
            tracing::warn!("the peers are not remembered for the next boot: {}", error.message);
        }
    }

    /// Mends the interface and the guard where somebody changed them.
    pub async fn mend(&self) {
        match self.device.mend().await {
            Ok(mended) if mended.is_empty() => {}
            Ok(mended) => tracing::warn!(
                "{} was changed by somebody else; mended {}",
                self.interface(),
                mended.join(", ")
            ),
            Err(error) => tracing::warn!("{} is not as it should be: {error}", self.interface()),
        }
    }

    /// Takes the interface and the guard away.
    pub async fn close(&self) {
        self.device.close().await;
        // Sockets of a process that is gone are replaced anyway.
        let _ = std::fs::remove_file(socket(&self.state));
        let _ = std::fs::remove_file(Path::new(WG_SOCKETS).join(format!("{}.sock", self.interface())));
    }
}

fn open_error(error: OpenError) -> Error {
    let message = error.to_string();
    match error {
        OpenError::NoTun => Error::capability(message)
            .field(Field::new("/dev/net/tun", "missing"))
            .help("load the module: modprobe tun; in a container, pass the device: --device /dev/net/tun"),
        OpenError::NotPermitted => Error::capability(message)
            .field(Field::new("CAP_NET_ADMIN", "missing"))
            .help("run as root, or grant it: setcap cap_net_admin+ep $(command -v scafo)"),
        OpenError::InterfaceTaken(interface) => Error::conflict(message)
            .field(Field::new("wireguard.interface", &interface))
            .help(format!(
                "see what it is: ip -d link show {interface}; or choose another name with --wireguard-interface"
            )),
        OpenError::PortTaken(port) => Error::conflict(message)
            .field(Field::new("wireguard.listenPort", port))
            .help(format!(
                "see who it is with: ss -lunp 'sport = :{port}'; or choose another with --wireguard-listen-port"
            )),
        OpenError::System { .. } => Error::internal(message),
    }
}

fn address_error(error: AddressError) -> Error {
    let message = error.to_string();
    match error {
        AddressError::RouteOverlap {
            network,
            route,
            interface,
        } => Error::conflict(message)
            .field(Field::new("fleet.network", network).because(format!("{route} is routed by {interface}")))
            .help("choose a mesh network that this host does not use: scafo wg init --fleet-network CIDR"),
        AddressError::NoInterface(interface) => {
            Error::internal(message).field(Field::new("wireguard.interface", interface))
        }
        AddressError::System { ref source, .. } if source.raw_os_error() == Some(nix::errno::Errno::EPERM as i32) => {
            Error::capability(message)
                .field(Field::new("CAP_NET_ADMIN", "missing"))
                .help("run as root, or grant it: setcap cap_net_admin+ep $(command -v scafo)")
        }
        AddressError::System { .. } => Error::internal(message),
    }
}

fn guard_error(error: GuardError) -> Error {
    Error::capability("the guard that keeps others out of the tunnel address cannot be installed")
        .field(Field::new("wireguard.guard", "on").because(error.to_string()))
        .help("install nftables: apt-get install nftables, or dnf install nftables")
        .help("or go without it, at the price of neighbours reaching this node: --wireguard-guard off")
}

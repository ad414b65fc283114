//! A device from outside: opened, given an address and a guard, told its peers, asked how it goes, closed.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;

use crate::error::{AddressError, GuardError, OpenError};
use crate::io::counters::Counts;
use crate::io::link::Links;
use crate::io::shared::{Shared, literal};
use crate::io::tun::Tun;
use crate::io::udp::Sockets;
use crate::io::{guard, inbound, outbound, timers};
use crate::key::{PrivateKey, PublicKey};
use crate::mesh::peers::{Changes, PeerConfig, changes};
use crate::session::Handshakes;
use crate::uapi;

/// How often endpoints that are names are looked up while their peer is not heard from.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// One of a device's threads.
type Loop = fn(&Shared);

/// What a device is.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// The interface's name.
    pub interface: String,
    /// The tunnel's key.
    pub private_key: PrivateKey,
    /// The UDP port; 0 lets the kernel choose.
    pub listen_port: u16,
    /// The interface's MTU; `None` follows the underlay's.
    pub mtu: Option<u32>,
    /// The mesh network.
    pub network: IpNet,
}

/// A device at work. [`close`](Device::close) removes the interface and the guard; a process that dies takes the
/// interface with it and leaves the guard, which drops what nobody answers to anyway and is replaced by the next start.
#[derive(Debug)]
pub struct Device {
    config: DeviceConfig,
    mtu: u32,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    placed: Mutex<Placed>,
}

/// What the interface and the guard should be.
#[derive(Clone, Copy, Debug, Default)]
struct Placed {
    address: Option<IpAddr>,
    guarded: bool,
}

/// How a device goes.
#[derive(Clone, Debug)]
pub struct Status {
    /// The device's public key.
    pub public_key: PublicKey,
    /// Its UDP port.
    pub listen_port: u16,
    /// Its MTU.
    pub mtu: u32,
    /// Its peers, by name.
    pub peers: Vec<PeerStatus>,
    /// What was not delivered, and why.
    pub counters: Counts,
}

/// How one peer goes.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Its public key.
    pub public_key: PublicKey,
    /// Where it is reached right now.
    pub endpoint: Option<SocketAddr>,
    /// Its allowed IPs.
    pub allowed_ips: Vec<IpNet>,
    /// The last handshake that was completed.
    pub last_handshake: Option<SystemTime>,
    /// Bytes received from it, as on the wire.
    pub received: u64,
    /// Bytes sent to it, as on the wire.
    pub sent: u64,
    /// Seconds between keepalives.
    pub keepalive: Option<u16>,
}

impl Device {
    /// Opens the TUN interface and the UDP sockets. Nothing is exposed yet: the interface has no address and is down.
    pub async fn open(config: DeviceConfig) -> Result<Self, OpenError> {
        let system = |what| move |source| OpenError::System { what, source };
        // The port first: a taken one must not make an interface come and go.
        let sockets = Sockets::bind(config.listen_port)?;
        let tun = Tun::open(&config.interface)?;
        let links = Links::open().map_err(system("the kernel's routing cannot be asked"))?;
        let mtu = match config.mtu {
            Some(mtu) => mtu,
            None => links.detect_mtu(&config.interface).await,
        };
        let handshakes = Handshakes::new(config.private_key.clone());
        let shared = Shared::new(tun, sockets, handshakes, config.network).map_err(system("no event can be made"))?;
        let shared = Arc::new(shared);
        let device = Self {
            mtu,
            shared: shared.clone(),
            threads: Mutex::default(),
            tasks: Mutex::default(),
            placed: Mutex::default(),
            config,
        };
        let loops: [(&str, Loop); 3] = [
            ("wg-out", outbound::run),
            ("wg-in", inbound::run),
            ("wg-timers", timers::run),
        ];
        for (name, run) in loops {
            let shared = shared.clone();
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || run(&shared));
            let thread = thread.map_err(system("a thread cannot be started"))?;
            device
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(thread);
        }
        device.keep(tokio::spawn(resolve_names(shared)));
        Ok(device)
    }

    fn keep(&self, task: tokio::task::JoinHandle<()>) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.config.interface
    }

    /// The UDP port.
    pub fn listen_port(&self) -> u16 {
        self.shared.sockets.port()
    }

    /// Refuses a mesh network that a route of the host's overlaps. Needs no device.
    pub async fn check_overlap(network: IpNet, interface: &str) -> Result<(), AddressError> {
        links()?.check_overlap(network, interface).await
    }

    /// Gives the interface its address, in place of one that it had, and brings it up. The address's network is the
    /// mesh's, so the kernel routes the whole mesh into the tunnel.
    pub async fn set_address(&self, address: IpAddr) -> Result<(), AddressError> {
        let links = links()?;
        links.check_overlap(self.config.network, &self.config.interface).await?;
        links
            .ensure(&self.config.interface, self.with_network(address)?, self.mtu)
            .await?;
        self.place(|placed| placed.address = Some(address));
        Ok(())
    }

    fn with_network(&self, address: IpAddr) -> Result<IpNet, AddressError> {
        IpNet::new(address, self.config.network.prefix_len()).map_err(|error| AddressError::System {
            what: "the address is not of the mesh network's family",
            source: std::io::Error::other(error.to_string()),
        })
    }

    fn place<T>(&self, change: impl FnOnce(&mut Placed) -> T) -> T {
        change(&mut self.placed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Installs the guard for `address`.
    pub async fn install_guard(&self, address: IpAddr) -> Result<(), GuardError> {
        guard::install(&self.config.interface, address).await?;
        self.place(|placed| placed.guarded = true);
        Ok(())
    }

    /// Brings the peers to `desired`; a peer that is as it was is not touched. Says what changed.
    pub fn set_peers(&self, desired: impl IntoIterator<Item = PeerConfig>) -> Changes {
        let changes = changes(&self.shared.peers().configs(), desired);
        if !changes.is_empty() {
            let concerned = self.shared.change_peers(&changes);
            timers::greet(&self.shared, &concerned);
            self.shared.names.notify_one();
        }
        changes
    }

    /// Compares the interface and the guard with what they should be, and mends them. Says what was mended.
    pub async fn mend(&self) -> Result<Vec<&'static str>, AddressError> {
        let Placed {
            address: Some(address),
            guarded,
        } = self.place(|placed| *placed)
        else {
            return Ok(Vec::new());
        };
        let mut mended = links()?
            .ensure(&self.config.interface, self.with_network(address)?, self.mtu)
            .await?;
        if guarded && !guard::is_installed(&self.config.interface).await {
            match guard::install(&self.config.interface, address).await {
                Ok(()) => mended.push("the guard"),
                Err(error) => {
                    return Err(AddressError::System {
                        what: "the guard is gone and cannot be installed again",
                        source: std::io::Error::other(error.to_string()),
                    });
                }
            }
        }
        Ok(mended)
    }

    /// How it goes.
    pub fn status(&self) -> Status {
        status(&self.shared, self.mtu)
    }

    /// Answers WireGuard's configuration protocol on a socket at `path`, so that `wg show` works.
    pub fn serve_uapi(&self, path: &Path) -> std::io::Result<()> {
        let listener = uapi::listen(path)?;
        let (shared, mtu) = (self.shared.clone(), self.mtu);
        self.keep(tokio::spawn(uapi::serve(listener, move || status(&shared, mtu))));
        Ok(())
    }

    /// Stops everything and removes the interface and the guard.
    pub async fn close(&self) {
        let tasks = self.stop();
        for task in tasks {
            // Cancelled, which is what was asked for.
            let _ = task.await;
        }
        // The interface first: while its address is there, the guard is needed.
        match Links::open() {
            Ok(links) => links.delete(&self.config.interface).await,
            Err(error) => tracing::warn!(%error, "the interface goes with the process"),
        }
        let placed = self.place(std::mem::take);
        if placed.guarded
            && let Err(error) = guard::remove(&self.config.interface).await
        {
            tracing::warn!(%error, "the guard was not removed");
        }
    }

    fn stop(&self) -> Vec<tokio::task::JoinHandle<()>> {
        self.shared.stop.stop();
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in &tasks {
            task.abort();
        }
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A thread that panicked has stopped too.
            let _ = thread.join();
        }
        tasks
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.stop();
    }
}

fn links() -> Result<Links, AddressError> {
    Links::open().map_err(|source| AddressError::System {
        what: "the kernel's routing cannot be asked",
        source,
    })
}

fn status(shared: &Shared, mtu: u32) -> Status {
    let now = Instant::now();
    let wall = SystemTime::now();
    let peers = shared.peers();
    let peers = peers.all().map(|(config, peer)| PeerStatus {
        name: peer.name.clone(),
        public_key: peer.public_key,
        endpoint: peer.path().current(now),
        allowed_ips: config.allowed_ips.clone(),
        last_handshake: peer
            .session()
            .since_handshake()
            .and_then(|since| wall.checked_sub(since)),
        received: peer.received.get(),
        sent: peer.sent.get(),
        keepalive: peer.keepalive,
    });
    Status {
        public_key: shared.handshakes.private_key().public(),
        listen_port: shared.sockets.port(),
        mtu,
        peers: peers.collect(),
        counters: shared.counters.counts(),
    }
}

/// Looks names up, again and again while their peer is not heard from: the address behind a name changes.
async fn resolve_names(shared: Arc<Shared>) {
    loop {
        for (config, peer) in shared.peers().all() {
            let has_names = config
                .endpoints
                .iter()
                .any(|endpoint| endpoint.parse::<SocketAddr>().is_err());
            if !has_names || peer.path().is_heard(Instant::now()) {
                continue;
            }
            let mut candidates = Vec::new();
            for endpoint in &config.endpoints {
                match literal(std::slice::from_ref(endpoint)).first() {
                    Some(address) => candidates.push(*address),
                    None => candidates.extend(tokio::net::lookup_host(endpoint).await.into_iter().flatten()),
                }
            }
            let was_known = peer.path().current(Instant::now()).is_some();
            peer.path().set_candidates(candidates, shared.mesh);
            if !was_known {
                timers::greet(&shared, std::slice::from_ref(peer));
            }
        }
        // The time-out is the usual end: nothing was said.
        let _ = tokio::time::timeout(RESOLVE_INTERVAL, shared.names.notified()).await;
    }
}

//! What the threads of a device share: the peers, found by name, key, session index and address.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use ipnet::IpNet;
use tokio::sync::Notify;

use super::counters::{Counter, Counters};
use super::tun::Tun;
use super::udp::Sockets;
use super::wake::Stop;
use crate::key::PublicKey;
use crate::mesh::allowed_ips::AllowedIps;
use crate::mesh::path::Path;
use crate::mesh::peers::{Changes, PeerConfig};
use crate::session::{Handshakes, Session};

/// One peer at work.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) public_key: PublicKey,
    pub(crate) keepalive: Option<u16>,
    pub(crate) index: u32,
    pub(crate) session: Mutex<Session>,
    pub(crate) path: Mutex<Path>,
    /// The first message of the last handshake that was begun, for the candidates that have not had it yet.
    initiation: Mutex<Vec<u8>>,
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
}

impl Peer {
    pub(crate) fn session(&self) -> MutexGuard<'_, Session> {
        // A thread that panicked meanwhile left a session that is at worst in need of a handshake.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self) -> MutexGuard<'_, Path> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a message that a session gave goes: the first message of a handshake may try another candidate.
    pub(crate) fn target(&self, datagram: &[u8], now: Instant) -> Option<SocketAddr> {
        let mut path = self.path();
        if datagram.first() != Some(&1) {
            return path.current(now);
        }
        let mut initiation = self.initiation.lock().unwrap_or_else(PoisonError::into_inner);
        initiation.clear();
        initiation.extend_from_slice(datagram);
        path.on_initiation(now)
    }

    /// The first message of a handshake that is without an answer, and the next candidate to send it to.
    fn further(&self, now: Instant) -> Option<(Vec<u8>, SocketAddr)> {
        let to = self.path().on_silence(now)?;
        let initiation = self.initiation.lock().unwrap_or_else(PoisonError::into_inner);
        Some((initiation.clone(), to))
    }
}

/// The peers, by everything that they are found by. Replaced whole when they change.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    by_name: BTreeMap<String, (PeerConfig, Arc<Peer>)>,
    by_key: HashMap<PublicKey, Arc<Peer>>,
    by_index: HashMap<u32, Arc<Peer>>,
    allowed: AllowedIps<Arc<Peer>>,
}

impl Peers {
    pub(crate) fn all(&self) -> impl Iterator<Item = &(PeerConfig, Arc<Peer>)> {
        self.by_name.values()
    }

    pub(crate) fn configs(&self) -> BTreeMap<String, PeerConfig> {
        self.by_name
            .iter()
            .map(|(name, (config, _))| (name.clone(), config.clone()))
            .collect()
    }

    pub(crate) fn with_key(&self, key: &PublicKey) -> Option<&Arc<Peer>> {
        self.by_key.get(key)
    }

    pub(crate) fn with_index(&self, index: u32) -> Option<&Arc<Peer>> {
        self.by_index.get(&index)
    }

    pub(crate) fn for_address(&self, address: std::net::IpAddr) -> Option<&Arc<Peer>> {
        self.allowed.get(address)
    }

    fn of(by_name: BTreeMap<String, (PeerConfig, Arc<Peer>)>) -> Self {
        let mut peers = Self::default();
        for (config, peer) in by_name.values() {
            peers.by_key.insert(peer.public_key, peer.clone());
            peers.by_index.insert(peer.index, peer.clone());
            for network in &config.allowed_ips {
                peers.allowed.insert(*network, peer.clone());
            }
        }
        Self { by_name, ..peers }
    }
}

/// A device's insides.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) tun: Tun,
    pub(crate) sockets: Sockets,
    pub(crate) handshakes: Handshakes,
    pub(crate) mesh: IpNet,
    pub(crate) counters: Counters,
    pub(crate) stop: Stop,
    /// Told when there may be new names to look up.
    pub(crate) names: Notify,
    peers: RwLock<Arc<Peers>>,
    next_index: AtomicU64,
}

impl Shared {
    pub(crate) fn new(tun: Tun, sockets: Sockets, handshakes: Handshakes, mesh: IpNet) -> io::Result<Self> {
        Ok(Self {
            tun,
            sockets,
            handshakes,
            mesh,
            counters: Counters::default(),
            stop: Stop::new()?,
            names: Notify::new(),
            peers: RwLock::default(),
            next_index: AtomicU64::new(0),
        })
    }

    /// The peers as they are now; a batch works on one view of them.
    pub(crate) fn peers(&self) -> Arc<Peers> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Carries out changes. Peers that come or can be reached otherwise are returned, so that handshakes can begin.
    pub(crate) fn change_peers(&self, changes: &Changes) -> Vec<Arc<Peer>> {
        let mut guard = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let mut by_name = guard.by_name.clone();
        for name in &changes.remove {
            by_name.remove(name);
        }
        let mut concerned = Vec::new();
        for config in &changes.add {
            let peer = Arc::new(self.new_peer(config));
            concerned.push(peer.clone());
            by_name.insert(config.name.clone(), (config.clone(), peer));
        }
        for config in &changes.amend {
            if let Some(entry) = by_name.get_mut(&config.name) {
                entry.0 = config.clone();
                entry.1.path().set_candidates(literal(&config.endpoints), self.mesh);
                concerned.push(entry.1.clone());
            }
        }
        *guard = Arc::new(Peers::of(by_name));
        concerned
    }

    fn new_peer(&self, config: &PeerConfig) -> Peer {
        // 24 bits of index are plenty for the peers of one run; one that comes round again meets no session of the
        // peer that had it, since its keys are gone.
        let index = u32::try_from(self.next_index.fetch_add(1, Ordering::Relaxed) & 0xff_ffff).unwrap_or(0);
        let mut path = Path::default();
        path.set_candidates(literal(&config.endpoints), self.mesh);
        Peer {
            name: config.name.clone(),
            public_key: config.public_key,
            keepalive: config.keepalive,
            index,
            session: Mutex::new(self.handshakes.session(config.public_key, config.keepalive, index)),
            path: Mutex::new(path),
            initiation: Mutex::default(),
            received: Counter::default(),
            sent: Counter::default(),
        }
    }

    /// Sends the first message of a handshake that nobody has answered to one more of the peer's candidates.
    pub(crate) fn send_further(&self, peer: &Peer, now: Instant) {
        if let Some((datagram, to)) = peer.further(now) {
            peer.sent.add(datagram.len() as u64);
            self.sockets
                .send(to, &datagram, datagram.len(), &self.counters.udp_errors);
        }
    }

    /// Sends one message that a session gave.
    pub(crate) fn send_message(&self, peer: &Peer, datagram: &[u8], now: Instant) {
        match peer.target(datagram, now) {
            Some(to) => {
                peer.sent.add(datagram.len() as u64);
                self.sockets
                    .send(to, datagram, datagram.len(), &self.counters.udp_errors);
            }
            None => self.counters.no_endpoint.add(1),
        }
    }
}

/// Endpoints that are addresses already; names are resolved by the device's own task.
pub(crate) fn literal(endpoints: &[String]) -> Vec<SocketAddr> {
    endpoints.iter().filter_map(|endpoint| endpoint.parse().ok()).collect()
}

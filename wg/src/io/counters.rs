//! What happened to packets, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, and that nobody waits for.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Of a whole device.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Packets from the TUN that no peer is allowed to get.
    pub(crate) no_peer: Counter,
    /// Packets for a peer that nobody knows how to reach.
    pub(crate) no_endpoint: Counter,
    /// Datagrams that are no WireGuard message, or for no session of ours.
    pub(crate) strange: Counter,
    /// Datagrams that a session refused: forged, replayed or too old.
    pub(crate) refused: Counter,
    /// Decrypted packets whose source is not one of the peer's allowed IPs.
    pub(crate) wrong_source: Counter,
    /// Errors of the UDP sockets.
    pub(crate) udp_errors: Counter,
    /// Errors of the TUN.
    pub(crate) tun_errors: Counter,
}

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

impl Counters {
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            no_peer: self.no_peer.get(),
            no_endpoint: self.no_endpoint.get(),
            strange: self.strange.get(),
            refused: self.refused.get(),
            wrong_source: self.wrong_source.get(),
            udp_errors: self.udp_errors.get(),
            tun_errors: self.tun_errors.get(),
        }
    }
}

/// What a device did not deliver, and why, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets from the interface that no peer is allowed to get.
    pub no_peer: u64,
    /// Packets for a peer that nobody knows how to reach.
    pub no_endpoint: u64,
    /// Datagrams that are no WireGuard message, or for no session of ours.
    pub strange: u64,
    /// Datagrams that a session refused: forged, replayed or too old.
    pub refused: u64,
    /// Decrypted packets whose source is not one of the peer's allowed IPs.
    pub wrong_source: u64,
    /// Errors of the UDP sockets.
    pub udp_errors: u64,
    /// Errors of the TUN.
    pub tun_errors: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no_peer={} no_endpoint={} strange={} refused={} wrong_source={} udp_errors={} tun_errors={}",
            self.no_peer,
            self.no_endpoint,
            self.strange,
            self.refused,
            self.wrong_source,
            self.udp_errors,
            self.tun_errors
        )
    }
}

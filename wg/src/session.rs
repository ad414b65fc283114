//! One peer's Noise session, and the handshake limits of a whole device. The only user of boringtun.
//!
//! Not pure: boringtun reads its own clock (`CLOCK_BOOTTIME`) and draws its own randomness. It asks to be ticked about
//! four times a second.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Packet, Tunn, TunnResult};

use crate::key::{PrivateKey, PublicKey};

/// Bytes that transport data adds to a packet: type and index 8, counter 8, tag 16.
pub const OVERHEAD: usize = 32;

/// The least room that a message of a handshake needs in an output buffer.
pub const HANDSHAKE_ROOM: usize = 148;

/// How often sessions want to be ticked.
pub const TICK: Duration = Duration::from_millis(250);

/// Handshakes a second, over all peers, above which a cookie is asked for (WireGuard paper, section 5.3). Each counts
/// twice, since it is checked before the peer is known and again by the peer's session.
const HANDSHAKES_A_SECOND: u64 = 200;

/// How long a session that gave up waits before it begins a handshake again by itself.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// What came of an input.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// Nothing to send or to deliver.
    Nothing,
    /// A datagram for the peer.
    Network(&'a mut [u8]),
    /// A packet from the peer, with the source that its header states.
    Tunnel(&'a mut [u8], IpAddr),
    /// The input was no good: forged, replayed, too old, or not for this session.
    Refused,
}

/// What all sessions of one device share.
#[derive(Clone)]
pub struct Handshakes {
    private_key: PrivateKey,
    limiter: Arc<RateLimiter>,
}

impl std::fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handshakes({:?})", self.private_key)
    }
}

/// Who sent the first message of a handshake.
#[derive(Debug)]
pub enum Initiator<'a> {
    /// The holder of this key, as far as the message says; the session checks that it is.
    Known(PublicKey),
    /// Nobody, until it comes again with the cookie of this reply.
    Cookie(&'a [u8]),
    /// Nobody.
    Refused,
}

impl Handshakes {
    /// For the device with this key.
    pub fn new(private_key: PrivateKey) -> Self {
        let public = x25519_dalek::PublicKey::from(*private_key.public().as_bytes());
        Self {
            private_key,
            limiter: Arc::new(RateLimiter::new(&public, HANDSHAKES_A_SECOND)),
        }
    }

    /// The device's key.
    pub fn private_key(&self) -> &PrivateKey {
        &self.private_key
    }

    /// Starts the limits' next second.
    pub fn next_second(&self) {
        self.limiter.reset_count();
    }

    /// Finds out who sent an initiation. Whoever does not know our public key, or floods us without a cookie, is refused
    /// before any costly computation.
    pub fn initiator<'a>(&self, from: IpAddr, datagram: &[u8], out: &'a mut [u8]) -> Initiator<'a> {
        let init = match self.limiter.verify_packet(Some(from), datagram, out) {
            Ok(Packet::HandshakeInit(init)) => init,
            Err(TunnResult::WriteToNetwork(cookie)) => return Initiator::Cookie(cookie),
            _ => return Initiator::Refused,
        };
        let secret = self.private_key.secret();
        let public = x25519_dalek::PublicKey::from(secret);
        match parse_handshake_anon(secret, &public, &init) {
            Ok(half) => Initiator::Known(PublicKey::from(half.peer_static_public)),
            Err(_) => Initiator::Refused,
        }
    }

    /// A session with a peer. `index` tells sessions of one device apart; 24 bits.
    pub fn session(&self, peer: PublicKey, keepalive: Option<u16>, index: u32) -> Session {
        let tunn = Tunn::new(
            self.private_key.secret().clone(),
            x25519_dalek::PublicKey::from(*peer.as_bytes()),
            None,
            keepalive,
            index,
            Some(self.limiter.clone()),
        );
        Session {
            tunn,
            keepalive,
            since_gave_up: Duration::ZERO,
        }
    }
}

/// The peer's index in a message's session index: sessions count on in the lowest byte.
pub fn peer_index(session_index: u32) -> u32 {
    session_index >> 8
}

/// One peer's session.
pub struct Session {
    tunn: Tunn,
    keepalive: Option<u16>,
    since_gave_up: Duration,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// Encrypts a packet into `out`, which has room for it and [`OVERHEAD`] more, and for [`HANDSHAKE_ROOM`]. Without a
    /// session the packet waits for one, and what comes out is the first message of a handshake, if none is under way.
    pub fn seal<'a>(&mut self, packet: &[u8], out: &'a mut [u8]) -> Output<'a> {
        output(self.tunn.encapsulate(packet, out))
    }

    /// Takes a datagram. After one that completed a handshake, [`waiting`](Self::waiting) hands out what waited for it.
    pub fn open<'a>(&mut self, from: IpAddr, datagram: &[u8], out: &'a mut [u8]) -> Output<'a> {
        output(self.tunn.decapsulate(Some(from), datagram, out))
    }

    /// The next packet that waited for a session, encrypted.
    pub fn waiting<'a>(&mut self, out: &'a mut [u8]) -> Output<'a> {
        output(self.tunn.decapsulate(None, &[], out))
    }

    /// Begins a handshake now, unless one is under way.
    pub fn initiate<'a>(&mut self, out: &'a mut [u8]) -> Output<'a> {
        output(self.tunn.format_handshake_initiation(out, false))
    }

    /// Lets [`TICK`] pass: handshakes again, keepalives, and keys that are too old.
    pub fn tick<'a>(&mut self, out: &'a mut [u8]) -> Output<'a> {
        if !self.tunn.is_expired() {
            self.since_gave_up = Duration::ZERO;
            return match self.tunn.update_timers(out) {
                TunnResult::Err(WireGuardError::ConnectionExpired) => Output::Nothing,
                result => output(result),
            };
        }
        // Not an end: a session that has gone without an answer for too long is simply no session. With keepalives on,
        // the peer is wanted back without anybody sending it anything.
        self.since_gave_up += TICK;
        if self.keepalive.is_none() || self.since_gave_up < TRY_AGAIN {
            return Output::Nothing;
        }
        self.since_gave_up = Duration::ZERO;
        output(self.tunn.format_handshake_initiation(out, true))
    }

    /// How long ago the last handshake was completed.
    pub fn since_handshake(&self) -> Option<Duration> {
        self.tunn.time_since_last_handshake()
    }
}

fn output(result: TunnResult<'_>) -> Output<'_> {
    match result {
        TunnResult::Done => Output::Nothing,
        TunnResult::WriteToNetwork(datagram) => Output::Network(datagram),
        TunnResult::WriteToTunnelV4(packet, source) => Output::Tunnel(packet, source.into()),
        TunnResult::WriteToTunnelV6(packet, source) => Output::Tunnel(packet, source.into()),
        TunnResult::Err(_) => Output::Refused,
    }
}

#[cfg(test)]
mod tests {
    use x25519_dalek::StaticSecret;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn handshakes(byte: u8) -> Handshakes {
        Handshakes::new(PrivateKey::from(StaticSecret::from([byte; 32])))
    }

    fn packet() -> Vec<u8> {
        let mut packet = vec![0u8; 60];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&60u16.to_be_bytes());
        packet[12..16].copy_from_slice(&[10, 88, 0, 1]);
        packet[16..20].copy_from_slice(&[10, 88, 0, 2]);
        packet
    }

    /// A datagram that came out, copied away.
    fn sent(output: Output<'_>) -> Vec<u8> {
        match output {
            Output::Network(datagram) => datagram.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_packet_waits_for_the_handshake_and_arrives() {
        let (a, b) = (handshakes(1), handshakes(2));
        let mut at_a = a.session(b.private_key().public(), None, 1);
        let mut at_b = b.session(a.private_key().public(), None, 1);
        let mut out = vec![0u8; 2_000];
        let init = sent(at_a.seal(&packet(), &mut out));
        assert!(matches!(b.initiator(HERE, &init, &mut out), Initiator::Known(key) if key == a.private_key().public()));
        let response = sent(at_b.open(HERE, &init, &mut out));
        let keepalive = sent(at_a.open(HERE, &response, &mut out));
        assert_eq!(at_b.open(HERE, &keepalive, &mut out), Output::Nothing);
        let data = sent(at_a.waiting(&mut out));
        let Output::Tunnel(arrived, source) = at_b.open(HERE, &data, &mut out) else {
            panic!()
        };
        assert_eq!((&*arrived, source.to_string()), (&packet()[..], "10.88.0.1".to_owned()));
        assert_eq!(at_b.open(HERE, &data, &mut out), Output::Refused, "a replay");
        assert!(at_a.since_handshake().is_some());
    }

    #[test]
    fn strangers_and_garbage_are_refused() {
        let (a, b, stranger) = (handshakes(1), handshakes(2), handshakes(3));
        let mut out = vec![0u8; 2_000];
        let mut to_b = stranger.session(b.private_key().public(), None, 1);
        let init = sent(to_b.seal(&packet(), &mut out));
        let mut at_b = b.session(a.private_key().public(), None, 1);
        assert_eq!(at_b.open(HERE, &init, &mut out), Output::Refused);
        assert!(
            matches!(a.initiator(HERE, &init, &mut out), Initiator::Refused),
            "not for this device"
        );
        assert!(matches!(b.initiator(HERE, &[0; 148], &mut out), Initiator::Refused));
    }

    #[test]
    fn a_flood_of_handshakes_is_answered_with_cookies() {
        let (a, b) = (handshakes(1), handshakes(2));
        let mut out = vec![0u8; 2_000];
        let init = sent(a.session(b.private_key().public(), None, 1).seal(&packet(), &mut out));
        let flood = (0..1_000)
            .filter(|_| matches!(b.initiator(HERE, &init, &mut out), Initiator::Cookie(_)))
            .count();
        assert!(flood > 700, "{flood}");
    }
}

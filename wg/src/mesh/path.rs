//! Where one peer is reached: the address that it last authenticated from, else its candidates in turn, for ever
//! (`mesh.md` rows 1, 3, 12 and 17).
//!
//! Only an authenticated packet says that an address is right; a candidate that answers nothing costs one try a round.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

/// A source that was heard from this recently is where the peer is. WireGuard starts a handshake when a sent packet goes
/// unanswered for 15 s; a little more than that, and every other candidate has its chance.
const HEARD_LIMIT: Duration = Duration::from_secs(20);

/// The candidates of one peer, and which one is in use.
#[derive(Clone, Debug, Default)]
pub struct Path {
    candidates: Vec<SocketAddr>,
    next: usize,
    heard: Option<(SocketAddr, Instant)>,
    /// Whether the last handshake that was begun is still without an answer.
    unanswered: bool,
    /// How many addresses its first message was sent to.
    tried: usize,
}

impl Path {
    /// What the peer can be reached at, in the order of preference. What is inside `mesh` would be a tunnel in the
    /// tunnel, and is left out. Replaces what was there before: addresses that were withdrawn do not come back.
    pub fn set_candidates(&mut self, candidates: impl IntoIterator<Item = SocketAddr>, mesh: IpNet) {
        let mut fresh: Vec<SocketAddr> = Vec::new();
        for candidate in candidates {
            if !mesh.contains(&candidate.ip()) && candidate.port() != 0 && !fresh.contains(&candidate) {
                fresh.push(candidate);
            }
        }
        if fresh != self.candidates {
            self.candidates = fresh;
            // The next try is the first candidate's; after an unanswered one, the place is counted up before it is used.
            self.next = if self.unanswered { usize::MAX } else { 0 };
        }
    }

    /// An authenticated packet came from `source`.
    pub fn on_heard(&mut self, source: SocketAddr, now: Instant) {
        self.heard = Some((source, now));
        self.unanswered = false;
    }

    /// Where to send right now; `None` when nothing is known.
    pub fn current(&self, now: Instant) -> Option<SocketAddr> {
        if let Some((source, at)) = self.heard
            && (!self.unanswered || now.saturating_duration_since(at) < HEARD_LIMIT)
        {
            return Some(source);
        }
        self.candidate()
    }

    /// Where to send the first message of a handshake. A handshake that follows an unanswered one goes to the next
    /// candidate; the address that the peer was last heard at is one of them.
    pub fn on_initiation(&mut self, now: Instant) -> Option<SocketAddr> {
        if self.unanswered {
            self.next = self.next.wrapping_add(1);
        }
        let target = self.current(now);
        self.unanswered = true;
        self.tried = 1;
        target
    }

    /// Where else to send the first message of a handshake that has had no answer for a while; each address gets it once.
    /// So a peer with several candidates is found in seconds and not in as many handshakes.
    pub fn on_silence(&mut self, now: Instant) -> Option<SocketAddr> {
        if !self.unanswered || self.is_heard(now) || self.tried >= self.known().count() {
            return None;
        }
        self.tried += 1;
        self.next = self.next.wrapping_add(1);
        self.candidate()
    }

    /// The candidates, and the address that the peer was last heard at when it is none of them.
    fn known(&self) -> impl Iterator<Item = SocketAddr> {
        let heard = self.heard.map(|(source, _)| source);
        let heard = heard.filter(|source| !self.candidates.contains(source));
        self.candidates.iter().copied().chain(heard)
    }

    fn candidate(&self) -> Option<SocketAddr> {
        let place = self.next.checked_rem(self.known().count())?;
        self.known().nth(place)
    }

    /// Whether the peer has been heard from lately.
    pub fn is_heard(&self, now: Instant) -> bool {
        self.heard
            .is_some_and(|(_, at)| now.saturating_duration_since(at) < HEARD_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn path(candidates: &[&str]) -> Path {
        let mut path = Path::default();
        path.set_candidates(
            candidates.iter().map(|text| address(text)),
            "10.88.0.0/16".parse().unwrap(),
        );
        path
    }

    #[test]
    fn candidates_are_tried_in_turn_for_ever() {
        let mut path = path(&["192.168.1.1:1", "192.168.1.2:2"]);
        let now = Instant::now();
        let tried: Vec<_> = (0..5).map(|_| path.on_initiation(now).unwrap().port()).collect();
        assert_eq!(tried, [1, 2, 1, 2, 1]);
    }

    #[test]
    fn in_silence_every_candidate_gets_a_handshake_s_first_message_once() {
        let mut path = path(&["192.168.1.1:1", "192.168.1.2:2", "192.168.1.3:3"]);
        let now = Instant::now();
        assert_eq!(path.on_silence(now), None, "nothing was begun");
        for _ in 0..2 {
            assert_eq!(path.on_initiation(now).unwrap().port(), 1);
            assert_eq!(path.on_silence(now).unwrap().port(), 2);
            assert_eq!(path.on_silence(now).unwrap().port(), 3);
            assert_eq!(path.on_silence(now), None, "each had its chance");
        }
        path.on_initiation(now);
        path.on_heard(address("192.168.1.3:3"), now);
        assert_eq!(path.on_silence(now), None, "it was answered");
    }

    #[test]
    fn new_candidates_begin_with_the_first() {
        let mut path = path(&["192.168.1.1:1"]);
        let now = Instant::now();
        path.on_initiation(now);
        path.set_candidates(
            [address("192.168.1.8:8"), address("192.168.1.9:9")],
            "10.88.0.0/16".parse().unwrap(),
        );
        assert_eq!(path.on_initiation(now).unwrap().port(), 8);
    }

    #[test]
    fn an_authenticated_source_wins_and_is_followed() {
        let mut path = path(&["192.168.1.1:1"]);
        let now = Instant::now();
        path.on_initiation(now);
        path.on_heard(address("172.31.0.9:9"), now);
        assert_eq!(path.current(now), Some(address("172.31.0.9:9")));
        path.on_heard(address("172.31.0.8:8"), now);
        assert_eq!(path.current(now), Some(address("172.31.0.8:8")));
        // An idle peer stays where it was.
        assert_eq!(
            path.current(now + Duration::from_secs(3_600)),
            Some(address("172.31.0.8:8"))
        );
    }

    #[test]
    fn a_peer_that_went_silent_is_looked_for_everywhere() {
        let mut path = path(&["192.168.1.1:1", "192.168.1.2:2"]);
        let start = Instant::now();
        path.on_heard(address("172.31.0.9:9"), start);
        let late = start + Duration::from_secs(60);
        let first = path.on_initiation(late).unwrap();
        assert_eq!(first.port(), 9, "the first try goes where it was last");
        let mut tried: Vec<_> = (1..=6)
            .map(|round| {
                path.on_initiation(late + Duration::from_secs(5 * round))
                    .unwrap()
                    .port()
            })
            .collect();
        tried.sort_unstable();
        assert_eq!(tried, [1, 1, 2, 2, 9, 9]);
    }

    #[test]
    fn what_is_inside_the_mesh_or_stands_twice_is_no_candidate() {
        let path = path(&["10.88.0.7:51820", "192.168.1.1:1", "192.168.1.1:1", "192.168.1.1:0"]);
        assert_eq!(path.candidates, [address("192.168.1.1:1")]);
    }

    #[test]
    fn nothing_known_is_nowhere_to_send() {
        let mut path = path(&[]);
        assert_eq!(path.current(Instant::now()), None);
        assert_eq!(path.on_initiation(Instant::now()), None);
    }
}

//! Live, stale, draining, never (seed, "Heartbeat and liveness"): liveness is the age of a beat against one clock.

use serde::Serialize;

use super::records::NodeRecord;
use super::types::UnixMs;

/// What a node's record says of it at one instant of fleet time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Beat inside the window and not leaving.
    Live,
    /// Beat longer ago than the window.
    Stale,
    /// Said that it is leaving; never live, whatever its beat says.
    Draining,
    /// Has never beaten, so it is not live.
    Never,
}

impl State {
    /// The word in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stale => "stale",
            Self::Draining => "draining",
            Self::Never => "never",
        }
    }
}

/// The node's state at `now` (fleet time).
pub fn state(node: &NodeRecord, now: UnixMs, window_ms: u64) -> State {
    match (node.draining_at, node.heartbeat_at) {
        (Some(_), _) => State::Draining,
        (None, None) => State::Never,
        (None, Some(_)) if answering(node, now, window_ms) => State::Live,
        (None, Some(_)) => State::Stale,
    }
}

/// Whether the node was heard from inside the window, whatever it said about leaving.
pub fn answering(node: &NodeRecord, now: UnixMs, window_ms: u64) -> bool {
    age_ms(node, now).is_some_and(|age| age <= window_ms)
}

/// Milliseconds since the last beat; 0 for a beat that is stamped later than `now`, which two machines' estimates of
/// fleet time can make of a fresh one.
pub fn age_ms(node: &NodeRecord, now: UnixMs) -> Option<u64> {
    node.heartbeat_at.map(|beat| now.0.saturating_sub(beat.0))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::records::{PublicKeyText, Versions};
    use crate::core::types::Transport;

    /// A plain record for tests of the core.
    pub(crate) fn node(id: &str, heartbeat_at: Option<u64>, draining_at: Option<u64>) -> NodeRecord {
        NodeRecord {
            id: id.parse().unwrap(),
            boot_id: "boot".into(),
            public_key: PublicKeyText("key".into()),
            transport: Transport::Wireguard,
            address: "10.88.0.7".parse().unwrap(),
            api_port: 7300,
            labels: Default::default(),
            versions: Versions::default(),
            serving: Vec::new(),
            started_at: UnixMs(0),
            heartbeat_at: heartbeat_at.map(UnixMs),
            draining_at: draining_at.map(UnixMs),
            clock_skew_ms: None,
        }
    }

    #[test]
    fn the_edge_of_the_window_is_inside_it() {
        assert_eq!(
            state(&node("a", Some(1_000), None), UnixMs(91_000), 90_000),
            State::Live
        );
        assert_eq!(
            state(&node("a", Some(1_000), None), UnixMs(91_001), 90_000),
            State::Stale
        );
        assert_eq!(state(&node("a", None, None), UnixMs(0), 90_000), State::Never);
    }

    proptest! {
        #[test]
        fn a_draining_node_is_never_live(beat in proptest::option::of(any::<u64>()), now in any::<u64>(), window in any::<u64>()) {
            prop_assert_eq!(state(&node("a", beat, Some(1)), UnixMs(now), window), State::Draining);
        }

        #[test]
        fn live_is_answering_and_not_leaving(beat in proptest::option::of(any::<u64>()), drain in proptest::option::of(any::<u64>()), now in any::<u64>(), window in any::<u64>()) {
            let node = node("a", beat, drain);
            let live = state(&node, UnixMs(now), window) == State::Live;
            prop_assert_eq!(live, answering(&node, UnixMs(now), window) && drain.is_none());
        }
    }
}

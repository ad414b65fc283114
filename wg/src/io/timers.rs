//! The clock of the sessions: handshakes again, keepalives, keys that are too old.

use std::sync::Arc;
use std::time::Instant;

use super::shared::{Peer, Shared};
use crate::session::{HANDSHAKE_ROOM, Output, TICK};

/// Ticks that make a second.
const A_SECOND: u32 = 4;

/// Runs until the device stops.
pub(crate) fn run(shared: &Shared) {
    let mut ticks = 0u32;
    loop {
        shared.stop.wait(TICK);
        if shared.stop.is_stopped() {
            return;
        }
        ticks = ticks.wrapping_add(1);
        if ticks.is_multiple_of(A_SECOND) {
            shared.handshakes.next_second();
        }
        let now = Instant::now();
        for (_, peer) in shared.peers().all() {
            if ticks.is_multiple_of(A_SECOND) {
                shared.send_further(peer, now);
            }
            let mut room = [0; HANDSHAKE_ROOM];
            let message = match peer.session().tick(&mut room) {
                Output::Network(message) => message.to_vec(),
                Output::Nothing | Output::Tunnel(..) | Output::Refused => continue,
            };
            shared.send_message(peer, &message, now);
        }
    }
}

/// Begins handshakes with peers that just came, or came to have an address, and are not heard from.
pub(crate) fn greet(shared: &Shared, peers: &[Arc<Peer>]) {
    let now = Instant::now();
    for peer in peers {
        let skip = {
            let path = peer.path();
            path.is_heard(now) || path.current(now).is_none()
        };
        if skip {
            continue;
        }
        let mut room = [0; HANDSHAKE_ROOM];
        let message = match peer.session().initiate(&mut room) {
            Output::Network(message) => message.to_vec(),
            Output::Nothing | Output::Tunnel(..) | Output::Refused => continue,
        };
        shared.send_message(peer, &message, now);
    }
}

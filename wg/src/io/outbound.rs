//! From the TUN to the peers: read a batch, encrypt each run of packets for one peer into one buffer, send the buffer as
//! one message.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::{Peer, Peers, Shared};
use super::tun::{BATCH, HEADROOM, LARGEST};
use super::udp::{LARGEST as LARGEST_RUN, MOST_SEGMENTS};
use crate::mesh::packet;
use crate::session::{HANDSHAKE_ROOM, OVERHEAD, Output};

/// Pause after an error of the TUN that is not just "nothing there".
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Datagrams of one peer, encrypted and not sent yet: all of one size, the last one perhaps shorter.
struct Run {
    buffer: Vec<u8>,
    filled: usize,
    segment: usize,
    count: usize,
    ended: bool,
}

impl Run {
    fn new() -> Self {
        Self {
            buffer: vec![0; LARGEST_RUN + OVERHEAD + HANDSHAKE_ROOM],
            filled: 0,
            segment: 0,
            count: 0,
            ended: false,
        }
    }

    fn takes(&self, size: usize) -> bool {
        self.count == 0
            || (!self.ended && size <= self.segment && self.count < MOST_SEGMENTS && self.filled + size <= LARGEST_RUN)
    }

    fn took(&mut self, size: usize) {
        if self.count == 0 {
            self.segment = size;
        } else if size < self.segment {
            self.ended = true;
        }
        self.filled += size;
        self.count += 1;
    }

    fn clear(&mut self) {
        (self.filled, self.segment, self.count, self.ended) = (0, 0, 0, false);
    }
}

/// Runs until the device stops.
pub(crate) fn run(shared: &Shared) {
    let mut whole = vec![0; LARGEST + HEADROOM];
    let mut packets: Vec<Vec<u8>> = (0..BATCH).map(|_| vec![0; LARGEST]).collect();
    let mut sizes = vec![0; BATCH];
    let mut run = Run::new();
    while !shared.stop.is_stopped() {
        match shared.tun.read(&mut whole, &mut packets, &mut sizes) {
            Ok(count) => {
                let batch = packets
                    .iter()
                    .zip(&sizes)
                    .take(count)
                    .map(|(packet, size)| &packet[..*size]);
                forward(shared, batch, &mut run);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                shared.stop.wait_readable(&[std::os::fd::AsFd::as_fd(&shared.tun)]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                shared.counters.tun_errors.add(1);
                tracing::debug!(%error, "nothing was read from the TUN interface");
                shared.stop.wait(ERROR_PAUSE);
            }
        }
    }
}

fn forward<'a>(shared: &Shared, batch: impl Iterator<Item = &'a [u8]>, run: &mut Run) {
    let peers = shared.peers();
    let now = Instant::now();
    let mut batch = batch.peekable();
    while let Some(packet) = batch.next() {
        let Some(peer) = owner(&peers, packet) else {
            shared.counters.no_peer.add(1);
            continue;
        };
        // All packets in a row for this peer under one lock, which is never held over a system call.
        let mut pending = Some(packet);
        while let Some(packet) = pending.take() {
            let mut session = peer.session();
            let mut message = None;
            let mut current = Some(packet);
            while let Some(packet) = current.take() {
                let size = packet.len() + OVERHEAD;
                if !run.takes(size) || size > LARGEST_RUN {
                    pending = (size <= LARGEST_RUN).then_some(packet);
                    break;
                }
                match session.seal(packet, &mut run.buffer[run.filled..]) {
                    Output::Network(data) if data.len() == size && data.first() == Some(&4) => run.took(size),
                    // No session yet: what came out is the first message of a handshake.
                    Output::Network(datagram) => message = Some(datagram.to_vec()),
                    Output::Nothing | Output::Tunnel(..) | Output::Refused => {}
                }
                current = batch.next_if(|next| owner(&peers, next).is_some_and(|other| Arc::ptr_eq(other, peer)));
            }
            drop(session);
            send(shared, peer, run, now);
            if let Some(message) = message {
                shared.send_message(peer, &message, now);
            }
        }
    }
}

fn owner<'a>(peers: &'a Peers, packet: &[u8]) -> Option<&'a Arc<Peer>> {
    peers.for_address(packet::addresses(packet)?.destination)
}

fn send(shared: &Shared, peer: &Peer, run: &mut Run, now: Instant) {
    if run.count > 0 {
        match peer.path().current(now) {
            Some(to) => {
                peer.sent.add(run.filled as u64);
                shared
                    .sockets
                    .send(to, &run.buffer[..run.filled], run.segment, &shared.counters.udp_errors);
            }
            None => shared.counters.no_endpoint.add(run.count as u64),
        }
    }
    run.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_equal_sizes_and_one_shorter_end() {
        let mut run = Run::new();
        assert!(run.takes(1_452));
        run.took(1_452);
        assert!(!run.takes(1_453));
        assert!(run.takes(1_452));
        run.took(1_452);
        run.took(100);
        assert!(!run.takes(100), "a shorter one ends the run");
        run.clear();
        for _ in 0..45 {
            assert!(run.takes(1_452));
            run.took(1_452);
        }
        assert!(!run.takes(1_452), "a run fits into one message");
        run.clear();
        for _ in 0..MOST_SEGMENTS {
            run.took(64);
        }
        assert!(!run.takes(64));
    }
}

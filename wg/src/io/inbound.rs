//! From the peers to the TUN: receive a batch, split what the kernel coalesced, decrypt, check the source, write all of it
//! coalesced again.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_udp::RecvMeta;
use tun_rs::GROTable;

use super::shared::{Peer, Peers, Shared};
use super::tun::{BATCH, HEADROOM, LARGEST};
use super::udp::Udp;
use crate::mesh::packet::{self, Message};
use crate::session::{HANDSHAKE_ROOM, Initiator, OVERHEAD, Output, Session, peer_index};

/// Pause after an error of a socket, so that one which stays costs no core.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// Messages that one call can receive, each of up to 64 KiB of coalesced datagrams.
const MESSAGES: usize = 16;

/// Packets on their way to the TUN. Buffers are used again and again. A packet is coalesced into one before it only where
/// that one has the room, so each has room for the largest; what is never touched takes no memory.
struct Delivery {
    buffers: Vec<Vec<u8>>,
    count: usize,
    table: GROTable,
}

impl Delivery {
    fn new() -> Self {
        Self {
            buffers: (0..BATCH).map(|_| Vec::with_capacity(2 * HEADROOM + LARGEST)).collect(),
            count: 0,
            table: GROTable::default(),
        }
    }

    /// Room for a packet of up to `size` bytes, after the headroom.
    fn room(&mut self, size: usize) -> &mut Vec<u8> {
        let buffer = &mut self.buffers[self.count];
        buffer.resize(HEADROOM + size.max(HANDSHAKE_ROOM), 0);
        buffer
    }

    fn flush(&mut self, shared: &Shared) {
        if self.count == 0 {
            return;
        }
        let mut packets: Vec<&mut Vec<u8>> = self.buffers.iter_mut().take(self.count).collect();
        if let Err(error) = shared.tun.write(&mut self.table, &mut packets) {
            shared.counters.tun_errors.add(1);
            tracing::debug!(%error, "packets were not written to the TUN interface");
        }
        self.count = 0;
    }
}

/// Runs until the device stops.
pub(crate) fn run(shared: &Shared) {
    let mut buffers: Vec<Vec<u8>> = (0..MESSAGES).map(|_| vec![0; LARGEST]).collect();
    let mut metas = vec![RecvMeta::default(); MESSAGES];
    let mut delivery = Delivery::new();
    while !shared.stop.is_stopped() {
        let mut received = false;
        for socket in shared.sockets.all() {
            received |= receive(shared, socket, &mut buffers, &mut metas, &mut delivery);
        }
        if !received {
            let fds: Vec<_> = shared.sockets.all().map(AsFd::as_fd).collect();
            shared.stop.wait_readable(&fds);
        }
    }
}

/// Takes one batch off a socket. False when there was none.
fn receive(
    shared: &Shared,
    socket: &Udp,
    buffers: &mut [Vec<u8>],
    metas: &mut [RecvMeta],
    delivery: &mut Delivery,
) -> bool {
    let mut slices: Vec<IoSliceMut<'_>> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
    let count = match socket.receive(&mut slices, metas) {
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
        // A peer's ICMP errors end up here; none of them is the end of the socket.
        Err(error) => {
            shared.counters.udp_errors.add(1);
            tracing::debug!(%error, "nothing was received");
            shared.stop.wait(ERROR_PAUSE);
            return true;
        }
    };
    let peers = shared.peers();
    let now = Instant::now();
    for (buffer, meta) in buffers.iter().zip(metas.iter()).take(count) {
        let stride = meta.stride.max(1);
        for datagram in buffer[..meta.len].chunks(stride) {
            take(shared, &peers, meta.addr, datagram, delivery, now);
        }
    }
    delivery.flush(shared);
    true
}

fn take(shared: &Shared, peers: &Peers, from: SocketAddr, datagram: &[u8], delivery: &mut Delivery, now: Instant) {
    let Some(message) = packet::message(datagram) else {
        return shared.counters.strange.add(1);
    };
    match message {
        Message::Data(index) => match peers.with_index(peer_index(index)) {
            Some(peer) => take_data(shared, peers, peer, from, datagram, delivery, now),
            None => shared.counters.strange.add(1),
        },
        Message::Response(index) | Message::Cookie(index) => match peers.with_index(peer_index(index)) {
            Some(peer) => take_handshake(shared, peer, from, datagram, message, now),
            None => shared.counters.strange.add(1),
        },
        Message::Initiation => {
            let mut room = [0; HANDSHAKE_ROOM];
            match shared.handshakes.initiator(from.ip(), datagram, &mut room) {
                Initiator::Known(key) => match peers.with_key(&key) {
                    Some(peer) => take_handshake(shared, peer, from, datagram, message, now),
                    None => shared.counters.strange.add(1),
                },
                Initiator::Cookie(reply) => {
                    shared
                        .sockets
                        .send(from, reply, reply.len(), &shared.counters.udp_errors);
                }
                Initiator::Refused => shared.counters.refused.add(1),
            }
        }
    }
}

fn take_data(
    shared: &Shared,
    peers: &Peers,
    peer: &Arc<Peer>,
    from: SocketAddr,
    datagram: &[u8],
    delivery: &mut Delivery,
    now: Instant,
) {
    let room = delivery.room(datagram.len());
    let opened = match peer.session().open(from.ip(), datagram, &mut room[HEADROOM..]) {
        Output::Tunnel(packet, source) => Some((packet.len(), source)),
        // A keepalive; the first one confirms a session that the peer began, and packets may be waiting for that.
        Output::Nothing => None,
        Output::Network(_) | Output::Refused => return shared.counters.refused.add(1),
    };
    peer.received.add(datagram.len() as u64);
    peer.path().on_heard(from, now);
    let Some((size, source)) = opened else {
        let mut waiting = Vec::new();
        take_waiting(&mut peer.session(), &mut vec![0; LARGEST + OVERHEAD], &mut waiting);
        return answer(shared, peer, from, &waiting);
    };
    // What a peer may send from is what it is sent for (WireGuard paper, section 2).
    if !peers.for_address(source).is_some_and(|owner| Arc::ptr_eq(owner, peer)) {
        return shared.counters.wrong_source.add(1);
    }
    room.truncate(HEADROOM + size);
    delivery.count += 1;
    if delivery.count == BATCH {
        delivery.flush(shared);
    }
}

fn take_handshake(shared: &Shared, peer: &Peer, from: SocketAddr, datagram: &[u8], message: Message, now: Instant) {
    let mut room = vec![0; LARGEST + OVERHEAD];
    let mut answers: Vec<Vec<u8>> = Vec::new();
    {
        let mut session = peer.session();
        let authentic = match session.open(from.ip(), datagram, &mut room) {
            // Under load the answer to an initiation may be a cookie, which says nothing about who sent it.
            Output::Network(answer) => {
                let authentic = packet::message(answer).is_some_and(|answer| !matches!(answer, Message::Cookie(_)));
                answers.push(answer.to_vec());
                authentic
            }
            Output::Nothing => !matches!(message, Message::Cookie(_)),
            Output::Tunnel(..) | Output::Refused => return shared.counters.refused.add(1),
        };
        if authentic {
            peer.received.add(datagram.len() as u64);
            peer.path().on_heard(from, now);
        }
        if matches!(message, Message::Response(_)) {
            take_waiting(&mut session, &mut room, &mut answers);
        }
    }
    answer(shared, peer, from, &answers);
}

/// What waited for a session, encrypted.
fn take_waiting(session: &mut Session, room: &mut [u8], waiting: &mut Vec<Vec<u8>>) {
    while let Output::Network(datagram) = session.waiting(room) {
        waiting.push(datagram.to_vec());
    }
}

/// Answers go where the question came from.
fn answer(shared: &Shared, peer: &Peer, from: SocketAddr, answers: &[Vec<u8>]) {
    for answer in answers {
        peer.sent.add(answer.len() as u64);
        shared
            .sockets
            .send(from, answer, answer.len(), &shared.counters.udp_errors);
    }
}

//! What touches the system: the TUN device, the UDP sockets, the interface's address, the guard, and the threads that
//! move packets between them.

pub(crate) mod counters;
pub mod guard;
pub(crate) mod inbound;
pub mod link;
pub(crate) mod outbound;
pub(crate) mod shared;
pub(crate) mod timers;
pub(crate) mod tun;
pub(crate) mod udp;
pub(crate) mod wake;

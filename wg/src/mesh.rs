//! The mesh's decisions: which peer a packet belongs to, where a peer is reached, what changes when the peers do.
//!
//! Pure: no clock, randomness, socket or thread. Time comes in as an argument.

pub mod allowed_ips;
pub mod packet;
pub mod path;
pub mod peers;

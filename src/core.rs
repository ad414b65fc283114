//! The node's decisions, and nothing else: no clock, randomness, file, socket, task or lock (design, section 2).
//!
//! Time comes in with each event, randomness as a seed, and what should happen goes out as effects. The same code runs
//! in the daemon and in the simulation.

pub mod address;
pub mod backoff;
pub mod fleet_time;
pub mod guards;
pub mod lease;
pub mod listing;
pub mod liveness;
pub mod node;
pub mod peers;
pub mod placement;
pub mod reap;
pub mod records;
pub mod selector;
pub mod types;
pub mod version;

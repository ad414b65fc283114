//! The node's decisions, and nothing else: no clock, randomness, file, socket, task or lock (design, section 2).
//!
//! Time comes in with each event, randomness as a seed, and what should happen goes out as effects. The same code runs
//! in the daemon and in the simulation.

pub mod types;
pub mod version;

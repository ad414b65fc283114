//! Scafo: Linux machines as one mesh-only fleet that runs celld.
//!
//! In reading order: [`core`] decides, everything else carries out. [`error`] is what people see; [`config`] is what
//! they say; [`host`] is what the machine gives; [`state`] is what a node keeps on its disk; [`bucket`] is what nodes
//! share and [`registry`] what they say there; [`mesh`], [`runtime`] and [`api`] are the node's hands; [`daemon`] wires
//! them to the core, and [`cli`] is the way in. Imports go one way, as `tests/architecture.rs` checks.

pub mod api;
pub mod bucket;
pub mod cli;
pub mod config;
pub mod core;
pub mod daemon;
pub mod error;
pub mod host;
pub mod mesh;
pub mod registry;
pub mod runtime;
pub mod state;

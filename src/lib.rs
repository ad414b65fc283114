//! Scafo: Linux machines as one mesh-only fleet that runs celld.
//!
//! In reading order: [`core`] decides, everything else carries out. [`error`] is what people see; [`config`] is what
//! they say; [`host`] is what the machine gives; [`state`] is what a node keeps on its disk; [`bucket`] is what nodes
//! share. Imports go one way, as `tests/architecture.rs` checks.

pub mod api;
pub mod bucket;
pub mod config;
pub mod core;
pub mod error;
pub mod host;
pub mod registry;
pub mod runtime;
pub mod state;

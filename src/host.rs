//! What the machine gives: the only clock, the only random source, atomic file writes, systemd and capabilities.
//!
//! Everything that must be replaced in a simulation is behind a trait here or passed as a value from here.

pub mod addresses;
pub mod clock;
pub mod files;
pub mod random;

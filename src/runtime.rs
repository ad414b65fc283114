//! celld as this machine runs it: which version the configured binary is, and the processes of the applications that
//! are placed here.
//!
//! An adapter: what should run, and when a runtime is started again, is decided in `core`.

pub mod version_probe;

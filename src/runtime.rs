//! celld: finding out what it is, before anything is written. How a node runs it is decided in `core`.

pub mod version_probe;

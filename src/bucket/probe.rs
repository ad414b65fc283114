//! The bucket: probe.

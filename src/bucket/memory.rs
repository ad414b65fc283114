//! The bucket: memory.

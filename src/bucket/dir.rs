//! The bucket: dir.

//! The bucket: s3.

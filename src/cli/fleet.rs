//! `scafo fleet`: the fleet as the bucket has it.

use std::path::Path;
use std::sync::Arc;

use crate::bucket::url::BucketUrl;
use crate::bucket::{self, Bucket};
use crate::config::Config;
use crate::error::{Code, Error, Field, Result};
use crate::registry;

pub mod freeze;
pub mod lease;
pub mod nodes;
pub mod remove;

/// Opens the fleet's bucket for reading.
pub(super) fn open(config: &Config) -> Result<Arc<dyn Bucket>> {
    let url = config.bucket_url();
    if let BucketUrl::Dir(path) = &url
        && !path.is_dir()
    {
        return Err(no_such_bucket(config, path));
    }
    let (endpoint, region) = (config.bucket.endpoint.value.clone(), config.bucket.region.value.clone());
    bucket::open(&url, endpoint, region).map_err(|error| registry::refusal(&url.to_string(), &error))
}

/// Reading makes nothing: a directory that is not there is a slip of the pen, or a bucket that nobody named.
fn no_such_bucket(config: &Config, path: &Path) -> Error {
    let origin = &config.bucket.url.origin;
    if config.bucket.url.value.is_none() {
        return Error::invalid("no bucket is named, and this machine has none of its own")
            .field(Field::new("bucket.url", "unset").from(origin))
            .help("name the fleet's bucket: --bucket s3://NAME, or SCAFO_BUCKET");
    }
    Error::new(Code::NotFound, "there is no such directory")
        .field(Field::new("bucket.url", format!("dir:{}", path.display())).from(origin))
        .help("name the fleet's bucket: --bucket, or SCAFO_BUCKET")
}

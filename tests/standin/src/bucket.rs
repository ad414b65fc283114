//! The few bucket operations that the stand-in needs: read an object, write one, write one only if it has not changed.
//!
//! Two kinds: a directory whose files are the objects, and an S3 store reached over plain HTTP with path-style URLs.

mod s3;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sha2::{Digest, Sha256};

pub(crate) use crate::refuse::BucketUrl;
use s3::Store;

/// A bucket as the settings name it.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    pub(crate) url: BucketUrl,
    pub(crate) endpoint: Option<String>,
    pub(crate) region: String,
    pub(crate) credentials: Option<(String, String)>,
    pub(crate) session_token: Option<String>,
}

/// An object's content and the tag that changes with it.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) body: Bytes,
    pub(crate) tag: String,
}

/// On what condition a write is to happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition<'a> {
    Always,
    Absent,
    Unchanged(&'a str),
}

/// An opened bucket.
#[derive(Debug)]
pub(crate) enum Bucket {
    Dir(PathBuf),
    S3(Box<Store>),
}

impl Bucket {
    pub(crate) fn open(location: &Location) -> Result<Self, String> {
        match &location.url {
            BucketUrl::Dir(path) => Ok(Self::Dir(path.into())),
            BucketUrl::Store { name, prefix, .. } => {
                Store::open(location, name, prefix).map(|store| Self::S3(Box::new(store)))
            }
        }
    }

    /// None when there is no such object.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Object>, String> {
        match self {
            Self::Dir(root) => read(&root.join(key)).map_err(|error| format!("reading {key}: {error}")),
            Self::S3(store) => store.get(key).await,
        }
    }

    /// Whether the write happened; false when its condition did not hold.
    pub(crate) async fn put(&self, key: &str, body: Bytes, condition: Condition<'_>) -> Result<bool, String> {
        match self {
            Self::Dir(root) => {
                write(&root.join(key), &body, condition).map_err(|error| format!("writing {key}: {error}"))
            }
            Self::S3(store) => store.put(key, body, condition).await,
        }
    }
}

fn read(file: &Path) -> io::Result<Option<Object>> {
    match fs::read(file) {
        Ok(body) => Ok(Some(Object {
            tag: sha256(&body),
            body: body.into(),
        })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The condition is checked before the write and not with it: two writers of one key in the same instant are no part of
/// what a directory is used for here.
fn write(file: &Path, body: &[u8], condition: Condition<'_>) -> io::Result<bool> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let current = read(file)?;
    let holds = match (condition, &current) {
        (Condition::Always, _) | (Condition::Absent, None) => true,
        (Condition::Unchanged(tag), Some(object)) => object.tag == tag,
        (Condition::Absent, Some(_)) | (Condition::Unchanged(_), None) => false,
    };
    if !holds {
        return Ok(false);
    }
    let folder = file
        .parent()
        .ok_or_else(|| io::Error::other("a key without a folder"))?;
    fs::create_dir_all(folder)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".standin-{}-{number}.tmp", std::process::id()));
    let mut target = fs::File::create(&temporary)?;
    target.write_all(body)?;
    target.sync_all()?;
    fs::rename(&temporary, file)?;
    Ok(true)
}

/// In lower-case hexadecimal.
pub(crate) fn sha256(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_keeps_the_conditions() {
        let folder = tempfile::tempdir().unwrap();
        let bucket = Bucket::Dir(folder.path().into());
        assert!(bucket.get("deploy/current.json").await.unwrap().is_none());
        assert!(
            bucket
                .put("deploy/current.json", "1".into(), Condition::Absent)
                .await
                .unwrap()
        );
        assert!(
            !bucket
                .put("deploy/current.json", "2".into(), Condition::Absent)
                .await
                .unwrap()
        );
        let object = bucket.get("deploy/current.json").await.unwrap().unwrap();
        assert!(
            bucket
                .put("deploy/current.json", "3".into(), Condition::Unchanged(&object.tag))
                .await
                .unwrap()
        );
        assert!(
            !bucket
                .put("deploy/current.json", "4".into(), Condition::Unchanged(&object.tag))
                .await
                .unwrap()
        );
        assert_eq!(
            fs::read_to_string(folder.path().join("deploy/current.json")).unwrap(),
            "3"
        );
        assert_eq!(fs::read_dir(folder.path().join("deploy")).unwrap().count(), 1);
    }
}

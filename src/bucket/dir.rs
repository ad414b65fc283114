//! A bucket that is a directory, safe for many processes at once: for trying out, tests, and one machine.
//!
//! An object is a plain file at its key below the root. Writers take one lock file in turn; readers take none, since a
//! file is replaced whole by a rename.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use blake2::{Blake2s256, Digest};
use data_encoding::HEXLOWER;
use nix::fcntl::{Flock, FlockArg};

use super::{Bucket, BucketError, Changed, ETag, Entry, Object, Reply, StoreTime, WriteOutcome};
use crate::host::random;

const LOCK: &str = ".scafo-lock";
const TEMPORARY: &str = ".tmp";

/// A directory as a bucket.
#[derive(Clone, Debug)]
pub struct DirBucket {
    root: PathBuf,
}

/// What a write wants to find.
enum Condition {
    Absent,
    Is(ETag),
}

impl DirBucket {
    /// The bucket at `root`, which is made where it is missing.
    pub fn open(root: &Path) -> Result<Self, BucketError> {
        fs::create_dir_all(root).map_err(|error| failed(root, &error))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Where a key lives. Keys that a file system could take for something else are none.
    fn path(&self, key: &str) -> Result<PathBuf, BucketError> {
        let good = |part: &str| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && !part.contains('\0')
                && part.len() <= 200
                && !part.ends_with(TEMPORARY)
                && part != LOCK
        };
        if key.split('/').all(good) {
            Ok(self.root.join(key))
        } else {
            Err(BucketError::Invalid(format!(
                "{key:?} is no key that a directory can hold"
            )))
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, BucketError> + Send + 'static,
    ) -> Result<T, BucketError> {
        let bucket = self.clone();
        tokio::task::spawn_blocking(move || work(&bucket))
            .await
            .map_err(|error| BucketError::Unreachable(format!("the work was cut off: {error}")))?
    }

    fn read(&self, key: &str) -> Result<Option<(Object, u64)>, BucketError> {
        let path = self.path(key)?;
        match read_object(&path) {
            Ok(found) => Ok(found),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    fn write(&self, key: &str, condition: &Condition, body: &[u8]) -> Result<Option<ETag>, BucketError> {
        let path = self.path(key)?;
        let _lock = self.lock()?;
        let found = self.read(key)?.map(|(object, _)| object.etag);
        let holds = match (condition, &found) {
            (Condition::Absent, found) => found.is_none(),
            (Condition::Is(wanted), found) => found.as_ref() == Some(wanted),
        };
        if !holds {
            return Ok(None);
        }
        let written = (|| {
            let folder = path.parent().unwrap_or(&self.root);
            fs::create_dir_all(folder)?;
            let id = random::id().map_err(|error| io::Error::other(error.message))?;
            let temporary = folder.join(format!(".{id}{TEMPORARY}"));
            let done = (|| {
                let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
                file.write_all(body)?;
                file.sync_all()?;
                fs::rename(&temporary, &path)
            })();
            if done.is_err() {
                let _ = fs::remove_file(&temporary);
            }
            done?;
            File::open(folder)?.sync_all()
        })();
        written.map_err(|error: io::Error| failed(&path, &error))?;
        // Nobody else writes while the lock is held, so this is what was just written.
        Ok(self.read(key)?.map(|(object, _)| object.etag))
    }

    fn lock(&self) -> Result<Flock<File>, BucketError> {
        let path = self.root.join(LOCK);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = file.map_err(|error| failed(&path, &error))?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| failed(&path, &error.into()))
    }

    fn walk(&self, prefix: &str) -> Result<Vec<Entry>, BucketError> {
        // The deepest folder that every match is in.
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let start = if folder.is_empty() {
            self.root.clone()
        } else {
            self.path(folder)?
        };
        let mut entries = Vec::new();
        self.walk_folder(&start, prefix, &mut entries)?;
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(entries)
    }

    fn walk_folder(&self, folder: &Path, prefix: &str, entries: &mut Vec<Entry>) -> Result<(), BucketError> {
        let listed = match fs::read_dir(folder) {
            Ok(listed) => listed,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(error) => return Err(failed(folder, &error)),
        };
        for entry in listed {
            let entry = entry.map_err(|error| failed(folder, &error))?;
            let path = entry.path();
            // A name that is not text is none of ours.
            let Some(key) = path
                .strip_prefix(&self.root)
                .ok()
                .and_then(Path::to_str)
                .map(ToOwned::to_owned)
            else {
                continue;
            };
            if key.ends_with(TEMPORARY) || key == LOCK {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let inner = format!("{key}/");
                if inner.starts_with(prefix) || prefix.starts_with(&inner) {
                    self.walk_folder(&path, prefix, entries)?;
                }
            } else if key.starts_with(prefix)
                && let Some((object, modified)) = read_object(&path).map_err(|error| failed(&path, &error))?
            {
                entries.push(Entry {
                    key,
                    etag: Some(object.etag),
                    last_modified_ms: Some(modified),
                });
            }
        }
        Ok(())
    }
}

/// One file as one version. The file is opened once, so its body and its version belong together even while it is being
/// replaced. The version is of the body, the moment and the inode: a new version is a new file made while the old one is
/// still there, so two in a row differ even with equal bodies within one tick of the clock.
fn read_object(path: &Path) -> io::Result<Option<(Object, u64)>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Ok(None);
    }
    let mut body = Vec::new();
    file.read_to_end(&mut body)?;
    let hash = HEXLOWER.encode(&Blake2s256::digest(&body)[..16]);
    let tag = format!(
        "\"{hash}-{}-{}-{}\"",
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ino()
    );
    let modified = metadata.modified().map_or(0, millis);
    Ok(ETag::new(tag).map(|etag| (Object { body, etag }, modified)))
}

fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A directory's clock is the machine's.
fn reply<T>(value: T, last_modified_ms: Option<u64>) -> Reply<T> {
    let date_ms = Some(millis(SystemTime::now()) / 1_000 * 1_000);
    Reply {
        value,
        time: StoreTime {
            date_ms,
            last_modified_ms,
        },
    }
}

fn failed(path: &Path, error: &io::Error) -> BucketError {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => BucketError::Denied(text),
        _ => BucketError::Unreachable(text),
    }
}

fn outcome(written: Result<Option<ETag>, BucketError>) -> WriteOutcome {
    match written {
        Ok(Some(etag)) => WriteOutcome::Applied(etag),
        Ok(None) => WriteOutcome::Rejected,
        Err(error) if error.is_transient() => WriteOutcome::Unknown(error.to_string()),
        Err(error) => WriteOutcome::Fatal(error),
    }
}

#[async_trait]
impl Bucket for DirBucket {
    fn name(&self) -> String {
        format!("dir:{}", self.root.display())
    }

    async fn get(&self, key: &str) -> Result<Reply<Option<Object>>, BucketError> {
        let key = key.to_owned();
        let found = self.blocking(move |bucket| bucket.read(&key)).await?;
        let modified = found.as_ref().map(|(_, modified)| *modified);
        Ok(reply(found.map(|(object, _)| object), modified))
    }

    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Reply<Changed>, BucketError> {
        let Reply { value, time } = self.get(key).await?;
        let value = match value {
            None => Changed::Absent,
            Some(object) if object.etag == *etag => Changed::Unchanged,
            Some(object) => Changed::Changed(object),
        };
        Ok(Reply { value, time })
    }

    async fn list(&self, prefix: &str) -> Result<Reply<Vec<Entry>>, BucketError> {
        let prefix = prefix.to_owned();
        Ok(reply(self.blocking(move |bucket| bucket.walk(&prefix)).await?, None))
    }

    async fn create(&self, key: &str, body: Vec<u8>) -> Reply<WriteOutcome> {
        let key = key.to_owned();
        reply(
            outcome(
                self.blocking(move |bucket| bucket.write(&key, &Condition::Absent, &body))
                    .await,
            ),
            None,
        )
    }

    async fn replace(&self, key: &str, etag: &ETag, body: Vec<u8>) -> Reply<WriteOutcome> {
        let (key, condition) = (key.to_owned(), Condition::Is(etag.clone()));
        reply(
            outcome(self.blocking(move |bucket| bucket.write(&key, &condition, &body)).await),
            None,
        )
    }

    async fn remove(&self, key: &str) -> Result<(), BucketError> {
        let key = key.to_owned();
        self.blocking(move |bucket| {
            let path = bucket.path(&key)?;
            let _lock = bucket.lock()?;
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path, &error)),
                _ => Ok(()),
            }
        })
        .await
    }
}

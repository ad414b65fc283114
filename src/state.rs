//! What a node keeps on its disk (design, section 3): who it is, its tunnel, and the peers that it last knew.
//!
//! A file that is there and cannot be read as what it should be is named and never replaced: a new key under an id whose
//! old key the fleet still holds would lock the machine out.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::error::{Error, Field, Result};
use crate::host::files;

pub mod fence;
pub mod identity;
pub mod mesh_cache;
pub mod tunnel;

/// A state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

/// Held for the daemon's life: no second daemon runs on the same directory.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl StateDir {
    /// A directory that may not be there yet. Nothing is read or made.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file or folder in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the directory, mode 0700, unless it is there. One that others may enter is refused rather than changed:
    /// whoever opened it may rely on that.
    pub fn create(&self) -> Result<()> {
        let failed = |error: &io::Error| {
            Error::invalid(format!("the state directory cannot be made: {error}"))
                .field(Field::new("state.dir", self.path.display()))
                .help("run as root, or name a directory that you may write to with --state-dir")
        };
        files::create_private_dir(&self.path).map_err(|error| failed(&error))?;
        if files::is_open_to_others(&self.path).map_err(|error| failed(&error))? {
            return Err(
                Error::invalid("the state directory holds keys and is open to other users")
                    .field(Field::new("state.dir", self.path.display()))
                    .help(format!("chmod 700 {}", self.path.display())),
            );
        }
        Ok(())
    }

    /// Takes the directory for this process, for as long as the lock lives.
    pub fn lock(&self) -> Result<Lock> {
        let path = self.join("lock");
        let failed = |error: &dyn std::fmt::Display| {
            Error::invalid(format!("the state directory cannot be locked: {error}"))
                .field(Field::new("state.dir", self.path.display()))
                .help("run as the user that owns the state directory")
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(files::PRIVATE_FILE)
            .open(&path)
            .map_err(|error| failed(&error))?;
        let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                // The holder may be about to write its pid; without one the conflict is still a conflict.
                let _ = file.read_to_string(&mut pid);
                return Err(self.taken(pid.trim()));
            }
            Err((_, error)) => return Err(failed(&error)),
        };
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| write!(file, "{}", std::process::id()));
        written.map_err(|error| failed(&error))?;
        Ok(Lock { _file: file })
    }

    fn taken(&self, pid: &str) -> Error {
        let (who, help) = if pid.is_empty() {
            ("another process".to_owned(), "stop the other scafo first".to_owned())
        } else {
            (format!("process {pid}"), format!("stop it first: kill {pid}"))
        };
        Error::conflict(format!("{who} already runs a node on this state directory"))
            .field(Field::new("state.dir", self.path.display()))
            .help(help)
    }

    /// Reads a file of keys or state as JSON. `None` when there is none.
    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.join(name);
        let bytes = match files::read(&path) {
            Ok(Some(bytes)) => Zeroizing::new(bytes),
            Ok(None) => return Ok(None),
            Err(error) => return Err(self.unreadable(name, &error.to_string())),
        };
        if files::is_open_to_others(&path).map_err(|error| self.unreadable(name, &error.to_string()))? {
            return Err(
                Error::invalid(format!("{name} holds a private key and is open to other users"))
                    .field(Field::new(name, path.display()))
                    .help(format!("chmod 600 {}", path.display()))
                    .help("if anybody else may have read it, make a new key: the old one is no longer a secret"),
            );
        }
        let deserializer = &mut serde_json::Deserializer::from_slice(&bytes);
        let parsed = serde_path_to_error::deserialize(&mut *deserializer)
            .map_err(|error| (error.path().to_string(), error.into_inner()))
            // Bytes after the value are as wrong as bytes missing from it.
            .and_then(|parsed| {
                deserializer
                    .end()
                    .map(|()| parsed)
                    .map_err(|error| (".".to_owned(), error))
            });
        parsed.map(Some).map_err(|(place, error)| {
            // The parser's own words could repeat a part of the file, and a part of a key is still a secret.
            let what = if error.is_eof() {
                "it is cut short"
            } else {
                "it is not what it should be"
            };
            let field = if matches!(place.as_str(), "." | "?") {
                String::new()
            } else {
                format!(" (field {place})")
            };
            self.unreadable(
                name,
                &format!("{what}{field}, at line {} column {}", error.line(), error.column()),
            )
        })
    }

    /// The error about a file that is there and is not what it should be.
    fn unreadable(&self, name: &str, reason: &str) -> Error {
        let path = self.join(name);
        Error::invalid(format!(
            "{name} cannot be read, and what cannot be read is never replaced"
        ))
        .field(Field::new(name, path.display()).because(reason))
        .help("bring the file back from a backup of the state directory")
        .help(format!(
            "or give this machine up as the node that it was: mv {} {}.broken",
            path.display(),
            path.display()
        ))
    }

    /// Reads a private key of 32 bytes in base64, as it stands in the file `name`.
    fn secret(&self, name: &str, text: &str) -> Result<Zeroizing<[u8; 32]>> {
        let bytes = BASE64.decode(text.as_bytes()).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| self.unreadable(name, "privateKey is not base64"))?;
        let secret = bytes.as_slice().try_into().map(Zeroizing::new);
        secret.map_err(|_| self.unreadable(name, "privateKey is not 32 bytes"))
    }

    /// Writes a file of keys or state as JSON; its text may be a secret, and is wiped.
    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(value).map(Zeroizing::new);
        let text = text.map_err(|error| Error::internal(format!("{name} has no text: {error}")))?;
        self.write(name, &text)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.join(name);
        files::write_atomic(&path, text.as_bytes(), files::PRIVATE_FILE).map_err(|error| {
            let help = match error.raw_os_error() {
                Some(code) if code == nix::errno::Errno::ENOSPC as i32 => "free some space on that file system",
                Some(code) if code == nix::errno::Errno::EROFS as i32 => "mount that file system writable",
                _ => "run as the user that owns the state directory",
            };
            Error::new(
                crate::error::Code::Unavailable,
                format!("{name} cannot be written: {error}"),
            )
            .field(Field::new(name, path.display()))
            .help(help)
        })
    }
}

//! Files that must never be half written and never be read by others (design, section 3).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::random;

/// Mode of files that hold keys or state.
pub const PRIVATE_FILE: u32 = 0o600;

/// Mode of the folders that they are in.
pub const PRIVATE_DIR: u32 = 0o700;

/// The largest state file that is read; a node's own are far smaller.
const LARGEST: u64 = 16 * 1024 * 1024;

/// Writes a file as a whole or not at all: a temporary file in the same folder, made with its final mode, `fsync`,
/// rename, `fsync` of the folder. After a crash or on a full disk there is the old file or the new one, never a part.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let id = random::id().map_err(|error| io::Error::other(error.message))?;
    let temporary = Temporary(folder.join(format!(".{name}.{id}.tmp")));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary.0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary.0, path)?;
    File::open(folder)?.sync_all()
}

/// Removed when dropped; after the rename there is nothing to remove.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Reads a whole state file; `None` when there is none. A folder, or a file larger than any of ours, is an error.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than 16 MiB"));
    }
    Ok(Some(bytes))
}

/// Whether anybody but the owner may read or write the file, by its mode.
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o077 != 0)
}

/// Makes a folder for state, with its parents, unless it is there.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_with_its_mode_and_nothing_is_left_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.json");
        for body in [&b"one"[..], b"a longer two", b"3"] {
            write_atomic(&path, body, PRIVATE_FILE).unwrap();
            assert_eq!(read(&path).unwrap().unwrap(), body);
        }
        assert!(!is_open_to_others(&path).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file_and_no_temporary_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        fs::create_dir_all(path.join("not-empty")).unwrap();
        assert!(write_atomic(&path, b"x", PRIVATE_FILE).is_err());
        assert!(path.join("not-empty").is_dir());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn absent_is_none_and_a_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(&folder.path().join("nothing")).unwrap(), None);
        assert!(read(folder.path()).is_err());
    }
}

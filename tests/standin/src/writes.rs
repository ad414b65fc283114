//! The state directory: writes that were acknowledged, kept across restarts in one file that only grows.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde_json::{Value, json};

/// Lines of `{"key", "value"}`, the later one winning.
const FILE: &str = "acknowledged.jsonl";

/// Held for as long as the process lives.
const LOCK: &str = ".standin-lock";

#[derive(Debug)]
pub(crate) struct Writes {
    file: File,
    values: BTreeMap<String, String>,
    _lock: File,
}

impl Writes {
    /// Creates the directory when it is missing, and locks it.
    pub(crate) fn open(state: &Path) -> Result<Self, String> {
        let describe = |error: std::io::Error| format!("the state directory {}: {error}", state.display());
        fs::create_dir_all(state).map_err(describe)?;
        let lock = File::create(state.join(LOCK)).map_err(describe)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!(
                    "another process works in the state directory {}",
                    state.display()
                ));
            }
            Err(TryLockError::Error(error)) => return Err(describe(error)),
        }
        let path = state.join(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(describe)?;
        let mut values = BTreeMap::new();
        for line in BufReader::new(&file).split(b'\n') {
            // A line that a crash cut short was never acknowledged.
            let Ok(record) = serde_json::from_slice::<Value>(&line.map_err(describe)?) else {
                continue;
            };
            if let (Some(key), Some(value)) = (record["key"].as_str(), record["value"].as_str()) {
                values.insert(key.to_owned(), value.to_owned());
            }
        }
        // So that the first new line never continues a torn one.
        file.write_all(b"\n").map_err(describe)?;
        Ok(Self {
            file,
            values,
            _lock: lock,
        })
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns once the write is on the disk.
    pub(crate) fn put(&mut self, key: &str, value: &str) -> std::io::Result<()> {
        let line = format!("{}\n", json!({ "key": key, "value": value }));
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        self.values.insert(key.to_owned(), value.to_owned());
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[test]
    fn writes_survive_and_a_torn_line_does_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("runtime/shop");
        let mut writes = Writes::open(&state).unwrap();
        writes.put("a", "1").unwrap();
        writes.put("a", "2").unwrap();
        writes.put("b", "line\nbreak").unwrap();
        assert!(Writes::open(&state).unwrap_err().contains("another process"));
        drop(writes);
        let mut torn = OpenOptions::new().append(true).open(state.join(FILE)).unwrap();
        torn.write_all(b"{\"key\": \"a\", \"val").unwrap();
        let mut writes = Writes::open(&state).unwrap();
        assert_eq!(
            (writes.get("a"), writes.get("b"), writes.len()),
            (Some("2"), Some("line\nbreak"), 2)
        );
        writes.put("c", "3").unwrap();
        drop(writes);
        assert_eq!(Writes::open(&state).unwrap().get("c"), Some("3"));
    }
}

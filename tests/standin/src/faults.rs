//! The faults that a test switches on with files; the list is in the crate's documentation.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// How often a running process looks for switches that need no request to matter.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// Where switches may lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) folders: Vec<PathBuf>,
}

impl Faults {
    /// Whether the switch's file is there.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.folders.iter().any(|folder| folder.join(name).exists())
    }

    /// The number in the switch's file; `default` when the file holds none. None when it is not there.
    pub(crate) fn number(&self, name: &str, default: u64) -> Option<u64> {
        let text = self
            .folders
            .iter()
            .find_map(|folder| fs::read_to_string(folder.join(name)).ok())?;
        Some(text.trim().parse().unwrap_or(default))
    }
}

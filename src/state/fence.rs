//! `fence.json`: the highest fence that this node has seen. Nothing stamped lower is acted on, by this boot or a later one
//! (design, section 8).

use serde::{Deserialize, Serialize};

use super::StateDir;
use crate::error::Result;

const FILE: &str = "fence.json";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    highest_fence: u64,
}

/// The highest fence seen; 0 on a first boot.
pub fn load(state: &StateDir) -> Result<u64> {
    Ok(state.read::<File>(FILE)?.map_or(0, |file| file.highest_fence))
}

/// Remembers a fence.
pub fn save(state: &StateDir, highest_fence: u64) -> Result<()> {
    state.write_json(FILE, &File { highest_fence })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_comes_back_and_a_broken_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path());
        assert_eq!(load(&state).unwrap(), 0);
        save(&state, 42).unwrap();
        assert_eq!(load(&state).unwrap(), 42);
        std::fs::write(state.join(FILE), "{").unwrap();
        assert!(load(&state).is_err());
    }
}

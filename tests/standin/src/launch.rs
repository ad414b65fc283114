//! How this process was called: its name, arguments, environment, and the version that follows from its name.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::faults::Faults;

/// The version where nothing beside the binary says otherwise.
const VERSION: &str = "0.6.2";

/// The environment, in order, so that refusals come out the same each time.
pub(crate) type Environment = BTreeMap<String, String>;

/// One call of the program.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The binary as it was called, so that a symbolic link with its own files beside it is its own installation.
    pub(crate) binary: PathBuf,
    pub(crate) version: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Environment,
}

impl Launch {
    pub(crate) fn from_process() -> Self {
        let mut arguments = env::args_os().map(|argument| argument.to_string_lossy().into_owned());
        let called = PathBuf::from(arguments.next().unwrap_or_default());
        let binary = locate(&called);
        let environment = env::vars_os()
            .map(|(name, value)| {
                (
                    name.to_string_lossy().into_owned(),
                    value.to_string_lossy().into_owned(),
                )
            })
            .collect();
        Self {
            version: version(&binary),
            binary,
            arguments: arguments.collect(),
            environment,
        }
    }

    /// The switches beside the binary, and those in the state directory where there is one.
    pub(crate) fn faults(&self, state: Option<&Path>) -> Faults {
        let mut folders = vec![with_suffix(&self.binary, ".faults")];
        folders.extend(state.map(|state| state.join(".standin")));
        Faults { folders }
    }
}

/// The file that a bare name was found as, looking where the caller must have looked.
fn locate(called: &Path) -> PathBuf {
    if called.components().count() > 1 {
        return called.to_owned();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(called))
        .find(|candidate| candidate.is_file())
        .or_else(|| env::current_exe().ok())
        .unwrap_or_else(|| called.to_owned())
}

fn version(binary: &Path) -> String {
    let stated = fs::read_to_string(with_suffix(binary, ".version")).ok();
    let stated = stated.as_deref().map(str::trim).filter(|version| !version.is_empty());
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    let named = name
        .strip_prefix("celld-")
        .filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    stated.or(named).unwrap_or(VERSION).to_owned()
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_stated_beside_the_binary_or_in_its_name() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(version(&folder.path().join("celld")), VERSION);
        assert_eq!(version(&folder.path().join("celld-standin")), VERSION);
        assert_eq!(version(&folder.path().join("celld-0.5.1")), "0.5.1");
        fs::write(folder.path().join("celld.version"), "0.5.1-fork.2\n").unwrap();
        assert_eq!(version(&folder.path().join("celld")), "0.5.1-fork.2");
    }
}

//! Removing namespaces with everything in them: a lab's own at its end, and those of test processes that were killed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{MARK, PATIENCE, run_within, with_words};

/// How long killed processes have to be gone.
const LIMIT: Duration = Duration::from_secs(5);

/// Removes namespaces and folders whose test process no longer lives. Those of living ones are not touched.
pub(super) fn remove() {
    for name in names(Path::new("/run/netns")) {
        if is_dead(&name) {
            remove_namespace(&name);
        }
    }
    let folder = std::env::temp_dir();
    for name in names(&folder) {
        if is_dead(&name) {
            // Somebody else may be removing it at the same time.
            let _ = fs::remove_dir_all(folder.join(name));
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Whether a name is a lab's and the process in it is gone.
fn is_dead(name: &str) -> bool {
    let rest = name.strip_prefix(MARK).and_then(|rest| rest.strip_prefix('-'));
    let Some(pid) = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok()) else {
        return false;
    };
    !Path::new("/proc").join(pid.to_string()).exists()
}

/// Kills what runs in a namespace, by process id, and deletes it.
pub(super) fn remove_namespace(name: &str) {
    let began = Instant::now();
    loop {
        let pids = processes(name);
        if pids.is_empty() || began.elapsed() > LIMIT {
            break;
        }
        for pid in pids {
            // It may have ended since it was listed.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    run_within(with_words(Command::new("ip"), &format!("netns del {name}")), PATIENCE);
}

/// The processes in a namespace; none when there is no such namespace.
pub(super) fn processes(name: &str) -> Vec<i32> {
    let output = run_within(with_words(Command::new("ip"), &format!("netns pids {name}")), PATIENCE);
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    // A thread of the test may be inside for a moment.
    output
        .stdout
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .filter(|&pid| pid != own)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dead_processes_are_leftovers() {
        let own = std::process::id();
        assert!(!is_dead(&format!("{MARK}-{own}-0-switch")));
        assert!(is_dead(&format!("{MARK}-4000000000-0-switch")));
        assert!(!is_dead("other-4000000000-0"));
        assert!(!is_dead(&format!("{MARK}-x-0")));
        assert!(!is_dead(&format!("{MARK}ory-4000000000")));
    }
}

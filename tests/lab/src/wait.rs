//! Waiting for something with a limit, so that no test sleeps for a guessed time.

use std::time::{Duration, Instant};

use crate::machines::Process;

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// How much of each log a failure shows, in lines.
const SHOWN: usize = 40;

/// Looks until `found` has something, and returns it. Panics after `limit`, saying what was waited for.
#[track_caller]
pub fn eventually<T>(limit: Duration, what: &str, found: impl FnMut() -> Option<T>) -> T {
    eventually_with(limit, what, &[], found)
}

/// [`eventually`], and a failure shows the last lines of these processes' logs.
#[track_caller]
pub fn eventually_with<T>(
    limit: Duration,
    what: &str,
    processes: &[&Process],
    mut found: impl FnMut() -> Option<T>,
) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        if began.elapsed() >= limit {
            let logs: Vec<String> = processes.iter().map(|process| process.log_tail(SHOWN)).collect();
            panic!("not within {limit:?}: {what}\n{}", logs.join("\n"));
        }
        std::thread::sleep(POLL);
    }
}

/// Panics when `holds` is ever false within `time`: for what must not happen. Keep `time` short.
#[track_caller]
pub fn throughout(time: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while began.elapsed() < time {
        assert!(holds(), "after {:?} it no longer holds: {what}", began.elapsed());
        std::thread::sleep(POLL);
    }
}

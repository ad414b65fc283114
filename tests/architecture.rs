//! The house's rules that no compiler checks: the pure rooms stay pure, and imports go one way (design, section 2).

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::path::{Path, PathBuf};

/// What a pure room may not name.
const IMPURE: [&str; 15] = [
    "tokio",
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "std::sync",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "getrandom",
    "rand::",
    "::now()",
    "HashMap",
    "HashSet",
    "tracing::",
];

/// Room, and what it may import of the crate's other rooms.
const IMPORTS: [(&str, &[&str]); 9] = [
    ("core", &["error"]),
    ("error", &[]),
    ("bucket", &["core", "error", "host"]),
    ("host", &["core", "error"]),
    ("state", &["core", "error", "host"]),
    ("config", &["bucket", "core", "error", "host"]),
    ("registry", &["bucket", "core", "error", "host", "state"]),
    ("mesh", &["core", "error", "host", "state"]),
    ("runtime", &["core", "error", "host"]),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return found;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The lines of a room that are code of the program: no comments, and nothing below the first `#[cfg(test)]` at the
/// margin, where the file's tests begin.
fn code(room: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = sources(&root.join(room));
    files.push(root.join(format!("{room}.rs")));
    let mut lines = Vec::new();
    for file in files
        .into_iter()
        .filter(|file| file.is_file() && !file.ends_with("tests.rs"))
    {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let tests_begin = line.starts_with("#[cfg(test)]")
                && text.lines().skip(number + 1).any(|line| line.ends_with("mod tests {"));
            if tests_begin {
                break;
            }
            let line = line.split("//").next().unwrap_or_default();
            if !line.trim().is_empty() {
                let place = format!("{}:{}", file.strip_prefix(root).unwrap().display(), number + 1);
                lines.push((place, line.to_owned()));
            }
        }
    }
    assert!(!lines.is_empty(), "{room} has no sources");
    lines
}

#[test]
fn pure_rooms_have_no_clock_randomness_files_sockets_or_tasks() {
    for room in ["src/core", "wg/src/mesh"] {
        for (place, line) in code(room) {
            for impure in IMPURE {
                assert!(!line.contains(impure), "{place} names {impure}: {line}");
            }
        }
    }
}

#[test]
fn imports_go_one_way() {
    for (room, allowed) in IMPORTS {
        for (place, line) in code(&format!("src/{room}")) {
            for other in line.split("crate::").skip(1) {
                let other = other
                    .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
                    .next()
                    .unwrap();
                assert!(
                    other == room || allowed.contains(&other) || other.is_empty(),
                    "{place}: {room} may not import {other}: {line}"
                );
            }
        }
    }
}

#[test]
fn only_one_file_knows_boringtun() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in sources(&root.join("src"))
        .into_iter()
        .chain(sources(&root.join("wg/src")))
    {
        let text = fs::read_to_string(&file).unwrap();
        let uses = text.lines().any(|line| {
            let code = line.split("//").next().unwrap_or_default();
            code.contains("boringtun::")
        });
        let allowed = file.ends_with("wg/src/session.rs") || file.starts_with(root.join("wg/src/session"));
        assert!(!uses || allowed, "{} uses boringtun", file.display());
    }
}

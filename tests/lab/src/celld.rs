//! celld binaries for tests: the stand-in under any version, and scripts that misbehave when asked for theirs.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// How a fake celld answers `--version`. It can do nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fake {
    /// There is no such file.
    Missing,
    /// A file that may not be executed.
    NotExecutable,
    /// `celld 0.4.1`.
    TooOld,
    /// `celld 0.5.0-rc.1`, which is older than 0.5.0.
    PreRelease,
    /// `celld 0.5.1-ewhauser.1`, which is fine.
    Fork,
    /// Never answers, ignores SIGTERM, and has a child that does the same.
    Hanging,
    /// Prints nothing and succeeds.
    Silent,
    /// Prints another program's version.
    OtherProgram,
    /// Complains on standard error and exits with 1.
    Failing,
    /// Ends by SIGABRT.
    Crashing,
}

impl Fake {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Missing,
        Self::NotExecutable,
        Self::TooOld,
        Self::PreRelease,
        Self::Fork,
        Self::Hanging,
        Self::Silent,
        Self::OtherProgram,
        Self::Failing,
        Self::Crashing,
    ];

    fn script(self) -> &'static str {
        match self {
            Self::Missing => "",
            Self::NotExecutable => "echo celld 0.6.2",
            Self::TooOld => "echo celld 0.4.1",
            Self::PreRelease => "echo celld 0.5.0-rc.1",
            Self::Fork => "echo celld 0.5.1-ewhauser.1",
            Self::Hanging => "trap '' TERM INT HUP; sleep 600 & wait; sleep 600",
            Self::Silent => "exit 0",
            Self::OtherProgram => "echo v22.1.0",
            Self::Failing => "echo 'CELLD_STORAGE_PROBE was removed; unset it' >&2; exit 1",
            Self::Crashing => "kill -ABRT $$",
        }
    }
}

/// A fake `celld` in a new folder below `folder`.
pub fn fake(folder: &Path, kind: Fake) -> PathBuf {
    let home = new_folder(folder);
    let binary = home.join("celld");
    if kind == Fake::Missing {
        return binary;
    }
    let source = home.join("source");
    fs::write(&source, format!("#!/bin/sh\n{}\n", kind.script())).unwrap();
    // Another process writes the file: were it this one, a test that forks at this moment would hold it open for
    // writing, and running it would fail with "text file busy".
    let mode = if kind == Fake::NotExecutable { "644" } else { "755" };
    let status = Command::new("install")
        .args(["-m", mode])
        .arg(&source)
        .arg(&binary)
        .status()
        .unwrap();
    assert!(status.success());
    binary
}

/// The stand-in as `celld` of this version in a new folder below `folder`. Faults go to `celld.faults/` beside it, see
/// [`set_fault`].
pub fn standin(folder: &Path, version: &str) -> PathBuf {
    let home = new_folder(folder);
    let binary = home.join("celld");
    symlink(standin_binary(), &binary).unwrap();
    set_version(&binary, version);
    fs::create_dir(home.join("celld.faults")).unwrap();
    binary
}

/// Makes an installed stand-in another version, as an upgrade does.
pub fn set_version(binary: &Path, version: &str) {
    fs::write(beside(binary, "version"), version).unwrap();
}

/// Switches a fault of an installed stand-in on, for every process of it; the list is in the stand-in's documentation.
pub fn set_fault(binary: &Path, fault: &str, parameter: &str) {
    fs::write(beside(binary, "faults").join(fault), parameter).unwrap();
}

/// Switches a fault off.
pub fn clear_fault(binary: &Path, fault: &str) {
    fs::remove_file(beside(binary, "faults").join(fault)).unwrap();
}

/// The stand-in that was built: `CELLD_STANDIN`, or the one in the target folder of the running test.
pub fn standin_binary() -> PathBuf {
    let stated = env::var_os("CELLD_STANDIN").map(PathBuf::from);
    let built = || {
        // target/PROFILE/deps/TEST
        let test = env::current_exe().ok()?;
        Some(test.parent()?.parent()?.join("celld-standin"))
    };
    let binary = stated.or_else(built).unwrap_or_default();
    let executable = binary
        .metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    assert!(
        executable,
        "there is no stand-in at {}: run `cargo build -p scafo-standin`, or start the tests with `tests/run`",
        binary.display()
    );
    binary
}

/// Deploys a project of one file with this content to a bucket location, with the installed stand-in, and returns the
/// version of the deployment. `environment` carries the store's endpoint and credentials.
pub fn deploy(binary: &Path, location: &str, content: &str, environment: &[(&str, &str)]) -> String {
    let project = new_folder(binary.parent().unwrap()).join("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("index.js"), content).unwrap();
    let mut command = Command::new(binary);
    command.env_clear().envs(environment.iter().copied());
    command.arg("deploy").arg(&project).args(["--bucket", location]);
    let output = crate::machines::run_within(command, crate::machines::PATIENCE).ok();
    // `deployed SCRIPT VERSION to LOCATION`
    output.stdout.split(' ').nth(2).unwrap_or_default().to_owned()
}

fn beside(binary: &Path, suffix: &str) -> PathBuf {
    binary.with_file_name(format!("celld.{suffix}"))
}

fn new_folder(parent: &Path) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let folder = parent.join(format!("celld-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir_all(&folder).unwrap();
    folder
}

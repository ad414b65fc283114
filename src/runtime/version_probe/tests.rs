//! The probe against small shell scripts that behave as a broken celld does.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::process::Command as Program;
use std::time::Instant;

use tempfile::TempDir;

use super::*;

/// Long enough for `sh` on a busy machine.
const PATIENT: Duration = Duration::from_secs(20);

/// A folder with one executable script in it.
struct Script {
    folder: TempDir,
}

impl Script {
    fn new(body: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::write(&source, body).unwrap();
        // Another process writes the file that is run: were it this one, a test that forks at the same moment would
        // hold it open for writing, and the kernel would answer "text file busy".
        let status = Program::new("install")
            .args(["-m", "755"])
            .arg(&source)
            .arg(folder.path().join("celld"))
            .status();
        assert!(status.unwrap().success());
        Self { folder }
    }

    fn shell(body: &str) -> Self {
        Self::new(&format!("#!/bin/sh\n{body}\n"))
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("celld")
    }

    async fn probe(&self, limit: Duration) -> Result<CelldVersion> {
        probe_within(&self.path(), "--runtime-binary", limit).await
    }

    /// The refusal as people read it, with this folder written as `[dir]`.
    async fn refusal(&self, limit: Duration) -> String {
        let error = self.probe(limit).await.unwrap_err();
        assert_eq!(error.code.exit_code(), 3, "{error}");
        error
            .to_string()
            .replace(&self.folder.path().display().to_string(), "[dir]")
    }
}

#[tokio::test]
async fn a_release_a_debug_build_and_a_fork_are_taken() {
    for (line, version) in [
        ("celld 0.6.2", "0.6.2"),
        ("celld 0.5.0 (debug)", "0.5.0"),
        ("celld 0.5.1-ewhauser.1", "0.5.1-ewhauser.1"),
    ] {
        let script = Script::shell(&format!("[ \"$*\" = --version ] && echo '{line}'"));
        assert_eq!(script.probe(PATIENT).await.unwrap().to_string(), version);
    }
}

#[tokio::test]
async fn the_environment_is_path_and_home_alone() {
    let script = Script::shell("env | grep -Ev '^(PATH|HOME|PWD|SHLVL|_)=' >&2 && exit 1; echo celld 0.6.2");
    assert_eq!(script.probe(PATIENT).await.unwrap().to_string(), "0.6.2");
}

#[tokio::test]
async fn input_is_empty_and_the_process_group_is_its_own() {
    let script = Script::shell(
        "[ -z \"$(cat)\" ] || exit 1; [ \"$(cut -d' ' -f5 /proc/$$/stat)\" = $$ ] || exit 2; echo celld 0.6.2",
    );
    assert_eq!(script.probe(PATIENT).await.unwrap().to_string(), "0.6.2");
}

#[tokio::test]
async fn a_flood_of_output_is_bounded_and_does_not_block() {
    let script = Script::shell("echo celld 0.6.2; head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2");
    assert_eq!(script.probe(PATIENT).await.unwrap().to_string(), "0.6.2");
}

#[tokio::test]
async fn too_old_says_found_and_needed() {
    insta::assert_snapshot!(Script::shell("echo celld 0.4.1").refusal(PATIENT).await, @"
    error[capability-missing]: celld 0.4.1 is too old
      runtime.binary = [dir]/celld (from --runtime-binary): [dir]/celld is 0.4.1; 0.5.0 or newer is needed
    help: install celld 0.5.0 or newer, or name it with `--runtime-binary PATH`
    ");
    insta::assert_snapshot!(Script::shell("echo celld 0.5.0-rc.1").refusal(PATIENT).await, @"
    error[capability-missing]: celld 0.5.0-rc.1 is too old
      runtime.binary = [dir]/celld (from --runtime-binary): [dir]/celld is 0.5.0-rc.1; 0.5.0 or newer is needed
    help: install celld 0.5.0 or newer, or name it with `--runtime-binary PATH`
    ");
}

#[tokio::test]
async fn what_is_no_version_is_repeated() {
    insta::assert_snapshot!(Script::shell("true").refusal(PATIENT).await, @"
    error[capability-missing]: celld does not say its version
      runtime.binary = [dir]/celld (from --runtime-binary): [dir]/celld printed nothing
    help: install celld 0.5.0 or newer, or name it with `--runtime-binary PATH`
    ");
    insta::assert_snapshot!(Script::shell("echo v22.1.0").refusal(PATIENT).await, @"
    error[capability-missing]: celld does not say its version
      runtime.binary = [dir]/celld (from --runtime-binary): [dir]/celld printed `v22.1.0` where `celld VERSION` was expected
    help: install celld 0.5.0 or newer, or name it with `--runtime-binary PATH`
    ");
    insta::assert_snapshot!(Script::shell("echo celld v0.6.2").refusal(PATIENT).await, @"
    error[capability-missing]: celld does not say its version
      runtime.binary = [dir]/celld (from --runtime-binary): [dir]/celld printed `v0.6.2` where a version such as `0.6.2` was expected
    help: install celld 0.5.0 or newer, or name it with `--runtime-binary PATH`
    ");
}

#[tokio::test]
async fn a_failing_binary_is_quoted() {
    let script = Script::shell("echo starting >&2; echo 'CELLD_NODE is not valid' >&2; echo >&2; exit 1");
    insta::assert_snapshot!(script.refusal(PATIENT).await, @"
    error[capability-missing]: celld does not say its version
      runtime.binary = [dir]/celld (from --runtime-binary): `[dir]/celld --version` exited with code 1, saying: CELLD_NODE is not valid
    help: run `env -i [dir]/celld --version` by hand and see why it fails
    ");
}

#[tokio::test]
async fn a_crash_names_its_signal() {
    insta::assert_snapshot!(Script::shell("kill -ABRT $$").refusal(PATIENT).await, @"
    error[capability-missing]: celld does not say its version
      runtime.binary = [dir]/celld (from --runtime-binary): `[dir]/celld --version` was killed by SIGABRT
    help: run `env -i [dir]/celld --version` by hand and see why it fails
    ");
}

/// Whether the process still runs. A zombie does not: whoever should reap it is not this test's business.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next())
        .is_some_and(|state| state != 'Z')
}

#[tokio::test]
async fn a_hang_ends_and_leaves_no_process_behind() {
    let script = Script::shell(
        "trap '' TERM INT HUP; sleep 600 & cd \"${0%/*}\"; echo $! >child; echo $$ >leader.tmp; mv leader.tmp leader; \
         echo celld 0.6.2; wait; wait; sleep 600",
    );
    // The limit starts over until the script got as far as naming its processes, however busy the machine is.
    let mut limit = Duration::from_millis(300);
    let refusal = loop {
        let began = Instant::now();
        let refusal = script.refusal(limit).await;
        assert!(
            began.elapsed() < limit + Duration::from_secs(10),
            "the limit does not hold: {:?}",
            began.elapsed()
        );
        if script.folder.path().join("leader").exists() {
            break refusal.replace(&format!("{limit:?}"), "[limit]");
        }
        limit *= 2;
    };
    for name in ["leader", "child"] {
        let pid = fs::read_to_string(script.folder.path().join(name)).unwrap();
        let gone = Instant::now() + Duration::from_secs(10);
        while runs(&pid) {
            assert!(Instant::now() < gone, "the {name} {pid} still runs");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    insta::assert_snapshot!(refusal, @"
    error[capability-missing]: celld does not say its version
      runtime.binary = [dir]/celld (from --runtime-binary): `[dir]/celld --version` did not finish within [limit] and was killed
    help: run `[dir]/celld --version` by hand and see why it hangs
    ");
}

#[tokio::test]
async fn what_cannot_be_run_says_why() {
    let script = Script::new("\u{7f}ELF, but not really");
    insta::assert_snapshot!(script.refusal(PATIENT).await.replace(env::consts::ARCH, "[arch]"), @"
    error[capability-missing]: celld cannot be run
      runtime.binary = [dir]/celld (from --runtime-binary): [dir]/celld is no program for this machine
    help: download celld for linux [arch]
    ");
    let script = Script::new("#!/no/such/interpreter\n");
    insta::assert_snapshot!(script.refusal(PATIENT).await.replace(env::consts::ARCH, "[arch]"), @"
    error[capability-missing]: celld cannot be run
      runtime.binary = [dir]/celld (from --runtime-binary): [dir]/celld needs an interpreter or a loader that this machine does not have
    help: download celld for linux [arch]
    ");
    let script = Script::shell("echo celld 0.6.2");
    fs::set_permissions(script.path(), fs::Permissions::from_mode(0o644)).unwrap();
    insta::assert_snapshot!(script.refusal(PATIENT).await, @"
    error[capability-missing]: celld cannot be run
      runtime.binary = [dir]/celld (from --runtime-binary): [dir]/celld is not executable
    help: chmod +x [dir]/celld
    ");
    fs::remove_file(script.path()).unwrap();
    insta::assert_snapshot!(script.refusal(PATIENT).await, @"
    error[capability-missing]: celld was not found
      runtime.binary = [dir]/celld (from --runtime-binary): there is no file [dir]/celld
    help: install celld 0.5.0 or newer there, or name it with `--runtime-binary PATH`
    ");
    fs::create_dir(script.path()).unwrap();
    insta::assert_snapshot!(script.refusal(PATIENT).await, @"
    error[capability-missing]: celld cannot be run
      runtime.binary = [dir]/celld (from --runtime-binary): [dir]/celld is a directory
    help: name the binary itself: `--runtime-binary [dir]/celld/celld`
    ");
}

#[test]
fn a_bare_name_is_looked_for_in_the_path_it_names() {
    let script = Script::shell("echo celld 0.6.2");
    let folder = script.folder.path().display();
    let asked = Asked {
        binary: Path::new("celld"),
        origin: "the default",
    };
    let found = asked.locate(OsStr::new(&format!("/nonexistent:{folder}"))).unwrap();
    assert_eq!(found, script.path());

    insta::assert_snapshot!(asked.locate(OsStr::new("/nonexistent:/dev/null")).unwrap_err(), @"
    error[capability-missing]: celld was not found
      runtime.binary = celld (from the default): no such program in PATH: /nonexistent:/dev/null
    help: install celld 0.5.0 or newer, or name it with `--runtime-binary PATH`
    ");
    // A file of that name that may not be executed is what the reader must hear of.
    fs::set_permissions(script.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let error = asked.locate(OsStr::new(&format!("/nonexistent:{folder}"))).unwrap_err();
    assert!(error.to_string().contains("is not executable"), "{error}");
    let empty = Asked {
        binary: Path::new(""),
        origin: "SCAFO_RUNTIME_BINARY",
    };
    insta::assert_snapshot!(empty.locate(OsStr::new("/bin")).unwrap_err(), @"
    error[capability-missing]: no celld binary is named
      runtime.binary =  (from SCAFO_RUNTIME_BINARY): the value is empty
    help: name the binary with `--runtime-binary PATH`
    ");
}

//! `celld --version`, in a clean environment: celld validates its variables before it looks at its arguments, so a stray
//! one would make even this fail (`celld.md`, part 1).

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::core::version::{CelldVersion, OLDEST, VersionFault};
use crate::error::{Error, Field, Result};

/// Output beyond this is not read: a version is one line.
const MOST_OUTPUT: u64 = 64 * 1024;

const HELP: &str = "install celld 0.5.0 or newer, or name it with --runtime-binary";

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Celld {
    /// The binary that answered.
    pub path: PathBuf,
    /// What it says it is.
    pub version: CelldVersion,
}

/// Runs `binary --version` for at most `limit`. `origin` says where the name came from; `search` is the `PATH` that a
/// name without a slash is looked for in.
pub async fn probe(binary: &str, origin: &str, search: &str, limit: Duration) -> Result<Celld> {
    let refuse = |reason: String| {
        let field = Field::new("runtime.binary", binary).from(origin).because(reason);
        Error::capability("celld cannot be run by this node")
            .field(field)
            .help(HELP)
    };
    let path = find(binary, search).map_err(refuse)?;
    let output = run(&path, search, limit).await.map_err(refuse)?;
    match CelldVersion::parse(&output) {
        Ok(version) => Ok(Celld { path, version }),
        Err(VersionFault::Silent) => Err(refuse("it prints no version".to_owned())),
        Err(VersionFault::NotCelld(line)) => Err(refuse(format!("it prints {line:?}, which is no version of celld"))),
        Err(VersionFault::TooOld(version)) => Err(refuse(format!(
            "it is celld {version}, and the oldest that is supported is {OLDEST}"
        ))),
    }
}

fn find(binary: &str, search: &str) -> Result<PathBuf, String> {
    let is_executable = |path: &Path| {
        path.metadata()
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if binary.contains('/') {
        let path = PathBuf::from(binary);
        return match path.metadata() {
            Ok(_) if is_executable(&path) => Ok(path),
            Ok(_) => Err("it is not an executable file".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err("there is no such file".to_owned()),
            Err(error) => Err(error.to_string()),
        };
    }
    let found = std::env::split_paths(search)
        .map(|folder| folder.join(binary))
        .find(|path| is_executable(path));
    found.ok_or_else(|| format!("it is in none of the directories of PATH ({search})"))
}

async fn run(path: &Path, search: &str, limit: Duration) -> Result<String, String> {
    let mut child = Command::new(path)
        .arg("--version")
        .env_clear()
        .env("PATH", search)
        .env("HOME", "/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("it cannot be started: {error}"))?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let ended = tokio::time::timeout(limit, answer(&mut child)).await;
    if ended.is_err()
        && let Some(group) = group
    {
        // Whatever it started hangs with it. A group that is gone already is what is wanted.
        let _ = killpg(group, Signal::SIGKILL);
        let _ = child.wait().await;
    }
    let (status, output, complaint) = ended
        .map_err(|_| format!("it hangs: no answer to --version within {} s", limit.as_secs_f32()))?
        .map_err(|error| format!("its output cannot be read: {error}"))?;
    if status.success() {
        return Ok(output);
    }
    let last = complaint
        .lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .unwrap_or_default();
    let last: String = last.chars().take(200).collect();
    let said = if last.is_empty() {
        String::new()
    } else {
        format!("; it says: {last}")
    };
    Err(format!("--version ends with {}{said}", ending(status)))
}

async fn answer(child: &mut Child) -> io::Result<(ExitStatus, String, String)> {
    let (output, complaint) = (child.stdout.take(), child.stderr.take());
    let (output, complaint) = tokio::try_join!(read(output), read(complaint))?;
    Ok((child.wait().await?, output, complaint))
}

async fn read(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(MOST_OUTPUT).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::*;
    use crate::error::Code;

    const PATH: &str = "/usr/bin:/bin";

    fn script(folder: &Path, text: &str) -> String {
        let path = folder.join("celld");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    async fn refusal(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let binary = script(folder.path(), text);
        let error = probe(&binary, "--runtime-binary", PATH, Duration::from_millis(400))
            .await
            .unwrap_err();
        assert_eq!(error.code, Code::CapabilityMissing);
        error.to_string().replace(&folder.path().display().to_string(), "DIR")
    }

    #[tokio::test]
    async fn a_good_celld_is_taken_in_a_clean_environment() {
        let folder = tempfile::tempdir().unwrap();
        let seen = folder.path().join("environment");
        let binary = script(
            folder.path(),
            &format!("env > {}; echo 'celld 0.6.1-rpc-targets.1 (debug)'", seen.display()),
        );
        let found = probe(&binary, "default", PATH, Duration::from_secs(5)).await.unwrap();
        assert_eq!(found.version.to_string(), "0.6.1-rpc-targets.1");
        let environment = fs::read_to_string(seen).unwrap();
        let names: Vec<&str> = environment.lines().filter_map(|line| line.split('=').next()).collect();
        assert!(
            names
                .iter()
                .all(|name| ["PATH", "HOME", "PWD", "SHLVL", "_", "OLDPWD"].contains(name)),
            "{names:?}"
        );
    }

    #[tokio::test]
    async fn it_is_found_on_the_path() {
        let folder = tempfile::tempdir().unwrap();
        script(folder.path(), "echo celld 0.5.0");
        let search = format!("/nowhere:{}:{PATH}", folder.path().display());
        let found = probe("celld", "default", &search, Duration::from_secs(5))
            .await
            .unwrap();
        assert_eq!(found.path, folder.path().join("celld"));
        let error = probe("celld", "default", "/nowhere", Duration::from_secs(5))
            .await
            .unwrap_err();
        insta::assert_snapshot!(error, @"
        error[capability-missing]: celld cannot be run by this node
          runtime.binary = celld (from default): it is in none of the directories of PATH (/nowhere)
        help: install celld 0.5.0 or newer, or name it with --runtime-binary
        ");
    }

    #[tokio::test]
    async fn a_missing_file_and_one_that_cannot_run_are_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("celld");
        let text = path.display().to_string();
        let reason = |error: Error| error.fields[0].reason.clone().unwrap();
        let ask = || probe(&text, "default", PATH, Duration::from_secs(5));
        assert_eq!(reason(ask().await.unwrap_err()), "there is no such file");
        fs::write(&path, "x").unwrap();
        assert_eq!(reason(ask().await.unwrap_err()), "it is not an executable file");
    }

    #[tokio::test]
    async fn a_celld_that_is_none_or_too_old_is_said() {
        insta::assert_snapshot!(refusal("echo celld 0.4.1").await, @"
        error[capability-missing]: celld cannot be run by this node
          runtime.binary = DIR/celld (from --runtime-binary): it is celld 0.4.1, and the oldest that is supported is 0.5.0
        help: install celld 0.5.0 or newer, or name it with --runtime-binary
        ");
        insta::assert_snapshot!(refusal("echo celld 0.5.0-rc.1").await, @"
        error[capability-missing]: celld cannot be run by this node
          runtime.binary = DIR/celld (from --runtime-binary): it is celld 0.5.0-rc.1, and the oldest that is supported is 0.5.0
        help: install celld 0.5.0 or newer, or name it with --runtime-binary
        ");
        insta::assert_snapshot!(refusal("true").await, @"
        error[capability-missing]: celld cannot be run by this node
          runtime.binary = DIR/celld (from --runtime-binary): it prints no version
        help: install celld 0.5.0 or newer, or name it with --runtime-binary
        ");
        insta::assert_snapshot!(refusal("echo hello").await, @r#"
        error[capability-missing]: celld cannot be run by this node
          runtime.binary = DIR/celld (from --runtime-binary): it prints "hello", which is no version of celld
        help: install celld 0.5.0 or newer, or name it with --runtime-binary
        "#);
        insta::assert_snapshot!(refusal("echo 'CELLD_X must be 0 or 1' >&2; exit 1").await, @"
        error[capability-missing]: celld cannot be run by this node
          runtime.binary = DIR/celld (from --runtime-binary): --version ends with exit code 1; it says: CELLD_X must be 0 or 1
        help: install celld 0.5.0 or newer, or name it with --runtime-binary
        ");
    }

    #[tokio::test]
    async fn one_that_hangs_is_ended_with_everything_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let binary = script(
            folder.path(),
            &format!("sleep 60 & echo $$ $! > {}; wait", pids.display()),
        );
        let begun = Instant::now();
        let error = probe(&binary, "default", PATH, Duration::from_millis(400))
            .await
            .unwrap_err();
        assert!(
            error.fields[0].reason.as_ref().unwrap().starts_with("it hangs"),
            "{error}"
        );
        assert!(begun.elapsed() < Duration::from_secs(30));
        for pid in fs::read_to_string(&pids).unwrap().split_whitespace() {
            let alive = || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
            for _ in 0..100 {
                if !alive() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!(!alive(), "{pid} lives");
        }
    }
}

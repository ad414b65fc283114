//! Asks the configured celld binary for its version before anything else happens at boot.
//!
//! The binary is a stranger until it has answered: it gets an environment of `PATH` and `HOME` alone (celld checks every
//! `CELLD_*` variable before it looks at its arguments, so a stray one would make even `--version` fail), no input, a
//! bounded output, a process group of its own and a time limit, after which the whole group is killed.

use std::env;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::core::version::{CelldVersion, OLDEST_SUPPORTED, VersionFault};
use crate::error::{Error, Field, Result};

/// How long celld has to print its version. It does so in milliseconds; five seconds forgive a cold disk.
pub const LIMIT: Duration = Duration::from_secs(5);

/// How much of each output is read; the rest is thrown away so that the binary never blocks on a full pipe.
const OUTPUT_LIMIT: u64 = 64 * 1024;

/// Where programs are looked for when the process has no `PATH`, as the C library does.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// How much of the binary's last words is repeated, in characters.
const LAST_WORDS: usize = 200;

/// The version of `binary`, which came from `origin` (a flag, a variable, the file or the default). A bare name is
/// looked for in this process's `PATH`; anything with a slash is taken as it is.
///
/// Every failure is `capability-missing`, since it is this machine's celld that is not fit: not there, not executable,
/// silent, hanging, crashing, another program, or too old.
pub async fn probe(binary: &Path, origin: &str) -> Result<CelldVersion> {
    probe_within(binary, origin, LIMIT).await
}

/// [`probe`] with a limit of the caller's.
pub async fn probe_within(binary: &Path, origin: &str, limit: Duration) -> Result<CelldVersion> {
    let asked = Asked { binary, origin };
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let program = asked.locate(&path)?;
    let answer = asked.run(&program, &path, limit).await?;
    if !answer.status.success() {
        return Err(asked.failed(&program, &answer));
    }
    CelldVersion::supported(&answer.stdout).map_err(|fault| asked.unfit(&program, &fault))
}

/// What the configuration asked for; every refusal names it.
struct Asked<'a> {
    binary: &'a Path,
    origin: &'a str,
}

/// What the binary said, and how it ended.
struct Answer {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Asked<'_> {
    fn refusal(&self, message: String, reason: impl Into<String>) -> Error {
        let field = Field::new("runtime.binary", self.binary.display())
            .from(self.origin)
            .because(reason);
        Error::capability(message).field(field)
    }

    /// The file to run: the path as given, or the first executable of that name in `path`.
    fn locate(&self, path: &OsStr) -> Result<PathBuf> {
        if self.binary.as_os_str().is_empty() {
            return Err(self
                .refusal("no celld binary is named".into(), "the value is empty")
                .help("name the binary with `--runtime-binary PATH`"));
        }
        if self.binary.components().count() > 1 || self.binary.is_absolute() {
            return self.check_file(self.binary).map(|()| self.binary.to_owned());
        }
        let mut not_executable = None;
        for folder in env::split_paths(path) {
            let candidate = folder.join(self.binary);
            match self.check_file(&candidate) {
                Ok(()) => return Ok(candidate),
                Err(error) if candidate.is_file() => not_executable = not_executable.or(Some(error)),
                Err(_) => {}
            }
        }
        Err(not_executable.unwrap_or_else(|| {
            let searched = path.to_string_lossy();
            self.refusal(
                "celld was not found".into(),
                format!("no such program in PATH: {searched}"),
            )
            .help(format!(
                "install celld {OLDEST_SUPPORTED} or newer, or name it with `--runtime-binary PATH`"
            ))
        }))
    }

    fn check_file(&self, file: &Path) -> Result<()> {
        let shown = file.display();
        let metadata = match file.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(self
                    .refusal("celld was not found".into(), format!("there is no file {shown}"))
                    .help(format!(
                        "install celld {OLDEST_SUPPORTED} or newer there, or name it with `--runtime-binary PATH`"
                    )));
            }
            Err(error) => {
                return Err(self
                    .refusal(
                        "celld cannot be run".into(),
                        format!("{shown} cannot be looked at: {error}"),
                    )
                    .help("name another binary with `--runtime-binary PATH`"));
            }
        };
        if metadata.is_dir() {
            return Err(self
                .refusal("celld cannot be run".into(), format!("{shown} is a directory"))
                .help(format!(
                    "name the binary itself: `--runtime-binary {}`",
                    file.join("celld").display()
                )));
        }
        if metadata.permissions().mode() & 0o111 == 0 {
            return Err(self
                .refusal("celld cannot be run".into(), format!("{shown} is not executable"))
                .help(format!("chmod +x {shown}")));
        }
        Ok(())
    }

    async fn run(&self, program: &Path, path: &OsStr, limit: Duration) -> Result<Answer> {
        let mut command = Command::new(program);
        command.arg("--version").env_clear().env("PATH", path);
        if let Some(home) = env::var_os("HOME") {
            command.env("HOME", home);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| self.cannot_start(program, &error))?;
        // The group outlives its leader when the binary leaves children behind; this ends them on every way out,
        // cancellation of this future included.
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Group);

        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let whole = async { tokio::join!(child.wait(), read_bounded(stdout), read_bounded(stderr)) };
        let outcome = tokio::time::timeout(limit, whole).await;
        drop(group);
        match outcome {
            Ok((Ok(status), stdout, stderr)) => Ok(Answer { status, stdout, stderr }),
            Ok((Err(error), ..)) => Err(self.refusal(
                "celld cannot be run".into(),
                format!("waiting for `{} --version` failed: {error}", program.display()),
            )),
            Err(_) => {
                // Reaps the leader that was just killed; SIGKILL cannot be refused, so this ends.
                let _ = child.wait().await;
                Err(self
                    .refusal(
                        "celld does not say its version".into(),
                        format!(
                            "`{} --version` did not finish within {limit:?} and was killed",
                            program.display()
                        ),
                    )
                    .help(format!(
                        "run `{} --version` by hand and see why it hangs",
                        program.display()
                    )))
            }
        }
    }

    fn cannot_start(&self, program: &Path, error: &std::io::Error) -> Error {
        let shown = program.display();
        let (reason, help) = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOEXEC) => (
                format!("{shown} is no program for this machine"),
                format!("download celld for {} {}", env::consts::OS, env::consts::ARCH),
            ),
            // The file was there a moment ago: its interpreter or loader is what is missing.
            Some(Errno::ENOENT) => (
                format!("{shown} needs an interpreter or a loader that this machine does not have"),
                format!("download celld for {} {}", env::consts::OS, env::consts::ARCH),
            ),
            Some(Errno::EACCES) => (
                format!("{shown} may not be executed by this user"),
                format!("chmod a+rx {shown}"),
            ),
            _ => (
                format!("{shown} cannot be started: {error}"),
                format!("run `{shown} --version` by hand"),
            ),
        };
        self.refusal("celld cannot be run".into(), reason).help(help)
    }

    fn failed(&self, program: &Path, answer: &Answer) -> Error {
        let shown = program.display();
        let mut reason = match (answer.status.signal(), answer.status.code()) {
            (Some(number), _) => {
                let name = Signal::try_from(number).map_or_else(|_| number.to_string(), |signal| signal.to_string());
                format!("`{shown} --version` was killed by {name}")
            }
            (None, code) => format!("`{shown} --version` exited with code {}", code.unwrap_or(-1)),
        };
        if let Some(line) = last_line(&answer.stderr) {
            reason.push_str(", saying: ");
            reason.push_str(&line);
        }
        self.refusal("celld does not say its version".into(), reason)
            .help(format!("run `env -i {shown} --version` by hand and see why it fails"))
    }

    fn unfit(&self, program: &Path, fault: &VersionFault) -> Error {
        let shown = program.display();
        let error = match fault {
            VersionFault::TooOld(version) => self.refusal(
                format!("celld {version} is too old"),
                format!("{shown} is {version}; {OLDEST_SUPPORTED} or newer is needed"),
            ),
            fault => self.refusal("celld does not say its version".into(), format!("{shown} {fault}")),
        };
        error.help(format!(
            "install celld {OLDEST_SUPPORTED} or newer, or name it with `--runtime-binary PATH`"
        ))
    }
}

/// A process group that is killed when this is dropped.
struct Group(i32);

impl Drop for Group {
    fn drop(&mut self) {
        // The group may be empty by now, and then there is nothing to kill.
        let _ = killpg(Pid::from_raw(self.0), Signal::SIGKILL);
    }
}

/// The first [`OUTPUT_LIMIT`] bytes, with what is not UTF-8 replaced; reads on to the end.
async fn read_bounded(source: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut source) = source else { return String::new() };
    let mut kept = Vec::new();
    // A read error ends the output as its end would: what was read is judged.
    let _ = (&mut source).take(OUTPUT_LIMIT).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut source, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&kept).into_owned()
}

/// The last line that says anything, short and free of control characters.
fn last_line(output: &str) -> Option<String> {
    let line = output.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(
        line.chars()
            .filter(|character| !character.is_control())
            .take(LAST_WORDS)
            .collect(),
    )
}

#[cfg(test)]
#[path = "version_probe/tests.rs"]
mod tests;

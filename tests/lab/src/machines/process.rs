//! Commands with a time limit, and processes that never outlive their test.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How often a process is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// What a finished command said.
#[derive(Clone, Debug)]
pub struct Output {
    /// The command, for messages.
    pub command: String,
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

impl Output {
    /// Itself, when it ended with 0; panics with all it said otherwise.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    /// Itself, when it ended with this code; panics with all it said otherwise.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert!(
            self.code == Some(code),
            "{} ended with {:?}, not {code}\n--- stdout\n{}\n--- stderr\n{}",
            self.command,
            self.code,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Its standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!(
                "{} printed no JSON: {error}\n{}\n{}",
                self.command, self.stdout, self.stderr
            ),
        }
    }
}

/// Runs a command to its end; kills it and panics after `limit`.
#[track_caller]
pub fn run_within(mut command: Command, limit: Duration) -> Output {
    let name = format!("{command:?}");
    let began = Instant::now();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let status = wait(&mut child, limit);
    if status.is_none() {
        // Ends the readers as well, unless the program left children with its pipes behind.
        let _ = child.kill();
        let _ = child.wait();
        panic!("{name} did not end within {limit:?}");
    }
    let text = |reader: thread::JoinHandle<Vec<u8>>| String::from_utf8_lossy(&reader.join().unwrap()).into_owned();
    Output {
        command: name,
        code: status.and_then(|status| status.code()),
        stdout: text(stdout),
        stderr: text(stderr),
        took: began.elapsed(),
    }
}

fn collect(source: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut source) = source {
            // What was read before an error is what there is to show.
            let _ = source.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if began.elapsed() >= limit {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// A running program with a log; killed, by its process id, when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command with both outputs going to `log`.
    #[track_caller]
    pub fn spawn(name: String, mut command: Command, log: PathBuf) -> Self {
        let file = File::create(&log).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        Self { name, child, log }
    }

    /// The program's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its output goes.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of what it has said, under its name.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        let shown = &all[all.len().saturating_sub(lines)..];
        format!("--- {} (process {})\n{}", self.name, self.pid(), shown.join("\n"))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        // A process that has ended already is found out by whoever waits for it.
        let _ = kill(Pid::from_raw(pid), signal);
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGSTOP: the process stands still, as one on a frozen machine.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// How it ended; panics with its log when it does not within `limit`.
    #[track_caller]
    pub fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        match wait(&mut self.child, limit) {
            Some(status) => status,
            None => panic!("{} did not end within {limit:?}\n{}", self.name, self.log_tail(60)),
        }
    }

    /// Waits until its log contains `text`; panics with the log when it ends first or the limit passes.
    #[track_caller]
    pub fn wait_log(&mut self, limit: Duration, text: &str) {
        let began = Instant::now();
        loop {
            // Asked first: what it said last is read after its end.
            let running = self.is_running();
            if self.log().contains(text) {
                return;
            }
            if !running || began.elapsed() >= limit {
                let how = if running {
                    format!("within {limit:?}")
                } else {
                    "before it ended".into()
                };
                panic!("{} did not say {text:?} {how}\n{}", self.name, self.log_tail(60));
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

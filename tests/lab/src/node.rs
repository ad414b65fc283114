//! A machine with `scafo` on it, and time windows short enough for tests.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::machines::{Machine, Output, PATIENCE, Process, run_within};

/// Windows of seconds where the defaults are minutes, in proportion to them. A node is stale after 2.5 s without a beat,
/// and the lease is taken over 2.5 s after its holder fell silent.
pub const SHORT_WINDOWS: [(&str, &str); 6] = [
    ("SCAFO_REGISTRY_HEARTBEAT_INTERVAL_MS", "500"),
    ("SCAFO_REGISTRY_LIVENESS_WINDOW_MS", "2500"),
    ("SCAFO_REGISTRY_NODE_REFRESH_INTERVAL_MS", "500"),
    ("SCAFO_REGISTRY_HINT_POLL_INTERVAL_MS", "250"),
    ("SCAFO_COORDINATOR_LEASE_TTL_MS", "2500"),
    ("SCAFO_COORDINATOR_RENEW_INTERVAL_MS", "700"),
];

/// A machine that runs `scafo` with an environment of its own and nothing of the test's but `PATH`.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it runs.
    pub machine: Machine,
    scafo: PathBuf,
    environment: BTreeMap<String, String>,
}

impl Node {
    /// `scafo` is the binary under test, for a package's own tests `env!("CARGO_BIN_EXE_scafo")`. The environment is
    /// `PATH`, `HOME`, `SCAFO_STATE_DIR` and [`SHORT_WINDOWS`].
    pub fn new(machine: &Machine, scafo: impl AsRef<Path>) -> Self {
        let mut environment: BTreeMap<String, String> = SHORT_WINDOWS
            .iter()
            .map(|&(name, value)| (name.into(), value.into()))
            .collect();
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".into());
        environment.insert("PATH".into(), path);
        environment.insert("HOME".into(), machine.folder().join("home").display().to_string());
        environment.insert("SCAFO_STATE_DIR".into(), machine.state_dir().display().to_string());
        Self {
            machine: machine.clone(),
            scafo: scafo.as_ref().into(),
            environment,
        }
    }

    /// The node with a variable set, for every command from now on.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Display) -> Self {
        self.environment.insert(name.into(), value.to_string());
        self
    }

    /// The node with these variables set, for example a store's.
    #[must_use]
    pub fn envs<N: AsRef<str>, V: Display>(self, pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        pairs
            .into_iter()
            .fold(self, |node, (name, value)| node.env(name.as_ref(), value))
    }

    /// The node without a variable.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.environment.remove(name);
        self
    }

    /// A `scafo` command on the machine, with the node's environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.machine.command(&self.scafo);
        command.args(arguments).env_clear().envs(&self.environment);
        command
    }

    /// Runs a `scafo` command to its end.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Output {
        run_within(self.command(arguments), PATIENCE)
    }

    /// `scafo wg init` with further arguments.
    #[track_caller]
    pub fn wg_init(&self, arguments: &[&str]) -> Output {
        self.run(&[&["wg", "init"], arguments].concat())
    }

    /// Starts `scafo sail` with further arguments.
    #[track_caller]
    pub fn sail(&self, arguments: &[&str]) -> Process {
        self.machine
            .spawn("sail", self.command(&[&["sail"], arguments].concat()))
    }

    /// What `scafo fleet nodes --json` says, when it succeeds.
    #[track_caller]
    pub fn fleet_nodes(&self) -> Option<Value> {
        let output = self.run(&["fleet", "nodes", "--json"]);
        (output.code == Some(0)).then(|| output.json())
    }

    /// This id's row of `scafo fleet nodes --json`.
    #[track_caller]
    pub fn row(&self, id: &str) -> Option<Value> {
        let nodes = self.fleet_nodes()?;
        nodes["nodes"].as_array()?.iter().find(|row| row["id"] == id).cloned()
    }
}

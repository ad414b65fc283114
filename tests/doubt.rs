//! A node on a store whose answers get lost: registration and beats go on, and nothing is taken for a conflict.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use scafo_lab::celld;
use scafo_lab::machines::{Output, PATIENCE, Process, run_within};
use scafo_lab::node::SHORT_WINDOWS;
use scafo_lab::proxy::{Action, Proxy};
use scafo_lab::store::Store;
use scafo_lab::wait::eventually;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(40);

struct Alone {
    folder: tempfile::TempDir,
    store: Store,
    proxy: Proxy,
    port: u16,
}

impl Alone {
    fn new() -> Self {
        let store = Store::on_loopback();
        let proxy = Proxy::before(store.socket());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self {
            folder: tempfile::tempdir().unwrap(),
            store,
            proxy,
            port,
        }
    }

    fn scafo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scafo"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(SHORT_WINDOWS)
            .envs(self.store.env())
            .env("SCAFO_STATE_DIR", self.folder.path().join("state"));
        command
    }

    fn sail(&self) -> Process {
        let binary = celld::standin(self.folder.path(), "0.6.2");
        let mut command = self.scafo(&["sail", "--node-id", "n-1", "--api-port", &self.port.to_string()]);
        command
            .env("SCAFO_BUCKET_ENDPOINT", self.proxy.endpoint())
            .env("SCAFO_RUNTIME_BINARY", binary);
        Process::spawn("sail".to_owned(), command, self.folder.path().join("sail.log"))
    }

    fn row(&self) -> Option<Value> {
        let Output { code, stdout, .. } = run_within(self.scafo(&["fleet", "nodes", "--json"]), PATIENCE);
        let listing: Value = (code == Some(0)).then(|| serde_json::from_str(&stdout).unwrap())?;
        listing["nodes"].as_array()?.first().cloned()
    }
}

#[test]
fn lost_answers_at_every_write_of_a_boot_and_of_the_beats_are_no_conflict() {
    let alone = Alone::new();
    for key in ["identities", "nodes"] {
        alone.proxy.rule("PUT", key, Action::CutReply, 1);
    }
    let mut daemon = alone.sail();
    eventually(SOON, "the node to be live", || {
        (alone.row()?["state"] == "live").then_some(())
    });
    let beat = || alone.row().and_then(|row| row["heartbeatAt"].as_u64());
    for action in [
        Action::CutReply,
        Action::Refuse,
        Action::AnswerInstead(500, ""),
        Action::Answer(503, ""),
    ] {
        let before = beat().unwrap();
        alone.proxy.rule("PUT", "nodes", action.clone(), 2);
        eventually(SOON, &format!("beats after {action:?}"), || {
            (beat()? > before + 1_500).then_some(())
        });
    }
    assert!(daemon.is_running());
    assert!(!daemon.log().contains("conflict"), "{}", daemon.log());
    daemon.terminate();
    assert!(daemon.wait_exit(SOON).success());
    assert_eq!(alone.row().unwrap()["state"], "draining");
}

#[test]
fn a_restart_after_a_kill_is_the_same_node_and_no_file_is_left_half_written() {
    let alone = Alone::new();
    let mut daemon = alone.sail();
    eventually(SOON, "the node to be live", || {
        (alone.row()?["state"] == "live").then_some(())
    });
    let node = fs::read(alone.folder.path().join("state/node.json")).unwrap();
    for _ in 0..5 {
        daemon.kill();
        daemon = alone.sail();
        daemon.wait_log(SOON, "live as n-1");
        assert_eq!(fs::read(alone.folder.path().join("state/node.json")).unwrap(), node);
    }
    let left: Vec<_> = fs::read_dir(alone.folder.path().join("state"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        left.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")),
        "{left:?}"
    );
}

//! What a boot is refused for, through the real binary, word for word: every fault with its field, value and origin, and
//! nothing written, bound or sent.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use scafo_lab::badstore::{BadStore, Flaw};

/// A machine's corner: a folder for its state, its configuration and its celld.
struct Corner {
    folder: tempfile::TempDir,
}

impl Corner {
    fn new() -> Self {
        let corner = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        corner.celld("echo celld 0.6.2");
        corner
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn celld(&self, script: &str) {
        let path = self.path("celld");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// `scafo` with these arguments, in a clean environment, behind `prefix` (a wrapper that ends in `exec "$@"`).
    fn behind(&self, prefix: &[&str], arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut words: Vec<&str> = prefix.to_vec();
        words.push(env!("CARGO_BIN_EXE_scafo"));
        words.extend(arguments);
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("SCAFO_STATE_DIR", self.path("state"))
            .env("SCAFO_RUNTIME_BINARY", self.path("celld"))
            .env("SCAFO_LOG", "off")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        bounded(child)
    }

    fn scafo(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        self.behind(&["env"], arguments, variables)
    }

    /// What a refused boot says, with the exit code, and the proof that it left nothing behind.
    fn refused(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let before = listing(&self.path("state"));
        let output = self.scafo(arguments, variables);
        assert_eq!(listing(&self.path("state")), before, "a refused boot writes nothing");
        self.shown(&output)
    }

    fn shown(&self, output: &Output) -> String {
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8_lossy(&output.stderr).replace(&self.folder.path().display().to_string(), "DIR");
        format!("{text}exit code {}\n", output.status.code().unwrap())
    }

    /// What a mesh node's boot behind `prefix` says, and the proof that nothing of it reached the bucket.
    fn refused_on_mesh(&self, prefix: &[&str]) -> String {
        self.init(&["--address", "10.88.0.7"]);
        let bucket = format!("dir:{}", self.path("bucket").display());
        let output = self.behind(prefix, &["sail", "--bucket", &bucket], &[]);
        assert!(
            !self.path("bucket").exists(),
            "nothing reaches the bucket from a refused boot"
        );
        self.shown(&output)
    }

    fn init(&self, arguments: &[&str]) {
        let output = self.scafo(&[&["wg", "init"], arguments].concat(), &[]);
        assert!(output.status.success(), "{output:?}");
    }
}

/// Waits for a program that ends by itself, and ends it when it does not.
fn bounded(mut child: std::process::Child) -> Output {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("it does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// A TCP port that nobody has at this moment.
fn free_port() -> String {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string()
}

fn listing(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap_or_default()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_lan_address_without_a_transport() {
    let corner = Corner::new();
    insta::assert_snapshot!(
        "lan-api-host",
        corner.refused(&["sail", "--api-host", "192.168.7.7"], &[])
    );
    insta::assert_snapshot!(
        "lan-address",
        corner.refused(&["sail"], &[("SCAFO_ADDRESS", "192.168.7.7")])
    );
    fs::write(corner.path("config.json"), r#"{"runtime": {"bindHost": "0.0.0.0"}}"#).unwrap();
    let config = corner.path("config.json").display().to_string();
    insta::assert_snapshot!("lan-runtime", corner.refused(&["sail", "--config", &config], &[]));
    let all = corner.refused(
        &["sail", "--config", &config, "--api-host", "192.168.7.7"],
        &[("SCAFO_ADDRESS", "192.168.7.7")],
    );
    insta::assert_snapshot!("lan-all-three", all);
}

#[test]
fn wireguard_without_a_key() {
    let corner = Corner::new();
    insta::assert_snapshot!(corner.refused(&["sail", "--transport", "wireguard", "--bucket", "dir:/nonesuch"], &[]));
}

#[test]
fn wireguard_with_a_wildcard() {
    let corner = Corner::new();
    corner.init(&["--address", "10.88.0.7"]);
    insta::assert_snapshot!(corner.refused(
        &[
            "sail",
            "--bucket",
            "dir:/nonesuch",
            "--api-host",
            "0.0.0.0",
            "--runtime-bind-host",
            "127.0.0.1"
        ],
        &[]
    ));
}

#[test]
fn a_mesh_node_without_a_bucket() {
    let corner = Corner::new();
    corner.init(&["--address", "10.88.0.7"]);
    insta::assert_snapshot!(corner.refused(&["sail"], &[]));
}

#[test]
fn everything_wrong_at_once() {
    let corner = Corner::new();
    let config = corner.path("config.json");
    fs::write(
        &config,
        r#"{"node": {"labels": {"tier": 7}, "idd": "x"}, "registry": {"heartbeatIntervalMs": "often"}, "nodee": 1}"#,
    )
    .unwrap();
    let config = config.display().to_string();
    let text = corner.refused(
        &[
            "sail",
            "--config",
            &config,
            "--api-port",
            "99999",
            "--api-host",
            "10.1.2.3",
            "--wireguard-endpoints",
            "nowhere",
        ],
        &[("SCAFO_NODE_ID", "Not An Id"), ("SCAFO_BUCKET", "gs://x")],
    );
    insta::assert_snapshot!(text);
}

#[test]
fn a_label_without_an_equals_sign() {
    let corner = Corner::new();
    insta::assert_snapshot!(corner.refused(&["sail", "--node-labels", "tier", "--node-labels", "a=b"], &[]));
}

#[test]
fn an_unknown_key() {
    let corner = Corner::new();
    let config = corner.path("config.json");
    fs::write(&config, r#"{"registry": {"livenesWindowMs": 90000}}"#).unwrap();
    insta::assert_snapshot!(corner.refused(&["sail", "--config", &config.display().to_string()], &[]));
}

#[test]
fn celld_that_is_missing_too_old_hanging_or_silent() {
    let corner = Corner::new();
    let sail = |corner: &Corner| corner.refused(&["sail"], &[]);
    fs::remove_file(corner.path("celld")).unwrap();
    insta::assert_snapshot!("celld-missing", sail(&corner));
    corner.celld("echo celld 0.4.1");
    insta::assert_snapshot!("celld-too-old", sail(&corner));
    corner.celld("echo celld 0.5.0-rc.1");
    insta::assert_snapshot!("celld-pre-release", sail(&corner));
    corner.celld("true");
    insta::assert_snapshot!("celld-silent", sail(&corner));
    corner.celld("sleep 60");
    insta::assert_snapshot!("celld-hanging", sail(&corner));
}

#[test]
fn a_node_file_that_is_broken_or_open_to_others() {
    let corner = Corner::new();
    let state = corner.path("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let node = state.join("node.json");
    fs::write(&node, r#"{"id": "ams-1", "publicKey": "AAAA"#).unwrap();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o600)).unwrap();
    let refused = |corner: &Corner| {
        let before = fs::read(&node).unwrap();
        let text = corner.shown(&corner.scafo(&["sail", "--api-port", "17300"], &[]));
        assert_eq!(fs::read(&node).unwrap(), before);
        text
    };
    insta::assert_snapshot!("node-cut", refused(&corner));
    fs::set_permissions(&node, fs::Permissions::from_mode(0o644)).unwrap();
    insta::assert_snapshot!("node-open", refused(&corner));
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    insta::assert_snapshot!("state-open", refused(&corner));
}

#[test]
fn a_full_disk() {
    let corner = Corner::new();
    // A file system of its own with no room left, in a mount namespace that goes with the process.
    let script = format!(
        "mkdir -p {state} && mount -t tmpfs -o size=16k,mode=700 none {state} && (head -c 16384 /dev/zero > {state}/filler || true) && exec \"$@\"",
        state = corner.path("state").display()
    );
    let prefix = ["unshare", "-m", "sh", "-c", &script, "sh"];
    insta::assert_snapshot!(corner.shown(&corner.behind(&prefix, &["wg", "init"], &[])));
}

#[test]
fn no_tun_device() {
    let corner = Corner::new();
    let prefix = [
        "unshare",
        "-n",
        "-m",
        "sh",
        "-c",
        "mount -t tmpfs none /dev/net && exec \"$@\"",
        "sh",
    ];
    insta::assert_snapshot!(corner.refused_on_mesh(&prefix));
}

#[test]
fn no_right_to_make_interfaces() {
    let corner = Corner::new();
    let prefix = [
        "unshare",
        "-n",
        "setpriv",
        "--bounding-set",
        "-net_admin",
        "--inh-caps",
        "-net_admin",
    ];
    insta::assert_snapshot!(corner.refused_on_mesh(&prefix));
}

#[test]
fn a_udp_port_that_is_taken() {
    let corner = Corner::new();
    // The holder lives in the same network namespace, and ends with it.
    let script = "python3 -c 'import socket,time; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((\"0.0.0.0\", 51820)); print(flush=True); time.sleep(20)' > \"$0\" & \
                  while [ ! -s \"$0\" ]; do sleep 0.05; done; \"$@\"; code=$?; kill $!; exit $code";
    let ready = corner.path("ready").display().to_string();
    let prefix = ["unshare", "-n", "sh", "-c", script, &ready];
    insta::assert_snapshot!(corner.refused_on_mesh(&prefix));
}

#[test]
fn a_mesh_network_that_the_host_routes_elsewhere() {
    let corner = Corner::new();
    let script = "ip link add v0 type veth peer name v1 && ip addr add 10.88.5.1/24 dev v0 && ip link set v0 up && ip link set v1 up && exec \"$@\"";
    let prefix = ["unshare", "-n", "sh", "-c", script, "sh"];
    insta::assert_snapshot!(corner.refused_on_mesh(&prefix));
}

#[test]
fn no_nftables() {
    let corner = Corner::new();
    let prefix = ["unshare", "-n", "env", "PATH=/nowhere"];
    insta::assert_snapshot!(corner.refused_on_mesh(&prefix));
}

#[test]
fn a_second_daemon_on_one_state_directory() {
    let corner = Corner::new();
    let port = free_port();
    let mut first = Command::new(env!("CARGO_BIN_EXE_scafo"))
        .args(["sail", "--api-port", &port])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SCAFO_STATE_DIR", corner.path("state"))
        .env("SCAFO_RUNTIME_BINARY", corner.path("celld"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !corner.path("state/bucket/_scafo/nodes").is_dir() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the first one does not start"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = corner.shown(&corner.scafo(&["sail"], &[]));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(first.id()).unwrap()),
        nix::sys::signal::SIGTERM,
    )
    .unwrap();
    assert!(first.wait().unwrap().success(), "leaving is no error");
    insta::assert_snapshot!(text.replace(&first.id().to_string(), "PID"));
}

#[test]
fn a_wrong_argument_and_a_wrong_address() {
    let corner = Corner::new();
    insta::assert_snapshot!("wrong-argument", corner.refused(&["sail", "--no-such-flag"], &[]));
    insta::assert_snapshot!(
        "init-address",
        corner.refused(&["wg", "init", "--address", "192.168.0.1"], &[])
    );
    insta::assert_snapshot!(
        "init-endpoint",
        corner.refused(&["wg", "init", "--endpoint", "host", "--endpoint", "10.0.0.1:0"], &[])
    );
    corner.init(&["--address", "10.88.0.7"]);
    insta::assert_snapshot!("init-again", corner.refused(&["wg", "init"], &[]));
    insta::assert_snapshot!("show-without-daemon", corner.refused(&["wg", "show"], &[]));
}

#[test]
fn a_store_that_breaks_the_contract() {
    let corner = Corner::new();
    let refused = |flaw: Flaw| {
        let store = BadStore::start(flaw);
        let endpoint = store.endpoint();
        let port = free_port();
        let arguments = [
            "sail",
            "--bucket",
            "s3://fleet",
            "--bucket-endpoint",
            &endpoint,
            "--api-port",
            &port,
        ];
        let output = corner.scafo(
            &arguments,
            &[("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x")],
        );
        corner.shown(&output).replace(&endpoint, "ENDPOINT")
    };
    insta::assert_snapshot!("store-ignores", refused(Flaw::IgnoresConditions));
    insta::assert_snapshot!("store-replaces", refused(Flaw::ReplacesTheMissing));
    insta::assert_snapshot!("store-unknown", refused(Flaw::KnowsNoConditions));
}

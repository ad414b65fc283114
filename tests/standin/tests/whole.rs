//! The stand-in as a process: deploy, serve, stop, restart, and the ways to end.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);

/// One installation: a binary of its own with a version, a directory bucket and a state directory.
struct Site {
    folder: TempDir,
}

/// One running process, killed when dropped.
struct Celld {
    child: Child,
    log: PathBuf,
    public: SocketAddr,
    internal: SocketAddr,
}

impl Drop for Celld {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Site {
    fn new(version: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_celld-standin"), folder.path().join("celld")).unwrap();
        fs::write(folder.path().join("celld.version"), version).unwrap();
        fs::create_dir(folder.path().join("shop")).unwrap();
        fs::write(folder.path().join("shop/index.js"), "export default {}").unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn bucket(&self) -> String {
        format!("dir:{}", self.path("bucket/apps/shop").display())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.path("celld"));
        command
            .env_clear()
            .env("CELLD_BUCKET", self.bucket())
            .env("CELLD_WATCH", self.path("state"));
        command
            .env("CELLD_NODE", "n-1")
            .env("CELLD_TTL_MS", "3000")
            .env("CELLD_SHUTDOWN_TOTAL_MS", "2500")
            .stdin(Stdio::null());
        command
    }

    fn deploy(&self) -> Value {
        let output = self.command().arg("deploy").arg(self.path("shop")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&fs::read(self.path("bucket/apps/shop/deploy/current.json")).unwrap()).unwrap()
    }

    fn fault(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path("celld.faults")).unwrap();
        fs::write(self.path("celld.faults").join(name), content).unwrap();
    }

    fn start(&self) -> Celld {
        self.start_in("state")
    }

    fn start_in(&self, state: &str) -> Celld {
        let log = self.path(&format!("{state}.log"));
        let out = fs::File::create(&log).unwrap();
        let child = self
            .command()
            .env("CELLD_WATCH", self.path(state))
            .args(["--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"])
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let address = |text: &str, before: &str| {
            let rest = text.split(before).nth(1)?;
            rest.split_once(' ')?.0.parse::<SocketAddr>().ok()
        };
        let began = Instant::now();
        let mut celld = Celld {
            child,
            log,
            public: "127.0.0.1:1".parse().unwrap(),
            internal: "127.0.0.1:1".parse().unwrap(),
        };
        loop {
            let text = celld.log();
            let found = (
                address(&text, "celld listening on "),
                address(&text, "celld internal listening on "),
            );
            if let (Some(public), Some(internal)) = found {
                (celld.public, celld.internal) = (public, internal);
                return celld;
            }
            assert!(
                began.elapsed() < LIMIT && celld.child.try_wait().unwrap().is_none(),
                "{text}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Status, headers and body of one request.
struct Answer {
    status: u16,
    head: String,
    body: Value,
}

fn request(to: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(head.contains("x-celld-standin: 1"), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["standin"], true);
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head,
        body,
    }
}

impl Celld {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn get(&self, path: &str) -> Answer {
        request(self.public, "GET", path, "")
    }

    fn internal(&self, method: &str, path: &str) -> Answer {
        request(self.internal, method, path, "")
    }

    fn signal(&self, signal: &str) {
        assert!(
            Command::new("kill")
                .arg(signal)
                .arg(self.child.id().to_string())
                .status()
                .unwrap()
                .success()
        );
    }

    fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < LIMIT, "it does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn lease(site: &Site) -> Value {
    serde_json::from_slice(&fs::read(site.path("bucket/apps/shop/nodes/n-1.json")).unwrap()).unwrap()
}

#[test]
fn acknowledged_writes_survive_a_stop_and_a_kill() {
    let site = Site::new("0.6.2");
    let pointer = site.deploy();
    let mut celld = site.start();
    let health = celld.get("/.well-known/celld/health");
    assert_eq!((health.status, &health.body["ok"]), (200, &Value::Bool(true)));
    let worker = celld.get("/anything?x=1");
    assert_eq!(worker.body["node"], "n-1");
    assert_eq!(worker.body["app"], "shop");
    assert_eq!(worker.body["deployment"], pointer["version"]);
    assert_eq!(worker.body["host"], "shop.test");
    assert_eq!(request(celld.public, "PUT", "/kv/colour", "green").status, 200);
    assert_eq!(lease(&site)["log"]["state"], "open");

    celld.signal("-TERM");
    assert_eq!(celld.wait().code(), Some(0));
    assert!(
        celld.log().contains("node-log close: sealed epoch 1"),
        "{}",
        celld.log()
    );
    assert_eq!(lease(&site)["log"]["state"], "sealed");

    let mut celld = site.start();
    assert_eq!(celld.get("/kv/colour").body["value"], "green");
    assert_eq!(request(celld.public, "PUT", "/kv/colour", "blue").status, 200);
    celld.signal("-KILL");
    assert_eq!(celld.wait().code(), None);
    let mut celld = site.start();
    assert_eq!(celld.get("/kv/colour").body["value"], "blue");
    assert_eq!(celld.get("/kv/none").status, 404);
    celld.signal("-INT");
    assert_eq!(celld.wait().code(), Some(0));
    assert!(celld.log().contains("sealed epoch 3"), "{}", celld.log());
}

#[test]
fn the_internal_listener_keeps_its_routes() {
    let site = Site::new("0.5.1");
    site.deploy();
    let mut celld = site.start();
    let state = celld.internal("GET", "/state");
    assert_eq!(state.body["residents"], serde_json::json!([]));
    let first = state.body["deployment"]["version"].clone();
    assert_eq!(celld.internal("GET", "/shutdown").status, 405);
    assert_eq!(celld.internal("GET", "/nothing").status, 404);
    assert_eq!(celld.get("/").body["version"], "0.5.1");

    fs::write(site.path("shop/index.js"), "export default { changed: 1 }").unwrap();
    let second = site.deploy()["version"].clone();
    assert_ne!(first, second);
    site.fault("reload-fails", "");
    assert_eq!(celld.internal("POST", "/reload").body["ok"], false);
    assert_eq!(celld.internal("GET", "/state").body["deployment"]["version"], first);
    fs::remove_file(site.path("celld.faults/reload-fails")).unwrap();
    assert_eq!(celld.internal("POST", "/reload").body["deployment"]["version"], second);
    assert_eq!(celld.get("/").body["deployment"], second);

    assert_eq!(celld.internal("POST", "/shutdown").status, 200);
    assert_eq!(celld.wait().code(), Some(0));
}

#[test]
fn a_drain_refuses_new_requests_and_is_bounded() {
    let site = Site::new("0.6.2");
    site.deploy();
    site.fault("drain-ms", "600000");
    site.fault("no-seal", "");
    let mut celld = site.start();
    celld.signal("-TERM");
    let began = Instant::now();
    let refused = loop {
        let answer = celld.get("/");
        if answer.status == 503 {
            break answer;
        }
        assert!(began.elapsed() < LIMIT);
    };
    assert_eq!(refused.body["draining"], true);
    assert!(
        refused.head.contains("retry-after: 1") && refused.head.contains("connection: close"),
        "{}",
        refused.head
    );
    assert_eq!(celld.get("/.well-known/celld/health").status, 503);
    assert_eq!(celld.internal("GET", "/state").body["quiescing"], true);
    // The bound of `command`, not the fault's ten minutes, ends it.
    assert_eq!(celld.wait().code(), Some(0));
    assert!(
        began.elapsed() < LIMIT && !celld.log().contains("sealed epoch"),
        "{}",
        celld.log()
    );
}

#[test]
fn a_lost_lease_exits_with_3_and_a_crash_by_signal() {
    use std::os::unix::process::ExitStatusExt;
    let site = Site::new("0.6.2");
    site.deploy();
    let mut celld = site.start();
    celld.internal("POST", "/standin/fence");
    assert_eq!(celld.wait().code(), Some(3));
    assert!(
        celld.log().lines().any(|line| line.starts_with("SELF-FENCE:")),
        "{}",
        celld.log()
    );

    let mut celld = site.start();
    let mut stream = TcpStream::connect(celld.internal).unwrap();
    stream
        .write_all(b"POST /standin/crash HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert_eq!(celld.wait().signal(), Some(6));

    let mut celld = site.start();
    fs::create_dir_all(site.path("state/.standin")).unwrap();
    fs::write(site.path("state/.standin/fence"), "").unwrap();
    assert_eq!(celld.wait().code(), Some(3));
    fs::remove_file(site.path("state/.standin/fence")).unwrap();

    // A twin with the same id takes the lease, and the older process finds out.
    let mut old = site.start();
    let new = site.start_in("other-state");
    assert_eq!(old.wait().code(), Some(3));
    assert_eq!(new.get("/").status, 200);
}

fn refusal(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn starts_that_celld_refuses_exit_with_1() {
    let site = Site::new("0.6.2");
    let any = ["--listen", "127.0.0.1:0"];
    assert!(refusal(site.command().args(any)).contains("deploy/current.json"));
    site.deploy();
    assert!(refusal(site.command().args(any).env("CELLD_STORAGE_PROBE", "1")).contains("CELLD_STORAGE_PROBE"));
    assert!(refusal(site.command().arg("--version").env("CELLD_NODE", "a/b")).contains("CELLD_NODE"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(refusal(site.command().args(["--listen", &address])).contains("cannot listen"));
    let celld = site.start();
    assert!(refusal(site.command().args(any)).contains("another process"));
    drop(celld);
    site.fault("exit-at-start", "7");
    assert_eq!(site.command().args(any).output().unwrap().status.code(), Some(7));
}

#[test]
fn the_version_line_is_celld_s_and_nothing_at_all_is_help() {
    let site = Site::new("0.5.1-fork.2");
    let output = site.command().arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "celld 0.5.1-fork.2\n");
    let output = Command::new(site.path("celld")).env_clear().output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("Usage"));
}

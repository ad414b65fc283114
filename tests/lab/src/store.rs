//! A real S3 server: SeaweedFS, on addresses and ports of the test's own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::machines::{Machine, Process, run_within};
use crate::wait::eventually;

/// The access key that the store knows.
pub const ACCESS_KEY: &str = "scafo-test-key";
/// Its secret.
pub const SECRET_KEY: &str = "scafo-test-secret";

/// How long the server may take to come up.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running store. It is stopped, and its data removed, when it is dropped.
#[derive(Debug)]
pub struct Store {
    process: Option<Process>,
    machine: Option<Machine>,
    folder: TempDir,
    address: IpAddr,
    ports: Vec<u16>,
}

impl Store {
    /// A store on this host's loopback, for tests that need no machines.
    pub fn on_loopback() -> Self {
        Self::start(None, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// A store on a machine, at its underlay address, where every other machine reaches it.
    pub fn on(machine: &Machine) -> Self {
        Self::start(Some(machine.clone()), machine.address().into())
    }

    fn start(machine: Option<Machine>, address: IpAddr) -> Self {
        let folder = tempfile::Builder::new().prefix("scafo-store-").tempdir().unwrap();
        let identities = serde_json::json!({"identities": [{
            "name": "test",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }]});
        fs::write(folder.path().join("identities.json"), identities.to_string()).unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        let ports = free_ports(machine.as_ref(), address);
        let mut store = Self {
            process: None,
            machine,
            folder,
            address,
            ports,
        };
        store.run();
        store
    }

    /// Stops the server, as a crash would, and starts it again on its data.
    pub fn restart(&mut self) {
        self.stop();
        self.run();
    }

    /// Stops the server; its data stays.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts a server that was stopped.
    pub fn run(&mut self) {
        let [
            s3,
            s3_grpc,
            iceberg,
            lance,
            master,
            master_grpc,
            volume,
            volume_grpc,
            filer,
            filer_grpc,
            admin,
            admin_grpc,
            webdav,
        ] = self.ports[..]
        else {
            panic!("thirteen ports are needed");
        };
        let weed = weed();
        let mut command = match &self.machine {
            Some(machine) => machine.command(&weed),
            None => Command::new(&weed),
        };
        let data = self.folder.path().join("data");
        command
            .current_dir(&data)
            .arg("mini")
            .arg(format!("-dir={}", data.display()))
            .arg(format!("-ip={}", self.address))
            .arg(format!("-ip.bind={}", self.address))
            .arg(format!(
                "-s3.config={}",
                self.folder.path().join("identities.json").display()
            ))
            .args([
                format!("-s3.port={s3}"),
                format!("-s3.port.grpc={s3_grpc}"),
                format!("-s3.port.iceberg={iceberg}"),
                format!("-s3.port.lance={lance}"),
            ])
            .args([
                format!("-master.port={master}"),
                format!("-master.port.grpc={master_grpc}"),
            ])
            .args([
                format!("-volume.port={volume}"),
                format!("-volume.port.grpc={volume_grpc}"),
            ])
            .args([format!("-filer.port={filer}"), format!("-filer.port.grpc={filer_grpc}")])
            .args([
                format!("-admin.port={admin}"),
                format!("-admin.port.grpc={admin_grpc}"),
                format!("-webdav.port={webdav}"),
            ])
            .args(["-admin.ui=false", "-webdav=false", "-bucket=fleet"]);
        let log = self.folder.path().join("weed.log");
        let process = Process::spawn("weed".to_owned(), command, log);
        let process = self.process.insert(process);
        let (endpoint, machine) = (
            format!("http://{}:{s3}/fleet?list-type=2", self.address),
            self.machine.clone(),
        );
        let credentials = format!("{ACCESS_KEY}:{SECRET_KEY}");
        let tail = process.log_path().to_owned();
        // The bucket is made a moment after the server listens; until then a signed listing is refused.
        eventually(START_LIMIT, &format!("SeaweedFS (log: {})", tail.display()), || {
            assert!(process.is_running(), "SeaweedFS ended:\n{}", process.log_tail(20));
            let mut curl = match &machine {
                Some(machine) => machine.command("curl"),
                None => Command::new("curl"),
            };
            curl.args([
                "-s",
                "-f",
                "-m",
                "2",
                "--aws-sigv4",
                "aws:amz:us-east-1:s3",
                "-u",
                &credentials,
                &endpoint,
            ]);
            (run_within(curl, Duration::from_secs(10)).code == Some(0)).then_some(())
        });
    }

    /// The store's address, for `SCAFO_BUCKET_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.socket())
    }

    /// Where it listens.
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.ports[0])
    }

    /// The variables with which Scafo uses the bucket that is there from the start.
    pub fn env(&self) -> Vec<(String, String)> {
        [
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("SCAFO_BUCKET", "s3://fleet"),
            ("SCAFO_BUCKET_ENDPOINT", &self.endpoint()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }
}

/// The server: `SCAFO_WEED`, `weed` on the `PATH`, or where `tests/setup` puts it.
fn weed() -> PathBuf {
    if let Some(stated) = std::env::var_os("SCAFO_WEED") {
        return stated.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let set_up = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/seaweedfs/bin/weed");
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("weed"))
        .chain([set_up])
        .find(|path| path.is_file());
    found.expect("no `weed`: run tests/setup, which installs SeaweedFS, or set SCAFO_WEED")
}

/// Ports that nobody has at this moment, below those that the kernel hands out for outgoing connections
/// (`net.ipv4.ip_local_port_range`), so that a store which is stopped for a while finds them free again.
fn free_ports(machine: Option<&Machine>, address: IpAddr) -> Vec<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let choose = || {
        // Test processes start at different places, and the stores of one process go on from each other.
        let start = u16::try_from(std::process::id() % 500).unwrap_or_default() * 40;
        let mut ports = Vec::new();
        while ports.len() < 13 {
            let port = 10_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
            if TcpListener::bind((address, port)).is_ok() {
                ports.push(port);
            }
        }
        ports
    };
    match machine {
        Some(machine) => machine.inside(choose),
        None => choose(),
    }
}

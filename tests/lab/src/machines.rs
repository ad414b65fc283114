//! Machines: network namespaces joined by a bridge in a namespace of its own, so that nothing touches the host's network.
//!
//! Each machine has one interface `eth0` on the underlay 172.31.7.0/24, a `/run` of its own (which all its commands
//! share, so that control sockets are found), and a folder for its state. Partitions are made at the bridge, so a packet
//! that is cut vanishes on the wire, and the sender hears nothing.

mod cut;
mod inside;
mod leftovers;
mod process;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

pub use self::cut::{Cut, Direction};
pub use self::inside::{Answer, Relay};
pub use self::process::{Output, Process, run_within};

/// How long a command of the lab or of a test may take when nothing else is said.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The network that joins the machines: a private range that no mesh default overlaps.
const UNDERLAY: [u8; 3] = [172, 31, 7];

/// The first machine's place in the underlay.
const FIRST_HOST: u32 = 11;

/// Starts every name that a lab gives, followed by its process id; leftovers are recognised by it.
const MARK: &str = "scafolab";

/// A set of machines. Everything is removed when the last of the lab and its machines is dropped.
#[derive(Clone, Debug)]
pub struct Lab {
    inner: Arc<Inner>,
}

/// One machine. Clones are the same machine.
#[derive(Clone, Debug)]
pub struct Machine {
    lab: Arc<Inner>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Inner {
    /// `scafolab-<pid>-<number>`.
    prefix: String,
    switch: String,
    folder: TempDir,
    next: AtomicU32,
    namespaces: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    namespace: String,
    /// Its end of the wire in the switch's namespace.
    port: String,
    folder: PathBuf,
    address: Mutex<Ipv4Addr>,
    cuts: Mutex<Vec<(Direction, Cut)>>,
    spawned: AtomicU32,
}

/// A socket that something listens on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listening {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The bound address; a wildcard for both families is `::`.
    pub address: IpAddr,
    /// The device that the socket is bound to.
    pub interface: Option<String>,
    /// The bound port.
    pub port: u16,
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl Lab {
    /// An empty lab; removes what dead test processes left behind first.
    pub fn new() -> Self {
        static LABS: AtomicU32 = AtomicU32::new(0);
        leftovers::remove();
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{MARK}-{}-{number}", std::process::id());
        let folder = tempfile::Builder::new()
            .prefix(&format!("{prefix}-"))
            .tempdir()
            .unwrap();
        let switch = format!("{prefix}-switch");
        let inner = Inner {
            prefix,
            switch,
            folder,
            next: AtomicU32::new(0),
            namespaces: Mutex::new(Vec::new()),
        };
        inner.add_namespace(&inner.switch);
        inner.ip_in(&inner.switch, "link add bridge0 type bridge");
        inner.ip_in(&inner.switch, "link set bridge0 up");
        Self { inner: Arc::new(inner) }
    }

    /// A further machine on the underlay. The name is for people, and must be unique in this lab.
    pub fn add_machine(&self, name: &str) -> Machine {
        let inner = &self.inner;
        let number = inner.next.fetch_add(1, Ordering::Relaxed);
        let host = u8::try_from(FIRST_HOST + number).expect("a lab holds up to 240 machines");
        let [a, b, c] = UNDERLAY;
        let address = Ipv4Addr::new(a, b, c, host);
        let namespace = format!("{}-{name}", inner.prefix);
        let port = format!("port{number}");
        let folder = inner.folder.path().join(name);
        for part in ["run/wireguard", "home", "logs"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        inner.add_namespace(&namespace);
        inner.ip_in(
            &inner.switch,
            &format!("link add {port} type veth peer name eth0 netns {namespace}"),
        );
        inner.ip_in(&inner.switch, &format!("link set {port} master bridge0 up"));
        inner.ip_in(&namespace, "link set lo up");
        inner.ip_in(&namespace, &format!("address add {address}/24 dev eth0"));
        inner.ip_in(&namespace, "link set eth0 up");
        let shared = Shared {
            name: name.into(),
            namespace,
            port,
            folder,
            address: Mutex::new(address),
            cuts: Mutex::new(Vec::new()),
            spawned: AtomicU32::new(0),
        };
        Machine {
            lab: Arc::clone(inner),
            shared: Arc::new(shared),
        }
    }

    /// A machine on the underlay that is no node: an attacker, or the host that a store answers on.
    pub fn neighbour(&self) -> Machine {
        self.add_machine(&format!("neighbour{}", self.inner.next.load(Ordering::Relaxed)))
    }

    /// A folder that all machines see and that goes with the lab.
    pub fn folder(&self) -> &Path {
        self.inner.folder.path()
    }

    /// The address of a directory bucket that all machines see.
    pub fn dir_bucket(&self) -> String {
        format!("dir:{}", self.folder().join("bucket").display())
    }

    /// What every name of this lab begins with.
    pub fn prefix(&self) -> &str {
        &self.inner.prefix
    }
}

impl Inner {
    fn add_namespace(&self, name: &str) {
        // Another test process may be preparing /run/netns at this moment, and `ip` then fails once.
        let add = || run_within(with_words(Command::new("ip"), &format!("netns add {name}")), PATIENCE);
        let tries = (0..5)
            .map(|_| add())
            .find(|output| output.code == Some(0) || exists(name));
        assert!(
            tries.is_some() && exists(name),
            "no namespace {name}; a lab needs root: {:?}",
            add()
        );
        held(&self.namespaces).push(name.into());
    }

    fn ip_in(&self, namespace: &str, words: &str) -> Output {
        let mut command = Command::new("ip");
        command.args(["-n", namespace]);
        run_within(with_words(command, words), PATIENCE).ok()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Machines first, so that nothing writes to the folder any more when it goes.
        for name in held(&self.namespaces).iter().rev() {
            leftovers::remove_namespace(name);
        }
    }
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

fn with_words(mut command: Command, words: &str) -> Command {
    command.args(words.split_whitespace());
    command
}

/// A test that panicked with a lock held is being unwound; the value is whole all the same.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    /// The name it was added under.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its address on the underlay at this moment.
    pub fn address(&self) -> Ipv4Addr {
        *held(&self.shared.address)
    }

    /// Its network namespace.
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Its own folder, for whatever a test puts there.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Where its Scafo keeps its state. Not made by the lab.
    pub fn state_dir(&self) -> PathBuf {
        self.shared.folder.join("state")
    }

    /// Moves the state directory to another machine, as one moves a disk. The other may not have one.
    pub fn move_state_to(&self, other: &Machine) {
        assert!(
            !other.state_dir().exists(),
            "{} has a state directory already",
            other.name()
        );
        fs::rename(self.state_dir(), other.state_dir()).unwrap();
    }

    /// A command that runs on this machine: in its network, with its `/run`. The child's process id is the program's.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        // `ip netns exec` gives the command a mount namespace of its own; `exec` all along keeps the process id.
        let script = r#"mount --bind "$1" /run && shift && exec "$@""#;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.shared.namespace, "sh", "-c", script, "lab"]);
        command.arg(self.shared.folder.join("run")).arg(program);
        command
    }

    /// Runs a program to its end on this machine, within [`PATIENCE`].
    pub fn run(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Output {
        let mut command = self.command(program);
        command.args(arguments);
        run_within(command, PATIENCE)
    }

    /// Runs a shell script to its end on this machine.
    pub fn sh(&self, script: &str) -> Output {
        self.run("sh", &["-c", script])
    }

    /// Runs `ip` with these words on this machine, and panics when it fails.
    pub fn ip(&self, words: &str) -> Output {
        self.lab.ip_in(&self.shared.namespace, words)
    }

    /// Starts a command made by [`Machine::command`] whose output goes to a log of its own.
    pub fn spawn(&self, name: &str, command: Command) -> Process {
        let number = self.shared.spawned.fetch_add(1, Ordering::Relaxed);
        let log = self.shared.folder.join("logs").join(format!("{name}-{number}.log"));
        Process::spawn(format!("{name} on {}", self.name()), command, log)
    }

    /// Gives it another address on the underlay, as a laptop that moves; routes that were added go.
    pub fn set_address(&self, address: Ipv4Addr) {
        self.ip("address flush dev eth0 scope global");
        self.ip(&format!("address add {address}/24 dev eth0"));
        *held(&self.shared.address) = address;
    }

    /// Adds a further address, for example `fd31:7::11/64`; without the second that IPv6 takes to look for duplicates.
    pub fn add_address(&self, address_and_length: &str) {
        let nodad = if address_and_length.contains(':') { "nodad" } else { "" };
        self.ip(&format!("address add {address_and_length} dev eth0 {nodad}"));
    }

    /// Adds a route, in the words of `ip route add`.
    pub fn add_route(&self, words: &str) {
        self.ip(&format!("route add {words}"));
    }

    /// Sets the MTU of both ends of its wire.
    pub fn set_mtu(&self, mtu: u32) {
        self.lab
            .ip_in(&self.lab.switch, &format!("link set {} mtu {mtu}", self.shared.port));
        self.ip(&format!("link set eth0 mtu {mtu}"));
    }

    /// Turns IPv6 off, for interfaces that are there and those to come.
    pub fn disable_ipv6(&self) {
        self.sh("for each in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$each; done")
            .ok();
    }

    /// The sockets that programs on this machine listen on, in order.
    pub fn listening(&self) -> Vec<Listening> {
        let output = self.run("ss", &["-H", "-l", "-n", "-t", "-u"]).ok();
        let mut found: Vec<Listening> = output.stdout.lines().filter_map(Listening::parse).collect();
        found.sort();
        found
    }

    /// Every process that is on this machine's network.
    pub fn processes(&self) -> Vec<i32> {
        leftovers::processes(&self.shared.namespace)
    }
}

impl Listening {
    /// One line of `ss -H -l -n -t -u`.
    fn parse(line: &str) -> Option<Self> {
        let mut columns = line.split_whitespace();
        let protocol = columns.next()?;
        let (address, port) = columns.nth(3)?.rsplit_once(':')?;
        let (address, interface) = match address.split_once('%') {
            // A bound device stands before or behind the closing bracket, by version of `ss`.
            Some((address, interface)) => (address, Some(interface.trim_matches(['[', ']']).to_owned())),
            None => (address, None),
        };
        let address = match address.trim_matches(['[', ']']) {
            "*" => "::",
            address => address,
        };
        Some(Self {
            protocol: protocol.into(),
            address: address.parse().ok()?,
            interface,
            port: port.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ss_are_read() {
        let read = |line: &str| {
            let found = Listening::parse(line).unwrap();
            (found.protocol, found.address.to_string(), found.interface, found.port)
        };
        let of = |protocol: &str, address: &str, interface: Option<&str>, port| {
            (
                protocol.to_owned(),
                address.to_owned(),
                interface.map(str::to_owned),
                port,
            )
        };
        assert_eq!(
            read("tcp LISTEN 0 128 127.0.0.1:80 0.0.0.0:*"),
            of("tcp", "127.0.0.1", None, 80)
        );
        assert_eq!(read("udp UNCONN 0 0 [::]:51820 [::]:*"), of("udp", "::", None, 51820));
        assert_eq!(read("tcp LISTEN 0 128 *:80 *:*"), of("tcp", "::", None, 80));
        assert_eq!(
            read("tcp LISTEN 0 9 10.88.0.1%scafo0:7300 0.0.0.0:*"),
            of("tcp", "10.88.0.1", Some("scafo0"), 7300)
        );
        assert_eq!(
            read("tcp LISTEN 0 9 [fd00::1]%scafo0:7300 [::]:*"),
            of("tcp", "fd00::1", Some("scafo0"), 7300)
        );
    }
}

//! Machines for the tests: network namespaces on one switch, and devices in them.
//!
//! A device is this test binary itself, started again inside the namespace, so it is never older than the library that is
//! under test.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use x25519_dalek::{PublicKey, StaticSecret};

/// Set in the environment of a process that shall be a device.
pub(crate) const DEVICE: &str = "SCAFO_WG_TEST_DEVICE";

/// The interface's name in every namespace.
pub(crate) const INTERFACE: &str = "scafo0";

/// The mesh network of all tests.
pub(crate) const MESH: &str = "10.88.0.0/16";

/// How long anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

static LABS: AtomicUsize = AtomicUsize::new(0);

/// Whether this process may make namespaces; says so where it may not.
pub(crate) fn permitted() -> bool {
    let permitted = nix::unistd::geteuid().is_root();
    if !permitted {
        eprintln!("skipped: making network namespaces needs root");
    }
    permitted
}

/// Runs a command to its end.
pub(crate) fn run(words: &str) -> Output {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must succeed, and gives what it printed.
pub(crate) fn must(words: &str) -> String {
    let output = run(words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until `check` holds.
pub(crate) fn wait_for(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A switch and machines on it, `eth0` of the first at 172.31.0.1/24 and fd31::1/64, and so on. All of it goes when
/// dropped.
pub(crate) struct Lab {
    pub(crate) nodes: Vec<Node>,
    switch: String,
}

impl Lab {
    /// A lab with this many machines.
    pub(crate) fn new(count: usize) -> Self {
        let lab = LABS.fetch_add(1, Ordering::Relaxed);
        let name = |part: String| format!("wgt{}-{lab}-{part}", std::process::id());
        let switch = name("switch".into());
        must(&format!("ip netns add {switch}"));
        let mut lab = Self {
            nodes: Vec::new(),
            switch: switch.clone(),
        };
        must(&format!("ip -n {switch} link add br0 type bridge"));
        must(&format!("ip -n {switch} link set br0 up"));
        for number in 1..=count {
            let namespace = name(number.to_string());
            must(&format!("ip netns add {namespace}"));
            lab.nodes.push(Node {
                namespace: namespace.clone(),
                number,
                secret: [u8::try_from(number).unwrap() + 16; 32],
            });
            let node = &lab.nodes[number - 1];
            must(&format!(
                "ip link add eth0 netns {namespace} type veth peer name port{number} netns {switch}"
            ));
            must(&format!("ip -n {switch} link set port{number} master br0 up"));
            node.ip("link set lo up");
            node.ip(&format!("address add 172.31.0.{number}/24 dev eth0"));
            node.ip(&format!("address add fd31::{number}/64 dev eth0 nodad"));
            node.ip("link set eth0 up");
        }
        lab
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let namespaces = self.nodes.iter().map(|node| &node.namespace);
        for namespace in namespaces.chain([&self.switch]) {
            run(&format!("ip netns delete {namespace}"));
        }
    }
}

/// One machine.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) namespace: String,
    pub(crate) number: usize,
    secret: [u8; 32],
}

impl Node {
    /// `ip ...` inside.
    pub(crate) fn ip(&self, words: &str) -> String {
        must(&format!("ip -n {} {words}", self.namespace))
    }

    /// Any command inside.
    pub(crate) fn run(&self, words: &str) -> Output {
        run(&format!("ip netns exec {} {words}", self.namespace))
    }

    /// Any command inside, which must succeed.
    pub(crate) fn must(&self, words: &str) -> String {
        must(&format!("ip netns exec {} {words}", self.namespace))
    }

    /// Whether there is such an interface.
    pub(crate) fn has(&self, interface: &str) -> bool {
        self.run(&format!("ip link show {interface}")).status.success()
    }

    /// Does something with sockets inside: a thread can be in a namespace of its own.
    pub(crate) fn inside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.begin_inside(work).join().unwrap()
    }

    /// Begins to do something with sockets inside.
    pub(crate) fn begin_inside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let namespace = std::fs::File::open(format!("/run/netns/{}", self.namespace)).unwrap();
        std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        })
    }

    /// Whether an answer to a ping comes back.
    pub(crate) fn pings(&self, address: IpAddr) -> bool {
        let command = format!("ping -c 1 -W 1 -n {address}");
        self.run(&command).status.success()
    }

    /// Waits until a ping is answered.
    pub(crate) fn reaches(&self, other: &Node) {
        let address = other.tunnel();
        wait_for(&format!("a ping of {address}"), || self.pings(address));
    }

    /// The tunnel address.
    pub(crate) fn tunnel(&self) -> IpAddr {
        Ipv4Addr::new(10, 88, 0, u8::try_from(self.number).unwrap()).into()
    }

    /// The underlay's address and the port that devices use.
    pub(crate) fn endpoint(&self) -> String {
        format!("172.31.0.{}:51820", self.number)
    }

    /// The tunnel's private key, in base64.
    pub(crate) fn private_key(&self) -> String {
        scafo_wg::PublicKey::from(self.secret).to_string()
    }

    /// The tunnel's public key, in base64.
    pub(crate) fn public_key(&self) -> String {
        let public = PublicKey::from(&StaticSecret::from(self.secret));
        scafo_wg::PublicKey::from(public.to_bytes()).to_string()
    }

    /// A process that can be a device, and is none yet.
    pub(crate) fn process(&self) -> Process {
        Process::start(&self.namespace, &[])
    }

    /// The line that opens this machine's device.
    pub(crate) fn open_line(&self) -> String {
        format!("open {INTERFACE} {} 51820 {MESH} -", self.private_key())
    }

    /// A device with its address.
    pub(crate) fn device(&self) -> Process {
        let mut process = self.process();
        process.ask(&self.open_line());
        process.ask(&format!("address {}", self.tunnel()));
        process
    }

    /// The line that makes this machine a peer of another one's device.
    pub(crate) fn as_peer(&self, endpoints: &str) -> String {
        let (number, key, address) = (self.number, self.public_key(), self.tunnel());
        format!("peer n-{number} {key} {address}/32 {endpoints} -")
    }
}

/// Two machines with devices that know each other.
pub(crate) fn pair(lab: &Lab) -> (Process, Process) {
    let (a, b) = (&lab.nodes[0], &lab.nodes[1]);
    let (mut at_a, mut at_b) = (a.device(), b.device());
    at_a.ask(&b.as_peer(&b.endpoint()));
    at_b.ask(&a.as_peer(&a.endpoint()));
    a.reaches(b);
    (at_a, at_b)
}

/// A device's process.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Process {
    /// Starts one inside a namespace, behind the words of `wrapper`.
    pub(crate) fn start(namespace: &str, wrapper: &[&str]) -> Self {
        let mut child = Command::new("ip")
            .args(["netns", "exec", namespace])
            .args(wrapper)
            .arg(std::env::current_exe().unwrap())
            .args(["device_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(DEVICE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let is_answer = line.starts_with("ok") || line.starts_with("error");
                if is_answer && sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            answers,
        }
    }

    /// Asks for something that may be refused.
    pub(crate) fn try_ask(&mut self, line: &str) -> Result<String, String> {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        let answer = self
            .answers
            .recv_timeout(LIMIT)
            .unwrap_or_else(|_| panic!("no answer to {line:?}"));
        if let Some(said) = answer.strip_prefix("ok ") {
            return Ok(said.to_owned());
        }
        Err(answer)
    }

    /// Asks for something that must be done.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.try_ask(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// A word of the device's status, `name=...`.
    pub(crate) fn word(&mut self, name: &str) -> String {
        word(&self.ask("status"), name)
    }

    /// A number of the device's status.
    pub(crate) fn number(&mut self, name: &str) -> u64 {
        self.word(name).parse().unwrap()
    }

    /// What the status says of one peer.
    pub(crate) fn peer(&mut self, node: &Node) -> PeerWords {
        let status = self.ask("status");
        let name = format!(" peer n-{} ", node.number);
        let (_, said) = status
            .split_once(&name)
            .unwrap_or_else(|| panic!("no {name} in {status}"));
        PeerWords {
            endpoint: word(said, "endpoint").parse().ok(),
            handshake: word(said, "handshake").parse().ok(),
            received: word(said, "received").parse().unwrap(),
            sent: word(said, "sent").parse().unwrap(),
        }
    }

    /// Ends it the hard way.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Without input it ends by itself.
        self.input = None;
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn word(said: &str, name: &str) -> String {
    let start = format!("{name}=");
    let found = said.split_whitespace().find_map(|word| word.strip_prefix(&start));
    found.unwrap_or_else(|| panic!("no {name} in {said}")).to_owned()
}

/// What a status says of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerWords {
    pub(crate) endpoint: Option<SocketAddr>,
    /// Milliseconds of the epoch.
    pub(crate) handshake: Option<u64>,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

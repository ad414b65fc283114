//! The lab itself: machines that reach each other, cuts that cut, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use scafo_lab::celld::{self, Fake};
use scafo_lab::machines::{Cut, Direction, Lab, Machine, run_within};
use scafo_lab::wait::eventually;

const LIMIT: Duration = Duration::from_secs(20);

fn ping(from: &Machine, to: Ipv4Addr) -> bool {
    from.run("ping", &["-c", "1", "-W", "0.5", &to.to_string()]).code == Some(0)
}

/// A thread that answers every connection with one line of HTTP.
fn answer_on(listener: TcpListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
    });
}

#[test]
fn machines_reach_each_other_and_not_the_host() {
    let lab = Lab::new();
    let (a, b) = (lab.add_machine("a"), lab.add_machine("b"));
    assert!(ping(&a, b.address()) && ping(&b, a.address()));
    let listener = b.listen(Ipv4Addr::UNSPECIFIED.into(), 0).unwrap();
    let address = SocketAddr::from((b.address(), listener.local_addr().unwrap().port()));
    answer_on(listener);
    assert_eq!(a.get(address, "/").unwrap().body, "hello");
    assert_eq!(a.sh(&format!("curl -s http://{address}/")).ok().stdout, "hello");
    assert!(
        b.listening()
            .iter()
            .any(|socket| socket.port == address.port() && socket.protocol == "tcp")
    );
    assert!(a.listening().is_empty());

    // What listens on the host's loopback is reached through a relay, and through nothing else.
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = host.local_addr().unwrap();
    answer_on(host);
    assert!(a.get(target, "/").is_err());
    let relay = lab.neighbour().relay(0, target);
    assert_eq!(a.get(relay.address(), "/").unwrap().body, "hello");
}

#[test]
fn cuts_cut_and_heal() {
    let lab = Lab::new();
    let (a, b, c) = (lab.add_machine("a"), lab.add_machine("b"), lab.add_machine("c"));
    a.cut_from(&b);
    assert!(!ping(&a, b.address()) && !ping(&b, a.address()));
    assert!(ping(&a, c.address()));
    a.heal();
    assert!(ping(&a, b.address()));
    b.cut(Cut::Everything);
    assert!(!ping(&a, b.address()) && !ping(&b, c.address()));
    b.heal();
    b.cut(Cut::Loss { percent: 100 });
    assert!(!ping(&a, b.address()));
    b.heal();

    let listener = b.listen(b.address().into(), 0).unwrap();
    let address = listener.local_addr().unwrap();
    b.cut(Cut::Port(address.port()));
    assert!(a.connect(address, Duration::from_millis(300)).is_err());
    assert!(ping(&a, b.address()));
    b.heal();
    a.connect(address, LIMIT).unwrap();

    // One way: what b sends no longer arrives, and b still hears.
    b.cut_one_way(Direction::Outgoing, Cut::Address(a.address().into()));
    let packets = |machine: &Machine| machine.sh("cat /sys/class/net/eth0/statistics/rx_packets").ok().stdout;
    let before = packets(&b);
    assert!(!ping(&a, b.address()));
    assert_ne!(packets(&b), before);
}

#[test]
fn a_machine_moves_and_its_state_with_it() {
    let lab = Lab::new();
    let (a, b) = (lab.add_machine("a"), lab.add_machine("b"));
    let new = Ipv4Addr::new(172, 31, 7, 200);
    a.set_address(new);
    assert!(ping(&b, new) && a.address() == new);
    fs::create_dir(a.state_dir()).unwrap();
    fs::write(a.state_dir().join("node.json"), "{}").unwrap();
    a.move_state_to(&b);
    assert!(b.state_dir().join("node.json").exists() && !a.state_dir().exists());
    a.add_address("fd31:7::1/64");
    b.add_address("fd31:7::2/64");
    a.run("ping", &["-c", "1", "-W", "2", "fd31:7::2"]).ok();
    b.disable_ipv6();
    assert_eq!(b.sh("ip -6 address show dev eth0").ok().stdout, "");
    a.add_route(&format!("10.99.0.0/16 via {}", b.address()));
    assert!(a.ip("route").stdout.contains("10.99.0.0/16"));
    a.set_mtu(1400);
    assert!(a.ip("link show eth0").stdout.contains("mtu 1400"));
}

#[test]
fn commands_of_a_machine_share_their_run_folder_with_no_other() {
    let lab = Lab::new();
    let (a, b) = (lab.add_machine("a"), lab.add_machine("b"));
    a.sh("echo here >/var/run/wireguard/scafo0.sock").ok();
    assert_eq!(a.sh("cat /run/wireguard/scafo0.sock").ok().stdout, "here\n");
    assert_eq!(b.sh("ls /run/wireguard").ok().stdout, "");
    assert!(!std::path::Path::new("/run/wireguard/scafo0.sock").exists());
}

#[test]
fn a_process_is_the_program_itself() {
    let lab = Lab::new();
    let machine = lab.add_machine("a");
    let script = "trap 'echo got it; exit 7' TERM; echo pid $$; while :; do sleep 0.02; done";
    let mut command = machine.command("sh");
    command.args(["-c", script]);
    let mut process = machine.spawn("loop", command);
    process.wait_log(LIMIT, &format!("pid {}", process.pid()));
    process.pause();
    process.terminate();
    assert!(process.is_running());
    process.resume();
    assert_eq!(process.wait_exit(LIMIT).code(), Some(7));
    assert!(process.log().contains("got it"));
}

#[test]
fn nothing_is_left_behind_also_after_a_panic() {
    let mut kept = None;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let lab = Lab::new();
        let machine = lab.add_machine("a");
        // An orphan that no value of the test knows.
        machine
            .sh("sleep 600 >/dev/null 2>&1 & sleep 600 >/dev/null 2>&1 &")
            .ok();
        let mut command = machine.command("sleep");
        command.arg("600");
        let process = machine.spawn("sleep", command);
        eventually(LIMIT, "all three sleep", || {
            (machine.processes().len() == 3).then_some(())
        });
        kept = Some((lab.prefix().to_owned(), lab.folder().to_owned(), machine.processes()));
        assert!(process.pid() == 0, "this test fails");
    }));
    assert!(outcome.is_err());
    let (prefix, folder, pids) = kept.unwrap();
    let mut list = Command::new("ip");
    list.args(["netns", "list"]);
    let namespaces = run_within(list, LIMIT).ok().stdout;
    assert!(
        !namespaces.lines().any(|line| line.starts_with(&format!("{prefix}-"))),
        "{namespaces}"
    );
    assert!(!folder.exists());
    for pid in pids {
        eventually(LIMIT, "the process is gone", || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            (stat.is_empty() || stat.contains(") Z")).then_some(())
        });
    }
}

#[test]
fn fakes_answer_as_they_are_called() {
    let folder = tempfile::tempdir().unwrap();
    let version = |kind| {
        let mut command = Command::new(celld::fake(folder.path(), kind));
        command.arg("--version");
        run_within(command, LIMIT)
    };
    assert_eq!(version(Fake::TooOld).ok().stdout, "celld 0.4.1\n");
    assert_eq!(version(Fake::PreRelease).ok().stdout, "celld 0.5.0-rc.1\n");
    assert_eq!(version(Fake::Fork).ok().stdout, "celld 0.5.1-ewhauser.1\n");
    assert_eq!(version(Fake::Silent).ok().stdout, "");
    assert!(version(Fake::Failing).exits(1).stderr.contains("CELLD_STORAGE_PROBE"));
    assert_eq!(version(Fake::Crashing).code, None);
    assert!(!celld::fake(folder.path(), Fake::Missing).exists());
}

#[test]
fn the_stand_in_serves_on_a_machine() {
    let lab = Lab::new();
    let (a, b) = (lab.add_machine("a"), lab.add_machine("b"));
    let binary = celld::standin(lab.folder(), "0.5.1");
    let bucket = format!("{}/apps/shop", lab.dir_bucket());
    let deployment = celld::deploy(&binary, &bucket, "export default {}", &[]);
    let address = SocketAddr::from((a.address(), 7400));
    let mut command = a.command(&binary);
    command.args([
        "--listen",
        &address.to_string(),
        "--internal-listen",
        &format!("{}:7401", a.address()),
    ]);
    command
        .env("CELLD_BUCKET", bucket)
        .env("CELLD_WATCH", a.folder().join("celld-state"));
    let mut process = a.spawn("celld", command);
    process.wait_log(LIMIT, "celld internal listening on");
    let answer = b.get(address, "/").unwrap();
    assert_eq!((answer.status, answer.header("x-celld-standin")), (200, Some("1")));
    assert_eq!(answer.json()["deployment"], deployment);
    celld::set_fault(&binary, "unhealthy", "");
    assert_eq!(b.get(address, "/.well-known/celld/health").unwrap().status, 503);
    celld::clear_fault(&binary, "unhealthy");
    assert_eq!(b.get(address, "/.well-known/celld/health").unwrap().status, 200);
    process.terminate();
    assert_eq!(process.wait_exit(LIMIT).code(), Some(0));
}

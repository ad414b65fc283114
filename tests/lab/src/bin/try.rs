//! The main job on this machine, in front of whoever runs it: three machines (network namespaces) and a real S3 store,
//! the two commands on each machine, and what comes of it. Leaves nothing behind. Started by `tests/try`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a demonstration that fails says so and ends"
)]

use std::path::PathBuf;
use std::time::Duration;

use scafo_lab::celld;
use scafo_lab::machines::{Lab, Process};
use scafo_lab::node::Node;
use scafo_lab::store::Store;
use scafo_lab::wait::eventually;

const MACHINES: usize = 3;

fn main() {
    let scafo = PathBuf::from(std::env::args_os().nth(1).expect("usage: try PATH-OF-SCAFO"));
    say("laying machines, a switch, and an S3 store that all of them reach");
    let lab = Lab::new();
    let store = Store::on(&lab.add_machine("store"));
    let nodes: Vec<Node> = (1..=MACHINES)
        .map(|number| {
            let machine = lab.add_machine(&format!("machine{number}"));
            let binary = celld::standin(machine.folder(), "0.6.2");
            Node::new(&machine, &scafo)
                .envs(store.env())
                .env("SCAFO_RUNTIME_BINARY", binary.display())
                .env("SCAFO_NODE_ID", machine.name())
        })
        .collect();
    let mut daemons: Vec<Process> = Vec::new();
    for node in &nodes {
        show(node, &["wg", "init"]);
        println!("{} # scafo sail &", node.machine.name());
        daemons.push(node.sail(&[]));
    }
    say("waiting for three live nodes");
    let addresses = eventually(Duration::from_secs(60), "three live nodes", || {
        let listing = nodes[0].fleet_nodes()?;
        let rows = listing["nodes"].as_array()?.clone();
        let addresses: Vec<String> = rows
            .iter()
            .filter_map(|row| Some(row["address"].as_str()?.to_owned()))
            .collect();
        (listing["live"] == MACHINES).then_some(addresses)
    });
    show(&nodes[1], &["fleet", "nodes"]);
    say("every machine reaches every tunnel address, by ping and at the API");
    for node in &nodes {
        for address in &addresses {
            let reached = eventually(Duration::from_secs(30), "a ping", || {
                let output = node.machine.run("ping", &["-c1", "-W1", address]);
                let time = output.stdout.split("time=").nth(1)?.split('\n').next()?.to_owned();
                (output.code == Some(0)).then_some(time)
            });
            let url = format!("http://{address}:7300/v1/health");
            let health = node.machine.run("curl", &["-s", "-m", "5", &url]).ok().stdout;
            println!("{} -> {address:15} ping {reached:9} {health}", node.machine.name());
        }
    }
    show(&nodes[0], &["wg", "show"]);
    say("what listens on machine1: WireGuard's UDP port on the underlay, the API inside the tunnel, nothing else");
    for socket in nodes[0].machine.listening() {
        let device = socket
            .interface
            .map(|device| format!(" on {device}"))
            .unwrap_or_default();
        println!("{} {}:{}{device}", socket.protocol, socket.address, socket.port);
    }
    say("machine3 is told to leave (SIGTERM), machine2 is cut off (SIGKILL)");
    daemons[2].terminate();
    daemons[2].wait_exit(Duration::from_secs(20));
    daemons[1].kill();
    eventually(Duration::from_secs(30), "machine2 to be stale", || {
        let row = nodes[0].row("machine2")?;
        (row["state"] == "stale").then_some(())
    });
    show(&nodes[0], &["fleet", "nodes"]);
    say("done; everything is taken down again");
}

fn say(text: &str) {
    println!("\n== {text}");
}

fn show(node: &Node, arguments: &[&str]) {
    println!("{} # scafo {}", node.machine.name(), arguments.join(" "));
    println!("{}", node.run(arguments).ok().stdout);
}

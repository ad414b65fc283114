//! `scafo wg show`: the tunnel as the running daemon has it, with the names of the peers.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::cli::output::{self, Table};
use crate::config::Config;
use crate::core::peers::Peers;
use crate::error::{Code, Error, Field, Result};
use crate::host::clock::{Clock, SystemClock};
use crate::mesh;
use crate::state::tunnel::TunnelState;
use crate::state::{StateDir, mesh_cache};

/// A peer whose last handshake is older than this is not up: WireGuard makes a new one at least every three minutes
/// (REJECT_AFTER_TIME, WireGuard paper, section 6.1).
const UP_WITHIN_MS: u64 = 180_000;

/// The tunnel.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    interface: String,
    public_key: String,
    address: String,
    network: String,
    listen_port: u16,
    mtu: Option<u32>,
    peers: Vec<ShownPeer>,
}

/// A peer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownPeer {
    id: Option<String>,
    public_key: String,
    address: String,
    endpoint: Option<SocketAddr>,
    up: bool,
    last_handshake_at: Option<u64>,
    handshake_age_ms: Option<u64>,
    rx_bytes: u64,
    tx_bytes: u64,
    keepalive_seconds: Option<u16>,
}

/// Asks the daemon, and prints what it says.
pub async fn run(config: &Config, json: bool) -> Result<()> {
    let state = StateDir::at(config.state_dir.value.clone());
    let Some(tunnel) = TunnelState::load(&state)? else {
        return Err(Error::new(Code::NotFound, "this machine has no tunnel")
            .field(Field::new("state.dir", state.path().display()))
            .help("make one: scafo wg init"));
    };
    let socket = mesh::socket(&state);
    let interface = config.wireguard.interface.value.clone();
    let told = mesh::query(&socket).await.map_err(|error| no_daemon(&socket, &error))?;
    let names = mesh_cache::load(&state)?;
    let now = SystemClock.now().wall.0;
    let mtu = std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok();
    let shown = Shown {
        public_key: tunnel.public_key_text(),
        address: tunnel.address.to_string(),
        network: tunnel.network.to_string(),
        listen_port: told.listen_port,
        mtu: mtu.and_then(|text| text.trim().parse().ok()),
        peers: peers(&told, &names, now),
        interface,
    };
    if json {
        output::print_json(&shown)
    } else {
        output::print(&render(&shown))
    }
}

fn no_daemon(socket: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::new(Code::Unauthorized, "the tunnel's socket is for its owner alone")
            .field(Field::new("socket", socket.display()))
            .help("run as the user that runs the node, or as root"),
        _ => Error::unavailable("no node runs on this state directory")
            .field(Field::new("socket", socket.display()).because(error.to_string()))
            .help("start it: scafo sail"),
    }
}

fn peers(told: &mesh::Told, names: &Peers, now: u64) -> Vec<ShownPeer> {
    let mut peers: Vec<ShownPeer> = told
        .peers
        .iter()
        .map(|peer| {
            let known = names.iter().find(|(_, known)| known.tunnel_key.0 == peer.public_key);
            let at = peer.last_handshake.and_then(millis);
            let age = at.map(|at| now.saturating_sub(at));
            ShownPeer {
                id: known.map(|(id, _)| id.to_string()),
                public_key: peer.public_key.clone(),
                address: peer.address.clone(),
                endpoint: peer.endpoint,
                up: age.is_some_and(|age| age <= UP_WITHIN_MS),
                last_handshake_at: at,
                handshake_age_ms: age,
                rx_bytes: peer.received,
                tx_bytes: peer.sent,
                keepalive_seconds: peer.keepalive,
            }
        })
        .collect();
    peers.sort_by(|one, other| (&one.id, &one.public_key).cmp(&(&other.id, &other.public_key)));
    peers
}

fn millis(at: SystemTime) -> Option<u64> {
    u64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_millis())
        .ok()
        .filter(|at| *at > 0)
}

fn render(shown: &Shown) -> String {
    let up = shown.peers.iter().filter(|peer| peer.up).count();
    let mtu = shown.mtu.map(|mtu| format!(", mtu {mtu}")).unwrap_or_default();
    let mut text = format!(
        "{} {}, udp port {}{mtu}\npublic key {}\n{} peers, {up} up\n",
        shown.interface,
        shown.address,
        shown.listen_port,
        shown.public_key,
        shown.peers.len()
    );
    if shown.peers.is_empty() {
        return text;
    }
    let mut table = Table::new(["PEER", "ADDRESS", "ENDPOINT", "HANDSHAKE", "RECEIVED", "SENT"]);
    for peer in &shown.peers {
        table.row([
            peer.id.clone().unwrap_or_else(|| peer.public_key.clone()),
            peer.address.clone(),
            peer.endpoint
                .map_or_else(|| "-".to_owned(), |endpoint| endpoint.to_string()),
            peer.handshake_age_ms
                .map_or_else(|| "never".to_owned(), |age| format!("{} ago", output::age(age))),
            output::bytes(peer.rx_bytes),
            output::bytes(peer.tx_bytes),
        ]);
    }
    text.push('\n');
    text + &table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_this() {
        let peer = |id: &str, handshake: Option<u64>| ShownPeer {
            id: Some(id.into()),
            public_key: "key".into(),
            address: "10.88.0.2".into(),
            endpoint: handshake.map(|_| "172.31.0.2:51820".parse().unwrap()),
            up: handshake.is_some_and(|age| age < UP_WITHIN_MS),
            last_handshake_at: None,
            handshake_age_ms: handshake,
            rx_bytes: 123_456,
            tx_bytes: 99,
            keepalive_seconds: Some(25),
        };
        let shown = Shown {
            interface: "scafo0".into(),
            public_key: "PUBLIC".into(),
            address: "10.88.0.1".into(),
            network: "10.88.0.0/16".into(),
            listen_port: 51_820,
            mtu: Some(1_420),
            peers: vec![peer("ams-1", Some(42_000)), peer("fra-1", None)],
        };
        insta::assert_snapshot!(render(&shown));
    }
}

//! A device driven by lines on standard input, one answer each: for the tests in network namespaces, for measuring, and
//! for looking at the data plane without the rest of Scafo.
//!
//! ```text
//! check NETWORK INTERFACE                    refuse a mesh network that a route of the host's overlaps
//! open INTERFACE KEY PORT NETWORK MTU|-      open the device; KEY is base64, as `wg genkey` prints it
//! address ADDRESS                            give the interface its address
//! guard ADDRESS                              install the guard
//! peer NAME KEY ALLOWED ENDPOINTS|- KEEPALIVE|-   add or change a peer; lists are separated by commas
//! unpeer NAME                                remove a peer
//! status                                     what the device says of itself, in one line
//! uapi PATH                                  answer `wg show` there
//! mend                                       compare with what should be, and mend
//! close                                      close the device
//! ```
//!
//! An answer begins with `ok` or `error`.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::UNIX_EPOCH;

use scafo_wg::{Device, DeviceConfig, PeerConfig, PrivateKey, PublicKey};
use x25519_dalek::StaticSecret;

type Failure = Box<dyn std::error::Error>;

/// A device and the peers that it was told.
#[derive(Default)]
struct Driven {
    device: Option<Device>,
    peers: BTreeMap<String, PeerConfig>,
}

/// Reads lines until there are no more, or until a device is closed.
pub(crate) fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    let mut driven = Driven::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match runtime.block_on(driven.obey(&words)) {
            Ok(said) => format!("ok {said}"),
            Err(failure) => format!("error {failure:?}: {failure}"),
        };
        let mut out = std::io::stdout().lock();
        // Whoever does not listen any more will close the input too.
        let _ = writeln!(out, "\n{}", answer.replace('\n', " "));
        let _ = out.flush();
        if words == ["close"] {
            break;
        }
    }
}

impl Driven {
    fn device(&self) -> Result<&Device, Failure> {
        self.device.as_ref().ok_or_else(|| "no device is open".into())
    }

    async fn obey(&mut self, words: &[&str]) -> Result<String, Failure> {
        match *words {
            ["check", network, interface] => Device::check_overlap(network.parse()?, interface).await?,
            ["open", interface, key, port, network, mtu] => {
                let config = DeviceConfig {
                    interface: interface.to_owned(),
                    // A private key is 32 bytes in base64, like a public one.
                    private_key: PrivateKey::from(StaticSecret::from(*key.parse::<PublicKey>()?.as_bytes())),
                    listen_port: port.parse()?,
                    mtu: (mtu != "-").then(|| mtu.parse()).transpose()?,
                    network: network.parse()?,
                };
                let public = config.private_key.public();
                let device = Device::open(config).await?;
                let said = format!("key={public} port={}", device.listen_port());
                self.device = Some(device);
                return Ok(said);
            }
            ["address", address] => self.device()?.set_address(address.parse()?).await?,
            ["guard", address] => self.device()?.install_guard(address.parse()?).await?,
            ["peer", name, key, allowed, endpoints, keepalive] => {
                let list = |text: &str| -> Vec<String> {
                    let some = text.split(',').filter(|part| *part != "-");
                    some.map(str::to_owned).collect()
                };
                let allowed_ips = list(allowed).iter().map(|net| net.parse()).collect::<Result<_, _>>()?;
                let peer = PeerConfig {
                    name: name.to_owned(),
                    public_key: key.parse()?,
                    allowed_ips,
                    endpoints: list(endpoints),
                    keepalive: (keepalive != "-").then(|| keepalive.parse()).transpose()?,
                };
                self.peers.insert(name.to_owned(), peer);
                return self.set_peers();
            }
            ["unpeer", name] => {
                self.peers.remove(name);
                return self.set_peers();
            }
            ["status"] => return Ok(status(self.device()?)),
            ["uapi", path] => self.device()?.serve_uapi(Path::new(path))?,
            ["mend"] => return Ok(self.device()?.mend().await?.join(", ")),
            ["close"] => {
                self.device()?.close().await;
                self.device = None;
            }
            _ => return Err("what is that?".into()),
        }
        Ok(String::new())
    }

    fn set_peers(&self) -> Result<String, Failure> {
        let changes = self.device()?.set_peers(self.peers.values().cloned());
        let names = |peers: &[PeerConfig]| -> String {
            let names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
            names.join(",")
        };
        Ok(format!(
            "add={} amend={} remove={}",
            names(&changes.add),
            names(&changes.amend),
            changes.remove.join(",")
        ))
    }
}

/// One line: words of the device first, then `peer NAME` and the words of that peer, and so on.
fn status(device: &Device) -> String {
    let status = device.status();
    let mut said = format!("port={} mtu={} {}", status.listen_port, status.mtu, status.counters);
    for peer in status.peers {
        let handshake = peer
            .last_handshake
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
            .map_or("-".to_owned(), |at| at.as_millis().to_string());
        let endpoint = peer.endpoint.map_or("-".to_owned(), |endpoint| endpoint.to_string());
        said += &format!(
            " peer {} endpoint={endpoint} handshake={handshake} received={} sent={}",
            peer.name, peer.received, peer.sent
        );
    }
    said
}

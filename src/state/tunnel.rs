//! `wireguard.json`: the tunnel's key, its address, and how it is reached (design, sections 3 and 10).

use std::fmt;
use std::net::IpAddr;

use data_encoding::BASE64;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::{Zeroize, Zeroizing};

use super::StateDir;
use crate::core::address::derive_address;
use crate::error::{Error, Field, Result};
use crate::host::random;

const FILE: &str = "wireguard.json";

/// The tunnel of this node.
#[derive(Clone)]
pub struct TunnelState {
    // Wipes itself when dropped.
    private_key: StaticSecret,
    /// The tunnel address.
    pub address: IpAddr,
    /// Whether the operator chose it. A derived one moves on when it turns out to be taken.
    pub stated: bool,
    /// Whether a boot has claimed it in the fleet; from then on it never changes.
    pub claimed: bool,
    /// The mesh network.
    pub network: IpNet,
    /// The UDP port that `scafo wg init` was told.
    pub listen_port: Option<u16>,
    /// Underlay endpoints that `scafo wg init` was told.
    pub endpoints: Vec<String>,
}

/// What `scafo wg init` was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The tunnel address, when the operator chose one.
    pub address: Option<IpAddr>,
    /// The mesh network.
    pub network: IpNet,
    /// The UDP port, when the operator chose one.
    pub listen_port: Option<u16>,
    /// Underlay endpoints.
    pub endpoints: Vec<String>,
}

/// The file, as written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    public_key: String,
    private_key: String,
    address: IpAddr,
    stated: bool,
    claimed: bool,
    network: IpNet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listen_port: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    endpoints: Vec<String>,
}

impl Drop for File {
    fn drop(&mut self) {
        self.private_key.zeroize();
    }
}

impl fmt::Debug for TunnelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let public = self.public_key_text();
        write!(
            f,
            "TunnelState({}, {}…)",
            self.address,
            public.get(..8).unwrap_or_default()
        )
    }
}

impl TunnelState {
    /// The tunnel in `state`; `None` before `scafo wg init`.
    pub fn load(state: &StateDir) -> Result<Option<Self>> {
        let Some(file) = state.read::<File>(FILE)? else {
            return Ok(None);
        };
        let wrong = |reason: &str| state.unreadable(FILE, reason);
        let secret = state.secret(FILE, &file.private_key)?;
        let tunnel = Self {
            private_key: StaticSecret::from(*secret),
            address: file.address,
            stated: file.stated,
            claimed: file.claimed,
            network: file.network.trunc(),
            listen_port: file.listen_port,
            endpoints: file.endpoints.clone(),
        };
        if tunnel.public_key_text() != file.public_key {
            return Err(wrong("publicKey does not belong to privateKey"));
        }
        if !tunnel.network.contains(&tunnel.address) {
            return Err(wrong("address is not in network"));
        }
        Ok(Some(tunnel))
    }

    /// Makes the tunnel's key and chooses its address. Refuses to overwrite one that is there.
    pub fn init(state: &StateDir, wanted: Wanted) -> Result<Self> {
        if let Some(there) = Self::load(state)? {
            return Err(Error::conflict("this machine has a tunnel key already")
                .field(Field::new(FILE, state.join(FILE).display()))
                .field(Field::new("address", there.address))
                .help("join the mesh with it: scafo sail")
                .help("or replace the key and keep the address: scafo wg init --rotate"));
        }
        let network = wanted.network.trunc();
        let private_key = new_key()?;
        let key = PublicKey::from(&private_key);
        let address = match wanted.address {
            Some(address) => checked(address, network)?,
            None => derive_address(key.as_bytes(), network, 0),
        };
        let tunnel = Self {
            private_key,
            address,
            stated: wanted.address.is_some(),
            claimed: false,
            network,
            listen_port: wanted.listen_port,
            endpoints: wanted.endpoints,
        };
        state.create()?;
        tunnel.save(state)?;
        Ok(tunnel)
    }

    /// Replaces the key and keeps everything else, the address above all. An address that was derived from the old key
    /// stays as it is too: the fleet knows the node by it.
    pub fn rotate(state: &StateDir) -> Result<Self> {
        let Some(mut tunnel) = Self::load(state)? else {
            return Err(Error::new(
                crate::error::Code::NotFound,
                "this machine has no tunnel key to replace",
            )
            .field(Field::new(FILE, state.join(FILE).display()))
            .help("make one: scafo wg init"));
        };
        tunnel.private_key = new_key()?;
        tunnel.save(state)?;
        Ok(tunnel)
    }

    /// A fresh key, and with it a fresh derived address, for a machine that has become another node: the fleet knows the
    /// old key and the old address as those of the node that it was.
    pub fn renew(&self, state: &StateDir) -> Result<Self> {
        let private_key = new_key()?;
        let derived = derive_address(PublicKey::from(&private_key).as_bytes(), self.network, 0);
        let address = if self.stated { self.address } else { derived };
        let renewed = Self {
            private_key,
            address,
            claimed: false,
            ..self.clone()
        };
        renewed.save(state)?;
        Ok(renewed)
    }

    /// Remembers that the fleet knows this node by `address`.
    pub fn save_claim(&self, state: &StateDir, address: IpAddr) -> Result<()> {
        Self {
            address,
            claimed: true,
            ..self.clone()
        }
        .save(state)
    }

    fn save(&self, state: &StateDir) -> Result<()> {
        let file = File {
            public_key: self.public_key_text(),
            private_key: BASE64.encode(self.private_key.as_bytes()),
            address: self.address,
            stated: self.stated,
            claimed: self.claimed,
            network: self.network,
            listen_port: self.listen_port,
            endpoints: self.endpoints.clone(),
        };
        state.write_json(FILE, &file)
    }

    /// The X25519 private key.
    pub fn private_key(&self) -> &StaticSecret {
        &self.private_key
    }

    /// The X25519 public key.
    pub fn public_key(&self) -> [u8; 32] {
        PublicKey::from(&self.private_key).to_bytes()
    }

    /// The same in base64, as WireGuard prints keys.
    pub fn public_key_text(&self) -> String {
        BASE64.encode(&self.public_key())
    }
}

fn new_key() -> Result<StaticSecret> {
    let secret = Zeroizing::new(random::bytes::<32>()?);
    Ok(StaticSecret::from(*secret))
}

fn checked(address: IpAddr, network: IpNet) -> Result<IpAddr> {
    let usable = network.contains(&address) && address != network.network() && address != network.broadcast();
    if usable {
        return Ok(address);
    }
    Err(Error::invalid("the tunnel address is not one of the mesh network")
        .field(
            Field::new("address", address)
                .from("--address")
                .because(format!("the mesh network is {network}")),
        )
        .help(format!(
            "choose an address in {network}, or leave --address out and one is derived from the key"
        )))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::error::Code;

    fn wanted() -> Wanted {
        Wanted {
            address: None,
            network: "10.88.0.0/16".parse().unwrap(),
            listen_port: None,
            endpoints: Vec::new(),
        }
    }

    fn state() -> (tempfile::TempDir, StateDir) {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path().join("state"));
        (folder, state)
    }

    #[test]
    fn a_tunnel_comes_back_and_is_never_overwritten() {
        let (_folder, state) = state();
        assert!(TunnelState::load(&state).unwrap().is_none());
        let made = TunnelState::init(&state, wanted()).unwrap();
        assert!(made.network.contains(&made.address) && !made.claimed && !made.stated);
        let error = TunnelState::init(&state, wanted()).unwrap_err();
        assert_eq!(error.code, Code::Conflict);
        let back = TunnelState::load(&state).unwrap().unwrap();
        assert_eq!((back.public_key(), back.address), (made.public_key(), made.address));
    }

    #[test]
    fn rotation_keeps_the_address() {
        let (_folder, state) = state();
        assert_eq!(TunnelState::rotate(&state).unwrap_err().code, Code::NotFound);
        let made = TunnelState::init(&state, wanted()).unwrap();
        made.save_claim(&state, "10.88.7.7".parse().unwrap()).unwrap();
        let rotated = TunnelState::rotate(&state).unwrap();
        assert_ne!(rotated.public_key(), made.public_key());
        assert_eq!(rotated.address.to_string(), "10.88.7.7");
        assert!(rotated.claimed);
    }

    #[test]
    fn another_node_on_the_same_machine_starts_with_a_fresh_key() {
        let (_folder, state) = state();
        let made = TunnelState::init(&state, wanted()).unwrap();
        made.save_claim(&state, made.address).unwrap();
        let renewed = TunnelState::load(&state).unwrap().unwrap().renew(&state).unwrap();
        assert_ne!(renewed.public_key(), made.public_key());
        assert_ne!(renewed.address, made.address);
        assert!(!renewed.claimed);
        let back = TunnelState::load(&state).unwrap().unwrap();
        assert_eq!(back.public_key(), renewed.public_key());
    }

    #[test]
    fn a_stated_address_has_to_be_in_the_network() {
        let (_folder, state) = state();
        for bad in ["10.89.0.1", "10.88.0.0", "10.88.255.255", "fd00::1"] {
            let wanted = Wanted {
                address: Some(bad.parse().unwrap()),
                ..wanted()
            };
            assert_eq!(
                TunnelState::init(&state, wanted).unwrap_err().code,
                Code::InvalidInput,
                "{bad}"
            );
        }
        assert!(!state.path().exists(), "nothing is made on a refusal");
        let wanted = Wanted {
            address: Some("10.88.0.9".parse().unwrap()),
            ..wanted()
        };
        assert!(TunnelState::init(&state, wanted).unwrap().stated);
    }

    #[test]
    fn a_file_cut_at_any_byte_is_refused_and_kept() {
        let (_folder, state) = state();
        TunnelState::init(&state, wanted()).unwrap();
        let whole = fs::read(state.join(FILE)).unwrap();
        for cut in 0..whole.len() {
            fs::write(state.join(FILE), &whole[..cut]).unwrap();
            assert_eq!(
                TunnelState::init(&state, wanted()).unwrap_err().code,
                Code::InvalidInput,
                "{cut}"
            );
            assert_eq!(
                TunnelState::rotate(&state).unwrap_err().code,
                Code::InvalidInput,
                "{cut}"
            );
            assert_eq!(fs::read(state.join(FILE)).unwrap(), &whole[..cut]);
        }
    }
}

//! `scafo wg init`: makes the tunnel key, says the tunnel address, and what to do next.

use std::net::IpAddr;

use serde::Serialize;

use crate::cli::output;
use crate::config::{Loaded, Origin, checked_endpoint};
use crate::error::{Error, Field, Result};
use crate::state::StateDir;
use crate::state::tunnel::{TunnelState, Wanted};

/// What was asked for on the command line, apart from settings.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The tunnel address, when the operator chose one.
    pub address: Option<IpAddr>,
    /// Underlay endpoints.
    pub endpoints: Vec<String>,
    /// Whether the key is to be replaced.
    pub rotate: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made<'a> {
    public_key: String,
    address: IpAddr,
    network: String,
    state_dir: &'a str,
    /// A derived address moves on when another node turns out to have it.
    address_is_final: bool,
}

/// Makes or replaces the key, and prints what came of it.
pub fn run(loaded: Loaded, asked: Asked, json: bool) -> Result<()> {
    let config = loaded.require()?;
    let state = StateDir::at(config.state_dir.value.clone());
    let wrong: Vec<Field> = asked
        .endpoints
        .iter()
        .filter_map(|endpoint| {
            let reason = checked_endpoint(endpoint).err()?;
            Some(Field::new("endpoint", endpoint).from("--endpoint").because(reason))
        })
        .collect();
    if !wrong.is_empty() {
        return Err(Error::invalid("an underlay endpoint is wrong").fields(wrong));
    }
    let tunnel = if asked.rotate {
        TunnelState::rotate(&state)?
    } else {
        let port = &config.wireguard.listen_port;
        let wanted = Wanted {
            address: asked.address,
            network: config.network.value,
            listen_port: (port.origin != Origin::Default).then_some(port.value),
            endpoints: asked.endpoints,
        };
        TunnelState::init(&state, wanted)?
    };
    let made = Made {
        public_key: tunnel.public_key_text(),
        address: tunnel.address,
        network: tunnel.network.to_string(),
        state_dir: &state.path().to_string_lossy(),
        address_is_final: tunnel.stated || tunnel.claimed,
    };
    if json {
        return output::print_json(&made);
    }
    let next = if asked.rotate {
        "restart the node, and its peers follow"
    } else {
        "join the mesh with: scafo sail"
    };
    let derived = if made.address_is_final {
        ""
    } else {
        " (derived from the key; claimed at the first boot)"
    };
    output::print(&format!(
        "public key      {}\ntunnel address  {}{derived}\nmesh network    {}\nkept in         {}\n\nnext: {next}\n",
        made.public_key, made.address, made.network, made.state_dir
    ))
}

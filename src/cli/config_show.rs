//! `scafo config show`: every effective setting, and where it came from.

use serde::Serialize;

use crate::cli::output::{self, Table};
use crate::config::transport::{self, TunnelFacts};
use crate::config::{Config, Loaded, Origin};
use crate::error::Result;
use crate::host::addresses;
use crate::state::StateDir;
use crate::state::tunnel::TunnelState;

#[derive(Serialize)]
struct Line {
    key: &'static str,
    value: Option<String>,
    origin: String,
}

/// Prints the settings. Faults are an error, as they would be at boot.
pub fn run(loaded: Loaded, json: bool) -> Result<()> {
    let config = loaded.require()?;
    let lines = lines(&config);
    if json {
        return output::print_json(&lines);
    }
    let mut table = Table::new(["SETTING", "VALUE", "FROM"]);
    for line in lines {
        table.row([
            line.key.to_owned(),
            line.value.unwrap_or_else(|| "-".to_owned()),
            line.origin,
        ]);
    }
    output::print(&table.to_string())
}

fn lines(config: &Config) -> Vec<Line> {
    let implied = implied(config);
    let line = |effective: &crate::config::Effective| {
        let follows = implied
            .iter()
            .find(|(key, _, _)| *key == effective.key)
            .filter(|_| effective.value.is_none());
        match follows {
            Some((key, value, why)) => Line {
                key,
                value: Some(value.clone()),
                origin: why.clone(),
            },
            None => Line {
                key: effective.key,
                value: effective.value.clone(),
                origin: effective.origin.to_string(),
            },
        }
    };
    config.effective.iter().map(line).collect()
}

/// What nobody stated and what follows from the rest: the fields of the transport, and the bucket of a node on its own.
fn implied(config: &Config) -> Vec<(&'static str, String, String)> {
    let state = StateDir::at(config.state_dir.value.clone());
    // A tunnel that cannot be read is for `sail` to refuse; here it only means that nothing follows from it.
    let tunnel = TunnelState::load(&state).ok().flatten();
    let facts = tunnel.map(|tunnel| TunnelFacts {
        address: tunnel.address,
        network: tunnel.network,
    });
    let Ok(exposure) = transport::resolve(config, facts, &addresses::all()) else {
        return Vec::new();
    };
    let why = format!("transport {}", exposure.transport);
    let mut implied = vec![
        (
            "node.transport",
            exposure.transport.to_string(),
            Origin::Default.to_string(),
        ),
        ("node.address", exposure.address.to_string(), why.clone()),
        ("api.host", exposure.api_host.to_string(), why.clone()),
        ("runtime.bindHost", exposure.runtime_host.to_string(), why.clone()),
    ];
    if config.bucket.url.value.is_none() {
        implied.push(("bucket.url", config.bucket_url().to_string(), why));
    }
    implied
}

//! Which addresses a node exposes, and by what network (design, section 5). The centre of the design: a node that can be
//! reached from beyond loopback has to say by what network, and exposes nothing that this network does not carry.
//!
//! Pure: the tunnel and this host's addresses are given.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::{Config, Fault, Faults, Sourced};
use crate::core::types::Transport;
use crate::error::{Error, Field, Result};

/// What is known of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelFacts {
    /// The tunnel address.
    pub address: IpAddr,
    /// The mesh network.
    pub network: IpNet,
}

/// What a node exposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// By what network.
    pub transport: Transport,
    /// Where the API listens.
    pub api_host: IpAddr,
    /// What the node registers.
    pub address: IpAddr,
    /// Where runtimes listen.
    pub runtime_host: IpAddr,
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Rather than `::`, since a host with IPv6 disabled cannot bind that.
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

const EXPOSED: &str = "this node could be reached from beyond loopback and does not say by what network";
const OUTSIDE_TUNNEL: &str = "with the wireguard transport a node is its tunnel address and nothing else";
const NO_TUNNEL: &str = "the wireguard transport needs a tunnel key, and this machine has none";
const NO_ADDRESS: &str = "the private transport registers this host's address on that network";
const NO_BUCKET: &str = "a node that others can reach needs a bucket that they can reach too";

/// One of the three fields that decide what a node exposes.
struct Stated<'a> {
    key: &'static str,
    sourced: &'a Sourced<Option<String>>,
}

impl Stated<'_> {
    /// The address that was stated: `None` when nothing was, an error when it is none.
    fn address(&self) -> Option<Result<IpAddr, &'static str>> {
        let text = self.sourced.value.as_ref()?;
        Some(
            text.parse::<IpAddr>()
                .map(|address| address.to_canonical())
                .map_err(|_| "it is not an IP address"),
        )
    }

    fn fault(&self, summary: &'static str, reason: impl Into<String>, help: Option<String>) -> Fault {
        let value = self.sourced.value.as_deref().unwrap_or("unset");
        let field = Field::new(self.key, value).from(&self.sourced.origin).because(reason);
        Fault { summary, field, help }
    }
}

/// Decides what the node exposes, or names every field that it must not. `tunnel` is what `wireguard.json` says, where
/// there is one that can be read; `host` are this machine's addresses.
pub fn resolve(config: &Config, tunnel: Option<TunnelFacts>, host: &[IpAddr]) -> Result<Exposure, Faults> {
    let unstated = if tunnel.is_some() {
        Transport::Wireguard
    } else {
        Transport::Loopback
    };
    let transport = config.node.transport.value.unwrap_or(unstated);
    let api = Stated {
        key: "api.host",
        sourced: &config.api.host,
    };
    let address = Stated {
        key: "node.address",
        sourced: &config.node.address,
    };
    let runtime = Stated {
        key: "runtime.bindHost",
        sourced: &config.runtime.bind_host,
    };
    let mut faults = Faults::default();
    let exposure = match transport {
        Transport::Loopback => loopback(&[api, address, runtime], &mut faults),
        Transport::Wireguard => wireguard(config, tunnel, &[api, address, runtime], &mut faults),
        Transport::Private => private(&api, &address, &runtime, host, &mut faults),
    };
    if transport != Transport::Loopback && config.bucket.url.value.is_none() {
        let field = Field::new("bucket.url", "unset").from(&config.bucket.url.origin);
        let help = Some("name it: --bucket s3://NAME, or SCAFO_BUCKET".to_owned());
        faults.add(Fault {
            summary: NO_BUCKET,
            field,
            help,
        });
    }
    match exposure {
        Some(exposure) if faults == Faults::default() => Ok(exposure),
        _ => Err(faults),
    }
}

fn loopback(fields: &[Stated<'_>; 3], faults: &mut Faults) -> Option<Exposure> {
    let help = "say by what network: --transport wireguard after scafo wg init, or --transport private with --address";
    let mut resolved = [LOOPBACK; 3];
    for (field, resolved) in fields.iter().zip(&mut resolved) {
        match field.address() {
            None => {}
            Some(Ok(address)) if address.is_loopback() => *resolved = address,
            Some(Ok(_)) => faults.add(field.fault(EXPOSED, "it reaches beyond loopback", Some(help.to_owned()))),
            Some(Err(reason)) => faults.add(field.fault("a setting is wrong", reason, None)),
        }
    }
    let [api_host, address, runtime_host] = resolved;
    Some(Exposure {
        transport: Transport::Loopback,
        api_host,
        address,
        runtime_host,
    })
}

fn wireguard(
    config: &Config,
    tunnel: Option<TunnelFacts>,
    fields: &[Stated<'_>; 3],
    faults: &mut Faults,
) -> Option<Exposure> {
    if tunnel.is_none() {
        let field = Field::new("node.transport", Transport::Wireguard)
            .from(&config.node.transport.origin)
            .because(format!(
                "there is no wireguard.json in {}",
                config.state_dir.value.display()
            ));
        faults.add(Fault {
            summary: NO_TUNNEL,
            field,
            help: Some("make the key: scafo wg init".to_owned()),
        });
    }
    if let Some(TunnelFacts { network, .. }) = tunnel
        && config.network.origin != super::Origin::Default
        && config.network.value.trunc() != network.trunc()
    {
        let field = Field::new("fleet.network", config.network.value)
            .from(&config.network.origin)
            .because(format!("wireguard.json is for {network}"));
        let help =
            Some("leave fleet.network out, or make the tunnel anew in the right network: scafo wg init".to_owned());
        faults.add(Fault {
            summary: "this machine's tunnel is for another mesh network",
            field,
            help,
        });
    }
    for field in fields {
        let help = Some(format!("leave {} out: it follows the tunnel", field.key));
        match (field.address(), tunnel) {
            (None, _) => {}
            (Some(Err(reason)), _) => faults.add(field.fault("a setting is wrong", reason, None)),
            (Some(Ok(stated)), Some(tunnel)) if stated == tunnel.address => {}
            (Some(Ok(_)), Some(tunnel)) => {
                let reason = format!("it is not the tunnel address {}", tunnel.address);
                faults.add(field.fault(OUTSIDE_TUNNEL, reason, help));
            }
            // Without a tunnel there is nothing to compare with, but these are no tunnel address of anybody's.
            (Some(Ok(stated)), None) if stated.is_loopback() || stated.is_unspecified() => {
                faults.add(field.fault(OUTSIDE_TUNNEL, "it is no tunnel address", help));
            }
            (Some(Ok(_)), None) => {}
        }
    }
    tunnel.map(|TunnelFacts { address, .. }| Exposure {
        transport: Transport::Wireguard,
        api_host: address,
        address,
        runtime_host: address,
    })
}

fn private(
    api: &Stated<'_>,
    address: &Stated<'_>,
    runtime: &Stated<'_>,
    host: &[IpAddr],
    faults: &mut Faults,
) -> Option<Exposure> {
    let registered = match address.address() {
        None => {
            let fault = address.fault(
                NO_ADDRESS,
                "it is not stated",
                Some("state it: --address IP".to_owned()),
            );
            faults.add(fault);
            None
        }
        Some(Err(_)) => {
            faults.add(address.fault(
                "a setting is wrong",
                "it is a name or no address at all; an address is registered",
                None,
            ));
            None
        }
        Some(Ok(stated)) => match unusable(stated, host) {
            None => Some(stated),
            Some(reason) => {
                faults.add(address.fault("the address to register cannot be one of this node's", reason, None));
                None
            }
        },
    };
    let mut bind = |field: &Stated<'_>| match field.address() {
        None => ANY,
        Some(Ok(stated)) if stated.is_unspecified() || registered.is_none_or(|registered| registered == stated) => {
            stated
        }
        Some(Ok(_)) => {
            faults.add(field.fault(
                "a node listens where it says that it can be reached",
                "it is neither 0.0.0.0 nor node.address",
                Some(format!("leave {} out: 0.0.0.0 serves every address", field.key)),
            ));
            ANY
        }
        Some(Err(reason)) => {
            faults.add(field.fault("a setting is wrong", reason, None));
            ANY
        }
    };
    let (api_host, runtime_host) = (bind(api), bind(runtime));
    registered.map(|address| Exposure {
        transport: Transport::Private,
        api_host,
        address,
        runtime_host,
    })
}

/// Why nobody can be reached at this address, or not at this host.
fn unusable(address: IpAddr, host: &[IpAddr]) -> Option<&'static str> {
    let reason = match address {
        address if address.is_unspecified() => "it is a wildcard",
        address if address.is_loopback() => "it is loopback, where only this machine is",
        address if address.is_multicast() => "it is multicast",
        address if is_documentation(address) => "it is an address of documentation",
        IpAddr::V4(v4) if v4.is_broadcast() => "it is broadcast",
        IpAddr::V4(v4) if v4.octets()[0] == 0 => "it is in 0.0.0.0/8, which no host has",
        address if !host.contains(&address) => "this host does not have it",
        _ => return None,
    };
    Some(reason)
}

/// RFC 5737, RFC 3849 and RFC 9637.
fn is_documentation(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_documentation(),
        IpAddr::V6(v6) => {
            let segments = v6.segments();
            (segments[0] == 0x2001 && segments[1] == 0xdb8) || (segments[0] == 0x3fff && segments[1] < 0x1000)
        }
    }
}

/// Where this machine itself dials what is bound to `bind`: a wildcard on loopback, everything else as it was bound.
pub fn dial_local(bind: SocketAddr) -> SocketAddr {
    let ip = match bind.ip() {
        IpAddr::V4(v4) if v4.is_unspecified() => LOOPBACK,
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        specific => specific,
    };
    SocketAddr::new(ip, bind.port())
}

impl Exposure {
    /// Where the API binds. A mesh node's address is final only once it is claimed, so it is given.
    pub fn api_at(&self, address: IpAddr, port: u16) -> SocketAddr {
        let host = if self.transport == Transport::Wireguard {
            address
        } else {
            self.api_host
        };
        SocketAddr::new(host, port)
    }

    /// Refuses listening addresses, as read back from the sockets, that the transport does not allow.
    pub fn check_bound(&self, address: IpAddr, bound: &[SocketAddr]) -> Result<()> {
        let allowed = self.api_at(address, 0).ip();
        let wrong: Vec<Field> = bound
            .iter()
            .filter(|bound| bound.ip().to_canonical() != allowed.to_canonical())
            .map(|bound| Field::new("api.host", bound).because(format!("{} allows {allowed} alone", self.transport)))
            .collect();
        if wrong.is_empty() && !bound.is_empty() {
            return Ok(());
        }
        Err(Error::internal("the API listens where its transport does not allow it").fields(wrong))
    }
}

#[cfg(test)]
mod tests;

//! Where other nodes may reach this node's WireGuard socket: what the operator stated, else the address that packets
//! to the bucket leave from (design, section 10). Looked up again and again, since machines move.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use crate::host::addresses;

/// How long a name may take to resolve.
const RESOLVE_LIMIT: Duration = Duration::from_secs(3);

/// What endpoints follow from.
#[derive(Clone, Debug)]
pub(super) struct Endpoints {
    /// As the operator stated them; published as they are.
    pub(super) stated: Vec<String>,
    /// Host and port of the bucket, where it is on the network.
    pub(super) bucket: Option<(String, u16)>,
    /// The WireGuard socket's port.
    pub(super) port: u16,
    /// The mesh network: an address inside it is no underlay.
    pub(super) network: IpNet,
    /// The tunnel's interface.
    pub(super) interface: String,
}

impl Endpoints {
    /// What to publish now; may be empty on a machine that has no address at all.
    pub(super) async fn current(&self) -> Vec<String> {
        if !self.stated.is_empty() {
            return self.stated.clone();
        }
        let towards_bucket = match &self.bucket {
            Some((host, port)) => resolve(host, *port)
                .await
                .into_iter()
                .find_map(addresses::source_towards),
            None => None,
        };
        // A bucket on this very machine says nothing about how others reach it.
        let usable = |address: &IpAddr| !address.is_loopback() && !self.network.contains(address);
        let address = towards_bucket
            .filter(usable)
            .or_else(|| addresses::outward(&self.interface))
            .filter(usable);
        address
            .map(|address| SocketAddr::new(address, self.port).to_string())
            .into_iter()
            .collect()
    }
}

async fn resolve(host: &str, port: u16) -> Vec<SocketAddr> {
    match tokio::time::timeout(RESOLVE_LIMIT, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(found)) => found.collect(),
        _ => Vec::new(),
    }
}

/// The host and port of an address like `https://s3.example:9000/`.
pub(super) fn host_and_port(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let usual = if scheme == "http" { 80 } else { 443 };
    if let Some(inner) = authority.strip_prefix('[') {
        let (host, port) = inner.split_once(']')?;
        return Some((
            host.to_owned(),
            port.strip_prefix(':').map_or(Some(usual), |port| port.parse().ok())?,
        ));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => Some((host.to_owned(), port.parse().ok()?)),
        None => Some((authority.to_owned(), usual)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_s_host_and_port_are_read() {
        let read = |url| host_and_port(url).map(|(host, port)| format!("{host} {port}"));
        assert_eq!(read("https://s3.example").as_deref(), Some("s3.example 443"));
        assert_eq!(read("http://172.31.0.1:8333/x").as_deref(), Some("172.31.0.1 8333"));
        assert_eq!(read("http://[fd00::1]:9000").as_deref(), Some("fd00::1 9000"));
        assert_eq!(read("https://[fd00::1]").as_deref(), Some("fd00::1 443"));
        assert_eq!(read("nonsense"), None);
    }

    #[tokio::test]
    async fn stated_endpoints_are_published_as_they_are() {
        let endpoints = Endpoints {
            stated: vec!["node.example:51820".into()],
            bucket: None,
            port: 51_820,
            network: "10.88.0.0/16".parse().unwrap(),
            interface: "scafo0".into(),
        };
        assert_eq!(endpoints.current().await, ["node.example:51820"]);
    }
}

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
            Some((host, port)) => resolve(host, *port).await.into_iter().find_map(addresses::source_towards),
            None => None,
        };
        // A bucket on this very machine says nothing about how others reach it.
        let usable = |address: &IpAddr| !address.is_loopback() && !self.network.contains(address);
        let address = towards_bucket.filter(usable).or_else(|| addresses::outward(&self.interface)).filter(usable);
        address.map(|address| SocketAddr::new(address, self.port).to_string()).into_iter().collect()
    }
}

async fn resolve(host: &str, port: u16) -> Vec<SocketAddr> {
    match tokio::time::timeout(RESOLVE_LIMIT, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(found)) => found.collect(),
        _ => Vec::new(),
    }
}

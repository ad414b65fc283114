//! What can go wrong when a device is set up, in terms of who has to do something about it.

use std::io;

use ipnet::IpNet;

/// Why a device cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `/dev/net/tun` is not there.
    #[error("this machine has no /dev/net/tun")]
    NoTun,
    /// The process may not make interfaces.
    #[error("this process may not make a TUN interface")]
    NotPermitted,
    /// The interface is there and is not a TUN that can be taken over.
    #[error("the interface {0} exists and is not a leftover that can be taken over")]
    InterfaceTaken(String),
    /// Somebody else has the UDP port.
    #[error("something else uses UDP port {0}")]
    PortTaken(u16),
    /// The system refused for another reason.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why the interface cannot have its address.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// A route of the host's overlaps the mesh network.
    #[error("the route {route} by {interface} overlaps the mesh network {network}")]
    RouteOverlap {
        /// The mesh network.
        network: IpNet,
        /// The host's route.
        route: IpNet,
        /// The interface that it leaves by.
        interface: String,
    },
    /// The interface is gone.
    #[error("the interface {0} is gone")]
    NoInterface(String),
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why the guard cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// `nft` cannot be run.
    #[error("nft cannot be run: {0}")]
    NoNft(String),
    /// `nft` refused.
    #[error("nft refused: {0}")]
    Refused(String),
}

//! The interface as the kernel has it: up, MTU, address; and the host's routes, which the mesh must not overlap.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteScope};
use rtnetlink::{Handle, IpVersion, LinkUnspec, RouteMessageBuilder, new_connection};

use crate::error::AddressError;

/// Bytes that the tunnel adds to a packet over IPv6, the larger case: 40 of IPv6, 8 of UDP, 32 of WireGuard.
pub const TUNNEL_OVERHEAD: u32 = 80;

/// The least MTU, since IPv6 needs as much (RFC 8200, section 5).
pub const LEAST_MTU: u32 = 1_280;

/// The MTU when nothing says otherwise: Ethernet's less the overhead.
const USUAL_MTU: u32 = 1_500 - TUNNEL_OVERHEAD;

/// The most that a TUN interface takes (`dev->max_mtu`, less a margin of the kernel's own for its header).
const MOST_MTU: u32 = 65_000;

/// A connection to the kernel's routing, in the network namespace of whoever opens it.
pub(crate) struct Links {
    handle: Handle,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Links {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the interface is like.
#[derive(Debug)]
struct Link {
    index: u32,
    mtu: u32,
    up: bool,
}

impl Links {
    pub(crate) fn open() -> io::Result<Self> {
        let (connection, handle, _) = new_connection()?;
        Ok(Self {
            handle,
            task: tokio::spawn(connection),
        })
    }

    async fn link(&self, interface: &str) -> Result<Link, AddressError> {
        let mut links = self.handle.link().get().match_name(interface.to_owned()).execute();
        match links.try_next().await {
            Ok(Some(link)) => Ok(Link {
                index: link.header.index,
                mtu: link
                    .attributes
                    .iter()
                    .find_map(|attribute| match attribute {
                        LinkAttribute::Mtu(mtu) => Some(*mtu),
                        _ => None,
                    })
                    .unwrap_or_default(),
                up: link.header.flags.contains(LinkFlags::Up),
            }),
            Ok(None) => Err(AddressError::NoInterface(interface.to_owned())),
            Err(error) if is_errno(&error, nix::errno::Errno::ENODEV) => {
                Err(AddressError::NoInterface(interface.to_owned()))
            }
            Err(error) => Err(system("the interface cannot be looked at", error)),
        }
    }

    /// Brings the interface to what it should be: this address alone of its family's global ones, this MTU, up. Says what
    /// had to be changed.
    pub(crate) async fn ensure(
        &self,
        interface: &str,
        address: IpNet,
        mtu: u32,
    ) -> Result<Vec<&'static str>, AddressError> {
        let link = self.link(interface).await?;
        let mut changed = Vec::new();
        if link.mtu != mtu || !link.up {
            let wanted = LinkUnspec::new_with_index(link.index).mtu(mtu).up().build();
            self.handle
                .link()
                .set(wanted)
                .execute()
                .await
                .map_err(|error| system("the interface cannot be brought up", error))?;
            changed.push("the interface's state");
        }
        let mut present = false;
        for (found, message) in self.addresses(link.index).await? {
            if found == address {
                present = true;
            } else if found.addr().is_ipv4() == address.addr().is_ipv4() && !is_link_local(found.addr()) {
                // Left over from a run under another address.
                self.handle
                    .address()
                    .del(message)
                    .execute()
                    .await
                    .map_err(|error| system("an old address cannot be removed", error))?;
                changed.push("an old address");
            }
        }
        if !present {
            self.handle
                .address()
                .add(link.index, address.addr(), address.prefix_len())
                .execute()
                .await
                .map_err(|error| system("the interface cannot have its address", error))?;
            changed.push("the address");
        }
        if !self.is_routed(link.index, address.trunc()).await? {
            self.add_route(link.index, address).await?;
            changed.push("the route");
        }
        Ok(changed)
    }

    /// Whether this network is routed into the interface. The kernel does so when the address comes.
    async fn is_routed(&self, index: u32, network: IpNet) -> Result<bool, AddressError> {
        if network.prefix_len() == network.max_prefix_len() {
            return Ok(true);
        }
        let routes = self.routes(network.addr().is_ipv4()).await?;
        Ok(routes.iter().any(|route| destination(route) == Some((network, index))))
    }

    async fn add_route(&self, index: u32, address: IpNet) -> Result<(), AddressError> {
        let message = match address {
            IpNet::V4(v4) => RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(v4.network(), v4.prefix_len())
                .pref_source(v4.addr())
                .output_interface(index)
                .scope(RouteScope::Link)
                .build(),
            IpNet::V6(v6) => RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(v6.network(), v6.prefix_len())
                .output_interface(index)
                .build(),
        };
        let added = self.handle.route().add(message).replace().execute().await;
        added.map_err(|error| system("the mesh cannot be routed into the interface", error))
    }

    /// Deletes the interface, if it is there.
    pub(crate) async fn delete(&self, interface: &str) {
        let deleted = match self.link(interface).await {
            Ok(link) => self.handle.link().del(link.index).execute().await,
            Err(AddressError::NoInterface(_)) => return,
            Err(error) => return tracing::warn!(%error, "the interface goes with the process"),
        };
        if let Err(error) = deleted {
            tracing::warn!(%error, "the interface goes with the process");
        }
    }

    async fn addresses(
        &self,
        index: u32,
    ) -> Result<Vec<(IpNet, rtnetlink::packet_route::address::AddressMessage)>, AddressError> {
        let mut addresses = self.handle.address().get().set_link_index_filter(index).execute();
        let mut found = Vec::new();
        loop {
            match addresses.try_next().await {
                Ok(Some(message)) => {
                    // On a point-to-point interface the local address is an attribute of its own.
                    let local = message.attributes.iter().find_map(|attribute| match attribute {
                        AddressAttribute::Local(address) => Some(*address),
                        _ => None,
                    });
                    let any = message.attributes.iter().find_map(|attribute| match attribute {
                        AddressAttribute::Address(address) => Some(*address),
                        _ => None,
                    });
                    let network = local
                        .or(any)
                        .and_then(|address| IpNet::new(address, message.header.prefix_len).ok());
                    found.extend(network.map(|network| (network, message)));
                }
                Ok(None) => return Ok(found),
                Err(error) => return Err(system("the interface's addresses cannot be read", error)),
            }
        }
    }

    /// Refuses a mesh network that overlaps a route by another interface. The default route overlaps nothing: the mesh
    /// is more specific than that.
    pub(crate) async fn check_overlap(&self, network: IpNet, own: &str) -> Result<(), AddressError> {
        let own = self.link(own).await.map(|link| link.index).ok();
        for route in self.routes(network.addr().is_ipv4()).await? {
            let Some((destination, interface)) = destination(&route) else {
                continue;
            };
            let overlaps = destination.contains(&network) || network.contains(&destination);
            if destination.prefix_len() > 0 && overlaps && Some(interface) != own {
                let interface = self.name(interface).await;
                return Err(AddressError::RouteOverlap {
                    network,
                    route: destination,
                    interface,
                });
            }
        }
        Ok(())
    }

    async fn routes(&self, v4: bool) -> Result<Vec<RouteMessage>, AddressError> {
        let version = if v4 { IpVersion::V4 } else { IpVersion::V6 };
        let message = match version {
            IpVersion::V4 => RouteMessageBuilder::<Ipv4Addr>::new().build(),
            IpVersion::V6 => RouteMessageBuilder::<Ipv6Addr>::new().build(),
        };
        let routes = self.handle.route().get(message).execute().try_collect().await;
        routes.map_err(|error| system("the host's routes cannot be read", error))
    }

    async fn name(&self, index: u32) -> String {
        let mut links = self.handle.link().get().match_index(index).execute();
        let name = links.try_next().await.ok().flatten().and_then(|link| {
            link.attributes.into_iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name),
                _ => None,
            })
        });
        name.unwrap_or_else(|| format!("interface {index}"))
    }

    /// The tunnel's MTU from that of the interfaces which the host's default routes leave by: the least of them less the
    /// overhead. Without a default route, from the least of all interfaces that are up and not `own`.
    pub(crate) async fn detect_mtu(&self, own: &str) -> u32 {
        let mut links = Vec::new();
        let mut all = self.handle.link().get().execute();
        while let Ok(Some(link)) = all.try_next().await {
            let flags = link.header.flags;
            let mut name = String::new();
            let mut mtu = 0;
            for attribute in link.attributes {
                match attribute {
                    LinkAttribute::IfName(found) => name = found,
                    LinkAttribute::Mtu(found) => mtu = found,
                    _ => {}
                }
            }
            if flags.contains(LinkFlags::Up) && !flags.contains(LinkFlags::Loopback) && name != own {
                links.push((link.header.index, mtu));
            }
        }
        let mut defaults = Vec::new();
        for v4 in [true, false] {
            for route in self.routes(v4).await.unwrap_or_default() {
                if route.header.destination_prefix_length == 0
                    && let Some(interface) = interface(&route)
                {
                    defaults.push(interface);
                }
            }
        }
        let routed = links
            .iter()
            .filter(|(index, _)| defaults.contains(index))
            .map(|(_, mtu)| *mtu)
            .min();
        let any = links.iter().map(|(_, mtu)| *mtu).min();
        tunnel_mtu(routed.or(any))
    }
}

/// The tunnel's MTU over an underlay of this MTU.
fn tunnel_mtu(underlay: Option<u32>) -> u32 {
    underlay
        .map_or(USUAL_MTU, |mtu| mtu.saturating_sub(TUNNEL_OVERHEAD))
        .clamp(LEAST_MTU, MOST_MTU)
}

fn destination(route: &RouteMessage) -> Option<(IpNet, u32)> {
    // Routes of the kernel's own to this host's addresses and broadcasts stand in the local table.
    let length = route.header.destination_prefix_length;
    let address = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
        RouteAttribute::Destination(RouteAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    });
    let unspecified = match route.header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let network = IpNet::new(address.unwrap_or(unspecified), length).ok()?;
    let local = network.addr().is_loopback() || network.addr().is_multicast() || is_link_local(network.addr());
    (!local).then_some(())?;
    Some((network, interface(route)?))
}

fn interface(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_errno(error: &rtnetlink::Error, errno: nix::errno::Errno) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(message) if message.raw_code() == -(errno as i32))
}

fn system(what: &'static str, error: rtnetlink::Error) -> AddressError {
    let source = match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other.to_string()),
    };
    AddressError::System { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tunnel_s_mtu_follows_the_underlay_within_its_bounds() {
        for (underlay, tunnel) in [
            (None, 1_420),
            (Some(1_500), 1_420),
            (Some(9_000), 8_920),
            (Some(1_300), 1_280),
            (Some(70_000), 65_000),
        ] {
            assert_eq!(tunnel_mtu(underlay), tunnel, "{underlay:?}");
        }
    }
}

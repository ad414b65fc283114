//! The UDP sockets: one per family, on all addresses and never connected, so that replies follow the routes (`mesh.md`
//! row 16). A run of datagrams of one size is one call; so is a batch of received ones.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

use super::counters::Counter;
use super::wake::wait_writable;
use crate::error::OpenError;

/// The largest payload of a UDP datagram, and of a run of them in one call.
pub(crate) const LARGEST: usize = 65_507;

/// What the kernel takes in one run (`UDP_MAX_SEGMENTS`).
pub(crate) const MOST_SEGMENTS: usize = 64;

/// Buffers for bursts; the kernel gives what `net.core.rmem_max` allows, or all of it with CAP_NET_ADMIN.
const BUFFER: usize = 7 << 20;

/// How long a full send buffer is waited for before the datagrams are dropped, as any full queue would drop them.
const FULL_LIMIT: Duration = Duration::from_millis(20);

/// How many ports are tried when the kernel chooses.
const CHOICES: usize = 8;

/// Errors of sockets are counted always and logged this seldom.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// One family's socket.
pub(crate) struct Udp {
    socket: Socket,
    state: UdpSocketState,
    logged: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Udp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Udp")
            .field("segments", &self.state.max_gso_segments())
            .finish_non_exhaustive()
    }
}

/// Both families' sockets on one port.
#[derive(Debug)]
pub(crate) struct Sockets {
    v4: Udp,
    /// Absent on a host with IPv6 disabled.
    v6: Option<Udp>,
    port: u16,
}

impl Sockets {
    /// Binds `port`, or one that the kernel chooses for 0.
    pub(crate) fn bind(port: u16) -> Result<Self, OpenError> {
        // What the kernel chooses is free in IPv4, and may be taken in IPv6.
        let mut bound = Self::bind_both(port);
        for _ in 1..CHOICES {
            if port != 0 || !matches!(bound, Err(OpenError::PortTaken(_))) {
                break;
            }
            bound = Self::bind_both(port);
        }
        bound
    }

    fn bind_both(port: u16) -> Result<Self, OpenError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => OpenError::PortTaken(port),
            _ => OpenError::System {
                what: "the UDP socket cannot be made",
                source: error,
            },
        };
        let v4 = Udp::bind((Ipv4Addr::UNSPECIFIED, port).into()).map_err(failed)?;
        let port = v4
            .socket
            .local_addr()
            .map_err(failed)?
            .as_socket()
            .map_or(port, |address| address.port());
        let v6 = match Udp::bind((Ipv6Addr::UNSPECIFIED, port).into()) {
            Ok(v6) => Some(v6),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(OpenError::PortTaken(port)),
            Err(error) => {
                tracing::debug!(%error, "no IPv6 on this host");
                None
            }
        };
        Ok(Self { v4, v6, port })
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Every socket.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Udp> {
        std::iter::once(&self.v4).chain(&self.v6)
    }

    /// Sends a run of datagrams of `segment` bytes each, the last one perhaps shorter. Errors are counted and logged, and
    /// end nothing: whatever is lost is sent again by whoever needs it.
    pub(crate) fn send(&self, to: SocketAddr, run: &[u8], segment: usize, errors: &Counter) {
        let udp = match (to, &self.v6) {
            (SocketAddr::V4(_), _) => &self.v4,
            (SocketAddr::V6(_), Some(v6)) => v6,
            (SocketAddr::V6(_), None) => return errors.add(1),
        };
        if let Err(error) = udp.send(to, run, segment) {
            errors.add(1);
            udp.log(to, &error);
        }
    }
}

impl Udp {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        let state = UdpSocketState::new((&socket).into())?;
        // What does not fit a narrow path arrives in fragments rather than not at all, as with the kernel's WireGuard.
        let (level, option, value) = if address.is_ipv6() {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)
        } else {
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)
        };
        set_option(socket.as_fd(), level, option, value)?;
        // Smaller buffers are slower, not wrong.
        let _ = socket.set_send_buffer_size(BUFFER);
        let _ = socket.set_recv_buffer_size(BUFFER);
        Ok(Self {
            socket,
            state,
            logged: Mutex::default(),
        })
    }

    fn send(&self, to: SocketAddr, run: &[u8], segment: usize) -> io::Result<()> {
        // The kernel or the device may take back what it once offered; then each datagram is a call of its own.
        let most = self.state.max_gso_segments().max(1);
        let mut rest = run;
        while !rest.is_empty() {
            let take = rest.len().min(segment * most);
            let (now, later) = rest.split_at(take);
            match self.send_now(to, now, segment) {
                Err(error) if now.len() > segment && offload_refused(&error) => {
                    for datagram in now.chunks(segment) {
                        self.send_now(to, datagram, segment)?;
                    }
                }
                result => result?,
            }
            rest = later;
        }
        Ok(())
    }

    fn send_now(&self, to: SocketAddr, contents: &[u8], segment: usize) -> io::Result<()> {
        let segment_size = (contents.len() > segment).then_some(segment);
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents,
            segment_size,
            src_ip: None,
        };
        let socket = UdpSockRef::from(&self.socket);
        match self.state.try_send(socket, &transmit) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_writable(self.socket.as_fd(), FULL_LIMIT);
                self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
            }
            result => result,
        }
    }

    /// Receives what is there: how many buffers were filled, or `WouldBlock`.
    pub(crate) fn receive(&self, buffers: &mut [IoSliceMut<'_>], metas: &mut [RecvMeta]) -> io::Result<usize> {
        self.state.recv((&self.socket).into(), buffers, metas)
    }

    fn log(&self, to: SocketAddr, error: &io::Error) {
        let now = Instant::now();
        let Ok(mut logged) = self.logged.lock() else { return };
        if logged.is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL) {
            *logged = Some(now);
            tracing::warn!(%to, %error, "a datagram was not sent");
        }
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets a socket option whose value is a number.
#[expect(unsafe_code, reason = "socket2 does not know the option")]
fn set_option(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads `size` bytes from the pointer, which is to a local of that size that outlives the call; the
    // descriptor is open, since it is borrowed.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size) };
    Errno::result(result)?;
    Ok(())
}

/// Whether a run was refused as such: no offload here (EIO, EINVAL), or each of its datagrams is larger than the path takes
/// and would have to be fragmented (EMSGSIZE; EINVAL before Linux 6.13).
fn offload_refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE)
    )
}

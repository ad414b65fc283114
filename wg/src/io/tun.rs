//! The TUN device, with segmentation offload where the kernel has it: a read gives up to 64 KiB of one flow, split into
//! packets, and a write takes many packets and hands them on coalesced.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use tun_rs::{DeviceBuilder, GROTable, IDEAL_BATCH_SIZE, SyncDevice, VIRTIO_NET_HDR_LEN};

use crate::error::OpenError;

/// Packets that one read can give.
pub(crate) const BATCH: usize = IDEAL_BATCH_SIZE;

/// Room before each packet that a write needs for the kernel's header.
pub(crate) const HEADROOM: usize = VIRTIO_NET_HDR_LEN;

/// The largest packet.
pub(crate) const LARGEST: usize = 65_535;

/// An open TUN device.
pub(crate) struct Tun {
    device: SyncDevice,
}

impl std::fmt::Debug for Tun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tun")
    }
}

impl Tun {
    /// Opens `interface`. A leftover that nobody holds is taken over; so is one that an earlier process made to last.
    pub(crate) fn open(interface: &str) -> Result<Self, OpenError> {
        if !Path::new("/dev/net/tun").exists() {
            return Err(OpenError::NoTun);
        }
        // A kernel without offload refuses the flag or the masks; without them every packet is a call of its own.
        let device = open(interface, true).or_else(|error| match errno(&error) {
            Errno::EINVAL if !exists(interface) => open(interface, false),
            _ => Err(error),
        });
        let device = device.map_err(|error| match errno(&error) {
            Errno::EPERM | Errno::EACCES => OpenError::NotPermitted,
            Errno::ENOENT | Errno::ENODEV | Errno::ENXIO => OpenError::NoTun,
            // Held by another process, or not a TUN at all.
            Errno::EBUSY | Errno::EINVAL => OpenError::InterfaceTaken(interface.to_owned()),
            _ => OpenError::System {
                what: "the TUN interface cannot be made",
                source: error,
            },
        })?;
        let unblock = || -> nix::Result<()> {
            let flags = OFlag::from_bits_retain(fcntl(device.as_fd(), FcntlArg::F_GETFL)?);
            fcntl(device.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
            Ok(())
        };
        unblock().map_err(|error| OpenError::System {
            what: "the TUN interface cannot be read",
            source: error.into(),
        })?;
        let_go_on_close(device.as_fd()).map_err(|source| OpenError::System {
            what: "the TUN interface cannot be made to go with this process",
            source,
        })?;
        Ok(Self { device })
    }

    /// Reads what is there: how many packets, their sizes in `sizes`, or `WouldBlock`.
    pub(crate) fn read(&self, whole: &mut [u8], packets: &mut [Vec<u8>], sizes: &mut [usize]) -> io::Result<usize> {
        self.device.recv_multiple(whole, packets, sizes, 0)
    }

    /// Writes packets, each after [`HEADROOM`] bytes of room.
    pub(crate) fn write(&self, table: &mut GROTable, packets: &mut [&mut Vec<u8>]) -> io::Result<()> {
        self.device.send_multiple(table, packets, HEADROOM).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

fn open(interface: &str, offload: bool) -> io::Result<SyncDevice> {
    DeviceBuilder::new()
        .name(interface)
        .offload(offload)
        .enable(false)
        .build_sync()
}

/// A leftover may have been made to last; from now on the interface goes when its last descriptor does.
#[expect(unsafe_code, reason = "no crate in the tree clears the flag")]
fn let_go_on_close(tun: BorrowedFd<'_>) -> io::Result<()> {
    let none: libc::c_int = 0;
    // SAFETY: TUNSETPERSIST takes its argument by value and touches no memory of ours; the descriptor is open, since it is
    // borrowed.
    Errno::result(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETPERSIST as _, none) })?;
    Ok(())
}

fn exists(interface: &str) -> bool {
    nix::net::if_::if_nametoindex(interface).is_ok()
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

//! Userspace WireGuard for a mesh: peers, sessions, a TUN device and UDP sockets, all in batches.
//!
//! It knows nothing of a registry or a fleet. [`Device`] is the whole of it from outside: open it, give it an address
//! and a guard, tell it the peers, ask how it goes. In reading order: [`mesh`] decides and is pure; [`session`] is the
//! only user of boringtun; [`io`] moves packets; [`uapi`] answers `wg show`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on fails"))]

mod device;
mod error;
pub mod io;
mod key;
pub mod mesh;
pub mod session;
pub mod uapi;

pub use device::{Device, DeviceConfig, PeerStatus, Status};
pub use error::{AddressError, GuardError, OpenError};
pub use io::counters::Counts;
pub use key::{InvalidKey, PrivateKey, PublicKey};
pub use mesh::peers::{Changes, PeerConfig};

//! The only clock of the program. It is sampled at the edge and passed on as a value ([`Now`]).

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::core::types::{BootMs, Now, UnixMs};

/// A source of [`Now`], so that a simulation can bring its own.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Both clocks, sampled together.
    fn now(&self) -> Now;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    /// CLOCK_BOOTTIME rather than the monotonic clock of `std`: that one stands still while the machine is suspended,
    /// and a node that wakes up would believe that its lease is fresh (rust-lang/rust#87906).
    fn now(&self) -> Now {
        let boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now {
            wall: UnixMs(millis(wall)),
            boot: BootMs(millis(boot)),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

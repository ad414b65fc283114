//! Waiting for descriptors, and being told to stop meanwhile.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Tells every thread of a device to stop.
#[derive(Debug)]
pub(crate) struct Stop {
    stopped: AtomicBool,
    // Readable once stopped, and never read, so that it wakes every waiter.
    event: EventFd,
}

impl Stop {
    pub(crate) fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self {
            stopped: AtomicBool::new(false),
            event,
        })
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // Only a counter that is about to overflow refuses, and then it is readable already.
        let _ = self.event.write(1);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits until one of `readable` can be read, or the stop. Which one it was has to be tried.
    pub(crate) fn wait_readable(&self, readable: &[BorrowedFd<'_>]) {
        let mut fds: Vec<PollFd<'_>> = readable.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        fds.push(PollFd::new(self.event.as_fd(), PollFlags::POLLIN));
        // An interrupted wait is one that ended early.
        let _ = poll(&mut fds, PollTimeout::NONE);
    }

    /// Waits for `limit`, or the stop.
    pub(crate) fn wait(&self, limit: Duration) {
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut [PollFd::new(self.event.as_fd(), PollFlags::POLLIN)], timeout);
    }
}

/// Waits until `fd` can be written, at most for `limit`.
pub(crate) fn wait_writable(fd: BorrowedFd<'_>, limit: Duration) {
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    let _ = poll(&mut [PollFd::new(fd, PollFlags::POLLOUT)], timeout);
}

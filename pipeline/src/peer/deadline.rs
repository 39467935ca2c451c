//! [`Deadline`]: a time by which a peer has to do something.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::channel::ChannelError;

/// A time by which something has to be done.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// Nothing if it is beyond what a clock shows.
    at: Option<Instant>,
    limit: Duration,
}

impl Deadline {
    /// So long from now.
    pub fn after(limit: Duration) -> Self {
        Self { at: Instant::now().checked_add(limit), limit }
    }

    /// The whole time.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// No time: it never comes.
    pub(crate) fn never() -> Self {
        Self { at: None, limit: Duration::MAX }
    }

    /// Waits until `stream` can be read from or written to.
    ///
    /// # Errors
    /// [`ChannelError::Late`] when the time has come; the system's.
    pub(crate) fn wait_for(&self, stream: BorrowedFd<'_>, until: PollFlags) -> Result<(), ChannelError> {
        loop {
            match poll(&mut [PollFd::from_borrowed_fd(stream, until)], self.left().as_ref()) {
                Ok(0) if self.is_over() => return Err(ChannelError::Late),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(ChannelError::System(error.into())),
            }
        }
    }

    /// The time that is left; nothing if there is no end.
    pub(crate) fn left(&self) -> Option<Timespec> {
        let left = self.at?.saturating_duration_since(Instant::now());
        // Rounded up, so that no time is left when the call is over.
        let (seconds, nanoseconds) = (left.as_secs(), left.subsec_nanos());
        Some(Timespec { tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX), tv_nsec: nanoseconds.into() })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }
}

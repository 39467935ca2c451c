//! [`ExecutorPeer`]: the executor's process, whether the host has started it or connected to it.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::messages::ProcessEndThere;
use crate::peer::{ChannelError, ConnectedPeer, Deadline, PeerError, PeerProcess, ProcessEnd};

/// The process of an executor. Dropping it ends that.
pub(super) enum ExecutorPeer {
    /// One that the host has started.
    Child(Box<PeerProcess>),
    /// One that listens. The process that has started it tells how it ends.
    Connected(ConnectedPeer),
    /// One that was the command whose host this process is. It tells how it ends.
    Above(ConnectedPeer),
}

impl ExecutorPeer {
    /// Ends it: there was this error.
    pub(super) fn end(&mut self, error: ChannelError, deadline: Deadline, is_received: bool) -> PeerError {
        match self {
            Self::Child(process) => process.end(error, deadline, is_received),
            Self::Connected(peer) | Self::Above(peer) => peer.end(error, deadline, is_received),
        }
    }

    /// Ends it: it sent what makes no sense.
    pub(super) fn lied(&mut self, why: String) -> PeerError {
        match self {
            Self::Child(process) => process.lied(why),
            Self::Connected(peer) | Self::Above(peer) => peer.lied(why),
        }
    }

    /// Its end is told, by the body of a message.
    pub(super) fn ended(&mut self, body: &[u8]) -> PeerError {
        match (self, postcard::from_bytes::<ProcessEndThere>(body)) {
            (Self::Child(process), _) => process.lied("it says that it has ended"),
            (Self::Connected(peer) | Self::Above(peer), Ok(end)) => peer.ended(end.into()),
            (Self::Connected(peer) | Self::Above(peer), Err(error)) => peer.lied(error.to_string()),
        }
    }

    /// A fault ends it, by this signal. That is its end, if it waits for the report.
    pub(super) fn ends_by_fault(&mut self, signal: i32) -> Option<PeerError> {
        match self {
            Self::Above(peer) => Some(peer.ended(ProcessEnd::Signal(signal))),
            Self::Child(_) | Self::Connected(_) => None,
        }
    }

    /// Waits for the end, which comes by itself, and hastens it when that takes too long.
    pub(super) fn reap(&mut self) {
        match self {
            Self::Child(process) => _ = process.reap(),
            Self::Connected(peer) | Self::Above(peer) => peer.reap(),
        }
    }
}

/// Waits for the end of a process.
pub(super) fn wait_for_process(ended: BorrowedFd<'_>) {
    let mut ended = [PollFd::from_borrowed_fd(ended, PollFlags::IN)];
    while let Err(Errno::INTR) = poll(&mut ended, None) {}
}

/// Waits for the channel. A child of the executor may hold that open: the end of the process counts too.
pub(super) fn wait_for_either(
    stream: BorrowedFd<'_>,
    until: PollFlags,
    ended: Option<&OwnedFd>,
) -> Result<(), ChannelError> {
    loop {
        let mut awaited = vec![PollFd::from_borrowed_fd(stream, until)];
        awaited.extend(ended.map(|ended| PollFd::new(ended, PollFlags::IN)));
        match poll(&mut awaited, None) {
            Ok(_) if !awaited[0].revents().is_empty() => return Ok(()),
            Ok(_) => return Err(ChannelError::Closed),
            Err(Errno::INTR) => {}
            Err(error) => return Err(ChannelError::System(error.into())),
        }
    }
}

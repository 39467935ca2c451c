//! [`ExecutorPeer`]: the executor's process, whether the host has started it or connected to it.

use super::messages::ProcessEndThere;
use crate::peer::{ChannelError, ConnectedPeer, Deadline, PeerError, PeerProcess};

/// The process of an executor. Dropping it ends that.
pub(super) enum ExecutorPeer {
    /// One that the host has started.
    Child(Box<PeerProcess>),
    /// One that listens. The process that has started it tells how it ends.
    Connected(ConnectedPeer),
}

impl ExecutorPeer {
    /// Ends it: there was this error.
    pub(super) fn end(&mut self, error: ChannelError, deadline: Deadline, is_received: bool) -> PeerError {
        match self {
            Self::Child(process) => process.end(error, deadline, is_received),
            Self::Connected(peer) => peer.end(error, deadline, is_received),
        }
    }

    /// Ends it: it sent what makes no sense.
    pub(super) fn lied(&mut self, why: String) -> PeerError {
        match self {
            Self::Child(process) => process.lied(why),
            Self::Connected(peer) => peer.lied(why),
        }
    }

    /// Its end is told, by the body of a message.
    pub(super) fn ended(&mut self, body: &[u8]) -> PeerError {
        match (self, postcard::from_bytes::<ProcessEndThere>(body)) {
            (Self::Child(process), _) => process.lied("it says that it has ended"),
            (Self::Connected(peer), Ok(end)) => peer.ended(end.into()),
            (Self::Connected(peer), Err(error)) => peer.lied(error.to_string()),
        }
    }

    /// Waits for the end, which comes by itself, and hastens it when that takes too long.
    pub(super) fn reap(&mut self) {
        match self {
            Self::Child(process) => _ = process.reap(),
            Self::Connected(peer) => peer.reap(),
        }
    }
}

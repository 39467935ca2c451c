//! [`ConnectedPeer`]: a process at the other end of a socket, which this process has not started, and cannot kill.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::channel::ChannelError;
use super::deadline::Deadline;
use super::frame::FrameError;
use super::process::{PeerError, ProcessEnd};

/// How long a peer that is about to close its side may take. Then the connection is closed here.
const END_MS: u64 = 1_000;

/// A process that works for this one through a connection. Dropping it closes the connection, whereupon the peer ends.
///
/// In a child that this process forks, dropping it does nothing to the peer.
#[derive(Debug)]
pub(crate) struct ConnectedPeer {
    pid: u32,
    socket: OwnedFd,
    owner: u32,
}

impl ConnectedPeer {
    /// The peer at the other end of `socket`, which has that number where it runs.
    pub(crate) fn new(pid: u32, socket: OwnedFd) -> Self {
        Self { pid, socket, owner: std::process::id() }
    }

    /// Closes the connection to the peer, which sent what makes no sense.
    pub(crate) fn lied(&mut self, why: String) -> PeerError {
        self.close();
        PeerError::Lied { pid: self.pid, why, said: String::new() }
    }

    /// The peer has ended, as the process that has started it says.
    pub(crate) fn ended(&mut self, end: ProcessEnd) -> PeerError {
        self.close();
        PeerError::Ended { pid: self.pid, end, said: String::new() }
    }

    /// Closes the connection to the peer, with which there was this error.
    pub(crate) fn end(&mut self, error: ChannelError, deadline: Deadline, is_received: bool) -> PeerError {
        let (pid, said) = (self.pid, String::new());
        match error {
            ChannelError::Closed => self.ended(ProcessEnd::Unknown),
            ChannelError::Late => {
                self.close();
                PeerError::Late { pid, limit: deadline.limit(), said }
            }
            ChannelError::System(error) => {
                self.close();
                PeerError::System { pid, why: error.to_string() }
            }
            ChannelError::Frame(why @ FrameError::Size { .. }) if is_received => {
                self.close();
                PeerError::TooMuch { pid, why, said }
            }
            error @ ChannelError::Frame(_) => self.lied(error.to_string()),
        }
    }

    /// Waits for the peer to close its side, which it is about to do by itself. Closes the connection then, or when that takes too long.
    pub(crate) fn reap(&mut self) {
        let deadline = Deadline::after(Duration::from_millis(END_MS));
        let mut closed = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        while let Err(Errno::INTR) = poll(&mut closed, deadline.left().as_ref()) {}
        self.close();
    }

    /// A thread that receives gets all that has come, and then the end.
    fn close(&self) {
        // One that is closed already is closed.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl Drop for ConnectedPeer {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            self.close();
        }
    }
}

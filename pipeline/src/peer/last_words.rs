//! [`LastWords`]: the end of what a peer says on stderr.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::os::fd::BorrowedFd;
use std::process::ChildStderr;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::channel::ChannelError;
use super::deadline::Deadline;

/// So much of what a peer writes to stderr is kept: its last words.
pub(super) const SAID_BYTES: usize = 4 << 10;

/// So many times 4 KiB are read from stderr in one go.
const PIECES_MAX: usize = 64;

/// The end of what a peer writes to stderr.
#[derive(Debug)]
pub(super) struct LastWords {
    /// Nothing once it is closed.
    pub(super) stderr: Option<ChildStderr>,
    bytes: VecDeque<u8>,
}

impl LastWords {
    /// Nothing yet of what comes through `stderr`, which does not have its readers wait from here on.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn of(stderr: Option<ChildStderr>) -> io::Result<Self> {
        if let Some(stderr) = &stderr {
            rustix::io::ioctl_fionbio(stderr, true)?;
        }
        Ok(Self { stderr, bytes: VecDeque::new() })
    }

    /// Forgets what has been said so far.
    pub(super) fn forget(&mut self) {
        self.hear();
        self.bytes.clear();
    }

    /// Waits for the channel, and takes what is said meanwhile: a peer that says a lot must not wait for a reader.
    pub(super) fn wait(
        &mut self,
        stream: BorrowedFd<'_>,
        until: PollFlags,
        deadline: Deadline,
    ) -> Result<(), ChannelError> {
        loop {
            self.hear();
            if deadline.is_over() {
                return Err(ChannelError::Late);
            }
            let left = deadline.left();
            let mut awaited = vec![PollFd::from_borrowed_fd(stream, until)];
            awaited.extend(self.stderr.as_ref().map(|stderr| PollFd::new(stderr, PollFlags::IN)));
            match poll(&mut awaited, left.as_ref()) {
                Ok(_) if !awaited[0].revents().is_empty() => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(ChannelError::System(error.into())),
            }
        }
    }

    /// Takes what has been said, but no more than a pipe has: a peer may say something for ever. Never waits.
    fn hear(&mut self) {
        let mut piece = [0; 4 << 10];
        for _ in 0..PIECES_MAX {
            let Some(stderr) = &mut self.stderr else { return };
            match stderr.read(&mut piece) {
                Ok(0) => self.stderr = None,
                Ok(heard) => {
                    self.bytes.extend(&piece[..heard]);
                    let beyond = self.bytes.len().saturating_sub(SAID_BYTES);
                    self.bytes.drain(..beyond);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.stderr = None,
            }
        }
    }

    /// The last words, fit for a message.
    pub(super) fn take(&mut self) -> String {
        self.hear();
        let bytes: Vec<u8> = std::mem::take(&mut self.bytes).into();
        let text = String::from_utf8_lossy(&bytes);
        let is_plain = |letter: &char| *letter == '\n' || !letter.is_control();
        text.trim().chars().filter(is_plain).collect()
    }
}

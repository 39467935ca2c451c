//! [`Channel`]: frames over a socket. Its user decides how long to wait.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::frame::{FrameError, FrameLimits, FrameReader, PeerFrame, header};

/// After so many bytes the waiting function looks at the clock, also if the other side never has it wait.
const UNWATCHED_BYTES: usize = 1 << 20;

/// So many bytes are received at a time, if as many have come: small frames cost one system call together.
const AHEAD_BYTES: usize = 16 << 10;

/// One end of a socket between two processes: a stream of any family.
#[derive(Debug)]
pub struct Channel {
    stream: OwnedFd,
    limits: FrameLimits,
    reader: FrameReader,
    /// Bytes that have come, and how many of them have gone to the reader.
    ahead: Vec<u8>,
    taken: usize,
    /// Frames that go with the next one that is sent.
    deferred: Vec<u8>,
}

/// Why nothing more comes through a channel, or goes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The other side is gone.
    #[error("the other side has closed the channel")]
    Closed,
    /// The time is up.
    #[error("the other side takes too long")]
    Late,
    /// The other side sent what is no frame, or a frame is too large to be sent.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The system's own error.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl ChannelError {
    pub(super) fn of(error: Errno) -> Self {
        match error {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            error => Self::System(error.into()),
        }
    }
}

/// Waits until a socket can be read from or written to; an error ends the sending or receiving.
pub(crate) type Wait<'a> = &'a mut dyn FnMut(BorrowedFd<'_>, PollFlags) -> Result<(), ChannelError>;

impl Channel {
    /// Frames over `stream`, whose other side no other part of this process has.
    pub fn new(stream: impl Into<OwnedFd>) -> Self {
        let limits = FrameLimits::default();
        let (ahead, deferred) = (Vec::new(), Vec::new());
        Self { stream: stream.into(), limits, reader: FrameReader::new(limits), ahead, taken: 0, deferred }
    }

    /// From here on larger frames are not taken from the other side. To be called between two of them.
    pub(crate) fn take_at_most(&mut self, limits: FrameLimits) {
        self.reader = FrameReader::new(limits);
    }

    /// The socket.
    pub fn stream(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// A second handle of the channel, for sending. One of the two may receive: it may have bytes that have come already.
    ///
    /// # Errors
    /// The system's, if there are too many descriptors.
    pub fn second(&self) -> io::Result<Self> {
        Ok(Self::new(self.stream.try_clone()?))
    }

    /// Sends a frame, waiting as long as it takes.
    ///
    /// # Errors
    /// [`ChannelError`], but for [`ChannelError::Late`].
    pub fn send(&mut self, kind: u16, id: u32, body: &[u8], bulk: &[u8]) -> Result<(), ChannelError> {
        self.send_while(kind, id, body, bulk, &mut wait_for_ever)
    }

    /// Receives a frame, waiting as long as it takes.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn receive(&mut self) -> Result<PeerFrame, ChannelError> {
        self.receive_while(&mut wait_for_ever)
    }

    /// Sends a frame with the next one that is sent. Gives how many bytes wait for that now.
    ///
    /// # Errors
    /// [`ChannelError::Frame`] if it is too large.
    pub(crate) fn defer(&mut self, kind: u16, id: u32, body: &[u8]) -> Result<usize, ChannelError> {
        let header = header(kind, id, body, &[], self.limits)?;
        self.deferred.extend(header);
        self.deferred.extend(body);
        Ok(self.deferred.len())
    }

    pub(crate) fn send_while(
        &mut self,
        kind: u16,
        id: u32,
        body: &[u8],
        bulk: &[u8],
        wait: Wait<'_>,
    ) -> Result<(), ChannelError> {
        let header = header(kind, id, body, bulk, self.limits)?;
        let first = [&self.deferred, &header[..], body].concat();
        self.deferred.clear();
        self.send_parts([&first, bulk], wait)
    }

    /// Sends the frames that wait for another one.
    pub(crate) fn send_deferred(&mut self, wait: Wait<'_>) -> Result<(), ChannelError> {
        let deferred = std::mem::take(&mut self.deferred);
        self.send_parts([&deferred, &[]], wait)
    }

    /// Sends whole frames, waiting as long as it takes.
    pub(crate) fn send_frames(&self, frames: &[u8]) -> Result<(), ChannelError> {
        self.send_parts([frames, &[]], &mut wait_for_ever)
    }

    fn send_parts(&self, parts: [&[u8]; 2], wait: Wait<'_>) -> Result<(), ChannelError> {
        let mut unwatched_bytes = 0;
        for mut part in parts {
            while !part.is_empty() {
                // A peer that is gone is an error here, and no signal.
                match send(&self.stream, part, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                    Ok(sent) => {
                        part = &part[sent..];
                        unwatched_bytes += sent;
                        if unwatched_bytes > UNWATCHED_BYTES {
                            unwatched_bytes = 0;
                            wait(self.stream.as_fd(), PollFlags::OUT)?;
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => wait(self.stream.as_fd(), PollFlags::OUT)?,
                    Err(error) => return Err(ChannelError::of(error)),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn receive_while(&mut self, wait: Wait<'_>) -> Result<PeerFrame, ChannelError> {
        let mut unwatched_bytes = 0;
        loop {
            if let Some(frame) = self.read_ahead()? {
                return Ok(frame);
            }
            let received = match self.reader.room() {
                room if room.len() >= AHEAD_BYTES => {
                    let received =
                        recv(&self.stream, room, RecvFlags::DONTWAIT).map(|(received, _)| received);
                    if let Ok(received @ 1..) = received
                        && let Some(frame) = self.reader.filled(received)?
                    {
                        return Ok(frame);
                    }
                    received
                }
                _ => self.receive_ahead(),
            };
            match received {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(received) => {
                    unwatched_bytes += received;
                    if unwatched_bytes > UNWATCHED_BYTES {
                        unwatched_bytes = 0;
                        wait(self.stream.as_fd(), PollFlags::IN)?;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait(self.stream.as_fd(), PollFlags::IN)?,
                Err(error) => return Err(ChannelError::of(error)),
            }
        }
    }

    /// The next frame, if all of it has come.
    fn read_ahead(&mut self) -> Result<Option<PeerFrame>, ChannelError> {
        while self.taken < self.ahead.len() {
            let (room, come) = (self.reader.room(), &self.ahead[self.taken..]);
            let taken = room.len().min(come.len());
            room[..taken].copy_from_slice(&come[..taken]);
            self.taken += taken;
            if let Some(frame) = self.reader.filled(taken)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// Receives bytes into the place of those that have gone to the reader, for several frames perhaps.
    fn receive_ahead(&mut self) -> Result<usize, Errno> {
        self.taken = 0;
        self.ahead.resize(AHEAD_BYTES, 0);
        let received = recv(&self.stream, &mut self.ahead[..], RecvFlags::DONTWAIT);
        let received = received.map(|(received, _)| received);
        self.ahead.truncate(*received.as_ref().unwrap_or(&0));
        received
    }
}

fn wait_for_ever(stream: BorrowedFd<'_>, until: PollFlags) -> Result<(), ChannelError> {
    match rustix::event::poll(&mut [rustix::event::PollFd::from_borrowed_fd(stream, until)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(ChannelError::of(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use uruk_core::sync::thread;

    #[test]
    fn a_frame_larger_than_the_socket_goes_through() {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let bulk: Vec<u8> = (0..3_000_000u32).map(|byte| byte as u8).collect();
        let expected = bulk.clone();
        let sender = thread::spawn(move || Channel::new(near).send(5, 6, b"body", &bulk));
        let mut far = Channel::new(far);
        let frame = far.receive().expect("a frame");
        sender.join().expect("no panic").expect("sent");
        assert_eq!((frame.kind, frame.id, frame.body()), (5, 6, &b"body"[..]));
        assert_eq!(frame.bulk(), expected);
        assert!(matches!(far.receive(), Err(ChannelError::Closed)));
        assert!(matches!(far.send(1, 1, b"", b""), Err(ChannelError::Closed)), "and no SIGPIPE");
    }

    #[test]
    fn a_frame_that_is_cut_off_is_the_end() {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let whole = [&header(1, 1, b"body", b"", FrameLimits::default()).expect("small")[..], b"bo"].concat();
        for cut in 0..whole.len() {
            let (near, far) = UnixStream::pair().expect("a pair of sockets");
            send(&near, &whole[..cut], SendFlags::NOSIGNAL).expect("there is room");
            drop(near);
            assert!(matches!(Channel::new(far).receive(), Err(ChannelError::Closed)), "{cut}");
        }
        drop((near, far));
    }
}

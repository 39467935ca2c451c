//! Descriptors that go to another process, or out of the way of a program.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Resource, getrlimit};

use super::channel::ChannelError;

/// How many go at once.
const COUNT: usize = 2;

/// Descriptors of ours lie below this number, and as high as is allowed: programs count on low ones.
const NUMBER_END: u64 = 1024;

/// So many have room below the highest number.
const ROOM: u64 = 16;

/// Sends descriptors ahead of all frames. The other side has to [receive](receive_descriptors) them.
///
/// # Errors
/// [`ChannelError::Closed`] if the other side is gone; the system's.
pub fn send_descriptors(
    stream: &UnixStream,
    descriptors: [BorrowedFd<'_>; COUNT],
) -> Result<(), ChannelError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COUNT))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
    }
    let sent = sendmsg(stream, &[IoSlice::new(b"d")], &mut ancillary, SendFlags::NOSIGNAL);
    sent.map(drop).map_err(ChannelError::of)
}

/// Receives the descriptors that the other side has sent ahead of all frames.
///
/// # Errors
/// The system's; and if anything else came.
pub fn receive_descriptors(stream: &UnixStream) -> io::Result<[OwnedFd; COUNT]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COUNT))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL,
    )?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let others = || io::Error::new(io::ErrorKind::InvalidData, "no descriptors came ahead of the frames");
    if received.bytes != 1 {
        return Err(others());
    }
    descriptors.try_into().map_err(|_| others())
}

/// The same descriptor under a high number, which programs do not count on. As it is where there is none.
pub fn set_aside(descriptor: OwnedFd) -> OwnedFd {
    let numbers = getrlimit(Resource::Nofile).current.unwrap_or(NUMBER_END).min(NUMBER_END);
    let lowest = i32::try_from(numbers.saturating_sub(ROOM)).unwrap_or_default();
    fcntl_dupfd_cloexec(&descriptor, lowest).unwrap_or(descriptor)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn descriptors_arrive_and_nothing_else_is_taken_for_some() {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let (one, mut other) = UnixStream::pair().expect("a pair of sockets");
        send_descriptors(&near, [one.as_fd(), one.as_fd()]).expect("it is sent");
        let [first, _second] = receive_descriptors(&far).expect("they come");
        UnixStream::from(set_aside(first)).write_all(b"x").expect("it is the same socket");
        let mut byte = [0];
        other.read_exact(&mut byte).expect("it came");
        assert_eq!(&byte, b"x");
        (&near).write_all(b"hello").expect("there is room");
        assert!(receive_descriptors(&far).is_err());
        drop(far);
        let sent = send_descriptors(&near, [one.as_fd(), one.as_fd()]);
        assert!(matches!(sent, Err(ChannelError::Closed)), "{sent:?}");
    }
}

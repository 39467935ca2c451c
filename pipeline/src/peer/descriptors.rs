//! Descriptors that go to another process, or out of the way of a program.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::channel::ChannelError;

/// At most so many go at once.
const COUNT_MAX: usize = 4;

/// Sends up to four descriptors, or none, ahead of all frames. The other side has to [receive](receive_descriptors) them.
///
/// # Errors
/// [`ChannelError::Closed`] if the other side is gone; the system's, also if `stream` leads to another machine and there are some.
pub fn send_descriptors(stream: BorrowedFd<'_>, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COUNT_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
    }
    let count = [descriptors.len() as u8]; // they had room
    let sent = sendmsg(stream, &[IoSlice::new(&count)], &mut ancillary, SendFlags::NOSIGNAL);
    sent.map(drop).map_err(ChannelError::of)
}

/// Receives the descriptors that the other side has sent ahead of all frames.
///
/// # Errors
/// The system's; and if anything else came.
pub fn receive_descriptors(stream: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COUNT_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut count = [0];
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut count)],
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
    if received.bytes == 1 && descriptors.len() == usize::from(count[0]) {
        Ok(descriptors)
    } else {
        Err(others())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn descriptors_arrive_and_nothing_else_is_taken_for_some() {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let (one, mut other) = UnixStream::pair().expect("a pair of sockets");
        let descriptors = [one.as_fd(), one.as_fd()];
        send_descriptors(near.as_fd(), &descriptors).expect("it is sent");
        let mut received = receive_descriptors(far.as_fd()).expect("they come");
        assert_eq!(received.len(), 2);
        UnixStream::from(crate::runtime::set_aside(received.remove(0)))
            .write_all(b"x")
            .expect("it is the same socket");
        let mut byte = [0];
        other.read_exact(&mut byte).expect("it came");
        assert_eq!(&byte, b"x");
        send_descriptors(near.as_fd(), &[]).expect("it is sent");
        assert!(receive_descriptors(far.as_fd()).expect("nothing comes").is_empty());
        (&near).write_all(b"hello").expect("there is room");
        assert!(receive_descriptors(far.as_fd()).is_err());
        drop(far);
        let sent = send_descriptors(near.as_fd(), &descriptors);
        assert!(matches!(sent, Err(ChannelError::Closed)), "{sent:?}");
    }
}

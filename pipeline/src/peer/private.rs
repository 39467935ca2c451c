//! [`keep_descriptors`]: a thread of ours has descriptors of its own, in a process whose program closes and replaces all that it finds.

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Has this thread a table of descriptors of its own from here on, with these alone. They stay when other threads close or replace theirs, and
/// it holds open nothing that other threads close.
///
/// Where the system refuses it, the thread goes on with those of the process.
pub(crate) fn keep_descriptors(kept: &[BorrowedFd<'_>]) {
    let mut kept: Vec<u32> = kept.iter().filter_map(|kept| kept.as_raw_fd().try_into().ok()).collect();
    kept.sort_unstable();
    let mut first = 0;
    for kept in kept {
        if kept > first && !close_here(first, kept - 1) {
            return;
        }
        first = kept + 1;
    }
    close_here(first, u32::MAX);
}

/// Closes a range of descriptors for this thread, and for no other; says whether that was possible.
fn close_here(first: u32, last: u32) -> bool {
    const CLOSE_RANGE_UNSHARE: u32 = 2;
    // SAFETY: the call takes numbers. Descriptors of other threads stay, and this one has none but those that it keeps.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_UNSHARE) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::fd::{AsFd as _, IntoRawFd as _};
    use std::os::unix::net::UnixStream;
    use uruk_core::sync::thread;

    #[test]
    fn a_thread_keeps_what_others_close() {
        let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
        let (mut other, gone) = UnixStream::pair().expect("a pair of sockets");
        let (kept, is_kept) = std::sync::mpsc::channel();
        let (closed, is_closed) = std::sync::mpsc::channel::<()>();
        let number = far.as_raw_fd();
        let far_here = far.try_clone().expect("there are descriptors");
        let theirs = thread::spawn(move || {
            keep_descriptors(&[far.as_fd()]);
            kept.send(()).expect("it is waited for");
            is_closed.recv().expect("it comes");
            (&far).write_all(b"x").expect("it is open here");
            let _ = far.into_raw_fd(); // Closed with the thread.
        });
        is_kept.recv().expect("it keeps them");
        drop((far_here, gone));
        assert_eq!(other.read(&mut [0]).expect("it can be read"), 0, "the thread holds nothing else open");
        rustix::io::fcntl_getfd(near.as_fd()).expect("this thread has all that it had");
        // SAFETY: the other thread has given its handle away.
        unsafe { libc::close(number) };
        closed.send(()).expect("it waits");
        let mut byte = [0];
        near.read_exact(&mut byte).expect("it came");
        theirs.join().expect("no panic");
    }
}

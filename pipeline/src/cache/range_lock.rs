//! [`RangeLock`]: the right to make the entry of a key, among processes. The kernel releases it when its process dies.
//!
//! Each key has one byte of a file without contents. The lock belongs to the open file, which is opened for each lock: so it tells
//! threads apart too, and a child of a fork does not let its parent's go.

use std::os::fd::OwnedFd;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Key;
use super::pack::Directory;

/// One byte of a file, locked.
#[derive(Debug)]
pub(super) struct RangeLock {
    file: OwnedFd,
    position: i64,
}

impl RangeLock {
    /// Takes the lock of a key, if it is free.
    pub(super) fn try_take(directory: &Directory, key: &Key) -> Result<Option<Self>, Errno> {
        let file = directory.open_file(&directory.flights_name(), OFlags::RDWR | OFlags::CREATE)?;
        // Two keys in one place would only wait for each other.
        let position = i64::try_from(key.spread() >> 2).expect("two bits are free");
        match change(&file, position, libc::F_WRLCK) {
            Ok(()) => Ok(Some(Self { file, position })),
            Err(NixErrno::EAGAIN | NixErrno::EACCES) => Ok(None),
            Err(error) => Err(Errno::from_raw_os_error(error as i32)),
        }
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        // Closing it is not enough if the process has forked meanwhile.
        let _ = change(&self.file, self.position, libc::F_UNLCK);
    }
}

fn change(file: &OwnedFd, position: i64, kind: i32) -> Result<(), NixErrno> {
    let range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: position,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&range)).map(drop)
}

//! [`WriteLock`]: one process writes to a pack at a time, for one append.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use uruk_core::sync::Latch;

use super::append::WriteError;
use super::directory::Directory;

/// How long a writer waits for another: an append takes less than a millisecond, unless its process is stopped.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The right to write to the files of a pack.
///
/// The file is opened for each lock, because a lock belongs to the open file: neither another thread nor the child of a fork has it.
#[derive(Debug)]
pub(super) struct WriteLock(OwnedFd);

impl WriteLock {
    /// Waits for the lock, for a while. An `impatient` caller tries it once.
    pub(super) fn take(directory: &Directory, impatient: bool) -> Result<Self, WriteError> {
        let file = directory.open_file(&directory.lock_name(), OFlags::RDWR | OFlags::CREATE)?;
        let (begun, mut pause) = (Instant::now(), Duration::from_micros(50));
        let nobody_opens_it = Latch::new();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if impatient || begun.elapsed() >= WAIT_MAX => {
                    return Err(WriteError::Busy);
                }
                Err(Errno::WOULDBLOCK) => {
                    // The system has no wait for this lock that ends.
                    nobody_opens_it.wait_timeout(pause);
                    pause = (pause * 2).min(Duration::from_millis(5));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        // Closing it is not enough if the process has forked meanwhile: the child has the same open file.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

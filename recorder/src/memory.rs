//! The words of a recording: mapped, from a file if it is to survive the process, or owned by a script.
//!
//! **Architecture Invariant:** a recording that was mapped is seen as absent in a forked child: one word of it lies in memory that the system
//! clears there.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::sync::{AtomicU64, Ordering};

const PAGE: usize = 4096;

/// Words that several threads use.
#[derive(Debug)]
pub(crate) enum Memory {
    /// For scripts and models.
    Owned(Box<[AtomicU64]>),
    /// For recordings.
    Mapped {
        words: Mapping,
        /// One word, which is 0 in a forked child.
        here: Mapping,
    },
}

/// Mapped words, of zeros at first.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomic, and mapped for as long as this exists.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Memory {
    /// Words that no file has.
    pub(crate) fn owned(count: usize) -> Self {
        Self::Owned((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    /// Words that are those of `file`, which is made as long as that, or of no file.
    pub(crate) fn mapped(file: Option<&File>, count: usize) -> io::Result<Self> {
        let here = Mapping::new(None, 1)?;
        // SAFETY: the page is this mapping's own, and zeros are words.
        unsafe { madvise(here.start.as_ptr().cast(), PAGE, Advice::LinuxWipeOnFork)? };
        // Relaxed: before a fork comes, and the child has one thread.
        here[0].store(1, Ordering::Relaxed);
        Ok(Self::Mapped { words: Mapping::new(file, count)?, here })
    }

    /// Whether this process made them.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        match self {
            Self::Owned(_) => true,
            // Relaxed: the system clears it before the child runs.
            Self::Mapped { here, .. } => here[0].load(Ordering::Relaxed) != 0,
        }
    }
}

impl Deref for Memory {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        match self {
            Self::Owned(words) => words,
            Self::Mapped { words, .. } => words,
        }
    }
}

impl Mapping {
    fn new(file: Option<&File>, count: usize) -> io::Result<Self> {
        let (bytes, both) = (count * size_of::<u64>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the system chooses a place where nothing is mapped.
        let start = unsafe {
            match file {
                Some(file) => {
                    file.set_len(bytes as u64)?;
                    mmap(null_mut(), bytes, both, MapFlags::SHARED, file, 0)?
                }
                None => mmap_anonymous(null_mut(), bytes, both, MapFlags::PRIVATE | MapFlags::NORESERVE)?,
            }
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, count })
    }
}

impl Deref for Mapping {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `new` mapped so many words, aligned to a page; zeros are words, and another process that writes the file writes words too:
        // to a racing one an atomic access is what it is to a thread. A file that another process shortens has no words where they were,
        // which ends this one with SIGBUS; its folder is private.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: no borrow outlives this. A failure leaves the words mapped, which nothing uses.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.count * size_of::<u64>()) };
    }
}

//! Which process this is, in a line of forks: what was started before a fork runs in the parent alone.
//!
//! The standard library's atomics in every build, as for numbers: the count is written while the process has one thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many forks lie between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A process in a line of forks; tells a child from its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// The one that asks.
    pub fn current() -> Self {
        // Relaxed: written only while the process has one thread; later threads start after that.
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// This process is the child of a fork that has just happened. For code that hears of forks, such as a memory manager that
    /// has the system call it; nothing in this crate does.
    pub fn note_fork() {
        // Relaxed: this is the only thread.
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
}

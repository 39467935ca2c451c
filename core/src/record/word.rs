//! A word that one thread at a time writes, and any thread reads.

use crate::sync::atomic::{AtomicUsize, Ordering};

#[cfg(any(uruk_loom, uruk_shuttle))]
use crate::sync::Hidden;

/// The word, and in models what its writer knows of it.
///
/// Of all accesses before a store, loom tries orders with the last one alone. If the writer read the word before it writes it,
/// that would be the writer's own, and a reader's would be forgotten.
#[derive(Debug, Default)]
pub(super) struct Word {
    word: AtomicUsize,
    #[cfg(any(uruk_loom, uruk_shuttle))]
    written: Hidden<usize>,
}

impl Word {
    /// For readers.
    #[inline]
    pub(super) fn load(&self, order: Ordering) -> usize {
        self.word.load(order)
    }

    /// For the writer: what it wrote last.
    #[cfg(not(any(uruk_loom, uruk_shuttle)))]
    pub(super) fn written(&self) -> usize {
        // Relaxed: whoever may write now has the lock under which it was written.
        self.word.load(Ordering::Relaxed)
    }

    #[cfg(any(uruk_loom, uruk_shuttle))]
    pub(super) fn written(&self) -> usize {
        self.written.with(|written| *written)
    }

    /// For the writer.
    pub(super) fn store(&self, value: usize, order: Ordering) {
        #[cfg(any(uruk_loom, uruk_shuttle))]
        self.written.with(|written| *written = value);
        self.word.store(value, order);
    }
}

//! A word that one thread at a time writes, and any thread reads.

#[cfg(any(uruk_loom, uruk_shuttle))]
pub(super) use model::{Word, written};
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub(super) use real::{Word, written};

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod real {
    use crate::sync::atomic::{AtomicU64, Ordering};

    pub(in crate::ready_index) type Word = AtomicU64;

    /// For the writer: what it wrote last.
    #[inline]
    pub(in crate::ready_index) fn written(word: &Word) -> u64 {
        // Relaxed: the thread that may write now has the lock under which it was written.
        word.load(Ordering::Relaxed)
    }
}

#[cfg(any(uruk_loom, uruk_shuttle))]
mod model {
    use crate::sync::Hidden;
    use crate::sync::atomic::{AtomicU64, Ordering};

    /// The word, and what its writer knows of it.
    ///
    /// Of all accesses before a store, loom tries orders with the last one alone. If the writer read the word before it
    /// writes it, that would be the writer's own, and a reader's would be forgotten.
    #[derive(Debug, Default)]
    pub(in crate::ready_index) struct Word {
        word: AtomicU64,
        written: Hidden<u64>,
    }

    impl Word {
        /// For readers.
        pub(in crate::ready_index) fn load(&self, order: Ordering) -> u64 {
            self.word.load(order)
        }

        /// For the writer.
        pub(in crate::ready_index) fn store(&self, value: u64, order: Ordering) {
            self.written.with(|written| *written = value);
            self.word.store(value, order);
        }
    }

    /// For the writer: what it wrote last.
    pub(in crate::ready_index) fn written(word: &Word) -> u64 {
        word.written.with(|written| *written)
    }
}

//! A count that can be watched.

use uruk_core::sync::atomic::{AtomicUsize, Ordering};

/// A count, and whether a thread watches for its fall, in one word:
///
/// | word | meaning | who moves it |
/// |---|---|---|
/// | `2n` | the count is n, not watched | `add`, `subtract` |
/// | `2n + 1` | the count is n, watched | `watch` sets the lowest bit, `unwatch` takes it away |
///
/// A count may fall below zero for a moment, if one thread counts a task out before another has counted it in.
///
/// Because one word holds both, either the watcher sees the lower count, or the thread that lowers it sees the watched bit.
#[derive(Debug, Default)]
pub(super) struct Level(AtomicUsize);

const ONE: usize = 2;
const WATCHED: usize = 1;

impl Level {
    /// The count. Zero if something was counted out that is about to be counted in.
    pub(super) fn get(&self) -> usize {
        // Relaxed, here and below: only the order of this word's own changes matters. Nothing is read on the strength of the count.
        usize::try_from(self.0.load(Ordering::Relaxed).cast_signed() >> 1).unwrap_or(0)
    }

    pub(super) fn add(&self) {
        // Relaxed: as above.
        self.0.fetch_add(ONE, Ordering::Relaxed);
    }

    /// Says whether the count is watched.
    pub(super) fn subtract(&self) -> bool {
        // Relaxed: as above.
        self.0.fetch_sub(ONE, Ordering::Relaxed) & WATCHED != 0
    }

    pub(super) fn watch(&self) {
        // Relaxed: as above.
        self.0.fetch_or(WATCHED, Ordering::Relaxed);
    }

    pub(super) fn unwatch(&self) {
        self.0.fetch_and(!WATCHED, Ordering::Relaxed);
    }
}

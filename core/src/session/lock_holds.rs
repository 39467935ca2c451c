//! How long the session's lock is held: what a long consequence costs everybody else.

use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicU64, Ordering};

/// How long the session's lock was held, and how often.
///
/// See [`ExecutionSession::take_lock_holds`](crate::ExecutionSession::take_lock_holds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockHolds {
    /// How many times the lock was taken. A transaction whose consequences come in slices takes it once a slice.
    pub count: u64,
    /// The longest time between taking the lock and letting it go.
    pub longest: Duration,
    /// All those times together.
    pub total: Duration,
}

/// Measures every hold of the lock. Written by its holder alone, read by anybody.
#[derive(Debug, Default)]
pub(super) struct HoldMeter {
    count: AtomicU64,
    longest_ns: AtomicU64,
    total_ns: AtomicU64,
}

impl HoldMeter {
    /// Runs `operation`, under the lock, and counts how long it takes.
    pub(super) fn measure<R>(&self, operation: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = operation();
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Relaxed, here and below: these are figures, nothing is read on the strength of them.
        self.count.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
        result
    }

    /// What was measured so far; counting begins anew.
    pub(super) fn take(&self) -> LockHolds {
        let take = |figure: &AtomicU64| figure.swap(0, Ordering::Relaxed);
        LockHolds {
            count: take(&self.count),
            longest: Duration::from_nanos(take(&self.longest_ns)),
            total: Duration::from_nanos(take(&self.total_ns)),
        }
    }
}

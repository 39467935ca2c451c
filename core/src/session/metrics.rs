//! Figures: what the protocol has had to do so far, and how long the session's lock was held.

use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicU64, Ordering};

use super::ExecutionSession;

/// How much work a session's bookkeeping has been. See [`ExecutionSession::metrics`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionMetrics {
    /// Dependencies of emitted symbols that were not Ready when they were emitted.
    pub edges: u64,
    /// How often one of them was looked at to find out whether the dependant is Ready: at most twice each.
    pub edge_visits: u64,
    /// Steps to find out whether a dependency closes a cycle.
    pub root_steps: u64,
    /// Steps along cycles that became one.
    pub cycle_steps: u64,
    /// Dependencies along which failures came, or that fell with those who had them, and the symbols they came to.
    pub failure_steps: u64,
    /// Claimed units that were given back before they started, because everybody who wanted them has withdrawn.
    pub withdrawn_units: u64,
    /// The most steps of long consequences that one hold of the session's lock has taken. Work outside of slices, as on the
    /// symbols of one unit that fails, is not counted; [`ExecutionSession::take_lock_holds`] measures it.
    pub hold_steps_max: usize,
}

impl ExecutionSession {
    /// How much work the session's bookkeeping has been since it was made.
    ///
    /// # Concurrency
    /// Takes the session's lock for a moment.
    pub fn metrics(&self) -> SessionMetrics {
        self.transact(|state, _| {
            let counters = state.forest_counters();
            SessionMetrics {
                edges: counters.edges,
                edge_visits: counters.edge_visits,
                root_steps: counters.parent_steps,
                cycle_steps: counters.contraction_steps,
                failure_steps: counters.failure_steps,
                withdrawn_units: state.returned,
                hold_steps_max: state.steps_max(),
            }
        })
    }

    /// How long the session's lock was held, and how often, since the session was made or this was last asked; nothing
    /// unless it is [measured](crate::ExecutionSessionBuilder::measure_lock_holds).
    ///
    /// # Concurrency
    /// Takes no lock. Transactions that end at the same moment may be counted in this answer, in the next, or partly in
    /// each.
    pub fn take_lock_holds(&self) -> Option<LockHolds> {
        self.0.holds.as_ref().map(HoldMeter::take)
    }
}

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

    /// Gives the measurements so far; counting begins anew.
    pub(super) fn take(&self) -> LockHolds {
        let take = |figure: &AtomicU64| figure.swap(0, Ordering::Relaxed);
        LockHolds {
            count: take(&self.count),
            longest: Duration::from_nanos(take(&self.longest_ns)),
            total: Duration::from_nanos(take(&self.total_ns)),
        }
    }
}

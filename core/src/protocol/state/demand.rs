//! Demand: what keeps a claimed unit wanted until it starts.
//!
//! A unit is claimed because a query or an emission needs it, and both may lose their interest before its task starts:
//! `SessionState::begin` then puts the unit back. Mostly nothing is lost between the two moments, and a count of losses
//! says so without the lock.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::weakened;

/// Counts the events by which a claimed unit that has not started may cease to be wanted: a query ends without an
/// answer, a row fails, a row is removed, the session is cancelled. Nothing else takes demand away before the unit has
/// resolved its symbols.
#[derive(Debug, Default)]
pub(crate) struct DemandLost(AtomicU64);

impl DemandLost {
    /// No count: what a unit carries that is claimed when all start no more.
    pub(crate) const ALWAYS_ASK: u64 = u64::MAX;

    /// Called under the session lock.
    pub(crate) fn note(&self) {
        // Relaxed, here and below: a thread that sees an old count takes the loss for one that comes a moment later, when
        // the unit had started already. A loss that happened before the start of the task is seen. Not an addition in one
        // step: only the holder of the session lock writes.
        if !weakened("withdraw::counts_no_losses") {
            self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

//! Metrics: what the protocol has had to do so far.

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
    /// The most steps of long consequences that one hold of the session's lock has taken. What is not worked off in slices, as the
    /// symbols of one unit when that fails, is not counted; [`ExecutionSession::take_lock_holds`] measures it.
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
}

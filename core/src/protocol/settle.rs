//! Settle: long consequences, worked off in slices between which the lock is free.
//!
//! One emission can make a million symbols Ready, one failure fell as many, one tracker hold them. What follows from
//! such an event is not done inside its transaction but kept as work of the state, in queues; a slice takes about
//! [`SLICE_STEPS`] steps off them.
//!
//! | queue | one step | what others see meanwhile |
//! |---|---|---|
//! | condemned trackers | a row is removed | none of its rows: they are gone for everybody from the moment it is condemned |
//! | ended queries | an entry leaves its row's list | nothing: the query has ended |
//! | the forest's failures | a dependant is told, a row fails | rows that have not failed *yet* |
//! | the forest's worklist | an edge is explored, a row becomes Ready | rows that are not Ready *yet* |
//!
//! They are served in that order. Nothing becomes Ready while a removal or a failure has not reached everything it will
//! fell: what a removed or failed symbol is needed for is never Ready after it (I4).
//!
//! Every other operation may come between two slices, and none has to work the queues off first:
//!
//! - *Emit* of a group that depends on a row about to fail is accepted, as it would have been a moment before the failure,
//!   and the failure then comes along the new edge: the forest keeps a failed node until its dependants are told.
//! - *Fail* and *remove* of a row that is about to fail say so first: who waits on it hears of them instead.
//! - A row that is removed while a failure spreads leaves behind what its dependants' error must say
//!   (`SessionState::fallen`).
//!
//! **Architecture Invariant:** while a queue is not empty one thread is on its way to come back for the next slice.

use std::collections::VecDeque;

use super::effects::Effects;
use super::ids::{QueryId, TrackerId};
use super::waiting_on::{Counters, Settled};
use super::{Payload, SessionState};

/// About how many steps are taken in one hold of the lock: a few hundred microseconds. In models other threads shall
/// come between any two steps.
pub(crate) const SLICE_STEPS: usize = if cfg!(any(uruk_loom, uruk_shuttle)) { 1 } else { 1024 };

/// What is left to do, but for the forest's own part.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// Trackers whose rows are gone for everybody and are still to be removed.
    pub(super) condemned: VecDeque<TrackerId>,
    /// How many trackers have been condemned.
    pub(super) condemnations: u64,
    /// Queries that have ended and whose entries are still in the lists of their rows.
    pub(super) ended: VecDeque<QueryId>,
    /// Somebody comes back for the next slice.
    attended: bool,
    /// How many steps a slice takes.
    pub(super) slice_steps: usize,
    /// How many steps the present hold of the lock has taken, and the longest.
    steps: usize,
    steps_max: usize,
}

impl Default for Agenda {
    fn default() -> Self {
        let (condemned, ended) = (VecDeque::new(), VecDeque::new());
        Self {
            condemned,
            condemnations: 0,
            ended,
            attended: false,
            slice_steps: SLICE_STEPS,
            steps: 0,
            steps_max: 0,
        }
    }
}

impl<P: Payload> SessionState<P> {
    /// Called at the end of every transaction, under the lock. Says whether the caller has to come back, by
    /// [`Self::slice`], until that says otherwise.
    pub(crate) fn finish_transaction(&mut self) -> bool {
        self.finish_hold();
        self.has_work() && !std::mem::replace(&mut self.agenda.attended, true)
    }

    /// One slice. Says whether there is more, for the one who attends to the work.
    pub(crate) fn slice(&mut self, effects: &mut Effects<P>) -> bool {
        self.settle(effects);
        self.finish_hold();
        self.agenda.attended = self.has_work();
        self.agenda.attended
    }

    /// One slice, by somebody who does not attend to the work.
    pub(crate) fn help(&mut self, effects: &mut Effects<P>) {
        self.settle(effects);
        self.finish_hold();
    }

    /// Whoever attended to the work cannot go on; the next transaction takes over.
    pub(crate) fn abandon_slices(&mut self) {
        self.agenda.attended = false;
    }

    /// How many removals of trackers have begun so far: what to give to [`Self::is_removed`].
    pub(crate) fn condemnations(&self) -> u64 {
        self.agenda.condemnations
    }

    /// Whether the first `condemnations` removals are over.
    pub(crate) fn is_removed(&self, condemnations: u64) -> bool {
        self.agenda.condemnations - self.agenda.condemned.len() as u64 >= condemnations
    }

    /// How much work the forest has done.
    pub(crate) fn forest_counters(&self) -> Counters {
        self.forest.counters()
    }

    /// The most steps that one hold of the lock has taken.
    pub(crate) fn steps_max(&self) -> usize {
        self.agenda.steps_max
    }

    /// Works off what is left to do, about a slice of it.
    pub(crate) fn settle(&mut self, effects: &mut Effects<P>) {
        let mut budget = self.agenda.slice_steps;
        while budget > 0 && self.has_work() {
            let before = budget;
            if let Some(&tracker) = self.agenda.condemned.front() {
                self.remove_condemned(tracker, &mut budget, effects);
            } else if let Some(&query) = self.agenda.ended.front() {
                self.bury_query(query, &mut budget);
            } else {
                self.settle_forest(&mut budget, effects);
            }
            self.count_steps(before - budget);
        }
    }

    /// Whether anything is left to do.
    pub(crate) fn has_work(&self) -> bool {
        self.forest.has_work() || !self.agenda.condemned.is_empty() || !self.agenda.ended.is_empty()
    }

    fn settle_forest(&mut self, budget: &mut usize, effects: &mut Effects<P>) {
        let mut settled = std::mem::take(&mut self.settled);
        // Each step may settle a row, which is a step as well.
        let steps = budget.div_ceil(2);
        let more = self.forest.advance(steps, &mut settled);
        *budget = budget.saturating_sub(if more { steps } else { 1 } + settled.len());
        for change in settled.drain(..) {
            match change {
                Settled::Ready(row) => self.make_ready(row, effects),
                Settled::Failed { payload, via } => self.spread_to(payload, via, effects),
            }
        }
        self.settled = settled;
        if !self.forest.is_failing() {
            for (_, fallen) in std::mem::take(&mut self.fallen) {
                self.release_failure(fallen.failure, effects);
            }
        }
    }

    pub(super) fn count_steps(&mut self, steps: usize) {
        self.agenda.steps += steps;
    }

    fn finish_hold(&mut self) {
        #[cfg(any(test, debug_assertions))]
        self.check_now_and_then();
        self.records.end_change();
        self.agenda.steps_max = self.agenda.steps_max.max(std::mem::take(&mut self.agenda.steps));
    }
}

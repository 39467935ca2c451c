//! Settle: long consequences, worked off in slices between which the lock is free.
//!
//! One emission can make a million symbols Ready, one failure fell as many, one tracker hold them. The consequences
//! of such an event are not done inside its transaction but kept as work of the state, in queues; a slice takes
//! about `SLICE_STEPS` steps off them.
//!
//! | queue | one step | what others see meanwhile |
//! |---|---|---|
//! | trackers being removed | a row is removed | none of its rows: they are gone for everybody from the moment the removal begins |
//! | priorities | one rises | units that are less urgent than they will be |
//! | ended queries | an entry leaves its row's list | nothing: the query has ended |
//! | the forest's failures | a dependant is told, a row fails | rows that have not failed *yet* |
//! | the forest's worklist | an edge is explored, a row becomes Ready | rows that are not Ready *yet* |
//! | notes of removed rows on failures | the failure's record is released | nothing: no lookup can ask any more |
//!
//! Priorities are served first, the others in that order. Nothing becomes Ready while a removal or a failure has not reached everything it
//! will fell: a dependant of a removed or failed symbol never becomes Ready after it (I4).
//!
//! Every other operation may come between two slices, and none has to work the queues off first:
//!
//! - *Emit* of a group that depends on a row about to fail is accepted, as it would have been a moment before the failure,
//!   and the failure then comes along the new edge: the forest keeps a failed node until its dependants are told.
//! - *Fail* and *remove* of a row that is about to fail come first: its waiters are told of them instead.
//! - *Remove* of a row that the forest has found Ready, before the row knows it, tells its waiters that it was.
//! - A row that is removed while a failure spreads leaves behind what its dependants' error must say
//!   (`state/failures.rs`).
//!
//! # Attendance
//!
//! One thread at a time attends to the work: the one whose transaction found it unattended. It began with its own, and
//! others may add to it for as long as the session is busy. After `FOREIGN_SLICES_MAX` slices of work that is not all its
//! own it stays until another thread adds more and takes over. So every thread returns: either more comes and with it a
//! successor, or the rest is finite. A thread that adds nothing is never held up.
//!
//! **Architecture Invariant:** while a queue is not empty one thread is on its way to come back for the next slice.

use crate::protocol::dependences::{Counters, Settled};
use crate::protocol::slices::agenda::Attendance;
use crate::protocol::state::{Effects, Payload, SessionState};

impl<P: Payload> SessionState<P> {
    /// Called at the end of every transaction, under the lock. Takes the first slice of what the transaction has added. Says
    /// whether the caller has to come back, by [`Self::slice`], until that says otherwise.
    pub(crate) fn finish_transaction(&mut self, effects: &mut Effects<P>) -> Option<Attendance> {
        if self.is_at_rest() {
            self.agenda.end_transaction();
            self.finish_hold(effects);
            return None;
        }
        self.finish_unsettled(effects)
    }

    #[inline(never)]
    fn finish_unsettled(&mut self, effects: &mut Effects<P>) -> Option<Attendance> {
        let (mut added, has_settled) = self.agenda.end_transaction();
        if added && !has_settled {
            self.work_off(effects);
        } else if self.has_rises() {
            // The first slice of what the transaction has raised.
            let mut budget = self.agenda.slice_steps();
            self.rise(&mut budget, effects);
            self.agenda.count_steps(self.agenda.slice_steps() - budget);
            added |= self.has_rises();
        }
        self.finish_hold(effects);
        if self.has_work() { self.agenda.attend(added) } else { None }
    }

    /// One slice. Says whether there is more for the one who attends to the work, if that is still the caller.
    pub(crate) fn slice(&mut self, attendance: Attendance, effects: &mut Effects<P>) -> bool {
        if !self.agenda.comes_back(attendance) {
            return false;
        }
        self.help(effects);
        let more = self.has_work();
        if !more {
            self.agenda.dismiss();
        }
        more
    }

    /// One slice, by a thread that does not attend to the work.
    pub(crate) fn help(&mut self, effects: &mut Effects<P>) {
        self.work_off(effects);
        self.agenda.end_transaction();
        self.finish_hold(effects);
    }

    /// How much work the forest has done.
    pub(crate) fn forest_counters(&self) -> Counters {
        self.forest.counters()
    }

    /// The most steps that one hold of the lock has taken.
    pub(crate) fn steps_max(&self) -> usize {
        self.agenda.steps_max()
    }

    /// Takes a slice in the middle of a transaction.
    pub(crate) fn settle(&mut self, effects: &mut Effects<P>) {
        self.agenda.note_settled();
        self.work_off(effects);
    }

    /// The same after what mostly leaves nothing to do, which is seen at a glance.
    #[inline]
    pub(crate) fn settle_any(&mut self, effects: &mut Effects<P>) {
        if !self.is_at_rest() {
            self.settle(effects);
        }
    }

    /// Works off what is left to do, about a slice of it.
    fn work_off(&mut self, effects: &mut Effects<P>) {
        let mut budget = self.agenda.slice_steps();
        while budget > 0 && self.has_work() {
            let before = budget;
            if self.has_rises() {
                self.rise(&mut budget, effects);
            } else if self.definitions.is_removing() {
                self.go_on_removing(&mut budget, effects);
            } else if let Some(query) = self.agenda.first_ended() {
                self.bury_query(query, &mut budget, effects);
            } else if self.forest.has_work() {
                self.settle_forest(&mut budget, effects);
            } else {
                self.failures.let_go(&mut budget, effects);
            }
            self.agenda.count_steps(before - budget);
        }
    }

    /// Whether nothing can be left to do, as far as that is seen at a glance.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        let rests = self.agenda.rests() && !self.has_rises();
        debug_assert!(!rests || !self.has_work(), "whoever adds to a queue says so");
        rests
    }

    /// Whether anything is left to do.
    pub(crate) fn has_work(&self) -> bool {
        self.has_rises()
            || self.forest.has_work()
            || self.definitions.is_removing()
            || self.agenda.first_ended().is_some()
            || self.failures.has_left()
    }

    fn settle_forest(&mut self, budget: &mut usize, effects: &mut Effects<P>) {
        // Each step may settle a node, which is a step as well.
        let steps = budget.div_ceil(2);
        let mut settled = std::mem::take(&mut self.agenda.settled);
        // All that comes of these steps has room: a list that grows frees what it was.
        settled.reserve_exact(steps);
        let more = self.forest.advance(steps, &mut settled);
        *budget = budget.saturating_sub(if more { steps } else { 1 } + settled.len());
        for change in settled.drain(..) {
            match change {
                Settled::Ready(row) => self.make_ready(row, effects),
                Settled::Failed { payload, via } => self.spread_to(payload, via, effects),
            }
        }
        self.agenda.settled = settled;
    }

    #[inline]
    fn finish_hold(&mut self, effects: &mut Effects<P>) {
        // Hardly any transaction leaves something.
        if let Some(memory) = self.forest.take_discarded() {
            effects.more().memory.extend(memory);
        }
        #[cfg(any(test, debug_assertions))]
        if !self.has_work() {
            self.check_now_and_then();
        }
        self.definitions.end_change();
        self.agenda.end_hold();
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    //! For tests alone.
    use super::*;

    impl<P: Payload> SessionState<P> {
        /// Does all that is left to do.
        pub(crate) fn settle_all(&mut self, effects: &mut Effects<P>) {
            while self.has_work() {
                self.help(effects);
            }
        }
    }
}

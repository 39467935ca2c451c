//! Remove: a row goes, in any state.
//!
//! Queries that wait on a removed row fail, and so do emitted rows that depend on it and are not Ready
//! yet. Rows that are Ready stay: the embedder ensures that removed code is not called.

use uruk_recorder::Kind;

use crate::sync::weakened;
use crate::{EventKind, FailureCause, LookupError, RequiredState, SessionEvent};

use crate::protocol::dependences::NodeState;
use crate::protocol::state::{
    Effects, FailedRow, Payload, RemovedRow, RowNotice, RowState, SessionState, Waiters,
};
use crate::protocol::storage::RowId;

impl<P: Payload> SessionState<P> {
    /// Removes one row in any state.
    pub(crate) fn remove_row(&mut self, row: RowId, notice: RowNotice, effects: &mut Effects<P>) {
        match self.definitions[row].state {
            RowState::Emitted { .. } if self.is_ready_unknowingly(row) => self.leave_ready(row, effects),
            RowState::Materializing { .. } | RowState::Resolved { .. } | RowState::Emitted { .. } => {
                self.fail_waiting(row, effects)
            }
            RowState::Failed { failed_row, .. } => self.leave_failed_row(row, failed_row, effects),
            RowState::NeverSearched { .. } | RowState::Returned { .. } | RowState::Ready { .. } => {}
        }
        self.delete_row(row, notice, effects);
    }

    /// Removes a row without waiters.
    pub(crate) fn delete_row(&mut self, row: RowId, notice: RowNotice, effects: &mut Effects<P>) {
        self.dependants.forget(row, effects);
        if uruk_recorder::is_on() {
            self.noted.act(Kind::Removed, row, Some(&self.definitions[row].name));
        }
        if let Some(RemovedRow { dylib, symbol, place }) = self.definitions.delete_row(row, notice, effects) {
            let kind = EventKind::Removed { dylib, symbol };
            match place {
                Some(sequence) => effects.more().events.push(SessionEvent { sequence, kind }),
                None => self.observe(effects, || kind),
            }
        }
        self.aliased.forget(row);
        self.strand_aliases_of(row);
        self.losses.note();
    }

    /// A row has gone: aliases of it, and aliases of these, lead nowhere.
    fn strand_aliases_of(&mut self, row: RowId) {
        if self.aliased.is_empty() {
            return;
        }
        let mut gone = vec![row];
        while let Some(source) = gone.pop() {
            let aliases: Vec<_> = self.aliased.aliases_of(source).collect();
            self.agenda.count_steps(aliases.len());
            gone.extend(aliases.into_iter().filter(|alias| self.definitions.strand(*alias)));
        }
    }

    /// Tells the waiters of a row that is about to be removed that it has become Ready: its dependants become Ready too.
    fn leave_ready(&mut self, id: RowId, effects: &mut Effects<P>) {
        if let Some(waiting) = self.definitions.waiting_mut(id) {
            let queries = std::mem::replace(waiting, Waiters::NOBODY).queries;
            self.satisfy(id, queries, RequiredState::Ready, effects);
        }
        // Seen from outside, a row being removed went before.
        if !self.definitions.row_is_removing(&self.definitions[id]) {
            self.observe_ready(id, effects);
        }
    }

    /// Fails the waiters of a row that is about to be removed.
    fn fail_waiting(&mut self, id: RowId, effects: &mut Effects<P>) {
        let Some(waiting) = self.definitions[id].waiting().copied() else { return };
        // A failure may be on its way to the row: its dependants fail by the removal instead.
        let fails = |node| self.forest.fail(node) || self.forest.state(node) == NodeState::Failed;
        let spreads = waiting.node.filter(|_| !weakened("remove::tells_no_dependants")).is_some_and(fails);
        if spreads {
            self.agenda.add();
        }
        if !spreads && waiting.queries.is_none() {
            return;
        }
        let failure = self.record_failure(id, FailureCause::Removed);
        if let Some(waiting) = self.definitions.waiting_mut(id) {
            *waiting = Waiters::NOBODY;
        }
        if !waiting.queries.is_none() && !weakened("remove::tells_no_queries") {
            let error = LookupError::Failed(self.failures.tell(failure, Vec::new(), None, 0, false));
            self.fail_lodged(waiting.queries, &error, effects);
        }
        self.leave_failed_row(id, FailedRow { failure, root: id, depth: 0 }, effects);
    }

    /// Keeps what a row that is about to go knows of a failure as long as one spreads: the forest may name the row to those
    /// that fall through it. The row's reference to the record is kept, or let go.
    fn leave_failed_row(&mut self, row: RowId, failed_row: FailedRow, effects: &mut Effects<P>) {
        match self.forest.is_failing() {
            true => self.failures.leave(row, failed_row, effects),
            false => self.failures.release(failed_row.failure, effects),
        }
    }

    /// Removes rows of the trackers being removed that are first in line, each tracker after its last row.
    pub(crate) fn go_on_removing(&mut self, budget: &mut usize, effects: &mut Effects<P>) {
        while *budget > 0 && self.definitions.is_removing() {
            *budget -= 1;
            match self.definitions.first_removing() {
                Some(row) => self.remove_row(row, RowNotice::Nothing, effects),
                None if self.definitions.discard_removing(effects) => return,
                None => {}
            }
        }
    }
}

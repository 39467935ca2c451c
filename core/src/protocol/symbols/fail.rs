//! Fail: rows fail, and with them everything that transitively waits on them, at once.
//!
//! One record per event; each row that falls keeps the row through which the failure reached it, so that
//! an error can tell the path without any chain of boxes.

use uruk_recorder::Kind;

use crate::failure::PATH_STEPS_MAX;
use crate::sync::{Arc, weakened};
use crate::{EventKind, Failure, LookupError};

use crate::protocol::state::{Broken, Effects, FailedRow, Payload, Row, RowState, SessionState};
use crate::protocol::storage::{ClaimId, FailureId, RowId};

impl<P: Payload> SessionState<P> {
    /// Fails the rows that carry `claim`, and ends it.
    ///
    /// Does nothing for a claim whose rows were removed.
    pub(crate) fn fail(&mut self, claim: ClaimId, broken: impl Into<Broken>, effects: &mut Effects<P>) {
        let (rows, broken) = (self.definitions.rows_of_claim(claim), broken.into());
        self.noted.act_for(Some(claim));
        // One that is being removed goes with its last row, unless it has delegated them all.
        let carries_nothing = self.definitions.get_claim(claim).is_some_and(|claim| claim.carried() == 0);
        if carries_nothing || self.definitions.live_claim(claim).is_some() {
            self.definitions.end_claim(claim, effects);
        }
        let Some(&first) = rows.first() else {
            effects.let_go(broken.cause);
            return;
        };
        let failure = self.record_failure(first, broken);
        self.failures.begun(failure, effects);
        for row in rows {
            if let Some(node) = self.definitions[row].waiting().and_then(|waiting| waiting.node) {
                self.forest.fail(node);
                self.agenda.add();
            }
            self.make_failed(row, FailedRow { failure, root: row, depth: 0 }, row, effects);
        }
        self.failures.release(failure, effects);
    }

    /// Has each failure of a unit reported, also if a lookup is told of it.
    pub(crate) fn report_all_failures(&mut self, report: bool) {
        self.failures.are_all_reported = report;
    }

    /// The failure as seen from a failed row.
    pub(crate) fn failure_of(&self, row: RowId) -> Arc<Failure> {
        let RowState::Failed { failed_row: FailedRow { failure, root, depth }, .. } =
            self.definitions[row].state
        else {
            panic!("{row:?} has not failed");
        };
        let mut path = Vec::new();
        let mut cursor = row;
        while cursor != root && path.len() + 1 < PATH_STEPS_MAX {
            let Some(Row { name, state: RowState::Failed { via, .. }, .. }) = self.definitions.row(cursor)
            else {
                break;
            };
            path.push(name.clone());
            cursor = *via;
        }
        let end = self.definitions.row(root).map(|row| &row.name);
        self.failures.tell(failure, path, end, depth, self.definitions.has_spare(row))
    }

    /// Makes the record of a failure that begins at `row`. It is kept until it is released.
    pub(crate) fn record_failure(&mut self, row: RowId, broken: impl Into<Broken>) -> FailureId {
        let row = &self.definitions[row];
        let (symbol, unit) = (row.name.clone(), row.unit_name.clone());
        self.failures.begin(symbol, unit, self.definitions.dylib_name_of(row), broken.into())
    }

    /// The forest says that `row` fell because of `via`; none where the failure began, which is known.
    pub(crate) fn spread_to(&mut self, row: RowId, via: Option<RowId>, effects: &mut Effects<P>) {
        let Some(via) = via else { return };
        let still_stands = |row: &Row| matches!(row.state, RowState::Emitted { .. });
        if !self.definitions.row(row).is_some_and(still_stands) {
            return;
        }
        // A reported failure comes from a row that failed, or was removed, in this or an earlier slice.
        let failed_row = match self.definitions.row(via).map(|row| &row.state) {
            Some(&RowState::Failed { failed_row, .. }) => Some(failed_row),
            _ => self.failures.left_by(via),
        };
        let failed_row = failed_row.expect("a failure has a record while it spreads");
        self.make_failed(
            row,
            FailedRow { depth: failed_row.depth.saturating_add(1), ..failed_row },
            via,
            effects,
        );
    }

    /// Moves a row to Failed and tells the queries lodged on it.
    fn make_failed(&mut self, id: RowId, failed_row: FailedRow, via: RowId, effects: &mut Effects<P>) {
        let Some(queries) = self.definitions.fail(id, failed_row, via) else { return };
        if uruk_recorder::is_on() {
            self.noted.act(Kind::Failed, id, Some(&self.definitions[id].name));
        }
        self.losses.note();
        self.failures.refer(failed_row.failure);
        if !queries.is_none() && !weakened("fail::tells_no_queries") {
            // All queries that end with the session have one error, in any order of events.
            let error = match self.failures.is_closing(failed_row.failure) {
                true => LookupError::Closed,
                false => LookupError::Failed(self.failure_of(id)),
            };
            self.fail_lodged(queries, &error, effects);
        }
        if self.events.is_observed() {
            let row = &self.definitions[id];
            let (dylib, symbol) = (self.definitions.dylib_name_of(row), row.name.clone());
            self.observe(effects, || EventKind::Failed { dylib, symbol });
        }
    }
}

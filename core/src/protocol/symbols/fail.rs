//! Fail: rows fail, and with them everything that transitively waits on them, at once.
//!
//! One record per event; each row that falls keeps the row through which the failure reached it, so that
//! an error can tell the path without any chain of boxes.

use std::cell::Cell;

use crate::failure::PATH_STEPS_MAX;
use crate::sync::{Arc, weakened};
use crate::{EventKind, Failure, FailureCause, LookupError};

use crate::protocol::state::SessionState;
use crate::protocol::state::definitions::row::{Row, RowState};
use crate::protocol::state::effects::{Effects, Leftover};
use crate::protocol::state::failure::{FailureRecord, Fallen};
use crate::protocol::state::payload::Payload;
use crate::protocol::storage::ids::{ClaimId, FailureId, RowId};

impl<P: Payload> SessionState<P> {
    /// Fails the rows that carry `claim`, and ends it.
    ///
    /// Does nothing for a claim whose rows were removed.
    pub(crate) fn fail(&mut self, claim: ClaimId, cause: FailureCause, effects: &mut Effects<P>) {
        let rows = self.definitions.rows_of_claim(claim);
        // One that is being removed goes with its last row, unless it has delegated them all.
        let carries_nothing = self.definitions.get_claim(claim).is_some_and(|claim| claim.carried() == 0);
        if carries_nothing || self.definitions.live_claim(claim).is_some() {
            self.definitions.end_claim(claim, effects);
        }
        let Some(&first) = rows.first() else {
            effects.let_go(cause);
            return;
        };
        let failure = self.record_failure(first, cause);
        for row in rows {
            if let Some(node) = self.definitions[row].waiting().and_then(|waiting| waiting.node) {
                self.forest.fail(node);
                self.agenda.added = true;
            }
            self.make_failed(row, Fallen { failure, root: row, depth: 0 }, None, effects);
        }
        self.release_failure(failure, effects);
    }

    /// The failure as seen from a failed row.
    pub(crate) fn failure_of(&self, row: RowId) -> Arc<Failure> {
        let RowState::Failed { failure, root, depth, .. } = self.definitions[row].state else {
            panic!("{row:?} has not failed");
        };
        let record = &self.failures[failure];
        record.told.set(true);
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
        let root = self.definitions.row(root);
        path.push(root.map_or_else(|| record.symbol.clone(), |row| row.name.clone()));
        let path_omitted = (depth as usize + 1).saturating_sub(path.len());
        let (unit, dylib, cause) = (record.unit.clone(), record.dylib.clone(), record.cause.clone());
        Arc::new(Failure { path, path_omitted, unit, dylib, cause })
    }

    /// The failure as seen from where it began.
    pub(crate) fn failure_at(&self, failure: FailureId) -> Arc<Failure> {
        let record = &self.failures[failure];
        record.told.set(true);
        record.at_its_root()
    }

    /// Makes the record of a failure that begins at `row`. It is kept until [`Self::release_failure`].
    pub(crate) fn record_failure(&mut self, row: RowId, cause: FailureCause) -> FailureId {
        let row = &self.definitions[row];
        let (symbol, unit, dylib) =
            (row.name.clone(), row.unit_name.clone(), self.definitions.dylib_name_of(row));
        self.failures.insert(FailureRecord { symbol, unit, dylib, cause, rows: 1, told: Cell::new(false) })
    }

    /// Lets go of one reference to a record; the last one sends its cause, a value of the embedder, out, and tells the
    /// reporter what nobody has been told.
    pub(crate) fn release_failure(&mut self, failure: FailureId, effects: &mut Effects<P>) {
        let record = &mut self.failures[failure];
        record.rows -= 1;
        if record.rows == 0
            && let Some(record) = self.failures.remove(failure, effects)
        {
            let is_news = matches!(
                record.cause,
                FailureCause::Unit(_) | FailureCause::Panicked(_) | FailureCause::Abandoned
            );
            if is_news && !record.told.get() {
                effects.leave(Leftover::Unheard(record.at_its_root()));
            }
            effects.let_go(record.cause);
        }
    }

    /// The forest says that `row` fell because of `via`; none where the failure began, which is known.
    pub(crate) fn spread_to(&mut self, row: RowId, via: Option<RowId>, effects: &mut Effects<P>) {
        let Some(via) = via else { return };
        let still_stands = |row: &Row| matches!(row.state, RowState::Emitted { .. });
        if !self.definitions.row(row).is_some_and(still_stands) {
            return;
        }
        // A reported failure comes from a row that failed, or was removed, in this or an earlier slice.
        let fallen = self.fallen_at(via).expect("a failure has a record while it spreads");
        self.make_failed(row, Fallen { depth: fallen.depth.saturating_add(1), ..fallen }, Some(via), effects);
    }

    /// What a row that failed, or was removed while its failure spreads, says of it.
    fn fallen_at(&self, row: RowId) -> Option<Fallen> {
        match self.definitions.row(row).map(|row| &row.state) {
            Some(&RowState::Failed { failure, root, depth, .. }) => Some(Fallen { failure, root, depth }),
            _ => self.fallen.get(row),
        }
    }

    /// Moves a row to Failed and tells the queries lodged on it.
    fn make_failed(&mut self, id: RowId, fallen: Fallen, via: Option<RowId>, effects: &mut Effects<P>) {
        let Fallen { failure, root, depth } = fallen;
        let via = via.unwrap_or(id);
        let Some(queries) = self.definitions.fail(id, failure, via, root, depth) else { return };
        self.losses.note();
        self.failures[failure].rows += 1;
        if !queries.is_none() && !weakened("fail::tells_no_queries") {
            // What ends because the session does says so in one way, whichever comes first.
            let error = match self.failures[failure].cause {
                FailureCause::Closed => LookupError::Closed,
                _ => LookupError::Failed(self.failure_of(id)),
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

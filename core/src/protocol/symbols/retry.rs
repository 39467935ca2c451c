//! Retry: what failed is defined once more, by the spare of its unit (`state/definitions/spare.rs`).
//!
//! It is another definition of the same symbols, as if the embedder had defined them again: no token of the first one is valid for it, and
//! its unit starts once. Others that have failed with it stay as they are until they are looked up.

use rustc_hash::FxHashSet;

use crate::protocol::state::{Effects, Payload, PendingUnit, RowState, SessionState, Spare, TakenSpare};
use crate::protocol::storage::{ClaimId, RowId};

impl<P: Payload> SessionState<P> {
    /// Keeps the spare of a unit that is about to materialize.
    pub(crate) fn keep_spare(
        &mut self,
        claim: ClaimId,
        spare: Box<Spare<P::Unit>>,
        effects: &mut Effects<P>,
    ) {
        self.definitions.keep_spare(claim, spare, effects);
    }

    /// Defines a failed symbol anew, and with it all failed symbols of its unit. Says whether it did.
    pub(crate) fn retry(&mut self, row: RowId, effects: &mut Effects<P>) -> bool {
        if !self.definitions.has_spare(row) || self.tracker_is_defunct(self.definitions[row].tracker) {
            return false;
        }
        let (dylib, tracker) = (self.definitions[row].dylib, self.definitions[row].tracker);
        let Some(spare) = self.definitions.take_spare(row) else { return false };
        let TakenSpare { mut definition, unit, failed } = spare;
        // Others have been taken over since, or removed.
        let left: FxHashSet<_> = failed.iter().map(|&row| self.definitions[row].name.clone()).collect();
        let lost: Vec<_> = definition.symbols.keys().filter(|name| !left.contains(*name)).cloned().collect();
        definition.symbols.retain(|name, _| left.contains(name));
        definition.number = failed.iter().find_map(|&row| self.definitions.take_initializer_number(row));
        self.make_room(failed, effects);
        self.observe_definition(dylib, &definition.unit_name, definition.symbols.keys(), effects);
        let (number, home) = (definition.number, (dylib, self.definitions[dylib].name.clone()));
        let unit = PendingUnit::of(definition, unit, home, lost);
        let initializer = unit.initializer().cloned();
        self.definitions.define(tracker, unit, effects);
        if let Some(number) = number {
            self.definitions.note_initializer(dylib, number, initializer.as_ref(), effects);
        }
        true
    }

    /// The failed rows that lie between `row` and where its failure began, both included.
    pub(crate) fn failed_along(&self, row: RowId) -> Vec<RowId> {
        let mut along = Vec::new();
        let mut cursor = Some(row);
        while let Some(row) = cursor
            && let Some(RowState::Failed { via, .. }) = self.definitions.row(row).map(|row| &row.state)
        {
            along.push(row);
            cursor = Some(*via).filter(|via| *via != row);
        }
        along
    }
}

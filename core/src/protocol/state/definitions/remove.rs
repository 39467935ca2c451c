//! Remove: rows disappear, from their dylib, their tracker and the list of their name; from their unit, or their claim.

use crate::SymbolName;
use crate::protocol::state::{
    effects::{Effects, Leftover},
    payload::Payload,
};
use crate::protocol::storage::{NONE, RowId};
use crate::sync::{Arc, weakened};

use super::{Definitions, row::Row};

/// Whether a unit hears that a symbol was taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// Through its `discard`.
    Discarded,
    /// Not at all: all of it goes.
    Nothing,
}

/// What observers are told of a row that is gone.
#[must_use = "observers shall see that it is gone"]
pub(crate) struct RemovedRow {
    pub(in crate::protocol) symbol: SymbolName,
    pub(in crate::protocol) dylib: Arc<str>,
    /// The place of the event, if that was kept for it.
    pub(in crate::protocol) place: Option<u64>,
}

impl<P: Payload> Definitions<P> {
    /// Removes a row in whatever state it is. What waited on it has been dealt with. A unit that is left with no row leaves through
    /// `effects`; a claim that is left with none ends.
    ///
    /// Tells of it if there are observers.
    pub(in crate::protocol) fn delete_row(
        &mut self,
        row: RowId,
        tell: Tell,
        effects: &mut Effects<P>,
    ) -> Option<RemovedRow> {
        self.take_from_unit(row, tell, effects);
        self.leave_claim(row, effects);
        self.forget_initializer(row, effects);
        if self.rows[row].product != NONE {
            self.leave_product(row, effects);
        }
        self.unlink_from_tracker(row);
        self.unlink_from_namesakes(row, effects);
        let Row { name, unit_name, .. } = &self.rows[row];
        // Held by the pool and by this row, mostly once; the name of a unit is held by each of its rows.
        let goes = |name: &SymbolName, here: u64| usize::from(name.handles() <= 1 + here);
        effects.names_released +=
            if name == unit_name { goes(name, 2) } else { goes(name, 1) + goes(unit_name, 1) };
        let removed = if self.is_observed { Some(self.removed(row)) } else { None };
        self.rows.discard(row, effects);
        removed
    }

    fn removed(&mut self, id: RowId) -> RemovedRow {
        let row = &self.rows[id];
        let (symbol, dylib) = (row.name.clone(), self.dylib_name_of(row));
        let place = if self.row_is_removing(row) {
            Some(self.next_removed())
        } else {
            self.dylibs[row.dylib].rows -= 1;
            None
        };
        RemovedRow { symbol, dylib, place }
    }

    /// Takes the row off the list of the unit that waits in it; a unit left with none leaves.
    fn take_from_unit(&mut self, row: RowId, tell: Tell, effects: &mut Effects<P>) {
        let row = &self.rows[row];
        let Some(id) = row.unit() else { return };
        let (name, dylib, dylib_name) = (row.name.clone(), row.dylib, self.dylib_name_of(row));
        let unit = &mut self.units[id];
        unit.lose(&name);
        if tell == Tell::Discarded {
            unit.extras.get_or_insert_default().discarded.push(name);
        }
        if unit.symbols.is_empty()
            && let Some(unit) = self.units.remove(id, effects)
        {
            let (unit, discarded) = unit.into_discarded();
            effects.leave(Leftover::Unit { unit, dylib, dylib_name, discarded });
        }
    }

    /// Notes that a row stops carrying its claim. The last one ends the claim.
    ///
    /// # Cost
    /// Constant: the row stays in the claim's list, where its id is stale from now on.
    fn leave_claim(&mut self, row: RowId, effects: &mut Effects<P>) {
        let Some(id) = self.rows[row].claim() else { return };
        let claim = &mut self.claims[id];
        if claim.loses_one() && !weakened("remove::claim_outlives_its_rows") {
            self.claims.discard(id, effects);
        }
    }
}

//! Insert: rows appear, in their dylib, their tracker and the list of their name.

use crate::protocol::state::{effects::Effects, payload::Payload, pending::PendingUnit};
use crate::protocol::storage::{ClaimId, NONE, RowId, TrackerId};
use crate::{ExecutorSymbolDef, SymbolFlags, SymbolFlagsMap, SymbolName, TaskPriority};

use super::{
    Definitions,
    row::{Links, Row, RowState, Source, Waiters},
    tracker::Tracker,
};

impl<P: Payload> Definitions<P> {
    /// A unit comes into a tracker, and waits in a row for each of its symbols.
    ///
    /// None of these is defined in the dylib; so with the other functions here.
    pub(in crate::protocol) fn define(
        &mut self,
        tracker: TrackerId,
        unit: Box<PendingUnit<P::Unit>>,
        effects: &mut Effects<P>,
    ) {
        let unit = self.units.insert(unit);
        // The symbols leave the unit for the length of the loop: inserting a row borrows the whole state.
        let PendingUnit { symbols, name: unit_name, own_priority, .. } = &mut *self.units[unit];
        let (symbols, unit_name, own_priority) = (std::mem::take(symbols), unit_name.clone(), *own_priority);
        for (name, &flags) in &symbols {
            let state = RowState::NeverSearched { source: Source::Unit(unit) };
            let row = self.insert_row(tracker, name.clone(), &unit_name, flags, state, effects);
            if own_priority < TaskPriority::Demanded {
                self.rows[row].own_priority = own_priority;
            }
        }
        self.units[unit].symbols = symbols;
    }

    /// A symbol whose address is known comes into a tracker.
    pub(in crate::protocol) fn define_address(
        &mut self,
        tracker: TrackerId,
        name: SymbolName,
        unit_name: &SymbolName,
        definition: ExecutorSymbolDef,
        effects: &mut Effects<P>,
    ) {
        let source = Source::Address(definition.address);
        let state = RowState::NeverSearched { source };
        self.insert_row(tracker, name, unit_name, definition.flags, state, effects);
    }

    /// Whoever has a claim provides further symbols. They share what its rows are made of.
    pub(in crate::protocol) fn define_claimed(
        &mut self,
        claim: ClaimId,
        unit_name: &SymbolName,
        symbols: &SymbolFlagsMap,
        effects: &mut Effects<P>,
    ) {
        let (tracker, product) = (self.claims[claim].tracker(), self.product_of(claim));
        for (name, &flags) in symbols {
            let state = RowState::Materializing { claim, waiting: Waiters::NOBODY };
            let row = self.insert_row(tracker, name.clone(), unit_name, flags, state, effects);
            self.claims[claim].add_row(row);
            self.join_product(row, product);
        }
    }

    /// Adds a row to a tracker; it must be the only one of its name in the tracker's dylib.
    fn insert_row(
        &mut self,
        tracker: TrackerId,
        name: SymbolName,
        unit_name: &SymbolName,
        flags: SymbolFlags,
        state: RowState,
        effects: &mut Effects<P>,
    ) -> RowId {
        let Tracker { dylib, first_row: next, .. } = self.trackers[tracker];
        let row = self.rows.insert(Row {
            name,
            unit_name: unit_name.clone(),
            dylib,
            tracker,
            links: Links { previous: NONE, next },
            namesakes: Links::ALONE,
            product: NONE,
            flags,
            own_priority: TaskPriority::Demanded,
            is_wanted_resolved: false,
            state,
        });
        self.link_to_tracker(row, tracker, next);
        self.link_to_namesakes(row, effects);
        if self.is_observed {
            self.dylibs[dylib].rows += 1;
        }
        row
    }
}

//! Rows appear, come further, and go.
//!
//! They appear in their dylib, their tracker and the list of their name, and go from there, and from their unit or their claim. The table of
//! all changes of a row is in `row.rs`; what leaves or joins a unit or a claim is in `claim.rs`.

use crate::protocol::dependences::NodeId;
use crate::protocol::state::effects::{Effects, Leftover};
use crate::protocol::state::rising::RisingPriority;
use crate::protocol::state::{
    failures::FailedRow, lookups::query::Lodging, payload::Payload, pending::PendingUnit,
};
use crate::protocol::storage::{ClaimId, NONE, RowId, TrackerId};
use crate::sync::{Arc, weakened};
use crate::{
    ExecutorAddr, ExecutorSymbolDef, RequiredState, SymbolFlags, SymbolFlagsMap, SymbolName, TaskPriority,
};

use super::row::{Links, Row, RowState, Source, Waiters};
use super::{Definitions, tracker::Tracker};

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

    /// Defines further symbols for the holder of a claim. They share the product of its rows.
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

    /// The waiters of a row, in the states that can have any.
    #[inline]
    pub(in crate::protocol) fn waiting_mut(&mut self, row: RowId) -> Option<&mut Waiters> {
        self.rows.get_mut(row)?.waiting_mut()
    }

    /// The same for a query that is about to be lodged on it.
    #[inline]
    pub(in crate::protocol) fn waiting_for(
        &mut self,
        row: RowId,
        required: RequiredState,
    ) -> Option<&mut Waiters> {
        let row = &mut self.rows[row];
        row.is_wanted_resolved |= required == RequiredState::Resolved;
        row.waiting_mut()
    }

    /// How urgent an emitted row is.
    pub(in crate::protocol) fn priority_mut(&mut self, row: RowId) -> Option<&mut RisingPriority> {
        match &mut self.rows.get_mut(row)?.state {
            RowState::Emitted { priority, .. } => Some(priority),
            _ => None,
        }
    }

    /// A materializing row has its address. Gives the queries on it, if one of them may want no more than that.
    #[inline]
    pub(in crate::protocol) fn resolve(
        &mut self,
        row: RowId,
        address: ExecutorAddr,
        flags: SymbolFlags,
    ) -> Option<Lodging> {
        let row = &mut self.rows[row];
        let RowState::Materializing { claim, waiting } = row.state else { return None };
        row.flags = flags;
        row.advance(RowState::Resolved { claim, address, waiting });
        // Mostly there is no such query, and queries that wait for Ready need not be looked at.
        let is_wanted = row.is_wanted_resolved || weakened("lodge::addresses_answer_everybody");
        is_wanted.then_some(waiting.queries)
    }

    /// The code of a resolved row is in place, and something that it depends on is not.
    pub(in crate::protocol) fn emit(&mut self, row: RowId, node: Option<NodeId>, priority: RisingPriority) {
        let row = &mut self.rows[row];
        if let RowState::Resolved { address, waiting, .. } = row.state {
            row.advance(RowState::Emitted { address, priority, waiting: Waiters { node, ..waiting } });
        }
    }

    /// A resolved or emitted row, and everything that it needs, is in place: it is found without the lock from now on. Gives the queries on
    /// it, and what to tell them.
    #[inline]
    pub(in crate::protocol) fn make_ready(&mut self, id: RowId) -> Option<(Lodging, ExecutorSymbolDef)> {
        let row = self.rows.get_mut(id)?;
        let (RowState::Resolved { address, waiting, .. } | RowState::Emitted { address, waiting, .. }) =
            row.state
        else {
            return None;
        };
        row.advance(RowState::Ready { address });
        let found = ExecutorSymbolDef::new(address, row.flags.difference(SymbolFlags::STRANDED));
        self.publish(id);
        Some((waiting.queries, found))
    }

    /// A row fails, if anybody could wait on it. Gives the queries on it.
    pub(in crate::protocol) fn fail(
        &mut self,
        row: RowId,
        failed_row: FailedRow,
        via: RowId,
    ) -> Option<Lodging> {
        let row = &mut self.rows[row];
        let queries = row.waiting()?.queries;
        row.advance(RowState::Failed { failed_row, via });
        Some(queries)
    }

    /// A row whose address was known before is searched: it is Ready.
    pub(super) fn bind(&mut self, id: RowId, address: ExecutorAddr) {
        let row = &mut self.rows[id];
        row.flags = row.flags.without_common();
        // A symbol for side effects only has no address, even if the map has one.
        let has_none = row.flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
        row.advance(RowState::Ready { address: if has_none { ExecutorAddr::NULL } else { address } });
        self.publish(id);
    }

    /// Removes a row in any state. Its waiters have been dealt with. A unit that is left with no row leaves through `effects`; a
    /// claim that is left with none ends.
    ///
    /// Tells of it if there are observers.
    pub(in crate::protocol) fn delete_row(
        &mut self,
        row: RowId,
        notice: RowNotice,
        effects: &mut Effects<P>,
    ) -> Option<RemovedRow> {
        self.take_from_unit(row, notice, effects);
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
    fn take_from_unit(&mut self, row: RowId, notice: RowNotice, effects: &mut Effects<P>) {
        let row = &self.rows[row];
        let Some(id) = row.unit() else { return };
        let (name, dylib, dylib_name) = (row.name.clone(), row.dylib, self.dylib_name_of(row));
        let unit = &mut self.units[id];
        unit.lose(&name);
        if notice == RowNotice::Discarded {
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

/// Whether a unit hears that a symbol was taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowNotice {
    /// Through its `discard`.
    Discarded,
    /// Not at all: all of it goes.
    Nothing,
}

/// The notice to observers of a row that is gone.
#[must_use = "observers shall see that it is gone"]
pub(crate) struct RemovedRow {
    pub(in crate::protocol) symbol: SymbolName,
    pub(in crate::protocol) dylib: Arc<str>,
    /// The place of the event, if that was kept for it.
    pub(in crate::protocol) place: Option<u64>,
}

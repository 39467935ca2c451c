//! Spares: units that make symbols once more, if these fail.
//!
//! A unit that begins may leave a spare. It belongs to the unit's product, so it goes wherever the rows go, and leaves with the last of
//! them. A row that becomes Ready ends it: from then on code runs that a second definition of the unit would not know.

use rustc_hash::FxHashMap;

use crate::protocol::state::effects::{Effects, Leftover};
use crate::protocol::state::{payload::Payload, pending::Definition};
use crate::protocol::storage::{ClaimId, NONE, RowId};

use super::Definitions;
use super::row::RowState;

/// A unit that waits for a failure, and its description.
#[derive(Debug)]
pub(crate) struct Spare<U> {
    pub(crate) definition: Definition,
    pub(crate) unit: U,
}

/// A spare that is about to take the place of rows.
pub(crate) struct TakenSpare<U> {
    pub(crate) definition: Definition,
    pub(crate) unit: U,
    /// The failed rows that its unit had.
    pub(crate) failed: Vec<RowId>,
}

/// The spares, by product.
pub(super) type Spares<U> = FxHashMap<u32, Box<Spare<U>>>;

impl<P: Payload> Definitions<P> {
    /// Keeps the spare of a unit that begins. One that is there already stays. A claim without rows keeps none.
    pub(in crate::protocol) fn keep_spare(
        &mut self,
        claim: ClaimId,
        spare: Box<Spare<P::Unit>>,
        effects: &mut Effects<P>,
    ) {
        let product = self.make_product(claim);
        if product == NONE || self.spares.contains_key(&product) {
            return effects.leave(Leftover::RefusedUnit(spare.unit));
        }
        self.spares.insert(product, spare);
    }

    /// Whether the row has failed and there is a spare of its unit.
    pub(in crate::protocol) fn has_spare(&self, row: RowId) -> bool {
        let row = &self.rows[row];
        matches!(row.state, RowState::Failed { .. }) && self.spares.contains_key(&row.product)
    }

    /// Takes the spare of a failed row's unit out.
    pub(in crate::protocol) fn take_spare(&mut self, row: RowId) -> Option<TakenSpare<P::Unit>> {
        let (dylib, product) = (self.rows[row].dylib, self.rows[row].product);
        let Spare { definition, unit } = *self.spares.remove(&product)?;
        let had_failed = |row: &RowId| {
            let row = &self.rows[*row];
            row.product == product && matches!(row.state, RowState::Failed { .. })
        };
        let rows = definition.symbols.keys().filter_map(|name| self.find(dylib, name));
        let failed = rows.filter(had_failed).collect();
        Some(TakenSpare { definition, unit, failed })
    }

    /// A row is Ready: its unit needs no spare any more.
    #[inline]
    pub(in crate::protocol) fn end_spare(&mut self, row: RowId, effects: &mut Effects<P>) {
        if !self.spares.is_empty() {
            self.drop_spare(self.rows[row].product, effects);
        }
    }

    /// The spare of a product goes.
    pub(super) fn drop_spare(&mut self, product: u32, effects: &mut Effects<P>) {
        if let Some(spare) = self.spares.remove(&product) {
            effects.leave(Leftover::RefusedUnit(spare.unit));
        }
    }

    /// I15: each spare is of a product that is there.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_spares(&self) {
        let is_there = |product: &u32| self.products.id_at(*product).is_some();
        assert!(self.spares.keys().all(is_there), "a spare goes with the last row of its unit");
    }
}

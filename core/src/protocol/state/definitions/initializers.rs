//! Initializers: which symbols stand for static initialisers, in the order in which their units were defined.
//!
//! A unit with an initializer has a number; its initializer's row carries it from the definition to the removal,
//! even if the unit has gone. A number that ends leaves through the effects, once.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::SymbolName;
use crate::protocol::state::{effects::Effects, payload::Payload};
use crate::protocol::storage::{DylibId, RowId};

use super::Definitions;

/// The initializers of all dylibs.
#[derive(Debug, Default)]
pub(super) struct Initializers {
    numbers: FxHashMap<RowId, u64>,
    rows: BTreeMap<(DylibId, u64), RowId>,
}

impl Initializers {
    /// Every initializer, with its dylib and its number.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn noted(&self) -> Vec<(RowId, DylibId, u64)> {
        assert_eq!(self.rows.len(), self.numbers.len(), "each initializer is noted once");
        let noted = |(&(dylib, number), &row): (&(DylibId, u64), &RowId)| {
            assert_eq!(self.numbers.get(&row), Some(&number), "an initializer has its number");
            (row, dylib, number)
        };
        self.rows.iter().map(noted).collect()
    }
}

impl<P: Payload> Definitions<P> {
    /// See [`crate::JitDylib::initializers`].
    pub(crate) fn initializers(&self, dylib: DylibId) -> Vec<SymbolName> {
        let rows = self.initializers.rows.range((dylib, 0)..=(dylib, u64::MAX));
        let rows = rows.map(|(_, row)| &self.rows[*row]);
        rows.filter(|row| !self.row_is_removing(row)).map(|row| row.name.clone()).collect()
    }

    /// Notes the initializer of the unit `number`, which has just been defined, or that it has none after all.
    pub(in crate::protocol) fn note_initializer(
        &mut self,
        dylib: DylibId,
        number: u64,
        initializer: Option<&SymbolName>,
        effects: &mut Effects<P>,
    ) {
        match initializer.and_then(|name| self.find(dylib, name)) {
            Some(row) => {
                self.initializers.numbers.insert(row, number);
                self.initializers.rows.insert((dylib, number), row);
            }
            None => effects.more().initializers_gone.push(number),
        }
    }

    /// Whether there are any.
    pub(super) fn has_initializers(&self) -> bool {
        !self.initializers.numbers.is_empty()
    }

    /// Whether the row stands for the initialisers of the unit that it was defined by.
    pub(in crate::protocol) fn is_initializer(&self, row: RowId) -> bool {
        self.has_initializers() && self.initializers.numbers.contains_key(&row)
    }

    /// Takes the number of an initializer's row, for the row that takes its place.
    pub(in crate::protocol) fn take_initializer_number(&mut self, row: RowId) -> Option<u64> {
        let number = self.initializers.numbers.remove(&row)?;
        self.initializers.rows.remove(&(self.rows[row].dylib, number));
        Some(number)
    }

    /// A row is about to go.
    pub(super) fn forget_initializer(&mut self, row: RowId, effects: &mut Effects<P>) {
        // Most rows of most sessions are none.
        if self.has_initializers()
            && let Some(number) = self.take_initializer_number(row)
        {
            effects.more().initializers_gone.push(number);
        }
    }
}

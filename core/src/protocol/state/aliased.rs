//! Aliased: what each alias stands for, as long as the alias is there.
//!
//! A Ready symbol stays Ready when something it refers to is removed. For an alias that is all there is of it: its address leads nowhere
//! then. Who wants to keep what lies there asks for its presence (`symbols/presence.rs`).

use rustc_hash::FxHashMap;

use crate::ids::RowId;

/// For each alias that has an address, the row that it stands for. No id comes twice, so that of a row that is gone is no row's.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Aliased(FxHashMap<RowId, RowId>);

impl Aliased {
    /// Notes what an alias stands for.
    pub(in crate::protocol) fn note(&mut self, alias: RowId, source: RowId) {
        self.0.insert(alias, source);
    }

    /// What an alias stands for. `None` for what is no alias.
    pub(in crate::protocol) fn source_of(&self, alias: RowId) -> Option<RowId> {
        self.0.get(&alias).copied()
    }

    /// The alias goes, if it is one.
    pub(in crate::protocol) fn forget(&mut self, row: RowId) {
        if self.0.remove(&row).is_some() && self.0.capacity() > 4 * self.0.len() + 64 {
            self.0.shrink_to_fit();
        }
    }

    /// The aliases.
    #[cfg(any(test, debug_assertions))]
    pub(in crate::protocol) fn rows(&self) -> impl Iterator<Item = RowId> {
        self.0.keys().copied()
    }
}

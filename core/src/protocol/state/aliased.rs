//! Aliased: what each alias stands for, as long as the alias is there.
//!
//! A Ready symbol stays Ready when something it refers to is removed. For an alias that is all there is of it: its address leads nowhere
//! then. Lookups that find it are refused from then on (`symbols/presence.rs`).

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::ids::{Id, RowId};

/// For each alias that has an address, the row that it stands for. No id comes twice, so that of a row that is gone is no row's.
#[derive(Debug, Default)]
pub(in crate::protocol) struct Aliased {
    sources: FxHashMap<RowId, RowId>,
    /// The same from source to alias.
    aliases: BTreeSet<(RowId, RowId)>,
}

impl Aliased {
    /// Notes what an alias stands for.
    pub(in crate::protocol) fn note(&mut self, alias: RowId, source: RowId) {
        if let Some(before) = self.sources.insert(alias, source) {
            self.aliases.remove(&(before, alias));
        }
        self.aliases.insert((source, alias));
    }

    /// Whether there are no aliases.
    pub(in crate::protocol) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The source of an alias. `None` for a row that is no alias.
    pub(in crate::protocol) fn source_of(&self, alias: RowId) -> Option<RowId> {
        self.sources.get(&alias).copied()
    }

    /// The aliases that stand for `source`.
    pub(in crate::protocol) fn aliases_of(&self, source: RowId) -> impl Iterator<Item = RowId> {
        let all = (source, RowId::new(0, 0))..=(source, RowId::new(u32::MAX, u32::MAX));
        self.aliases.range(all).map(|(_, alias)| *alias)
    }

    /// The alias goes, if it is one.
    pub(in crate::protocol) fn forget(&mut self, row: RowId) {
        let Some(source) = self.sources.remove(&row) else { return };
        self.aliases.remove(&(source, row));
        if self.sources.capacity() > 4 * self.sources.len() + 64 {
            self.sources.shrink_to_fit();
        }
    }

    /// The aliases, each with what it stands for.
    #[cfg(any(test, debug_assertions))]
    pub(in crate::protocol) fn rows(&self) -> impl Iterator<Item = (RowId, RowId)> {
        assert_eq!(self.sources.len(), self.aliases.len());
        self.sources.iter().map(|(alias, source)| (*alias, *source))
    }
}

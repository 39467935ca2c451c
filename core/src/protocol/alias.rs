//! Alias: which alias waits for which row, so that a cycle of aliases is an error and not a wait.
//!
//! Each alias waits for the lookup that finds its source, from the moment that begins to wait until it ends, and for the source
//! itself once the lookup is lodged on it; following edges from a source either comes to a row that is no alias, or back.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::{LookupError, SymbolName};

use super::ids::{QueryId, RowId};
use super::lookup::Search;
use super::{Payload, SessionState};

/// An alias that waits for the symbol it names.
#[derive(Clone, Debug)]
pub(crate) struct AliasEdge {
    pub(crate) alias: RowId,
    pub(crate) source: SymbolName,
}

/// What aliases wait for.
#[derive(Debug, Default)]
pub(crate) struct AliasEdges {
    /// For each alias whose source is known, that.
    sources: FxHashMap<RowId, RowId>,
    /// How many of these aliases have a row for their source.
    wanted: FxHashMap<RowId, usize>,
    /// For each alias whose lookup waits, at a generator or for rows, that lookup.
    sought: FxHashMap<RowId, QueryId>,
}

impl AliasEdges {
    /// The row that an alias waits for, if that is known yet.
    pub(super) fn source_of(&self, alias: RowId) -> Option<RowId> {
        self.sources.get(&alias).copied()
    }

    /// The lookup that the alias waits for: none of its unit goes on before that has all it asked for.
    pub(super) fn sought_by(&self, alias: RowId) -> Option<QueryId> {
        self.sought.get(&alias).copied()
    }

    /// How many aliases wait for a source that is known; how many lookups they wait for.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn len(&self) -> (usize, usize) {
        assert_eq!(self.wanted.values().sum::<usize>(), self.sources.len());
        (self.sources.len(), self.sought.len())
    }

    /// The lookup of these aliases waits.
    pub(super) fn seek(&mut self, aliases: impl IntoIterator<Item = RowId>, query: QueryId) {
        self.sought.extend(aliases.into_iter().map(|alias| (alias, query)));
    }

    /// A lookup that was suspended with these aliases is no longer.
    pub(super) fn seek_no_more(&mut self, aliases: &[AliasEdge]) {
        for AliasEdge { alias, .. } in aliases {
            self.sought.remove(alias);
        }
    }

    fn insert(&mut self, alias: RowId, source: RowId) {
        if let Some(before) = self.sources.insert(alias, source) {
            self.want_less(before);
        }
        *self.wanted.entry(source).or_default() += 1;
    }

    fn remove(&mut self, alias: RowId) {
        if let Some(source) = self.sources.remove(&alias) {
            self.want_less(source);
        }
    }

    fn want_less(&mut self, source: RowId) {
        if let Entry::Occupied(mut wanted) = self.wanted.entry(source) {
            *wanted.get_mut() -= 1;
            if *wanted.get() == 0 {
                wanted.remove();
            }
        }
    }
}

impl<P: Payload> SessionState<P> {
    /// Notes what the aliases of a lookup wait for; gives the aliases noted.
    ///
    /// # Errors
    /// If that would close a cycle; nothing is noted then.
    pub(crate) fn add_aliases(
        &mut self,
        search: &Search,
        rows: &[Option<RowId>],
    ) -> Result<Vec<RowId>, LookupError> {
        if search.aliases.is_empty() {
            return Ok(Vec::new());
        }
        let sources: FxHashMap<&SymbolName, RowId> =
            search.symbols.0.iter().zip(rows).filter_map(|((name, _), row)| Some((name, (*row)?))).collect();
        let mut noted = Vec::with_capacity(search.aliases.len());
        for AliasEdge { alias, source } in &search.aliases {
            let Some(&source) = sources.get(source) else { continue };
            if let Some(cycle) = self.cycle_through(*alias, source) {
                self.forget_aliases(&noted);
                return Err(LookupError::AliasCycle { cycle });
            }
            self.aliases.insert(*alias, source);
            noted.push(*alias);
        }
        Ok(noted)
    }

    /// The lookup of these aliases has ended.
    pub(crate) fn forget_aliases(&mut self, aliases: &[RowId]) {
        for alias in aliases {
            self.aliases.sought.remove(alias);
            self.aliases.remove(*alias);
        }
    }

    /// The cycle that an edge from `alias` to `source` would close.
    ///
    /// # Cost
    /// One step if no alias waits for `alias`: nothing leads back to it. Otherwise one for each alias from `source` on.
    /// A chain that is looked up from either end costs one step an alias; one whose middle comes last, in many pieces,
    /// at most the length of the piece behind for each piece.
    fn cycle_through(&self, alias: RowId, source: RowId) -> Option<Vec<SymbolName>> {
        if alias != source && !self.aliases.wanted.contains_key(&alias) {
            return None;
        }
        let mut cursor = Some(source);
        while let Some(row) = cursor
            && row != alias
        {
            cursor = self.aliases.source_of(row);
        }
        cursor?;
        let name = |row: RowId| self.rows.get(row).map(|row| row.name.clone());
        let mut cycle: Vec<_> = name(alias).into_iter().collect();
        let mut row = source;
        while row != alias {
            cycle.extend(name(row));
            row = self.aliases.source_of(row)?;
        }
        cycle.extend(name(alias));
        Some(cycle)
    }
}

//! Alias: which alias waits for which row, so that a cycle of aliases is an error and not a wait.
//!
//! Each alias has a lookup of its own. It waits for that while a generator is asked for its source, and for the source itself once
//! the lookup is lodged on it. Following edges from a source either comes to a row that is no alias, or back.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::{LookupError, SymbolName};

use crate::protocol::state::{definitions::Definitions, lookups::query::Search, payload::Payload};
use crate::protocol::storage::{QueryId, RowId};

use super::Lookups;

/// The edges from aliases to their sources or lookups.
#[derive(Debug, Default)]
pub(super) struct AliasEdges {
    /// For each alias whose source is known, that.
    sources: FxHashMap<RowId, RowId>,
    /// How many of these aliases have a row for their source.
    wanted: FxHashMap<RowId, usize>,
    /// For each alias whose lookup waits at a generator, that lookup.
    sought: FxHashMap<RowId, QueryId>,
}

impl AliasEdges {
    /// How many aliases wait for a source that is known; how many lookups they wait for.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn len(&self) -> (usize, usize) {
        assert_eq!(self.wanted.values().sum::<usize>(), self.sources.len());
        (self.sources.len(), self.sought.len())
    }

    /// The lookup of the alias waits at a generator.
    pub(super) fn seek(&mut self, alias: Option<RowId>, query: QueryId) {
        self.sought.extend(alias.map(|alias| (alias, query)));
    }

    /// The lookup of the alias has ended, or waits for nothing.
    pub(super) fn forget(&mut self, alias: Option<RowId>) {
        alias.into_iter().for_each(|alias| self.remove(alias));
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

impl<P: Payload> Lookups<P> {
    /// The row that an alias waits for, if that is known yet.
    pub(crate) fn source_of(&self, alias: RowId) -> Option<RowId> {
        self.aliases.sources.get(&alias).copied()
    }

    /// The lookup that the alias waits for, as long as its source is not known.
    pub(crate) fn sought_by(&self, alias: RowId) -> Option<QueryId> {
        self.aliases.sought.get(&alias).copied()
    }

    /// The lookup of an alias waits at no generator any more.
    pub(crate) fn seek_no_more(&mut self, alias: Option<RowId>) {
        alias.map(|alias| self.aliases.sought.remove(&alias));
    }

    /// Notes what the alias of a lookup waits for; gives the alias if it is one's lookup.
    ///
    /// # Errors
    /// If that would close a cycle; nothing is noted then.
    pub(crate) fn add_alias(
        &mut self,
        search: &Search,
        rows: &[Option<RowId>],
        definitions: &Definitions<P>,
    ) -> Result<Option<RowId>, LookupError> {
        // Its source is all that it looks up.
        let (Some(alias), &[Some(source)]) = (search.alias, rows) else { return Ok(None) };
        if let Some(cycle) = self.cycle_through(alias, source, definitions) {
            return Err(LookupError::AliasCycle { cycle });
        }
        self.aliases.insert(alias, source);
        Ok(Some(alias))
    }

    /// The cycle that an edge from `alias` to `source` would close.
    ///
    /// # Cost
    /// One step if no alias waits for `alias`: nothing leads back to it. Otherwise one for each alias from `source` on.
    /// A chain that is looked up from either end costs one step an alias; one whose middle comes last, in many pieces,
    /// at most the length of the piece behind for each piece.
    fn cycle_through(
        &self,
        alias: RowId,
        source: RowId,
        definitions: &Definitions<P>,
    ) -> Option<Vec<SymbolName>> {
        if alias != source && !self.aliases.wanted.contains_key(&alias) {
            return None;
        }
        let mut cursor = Some(source);
        while let Some(row) = cursor
            && row != alias
        {
            cursor = self.source_of(row);
        }
        cursor?;
        let name = |row: RowId| definitions.row(row).map(|row| row.name.clone());
        let mut cycle: Vec<_> = name(alias).into_iter().collect();
        let mut row = source;
        while row != alias {
            cycle.extend(name(row));
            row = self.source_of(row)?;
        }
        cycle.extend(name(alias));
        Some(cycle)
    }
}

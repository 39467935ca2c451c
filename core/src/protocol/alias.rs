//! Alias: which alias waits for which row, so that a cycle of aliases is an error and not a wait.
//!
//! Each alias waits for one source. An edge is there from the moment the alias's lookup is lodged until
//! it ends; following edges from a source either comes to a row that is no alias, or back.

use rustc_hash::FxHashMap;

use crate::{LookupError, SymbolName};

use super::ids::RowId;
use super::lookup::Search;
use super::{Payload, SessionState};

/// An alias that waits for the symbol it names.
#[derive(Clone, Debug)]
pub(crate) struct AliasEdge {
    pub(crate) alias: RowId,
    pub(crate) source: SymbolName,
}

/// For each alias that waits, the row it waits for.
pub(crate) type AliasEdges = FxHashMap<RowId, RowId>;

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
            self.aliases.remove(alias);
        }
    }

    /// The cycle that an edge from `alias` to `source` would close.
    fn cycle_through(&self, alias: RowId, source: RowId) -> Option<Vec<SymbolName>> {
        let mut cursor = Some(source);
        while let Some(row) = cursor
            && row != alias
        {
            cursor = self.aliases.get(&row).copied();
        }
        cursor?;
        let name = |row: RowId| self.rows.get(row).map(|row| row.name.clone());
        let mut cycle: Vec<_> = name(alias).into_iter().collect();
        let mut row = source;
        while row != alias {
            cycle.extend(name(row));
            row = *self.aliases.get(&row)?;
        }
        cycle.extend(name(alias));
        Some(cycle)
    }
}

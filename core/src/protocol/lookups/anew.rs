//! Anew: symbols that failed for want of others, looked up when these have come.
//!
//! | it has come | how that is known |
//! |---|---|
//! | a definition | it is visible along the link order that was searched for it |
//! | a generator, a library, another link order | the count of such changes is another than when the search for it began |
//!
//! Neither is a promise: the unit that is tried once more searches itself, and fails again where something is missing. Its failure is for
//! the want of what was missing then, so it is tried again only after a further change.
//!
//! A unit that is tried once more looks up what it needs, and what of that has failed is tried by that lookup.

use std::collections::HashSet;

use crate::protocol::state::{Effects, Order, Payload, RowState, Search, SessionState};
use crate::protocol::storage::{DylibId, FailureId, RowId};
use crate::sync::weakened;
use crate::{JitDylibLookupFlags, SharedError, SymbolLookupFlags, SymbolName};

use super::lookup::Matches;

/// A unit that is tried once more, and may have failed because another has.
pub(crate) struct Retried {
    /// Where it looks up what it needs.
    pub(crate) order: Order,
    pub(crate) error: SharedError,
}

impl<P: Payload> SessionState<P> {
    /// See [`crate::ExecutionSession::generators_changed`].
    pub(crate) fn generators_changed(&mut self) {
        self.lookups.generators_changed += 1;
    }

    /// How often generators and link orders have changed.
    pub(super) fn changes(&self) -> u32 {
        // An error has room for so many bits, and no failure stays for as many changes as there are numbers.
        self.lookups.generators_changed.wrapping_add(self.definitions.link_order_changes()) as u32
    }

    /// Finds every symbol of the search. Symbols that failed for the want of something that may have come since are there anew.
    pub(super) fn match_anew(&mut self, search: &Search, effects: &mut Effects<P>) -> Matches {
        let matches = self.match_all(search);
        let failed = self.to_retry(search, &matches);
        match failed.is_empty() {
            true => matches,
            false => {
                failed.into_iter().for_each(|row| _ = self.retry(row, effects));
                self.match_all(search)
            }
        }
    }

    /// The failed symbols of a search that are to be tried once more, if it would be refused for nothing else.
    pub(super) fn to_retry(&self, search: &Search, matches: &Matches) -> Vec<RowId> {
        if !matches.is_doubtful || matches.may_generate || search.flags_only {
            return Vec::new();
        }
        let is_missing = |((_, flags), row): (&(SymbolName, SymbolLookupFlags), &Option<RowId>)| {
            row.is_none() && *flags == SymbolLookupFlags::RequiredSymbol
        };
        if search.symbols.0.iter().zip(&matches.rows).any(is_missing) {
            return Vec::new();
        }
        matches.rows.iter().flatten().copied().filter(|&row| self.is_to_retry(row)).collect()
    }

    fn is_to_retry(&self, row: RowId) -> bool {
        match self.definitions[row].state {
            RowState::Failed { failed_row, .. } => {
                self.definitions.has_spare(row) && self.may_have_come(failed_row.failure)
            }
            _ => false,
        }
    }

    /// Whether something that a unit has failed for the want of may have come since.
    fn may_have_come(&self, failure: FailureId) -> bool {
        let Some((missing, dylib)) = self.failures.missing(failure) else { return false };
        let Some((dylib, _)) = self.definitions.dylib_by_name(dylib) else { return false };
        let order = &self.definitions[dylib].link_order;
        missing.changes != self.changes()
            || missing.symbols.iter().any(|name| self.first_visible(name, order).is_some())
                && !weakened("retry::overlooks_definitions")
    }

    /// See [`crate::ExecutionSession::retry`]. Defines the failed symbols of `names` anew, and those that they have failed through. Gives
    /// their units, of which others may be the reason, and the symbols that cannot be had so. `seen` has the rows that were asked before.
    pub(crate) fn retry_names(
        &mut self,
        order: &[(DylibId, JitDylibLookupFlags)],
        names: &[SymbolName],
        seen: &mut HashSet<RowId>,
        effects: &mut Effects<P>,
    ) -> (Vec<Retried>, Vec<SymbolName>) {
        let (mut retried, mut left) = (Vec::new(), Vec::new());
        if !self.is_open() {
            return (retried, left);
        }
        for name in names {
            let Some((_, row)) = self.first_visible(name, order) else { continue };
            for row in self.failed_along(row).into_iter().filter(|row| seen.insert(*row)) {
                // It may be of a unit whose other symbols have brought it along.
                let Some(failed) = self.definitions.row(row) else { continue };
                let RowState::Failed { failed_row, .. } = failed.state else { continue };
                let (dylib, name) = (failed.dylib, failed.name.clone());
                let order = Order::from_slice(&self.definitions[dylib].link_order);
                let error = self.failures.error(failed_row.failure).cloned();
                match self.retry(row, effects) {
                    true => retried.extend(error.map(|error| Retried { order, error })),
                    false => left.push(name),
                }
            }
        }
        (retried, left)
    }
}

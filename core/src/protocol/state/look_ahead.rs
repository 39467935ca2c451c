//! Look ahead: memory that is about to be needed is read early, many places at once.
//!
//! Where a branch depends on what is read, the processor waits for each place by itself. Of places that are read together it
//! waits for all at once. Nothing is decided by what is read here.
//!
//! Each is here for a row of the bench that takes so much more processor time without it:
//!
//! | what is read early | when | row | without it |
//! |---|---|---|---|
//! | the records of the next symbols of a lookup: [`SessionState::look_ahead_at_addresses`] | symbols at known addresses are bound | `define_absolute`, 10,000 | 8 % |
//! | the records of the next symbols of a query, and the counts of their names: [`SessionState::look_ahead_in_query`] | one of them becomes Ready by itself | `materialize_noop`, pool of 2 | 6 % |
//!
//! A third stands where it may be `unsafe`: `symbol/text.rs` has the line of a name fetched to be written.

use crate::protocol::state::{Lodging, Payload, RowState, SessionState, Source};
use crate::protocol::storage::RowId;

/// So many symbols are looked ahead at, that were asked for together.
pub(crate) const AHEAD: usize = 16;

/// Fewer than this are not worth a look ahead.
pub(crate) const AHEAD_MIN: usize = 4;

/// Reads all of `places` only to load them into the cache.
#[inline(always)]
fn read_now(places: impl Iterator<Item = usize>) {
    std::hint::black_box(places.fold(0, usize::wrapping_add));
}

impl<P: Payload> SessionState<P> {
    /// Reads the places where the next rows that are bound will be recorded.
    #[inline(never)]
    pub(crate) fn look_ahead_at_addresses(&self, rows: &[Option<RowId>]) {
        let rows = rows.iter().flatten().filter_map(|&row| self.definitions.row(row));
        let bound =
            rows.filter(|row| matches!(row.state, RowState::NeverSearched { source: Source::Address(_) }));
        read_now(bound.map(|row| self.definitions.look_at_record(&row.name)));
    }

    /// Does so now and then for the symbols of a query that become Ready each by itself: what was asked for together is mostly emitted
    /// in the order of the question. `lodging` is where one does now.
    #[inline]
    pub(crate) fn look_ahead_in_query(&self, lodging: Lodging) {
        if lodging.is_none() || !(lodging.entry as usize).is_multiple_of(AHEAD) {
            return;
        }
        let Some((_, lodged)) = self.lookups.lodged_at(lodging) else { return };
        let Some(entries) = lodged.entries.get(lodging.entry as usize + AHEAD..) else { return };
        let waiting = entries.iter().take(AHEAD).filter(|entry| entry.waits());
        // The name's count too: an answer that names the symbol changes it.
        read_now(waiting.map(|entry| {
            self.definitions.look_at_record(&entry.name).wrapping_add(entry.name.handles() as usize)
        }));
    }
}

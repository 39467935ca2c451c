//! Look ahead: memory that is about to be needed is read early, many places at once.
//!
//! Where a branch depends on what is read, the processor waits for each place by itself. Of places that are read together it
//! waits for all at once. Nothing is decided by what is read here.
//!
//! The counts of the names of the next symbols of a query are read early when one of them becomes Ready by itself. Another place stands
//! where it may be `unsafe`: `symbol/text.rs` has the line of a name fetched to be written.

use crate::protocol::state::{Lodging, Payload, SessionState};

/// So many symbols are looked ahead at.
const AHEAD: usize = 16;

impl<P: Payload> SessionState<P> {
    /// Looks ahead now and then for the symbols of a query that become Ready each by itself: what was asked for together is mostly emitted
    /// in the order of the question. `lodging` is where one does now. An answer that names a symbol changes its name's count.
    #[inline]
    pub(crate) fn look_ahead_in_query(&self, lodging: Lodging) {
        if lodging.is_none() || !(lodging.entry as usize).is_multiple_of(AHEAD) {
            return;
        }
        let Some((_, lodged)) = self.lookups.lodged_at(lodging) else { return };
        let Some(entries) = lodged.entries.get(lodging.entry as usize + AHEAD..) else { return };
        let waiting = entries.iter().take(AHEAD).filter(|entry| entry.waits());
        std::hint::black_box(
            waiting.fold(0, |sum, entry| usize::wrapping_add(sum, entry.name.handles() as usize)),
        );
    }
}

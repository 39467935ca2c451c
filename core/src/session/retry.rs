//! Retry: failed symbols are made once more on demand.

use std::collections::HashSet;

use crate::error::{CAUSES_MAX, failure_in};
use crate::protocol::lookups::anew::Retried;
use crate::{ExecutionSession, RetryError, SearchOrder, SymbolName, WithCauses};

impl ExecutionSession {
    /// Has failed symbols among `names`, found along `order`, made once more when they are looked up, and all that they have failed
    /// through. Names that have not failed, or are not defined, are left alone.
    ///
    /// A symbol that failed for the want of another needs no such call: it is made once more by a lookup after a definition has come.
    ///
    /// # Concurrency
    /// Never waits. Several threads may ask for the same symbols: each is defined anew once, as if by
    /// [`define`](crate::JitDylib::define) with the tracker that it has.
    ///
    /// # Errors
    /// [`RetryError::NoSpare`] for symbols whose units have left no [spare](crate::MaterializationUnit::spare).
    ///
    /// # Cost
    /// One hold of the lock for `names`, linear in the symbols of their units and in the paths of the failures; another for each unit that
    /// failed because a lookup of its own did.
    pub fn retry(&self, order: &SearchOrder, names: &[SymbolName]) -> Result<(), RetryError> {
        let order = self.own_order(order).map_err(|dylib| RetryError::ForeignDylib { dylib })?;
        let (mut seen, mut left) = (HashSet::new(), Vec::new());
        let mut ahead = vec![(order, names.to_vec())];
        while let Some((order, names)) = ahead.pop() {
            let (retried, without) =
                self.transact(|state, effects| state.retry_names(&order, &names, &mut seen, effects));
            left.extend(without);
            for Retried { order, error } in retried {
                // A unit whose own lookup failed says so by its error.
                let reason = WithCauses(&*error).chain().take(CAUSES_MAX).find_map(failure_in);
                let first = reason.and_then(|failure| failure.path.first().cloned());
                ahead.extend(first.map(|first| (order, vec![first])));
            }
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(RetryError::NoSpare { symbols: left }),
        }
    }

    /// Notes that generators may find what they have not found before: after a library was loaded, for one.
    ///
    /// Symbols that failed for the want of others are then made once more when they are looked up. A generator that is
    /// [added](crate::JitDylib::add_generator) is noted by itself.
    pub fn generators_changed(&self) {
        self.transact(|state, _| state.generators_changed());
    }
}

//! Advise: an error names the definitions that may have been meant by the missing symbols.
//!
//! They are sought among the first definitions of the session, under its lock.

use crate::protocol::state::{Find, Order, Payload, Row, SessionState};
use crate::symbol::readable::slips;
use crate::{LookupError, SymbolName};

/// For how many missing symbols a lookup says which may have been meant, and at how many definitions it looks for that.
const NEAR_MAX: usize = 8;
const NEAR_ROWS_MAX: u32 = 4096;

impl<P: Payload> SessionState<P> {
    /// The same error with the names that may have been meant.
    pub(super) fn advised(&mut self, mut error: LookupError, order: &Order) -> LookupError {
        if let LookupError::NotFound { symbols, near, .. } = &mut error {
            let asked = &symbols[..symbols.len().min(NEAR_MAX)];
            let changes = self.definitions.name_changes();
            if asked.iter().any(|name| self.advice.find(name, order, changes).is_none())
                && self.advice.may_seek()
            {
                self.seek_near(asked, order, changes);
            }
            let nearest = |name| self.advice.find(name, order, changes)?.nearest.clone();
            *near = asked.iter().filter_map(|name| Some((name.clone(), nearest(name)?))).collect();
        }
        error
    }

    fn seek_near(&mut self, missing: &[SymbolName], order: &Order, changes: u64) {
        let is_seen =
            |row: &Row| order.iter().any(|&(dylib, flags)| dylib == row.dylib && row.is_seen_with(flags));
        let mut nearest = vec![None; missing.len()];
        for (_, row) in self.definitions.first_rows(NEAR_ROWS_MAX).filter(|(_, row)| is_seen(row)) {
            for (name, nearest) in missing.iter().zip(&mut nearest) {
                let slips = slips(name.as_str(), row.name.as_str());
                if let Some(slips) = slips.filter(|slips| nearest.is_none_or(|(least, _)| *slips < least)) {
                    *nearest = Some((slips, &row.name));
                }
            }
        }
        let finds = missing.iter().zip(nearest).map(|(name, nearest)| {
            let nearest = nearest.map(|(_, nearest)| nearest.clone());
            (name.clone(), Find { order: order.as_slice().into(), changes, nearest })
        });
        self.advice.remember(finds);
    }
}

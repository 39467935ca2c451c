//! Advice: which definitions may have been meant by names that were missed.
//!
//! The finds stay until a definition comes or goes, because a program may ask for the same names again and again.

use rustc_hash::FxHashMap;

use crate::protocol::storage::DylibId;
use crate::{JitDylibLookupFlags, SymbolName};

/// So many searches are made. A program that asks for more names in vain does not read the advice.
const SEARCHES_MAX: u32 = 1000;

/// Of so many names the finds are remembered.
const KNOWN_MAX: usize = 1024;

/// The finds so far.
#[derive(Debug)]
pub(crate) struct Advice {
    searches_left: u32,
    known: FxHashMap<SymbolName, Find>,
}

/// A definition that may have been meant, if there is one.
#[derive(Debug)]
pub(crate) struct Find {
    /// The order that was searched.
    pub(crate) order: Box<[(DylibId, JitDylibLookupFlags)]>,
    /// How many definitions had come and gone.
    pub(crate) changes: u64,
    pub(crate) nearest: Option<SymbolName>,
}

impl Default for Advice {
    fn default() -> Self {
        Self { searches_left: SEARCHES_MAX, known: FxHashMap::default() }
    }
}

impl Advice {
    /// Whether one more search is made.
    pub(crate) fn may_seek(&mut self) -> bool {
        let may_seek = self.searches_left > 0;
        self.searches_left -= u32::from(may_seek);
        may_seek
    }

    /// The find for a name, if it still holds.
    pub(crate) fn find(
        &self,
        name: &SymbolName,
        order: &[(DylibId, JitDylibLookupFlags)],
        changes: u64,
    ) -> Option<&Find> {
        self.known.get(name).filter(|find| find.changes == changes && *find.order == *order)
    }

    pub(crate) fn remember(&mut self, finds: impl Iterator<Item = (SymbolName, Find)>) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.extend(finds);
    }
}

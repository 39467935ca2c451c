//! The entries of all names, each found by the identity of its name.
//!
//! A name's entry goes in the transaction in which its last Ready row goes, and a row keeps its name. So no other name can have the
//! identity of an entry.

use crate::SymbolName;

use super::definitions::NameEntry;
use super::map::Map;

#[derive(Debug)]
pub(super) struct Names(Map<usize, NameEntry>);

/// So many names are read at one go: meanwhile nothing that any thread removes is freed.
const NAMES_AT_ONCE: usize = 4096;

impl Names {
    pub(super) fn new() -> Self {
        Self(Map::new())
    }

    /// Whether each of the names has an entry that `is_answer`.
    #[inline]
    pub(super) fn answer_all<'a>(
        &self,
        mut names: impl Iterator<Item = &'a SymbolName>,
        mut is_answer: impl FnMut(&NameEntry) -> bool,
    ) -> bool {
        loop {
            let guard = self.0.guard();
            for _ in 0..NAMES_AT_ONCE {
                let Some(name) = names.next() else { return true };
                if !self.0.get(&name.identity(), &guard).is_some_and(&mut is_answer) {
                    return false;
                }
            }
        }
    }

    /// Makes room for so many more names at once. For the one thread that writes, like all that follow.
    pub(super) fn reserve(&self, further: usize) {
        self.0.reserve(further);
    }

    /// Looks at the entry of a name.
    pub(super) fn look<R>(&self, name: &SymbolName, look: impl FnOnce(&NameEntry) -> R) -> Option<R> {
        self.0.current(&name.identity(), &self.0.guard()).map(look)
    }

    /// Sets the entry of a name: readers find this one or the one before. Says whether there was none.
    pub(super) fn put(&self, name: &SymbolName, entry: NameEntry) -> bool {
        self.0.insert(name.identity(), entry)
    }

    /// Forgets a name, within a closed gate. Says whether it had an entry.
    pub(super) fn remove(&self, name: &SymbolName) -> bool {
        self.0.remove(&name.identity())
    }
}

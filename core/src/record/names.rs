//! The records of all names: in the table if a name has one definition, else in a map of records.
//!
//! A name goes from one to the other within a closed gate.

use crate::SymbolName;
use crate::sync::atomic::Ordering;

use super::definitions::{Record, RecordedDefinition};
use super::map::Map;
use super::slot;
use super::table::{DiscardedTable, Table, Writer};
use super::word::Word;

/// The readers' view.
#[derive(Debug)]
pub(super) struct Names {
    /// Names with one definition.
    single: Table,
    /// Names with several.
    several: Map<SymbolName, Record>,
    /// How many of these there are: most sessions have none, and need not look.
    several_names: Word,
}

/// The record of one name.
pub(super) enum Recorded<'a> {
    Single(RecordedDefinition),
    Several(&'a Record),
}

/// So many names are read at one go: meanwhile nothing that any thread removes is freed.
const NAMES_AT_ONCE: usize = 4096;

impl Names {
    pub(super) fn new() -> Self {
        Self { single: Table::new(), several: Map::new(), several_names: Word::default() }
    }

    /// Whether there is something recorded of each of the names that `is_answer`.
    #[inline]
    pub(super) fn answer_all<'a>(
        &self,
        mut names: impl Iterator<Item = &'a SymbolName>,
        mut is_answer: impl FnMut(Recorded<'_>) -> bool,
    ) -> bool {
        let Some(mut name) = names.next() else { return true };
        loop {
            let answered = self.single.read(|single| {
                for _ in 0..NAMES_AT_ONCE {
                    let answers = match single.get(name) {
                        Some(definition) => is_answer(Recorded::Single(definition)),
                        None => self.several_answer(name, &mut is_answer),
                    };
                    if !answers {
                        return Some(false);
                    }
                    match names.next() {
                        Some(next) => name = next,
                        None => return Some(true),
                    }
                }
                None
            });
            match answered {
                // Of no name is there a single definition.
                None => {
                    let mut all = std::iter::once(name).chain(names);
                    return all.all(|name| self.several_answer(name, &mut is_answer));
                }
                Some(Some(answered)) => return answered,
                Some(None) => {}
            }
        }
    }

    #[inline]
    fn several_answer(&self, name: &SymbolName, is_answer: &mut impl FnMut(Recorded<'_>) -> bool) -> bool {
        // Relaxed: a reader with an old count overlooks a definition published a moment ago, or learns of it from the gate.
        // Models look at the map, which has all that they have to see.
        if !cfg!(any(uruk_loom, uruk_shuttle)) && self.several_names.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let guard = self.several.guard();
        self.several.get(name, &guard).is_some_and(|record| is_answer(Recorded::Several(record)))
    }

    /// How many names there are in the map.
    fn count_several(&self, count: usize) {
        // Relaxed: see `several_answer`.
        self.several_names.store(count as u64, Ordering::Relaxed);
    }
}

/// The writer's view of the names.
#[derive(Debug, Default)]
pub(super) struct NamesWriter {
    single: Writer,
    several: usize,
}

impl NamesWriter {
    pub(super) fn len(&self) -> usize {
        self.single.len() + self.several
    }

    pub(super) fn look_at(&self, name: &SymbolName) -> usize {
        self.single.look_at(name)
    }

    pub(super) fn reserve(&mut self, names: &Names, further: usize) {
        self.single.reserve(&names.single, further);
    }

    pub(super) fn take_discarded(&mut self) -> Option<DiscardedTable> {
        self.single.take_discarded()
    }

    /// How many slots there are, for models.
    #[cfg(uruk_loom)]
    pub(super) fn room(&self) -> usize {
        self.single.room()
    }

    /// Looks at the record of a name.
    pub(super) fn look<R>(
        &self,
        names: &Names,
        name: &SymbolName,
        look: impl FnOnce(&Record) -> R,
    ) -> Option<R> {
        if let Some(definition) = self.single.get(name) {
            return Some(look(&Record::One(definition)));
        }
        if self.several == 0 {
            return None;
        }
        names.several.current(name, &names.several.guard()).map(look)
    }

    /// Records the only definition of a name of which nothing is recorded.
    pub(super) fn insert_single(&mut self, names: &Names, name: &SymbolName, definition: RecordedDefinition) {
        if slot::fits(name, &definition) {
            self.single.insert(&names.single, name, &definition);
        } else {
            self.insert_several(names, name, Record::One(definition));
        }
    }

    /// Records what is true of a name instead of what was. `close` closes the gate.
    pub(super) fn put(
        &mut self,
        names: &Names,
        name: &SymbolName,
        record: Option<Record>,
        close: impl FnOnce(),
    ) {
        let was_single = self.single.get(name).is_some();
        match record {
            Some(Record::One(definition)) if slot::fits(name, &definition) => {
                close();
                self.remove(names, name);
                self.single.insert(&names.single, name, &definition);
            }
            // A successor in the same place: readers find one or the other.
            Some(record) if !was_single => self.insert_several(names, name, record),
            record => {
                close();
                self.remove(names, name);
                if let Some(record) = record {
                    self.insert_several(names, name, record);
                }
            }
        }
    }

    /// Forgets a name. Within a closed gate.
    pub(super) fn remove(&mut self, names: &Names, name: &SymbolName) {
        self.single.remove(&names.single, name);
        if self.several > 0 && names.several.remove(name) {
            self.several -= 1;
            names.count_several(self.several);
        }
    }

    fn insert_several(&mut self, names: &Names, name: &SymbolName, record: Record) {
        if names.several.insert(name.clone(), record) {
            self.several += 1;
            names.count_several(self.several);
        }
    }
}

//! Many definitions of one name, in a form of which one definition is replaced without copying all others.
//!
//! They are sorted by dylib and cut into parts of about as many definitions as there are parts. A new version shares
//! all parts with the one before but the one that changed. A map of its own for each name would find a definition as
//! fast, but would cost each name as much as thousands of definitions do.

use crate::ids::DylibId;
use crate::sync::Arc;

use super::definitions::IndexedDefinition;

/// The definitions; never changed, only succeeded.
#[derive(Clone, Debug)]
pub(super) struct ManyDefinitions {
    /// None of them is empty.
    parts: Box<[Part]>,
    len: usize,
}

type Part = Arc<[IndexedDefinition]>;

/// A part is copied as a whole; below this size that costs no more than the list of parts.
const PART_MIN: usize = 16;

impl ManyDefinitions {
    pub(super) fn of(mut definitions: Vec<IndexedDefinition>) -> Self {
        definitions.sort_unstable_by_key(|definition| definition.dylib);
        let parts = definitions.chunks(part_size(definitions.len())).map(Part::from).collect();
        Self { parts, len: definitions.len() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &IndexedDefinition> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    pub(super) fn get(&self, dylib: DylibId) -> Option<&IndexedDefinition> {
        let part = self.parts.get(self.part_of(dylib))?;
        let at = part.binary_search_by_key(&dylib, |definition| definition.dylib).ok()?;
        part.get(at)
    }

    /// The successor that has `definition` for its dylib.
    pub(super) fn with(&self, definition: IndexedDefinition) -> Self {
        let at = self.part_of(definition.dylib);
        let mut part = self.parts.get(at).map_or_else(Vec::new, |part| part.to_vec());
        match part.binary_search_by_key(&definition.dylib, |other| other.dylib) {
            Ok(place) => part[place] = definition,
            Err(place) => part.insert(place, definition),
        }
        self.with_part(at, &part)
    }

    /// The successor that has nothing for `dylib`.
    pub(super) fn without(&self, dylib: DylibId) -> Self {
        let at = self.part_of(dylib);
        let part = self.parts.get(at).map_or_else(Vec::new, |part| part.to_vec());
        let part: Vec<_> = part.into_iter().filter(|definition| definition.dylib != dylib).collect();
        self.with_part(at, &part)
    }

    /// Where a definition for `dylib` is or belongs.
    fn part_of(&self, dylib: DylibId) -> usize {
        self.parts.partition_point(|part| part[0].dylib <= dylib).saturating_sub(1)
    }

    /// The successor with other definitions in one of its parts.
    fn with_part(&self, at: usize, part: &[IndexedDefinition]) -> Self {
        let len = self.len + part.len() - self.parts.get(at).map_or(0, |part| part.len());
        let size = part_size(len);
        // A list that was large may have shrunk to nearly empty parts.
        if self.parts.len() > 4 * (len / size + 1) {
            let others = self.parts.iter().enumerate().filter(|(other, _)| *other != at);
            let others = others.flat_map(|(_, part)| part.iter()).copied();
            return Self::of(others.chain(part.iter().copied()).collect());
        }
        let halves = if part.len() > 2 * size { part.len().div_ceil(2) } else { 2 * size };
        let (before, after) = self.parts.split_at(at.min(self.parts.len()));
        let after = after.iter().skip(1).cloned();
        let parts = before.iter().cloned().chain(part.chunks(halves).map(Part::from)).chain(after).collect();
        Self { parts, len }
    }
}

/// How large the parts of so many definitions are, that there be about as many of them.
fn part_size(definitions: usize) -> usize {
    definitions.isqrt().max(PART_MIN)
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ids::RowId;
    use crate::protocol::storage::slab::Slab;
    use crate::{ExecutorAddr, SymbolFlags};

    /// Many ids, and a row for all definitions to be of.
    fn ids(count: usize) -> (Vec<DylibId>, RowId) {
        let mut dylibs = Slab::<DylibId, usize>::new();
        let mut rows = Slab::<RowId, usize>::new();
        ((0..count).map(|index| dylibs.insert(index)).collect(), rows.insert(0))
    }

    fn definition(dylib: DylibId, row: RowId, address: usize) -> IndexedDefinition {
        let address = ExecutorAddr::new(address as u64);
        IndexedDefinition { dylib, row, address, flags: SymbolFlags::EXPORTED, is_ready: true }
    }

    #[test]
    fn many_definitions_come_change_and_go_in_any_order() {
        const COUNT: usize = 3_000;
        let (dylibs, row) = ids(COUNT);
        // Relatively prime to the count: each index once, far apart.
        let scattered = |index: usize| index * 1_237 % COUNT;
        let mut many = ManyDefinitions::of(Vec::new());
        let mut expected = BTreeMap::new();
        for round in 0..3 {
            for index in 0..COUNT {
                let dylib = dylibs[scattered(index)];
                // In the second round they change, in the third they go.
                many =
                    if round == 2 { many.without(dylib) } else { many.with(definition(dylib, row, round)) };
                match round {
                    2 => expected.remove(&dylib),
                    _ => expected.insert(dylib, round as u64),
                };
                assert_eq!(many.len(), expected.len());
                assert!(many.parts.iter().all(|part| !part.is_empty()));
                assert!(many.parts.len() <= 5 * (many.len() / part_size(many.len()) + 1));
                assert!(many.parts.iter().all(|part| part.len() <= 4 * part_size(many.len())));
                if index % 100 == 0 {
                    let all = many.iter().map(|definition| (definition.dylib, definition.address.value()));
                    assert!(all.eq(expected.iter().map(|(dylib, address)| (*dylib, *address))));
                    let found = |dylib: &DylibId| many.get(*dylib).map(|found| found.address.value());
                    assert!(dylibs.iter().all(|dylib| found(dylib) == expected.get(dylib).copied()));
                }
            }
        }
        assert_eq!(many.parts.len(), 0);
    }

    #[test]
    fn a_successor_shares_all_parts_but_the_one_that_changed() {
        let (dylibs, row) = ids(1_000);
        let many = ManyDefinitions::of(dylibs.iter().map(|dylib| definition(*dylib, row, 1)).collect());
        let next = many.with(definition(dylibs[500], row, 2));
        assert_eq!(many.parts.len(), next.parts.len());
        let shared = many.parts.iter().zip(&next.parts).filter(|(one, other)| Arc::ptr_eq(one, other));
        assert_eq!(shared.count(), many.parts.len() - 1);
    }
}

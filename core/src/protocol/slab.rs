//! Slabs: entities in one vector, found by index and generation in constant time.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use super::ids::Id;

/// Holds entities of one kind. Freed places are reused under a new generation.
pub(crate) struct Slab<I, T> {
    slots: Vec<Slot<T>>,
    /// The first free slot of a list through the slots, or `NONE`.
    free: u32,
    live: usize,
    id: PhantomData<fn() -> I>,
}

struct Slot<T> {
    generation: u32,
    content: Content<T>,
}

enum Content<T> {
    Free { next: u32 },
    Live(T),
}

/// No index: the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

impl<I: Id, T> Slab<I, T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE, live: 0, id: PhantomData }
    }

    pub(crate) fn insert(&mut self, value: T) -> I {
        self.live += 1;
        if self.free == NONE {
            let index = u32::try_from(self.slots.len()).ok().filter(|&index| index != NONE);
            let index = index.expect("a session holds fewer than four billion entities of one kind");
            self.slots.push(Slot { generation: 0, content: Content::Live(value) });
            return I::new(index, 0);
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        if let Content::Free { next } = slot.content {
            self.free = next;
        }
        slot.content = Content::Live(value);
        I::new(index, slot.generation)
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        let slot =
            self.slots.get_mut(id.index() as usize).filter(|slot| slot.generation == id.generation())?;
        if matches!(slot.content, Content::Free { .. }) {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        let content = std::mem::replace(&mut slot.content, Content::Free { next: self.free });
        self.free = id.index();
        self.live -= 1;
        match content {
            Content::Live(value) => Some(value),
            Content::Free { .. } => None,
        }
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        match self.slots.get(id.index() as usize) {
            Some(Slot { generation, content: Content::Live(value) }) if *generation == id.generation() => {
                Some(value)
            }
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        match self.slots.get_mut(id.index() as usize) {
            Some(Slot { generation, content: Content::Live(value) }) if *generation == id.generation() => {
                Some(value)
            }
            _ => None,
        }
    }

    pub(crate) fn contains(&self, id: I) -> bool {
        self.get(id).is_some()
    }

    /// The id of what lives at `index`.
    pub(crate) fn id_at(&self, index: u32) -> Option<I> {
        match self.slots.get(index as usize) {
            Some(Slot { generation, content: Content::Live(_) }) => Some(I::new(index, *generation)),
            _ => None,
        }
    }

    /// What lives at `index`, whatever its generation: for lists whose links hold bare indices.
    pub(crate) fn at(&self, index: u32) -> &T {
        match &self.slots[index as usize].content {
            Content::Live(value) => value,
            Content::Free { .. } => panic!("a list of the state links to a freed place"),
        }
    }

    /// See [`Slab::at`].
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        match &mut self.slots[index as usize].content {
            Content::Live(value) => value,
            Content::Free { .. } => panic!("a list of the state links to a freed place"),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| match &slot.content {
            Content::Live(value) => Some((I::new(index, slot.generation), value)),
            Content::Free { .. } => None,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// One more than the largest index that was ever in use: where a walk by [`Slab::id_at`] ends.
    pub(crate) fn end(&self) -> u32 {
        // Fits: `insert` has checked it.
        self.slots.len() as u32
    }
}

/// For ids that must be live: a stale one is a bug in the protocol.
impl<I: Id + fmt::Debug, T> Index<I> for Slab<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        self.get(id).unwrap_or_else(|| panic!("{id:?} is stale"))
    }
}

impl<I: Id + fmt::Debug, T> IndexMut<I> for Slab<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        self.get_mut(id).unwrap_or_else(|| panic!("{id:?} is stale"))
    }
}

impl<I, T> fmt::Debug for Slab<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("live", &self.live).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use crate::protocol::ids::RowId;

    #[test]
    fn a_stale_id_finds_nothing_after_its_place_is_reused() {
        let mut slab: Slab<RowId, &str> = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.index(), first.index());
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!(slab.len(), 1);
    }
}

//! Slabs: entities of one kind, found by index and generation in constant time.
//!
//! ```text
//!  index    chunk number | offset in the chunk
//!  chunks   [ slots ] [ slots ] [       ] [ slots ]        empty chunks give their memory away, but for a few
//! ```
//!
//! A slab never frees memory itself, for it is used under a lock: the caller that removes an entity says where an empty chunk
//! goes (`memory.rs`).
//!
//! **Invariant:** an id is never valid again once its entity was removed. A place that is reused gets the next
//! generation; one whose chunk was given away and made again starts from a generation that is larger than
//! any of the chunks that are gone ever had. A place that has had all generations is worn: it stays free, and the memory of
//! its chunk stays.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use crate::ids::Id;
use crate::protocol::storage::memory::Takes;

/// Holds entities of one kind. Its memory follows their number, up and down.
///
/// Slots lie at least as `A` is aligned.
pub(crate) struct Slab<I, T, A = ()> {
    chunks: Vec<Vec<SlabSlot<T, A>>>,
    /// The data of insertion and removal on each chunk, apart from the slots that everybody reads.
    rooms: Vec<SlabChunk>,
    /// Chunks with room and memory. Some may have become full or empty since.
    open: Vec<u32>,
    /// Chunks without memory.
    released: Vec<u32>,
    /// How many chunks have memory and no entity.
    spare: usize,
    /// So many of them keep it: one, so that a slab that goes up and down by one does not make and free a chunk each time,
    /// or several.
    spare_max: usize,
    /// The first generation of slots that are new.
    fresh_generation: u32,
    live: usize,
    id: PhantomData<fn() -> I>,
}

/// The generation comes first: what an entity begins with shares its cache line.
#[repr(C)]
struct SlabSlot<T, A> {
    align: [A; 0],
    generation: u32,
    content: Content<T>,
}

enum Content<T> {
    Free { next: u32 },
    Live(T),
}

#[derive(Clone, Copy)]
struct SlabChunk {
    /// The offset of the first free slot of a list through them, or `NONE`.
    free: u32,
    live: u32,
    /// The largest generation among its slots that were used again, or will be.
    generation: u32,
    /// Whether the chunk is in one of the lists of chunks with room.
    is_listed: bool,
}

/// An alignment: two lines of the cache, which processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct TwoLines;

/// No index: the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

const OFFSET_BITS: u32 = 9;
const CHUNK: usize = 1 << OFFSET_BITS;

/// So much memory a slab of what comes and goes may keep in empty chunks.
const KEPT_BYTES_MAX: usize = 1 << 20;

fn place_of(index: u32) -> (usize, usize) {
    ((index >> OFFSET_BITS) as usize, index as usize % CHUNK)
}

impl<T, A> SlabSlot<T, A> {
    #[inline]
    fn live(&self) -> Option<&T> {
        match &self.content {
            Content::Live(value) => Some(value),
            Content::Free { .. } => None,
        }
    }
}

impl SlabChunk {
    fn is_worn(&self) -> bool {
        self.generation == u32::MAX
    }
}

impl<I: Id, T, A> Slab<I, T, A> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            rooms: Vec::new(),
            open: Vec::new(),
            released: Vec::new(),
            spare: 0,
            spare_max: 1,
            fresh_generation: 0,
            live: 0,
            id: PhantomData,
        }
    }

    /// For what comes and goes in large numbers: some empty chunks keep their memory. To free one costs an allocator about as
    /// much as its entities cost the slab, for it puts the pieces together that it keeps for fast use otherwise.
    pub(crate) const fn of_passing() -> Self {
        let mut slab = Self::new();
        let fit = KEPT_BYTES_MAX / (CHUNK * size_of::<SlabSlot<T, A>>());
        slab.spare_max = if fit == 0 { 1 } else { fit };
        slab
    }

    /// Inlined, so that a value is made where it is to lie: a copy of one that was just written waits for the writes.
    #[inline(always)]
    pub(crate) fn insert(&mut self, value: T) -> I {
        let number = self.chunk_with_room();
        let (slots, room) = (&mut self.chunks[number], &mut self.rooms[number]);
        if room.live == 0 && !slots.is_empty() && !room.is_worn() {
            self.spare -= 1;
        }
        room.live += 1;
        self.live += 1;
        let offset = match room.free {
            NONE => {
                let generation = self.fresh_generation;
                slots.push(SlabSlot { align: [], generation, content: Content::Live(value) });
                slots.len() - 1
            }
            free => {
                let slot = &mut slots[free as usize];
                if let Content::Free { next } = slot.content {
                    room.free = next;
                }
                slot.content = Content::Live(value);
                free as usize
            }
        };
        // Both fit: `add_chunk` has checked the number.
        I::new((number as u32) << OFFSET_BITS | offset as u32, slots[offset].generation)
    }

    /// The number of a chunk that can take one more.
    fn chunk_with_room(&mut self) -> usize {
        while let Some(&number) = self.open.last() {
            let number = number as usize;
            if self.chunks[number].capacity() == 0 {
                self.open.pop();
                self.released.push(number as u32);
            } else if self.rooms[number].free == NONE && self.chunks[number].len() == CHUNK {
                self.open.pop();
                self.rooms[number].is_listed = false;
            } else {
                return number;
            }
        }
        let number = match self.released.pop() {
            Some(number) => {
                self.chunks[number as usize] = Vec::with_capacity(CHUNK);
                number
            }
            None => self.add_chunk(),
        };
        self.open.push(number);
        number as usize
    }

    fn add_chunk(&mut self) -> u32 {
        let number = u32::try_from(self.chunks.len()).ok().filter(|&number| number < NONE >> OFFSET_BITS);
        let number = number.expect("a session holds fewer than four billion entities of one kind");
        // The first one grows as it is filled: most slabs of most sessions hold a few entities.
        self.chunks.push(Vec::with_capacity(if number == 0 { 4 } else { CHUNK }));
        self.rooms.push(SlabChunk { free: NONE, live: 0, generation: 0, is_listed: true });
        number
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        let slot = self.slot(id.index())?;
        slot.live().filter(|_| slot.generation == id.generation())
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let (number, offset) = place_of(id.index());
        match self.chunks.get_mut(number)?.get_mut(offset) {
            Some(SlabSlot { generation, content: Content::Live(value), .. })
                if *generation == id.generation() =>
            {
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
        self.entry_at(index).map(|(id, _)| id)
    }

    /// The entity at `index`, with its id.
    pub(crate) fn entry_at(&self, index: u32) -> Option<(I, &T)> {
        let slot = self.slot(index)?;
        Some((I::new(index, slot.generation), slot.live()?))
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&SlabSlot<T, A>> {
        let (number, offset) = place_of(index);
        self.chunks.get(number)?.get(offset)
    }

    /// The entity at `index`, of any generation: for lists whose links hold bare indices.
    pub(crate) fn at(&self, index: u32) -> &T {
        let (number, offset) = place_of(index);
        match &self.chunks[number][offset].content {
            Content::Live(value) => value,
            Content::Free { .. } => panic!("a list of the state links to a freed place"),
        }
    }

    /// See [`Slab::at`].
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        let (number, offset) = place_of(index);
        match &mut self.chunks[number][offset].content {
            Content::Live(value) => value,
            Content::Free { .. } => panic!("a list of the state links to a freed place"),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.chunks.iter().zip(0..).flat_map(|(slots, number)| {
            let slots = slots.iter().zip(number << OFFSET_BITS..);
            slots.filter_map(|(slot, index)| Some((I::new(index, slot.generation), slot.live()?)))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// One more than the largest index that may be in use: where a walk by [`Slab::id_at`] ends.
    pub(crate) fn end(&self) -> u32 {
        // Fits: `add_chunk` has checked it.
        (self.chunks.len() * CHUNK) as u32
    }
}

/// Memory leaves for another thread, perhaps, when entities are removed.
impl<I: Id, T: Send + 'static, A: Send + 'static> Slab<I, T, A> {
    pub(crate) fn remove(&mut self, id: I, memory: &mut impl Takes) -> Option<T> {
        match self.take(id, memory, std::mem::replace)? {
            Content::Live(value) => Some(value),
            Content::Free { .. } => None,
        }
    }

    /// Removes an entity and drops it where it lies, which saves moving a large one. A stale id does nothing.
    pub(crate) fn discard(&mut self, id: I, memory: &mut impl Takes) {
        self.take(id, memory, |content, free| *content = free);
    }

    /// Takes an entity out by `replace`, which is given its content and what comes in its place.
    #[inline(always)]
    fn take<R>(
        &mut self,
        id: I,
        memory: &mut impl Takes,
        replace: impl FnOnce(&mut Content<T>, Content<T>) -> R,
    ) -> Option<R> {
        let (number, offset) = place_of(id.index());
        let slot = self.chunks.get_mut(number)?.get_mut(offset)?;
        if slot.generation != id.generation() || matches!(slot.content, Content::Free { .. }) {
            return None;
        }
        let room = &mut self.rooms[number];
        room.live -= 1;
        self.live -= 1;
        let Some(generation) = slot.generation.checked_add(1) else {
            return Some(replace(&mut slot.content, Content::Free { next: NONE }));
        };
        slot.generation = generation;
        room.generation = room.generation.max(generation);
        let taken = replace(&mut slot.content, Content::Free { next: room.free });
        room.free = offset as u32;
        if !room.is_listed {
            room.is_listed = true;
            self.open.push(number as u32);
        }
        if room.live == 0 && !room.is_worn() {
            // A few empty ones keep their memory.
            match self.spare < self.spare_max {
                true => self.spare += 1,
                false => self.release(number, memory),
            }
        }
        Some(taken)
    }

    /// A chunk beside another has become empty: gives its memory away.
    #[cold]
    #[inline(never)]
    fn release(&mut self, number: usize, memory: &mut impl Takes) {
        memory.take_memory(Box::new(std::mem::take(&mut self.chunks[number])));
        let room = &mut self.rooms[number];
        room.free = NONE;
        self.fresh_generation = self.fresh_generation.max(std::mem::take(&mut room.generation));
    }
}

/// For ids that must be live: a stale one is a bug in the protocol.
impl<I: Id + fmt::Debug, T, A> Index<I> for Slab<I, T, A> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        self.get(id).unwrap_or_else(|| panic!("{id:?} is stale"))
    }
}

impl<I: Id + fmt::Debug, T, A> IndexMut<I> for Slab<I, T, A> {
    fn index_mut(&mut self, id: I) -> &mut T {
        self.get_mut(id).unwrap_or_else(|| panic!("{id:?} is stale"))
    }
}

impl<I, T, A> fmt::Debug for Slab<I, T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("live", &self.live).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    //! For tests alone.
    use super::*;

    impl<I: Id, T, A> Slab<I, T, A> {
        /// How many entities there is memory for, for tests.
        pub(crate) fn capacity(&self) -> usize {
            self.chunks.iter().map(Vec::capacity).sum()
        }

        /// How many bytes its slots take.
        pub(crate) fn bytes(&self) -> usize {
            self.capacity() * size_of::<SlabSlot<T, A>>()
        }
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use crate::ids::RowId;

    #[test]
    fn a_stale_id_finds_nothing_after_its_place_is_reused() {
        let mut slab: Slab<RowId, &str> = Slab::new();
        let mut memory = Vec::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first, &mut memory), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.index(), first.index());
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first, &mut memory), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_place_that_has_had_all_generations_is_used_no_more() {
        let mut slab: Slab<RowId, usize> = Slab::new();
        let mut memory = Vec::new();
        slab.fresh_generation = u32::MAX - 1;
        let mut gone = Vec::new();
        for round in 0..6 {
            let ids: Vec<_> = (0..2 * CHUNK).map(|value| slab.insert(value + round)).collect();
            assert!(ids.iter().all(|id| !gone.contains(id)), "an id is given once");
            for (value, &id) in ids.iter().enumerate() {
                assert_eq!(slab.remove(id, &mut memory), Some(value + round));
            }
            assert!(gone.iter().chain(&ids).all(|&id| slab.get(id).is_none()));
            gone.extend(ids);
        }
        assert_eq!(slab.len(), 0);
    }

    #[test]
    fn memory_follows_what_is_live_and_ids_stay_stale() {
        let mut slab: Slab<RowId, usize> = Slab::new();
        let mut memory = Vec::new();
        let mut gone = Vec::new();
        for round in 0..4 {
            let ids: Vec<_> = (0..20 * CHUNK).map(|value| slab.insert(value + round)).collect();
            assert_eq!(slab.capacity(), 20 * CHUNK, "what was given back is used again");
            // All but one of each chunk, and every second chunk whole.
            let goes = |index: &usize| index % CHUNK != 7 || (index / CHUNK).is_multiple_of(2);
            for &id in ids.iter().enumerate().filter(|(index, _)| goes(index)).map(|(_, id)| id) {
                assert!(slab.remove(id, &mut memory).is_some());
                assert_eq!(slab.remove(id, &mut memory), None);
            }
            assert_eq!(slab.len(), 10);
            assert!(slab.capacity() <= 11 * CHUNK, "{} places for 10 entities", slab.capacity());
            let kept: Vec<_> = slab.iter().map(|(id, &value)| (id, value)).collect();
            for (id, value) in kept {
                assert_eq!(slab.remove(id, &mut memory), Some(value));
            }
            assert!(slab.capacity() <= CHUNK);
            gone.extend(ids);
            assert!(gone.iter().all(|&id| slab.get(id).is_none()));
            assert_eq!(
                std::mem::take(&mut memory).len(),
                19,
                "each chunk but the last is given to somebody to free"
            );
        }
    }

    #[test]
    fn of_what_comes_and_goes_some_memory_is_kept() {
        let mut slab: Slab<RowId, [u64; 7]> = Slab::of_passing();
        let kept = slab.spare_max;
        assert!((2..100).contains(&kept));
        for _ in 0..2 {
            let ids: Vec<_> = (0..2 * kept * CHUNK).map(|_| slab.insert([0; 7])).collect();
            let mut memory = Vec::new();
            ids.into_iter().for_each(|id| slab.discard(id, &mut memory));
            assert_eq!((slab.len(), slab.capacity(), memory.len()), (0, kept * CHUNK, kept));
        }
    }

    #[test]
    fn a_slab_agrees_with_a_map() {
        let mut slab: Slab<RowId, u64> = Slab::new();
        let mut memory = Vec::new();
        let mut model = std::collections::BTreeMap::new();
        let mut random = 1u64;
        let mut stale = Vec::new();
        for step in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = (random >> 33) as usize;
            // Ebb and flow, so that chunks come and go.
            let grows = draw % 100 < if step / 10_000 % 2 == 0 { 70 } else { 30 };
            if grows {
                let id = slab.insert(random);
                assert!(model.insert(id, random).is_none(), "an id is given once");
            } else if let Some((&id, &value)) = model.iter().nth(draw % model.len().max(1)) {
                if draw.is_multiple_of(2) {
                    assert_eq!(slab.remove(id, &mut memory), Some(value));
                } else {
                    slab.discard(id, &mut memory);
                    slab.discard(id, &mut memory);
                }
                model.remove(&id);
                stale.push(id);
            }
            assert_eq!(slab.len(), model.len());
        }
        assert!(slab.iter().eq(model.iter().map(|(&id, value)| (id, value))));
        assert!(stale.iter().all(|&id| !slab.contains(id)));
    }
}

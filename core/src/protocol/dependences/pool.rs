//! Pools: places of one size, found by index in constant time, whose memory follows how many are in use.
//!
//! ```text
//!  index    chunk number | offset in the chunk
//!  chunks   [ places ] [ places ] [        ] [ places ]     an empty chunk gives its memory away
//!  rooms    [ a bit a place: free? ] ...                    apart, so that freeing touches no place
//! ```
//!
//! The lowest free place of a chunk is taken first: entities made together lie together.
//!
//! A pool never frees a chunk itself, for it is used under a lock: the caller that frees a place says where an empty chunk goes
//! (`memory.rs`).

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

use crate::protocol::storage::Takes;

use super::NodeId;

/// See the module's head. A place that is free holds its last value, until its chunk goes.
#[derive(Debug)]
pub(super) struct Pool<T> {
    /// Of one length, but for the first, which may be shorter, and those without memory.
    chunks: Vec<Box<[T]>>,
    rooms: Vec<PoolChunk>,
    /// Chunks with room and memory. Some may have become full or lost their memory since.
    open: Vec<u32>,
    /// Chunks without memory that can be made again.
    released: Vec<u32>,
    /// Empty chunks that have kept their memory: at most one, so that a pool which goes up and down by one does not
    /// make and drop a chunk each time.
    spare: Option<u32>,
    live: usize,
}

/// A chunk's data for taking and freeing.
#[derive(Clone, Copy, Debug)]
struct PoolChunk {
    /// A bit for each place that is free.
    free: [u64; WORDS],
    /// None of the words before this one has a bit.
    lowest: u8,
    live: u16,
    /// Whether the chunk is in one of the lists of chunks with room.
    is_listed: bool,
    /// One of its places is used up: once it is empty nothing of it is used again.
    is_worn: bool,
    /// The largest age that any of its places had.
    age: u32,
}

impl PoolChunk {
    /// The first word with a free place.
    fn word_with_room(&mut self) -> Option<usize> {
        while let Some(&word) = self.free.get(usize::from(self.lowest)) {
            if word != 0 {
                return Some(usize::from(self.lowest));
            }
            self.lowest += 1;
        }
        None
    }

    /// These places are free from now on.
    fn set_free(&mut self, free: [u64; WORDS]) {
        (self.free, self.lowest) = (free, 0);
    }
}

const OFFSET_BITS: u32 = 9;
pub(crate) const CHUNK: usize = 1 << OFFSET_BITS;
const WORDS: usize = CHUNK / u64::BITS as usize;
/// The first chunk begins with so many places: most forests stay small.
const FIRST: usize = 16;
/// Indices from here on mean something else.
const END: u32 = u32::MAX << OFFSET_BITS;

pub(super) fn place_of(index: u32) -> (usize, usize) {
    ((index >> OFFSET_BITS) as usize, index as usize % CHUNK)
}

/// A room of `length` places, all of them free.
fn all_free(length: usize) -> [u64; WORDS] {
    let mut free = [0u64; WORDS];
    (0..length).for_each(|place| free[place / 64] |= 1 << (place % 64));
    free
}

impl<T: Copy + Send + 'static> Pool<T> {
    pub(super) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            rooms: Vec::new(),
            open: Vec::new(),
            released: Vec::new(),
            spare: None,
            live: 0,
        }
    }

    /// Takes a free place. It holds what it was left with or, if it is new, what `blank` makes of the age from which
    /// it has to go on.
    pub(super) fn take(&mut self, blank: impl FnOnce(u32) -> T) -> u32 {
        let number = self.chunk_with_room(blank);
        let room = &mut self.rooms[number as usize];
        if room.live == 0 {
            self.spare = None;
        }
        room.live += 1;
        self.live += 1;
        let word = room.word_with_room().expect("an open chunk has room");
        let bit = room.free[word].trailing_zeros();
        room.free[word] &= room.free[word] - 1;
        (number << OFFSET_BITS) + word as u32 * u64::BITS + bit
    }

    /// Frees a place, whose next user must be told an age of at least `age`; without one it is used up.
    pub(super) fn give_back(&mut self, index: u32, age: Option<u32>, memory: &mut impl Takes) {
        let (number, offset) = place_of(index);
        let room = &mut self.rooms[number];
        match age {
            Some(age) => {
                room.free[offset / 64] |= 1 << (offset % 64);
                room.lowest = room.lowest.min((offset / 64) as u8);
                room.age = room.age.max(age);
            }
            None => room.is_worn = true,
        }
        room.live -= 1;
        self.live -= 1;
        if room.live == 0 {
            self.release(number as u32, memory);
        } else if !room.is_listed {
            room.is_listed = true;
            self.open.push(number as u32);
        }
    }

    /// The number of a chunk that can take one more.
    fn chunk_with_room(&mut self, blank: impl FnOnce(u32) -> T) -> u32 {
        while let Some(&number) = self.open.last() {
            let room = &mut self.rooms[number as usize];
            if room.word_with_room().is_some() {
                return number;
            }
            self.open.pop();
            room.is_listed = false;
            // Without memory, and no longer listed among the open ones.
            if self.chunks[number as usize].is_empty() && !room.is_worn {
                room.is_listed = true;
                self.released.push(number);
            }
        }
        if let [first] = &mut self.chunks[..]
            && (1..CHUNK).contains(&first.len())
        {
            let used = first.len();
            let mut longer = vec![blank(self.rooms[0].age); CHUNK];
            longer[..used].copy_from_slice(first);
            *first = longer.into_boxed_slice();
            self.rooms[0].set_free(all_free(CHUNK));
            self.rooms[0].free[0] &= !0 << used;
            self.rooms[0].is_listed = true;
            self.open.push(0);
            return 0;
        }
        let number = self.released.pop().unwrap_or_else(|| self.add_chunk());
        let length = if number == 0 && self.chunks.len() == 1 { FIRST } else { CHUNK };
        let room = &mut self.rooms[number as usize];
        room.set_free(all_free(length));
        room.is_listed = true;
        self.chunks[number as usize] = vec![blank(room.age); length].into_boxed_slice();
        self.open.push(number);
        number
    }

    fn add_chunk(&mut self) -> u32 {
        let number = self.chunks.len() as u32;
        assert!(number < END >> OFFSET_BITS, "the forest holds fewer than four billion nodes, and edges");
        self.chunks.push(Box::default());
        self.rooms.push(PoolChunk {
            free: [0; WORDS],
            lowest: 0,
            live: 0,
            is_listed: false,
            is_worn: false,
            age: 0,
        });
        number
    }

    /// A chunk has become empty: gives up its memory, unless it is the only empty one.
    fn release(&mut self, number: u32, memory: &mut impl Takes) {
        let room = &mut self.rooms[number as usize];
        if self.spare.is_none() && !room.is_worn {
            self.spare = Some(number);
            if !room.is_listed {
                room.is_listed = true;
                self.open.push(number);
            }
            return;
        }
        memory.take_memory(Box::new(std::mem::take(&mut self.chunks[number as usize])));
        room.set_free([0; WORDS]);
        // One that is listed is found to be without memory when it is its turn.
        if !room.is_listed && !room.is_worn {
            room.is_listed = true;
            self.released.push(number);
        }
    }

    /// How many places the chunk around `index` has memory for.
    pub(super) fn chunk_len(&self, index: u32) -> usize {
        self.chunks.get(place_of(index).0).map_or(0, |chunk| chunk.len())
    }

    /// How many places are in use.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn len(&self) -> usize {
        self.live
    }
}

impl<T> Index<u32> for Pool<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        let (number, offset) = place_of(index);
        &self.chunks[number][offset]
    }
}

impl<T> IndexMut<u32> for Pool<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        let (number, offset) = place_of(index);
        &mut self.chunks[number][offset]
    }
}

/// The generation of each place that nodes have had, in chunks like those of the nodes.
#[derive(Debug)]
pub(super) struct Ages(Vec<Vec<u32>>);

/// The age of a place that is used up.
const WORN: u32 = 0;

impl Ages {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// There is a chunk around `index`, or it has become longer: what is new begins at `age`.
    pub(super) fn make(&mut self, index: u32, length: usize, age: u32) {
        let (number, _) = place_of(index);
        if self.0.len() <= number {
            self.0.resize_with(number + 1, Vec::new);
        }
        debug_assert!(length <= CHUNK);
        self.0[number].resize(length, age.max(1));
    }

    /// The chunk around `index` is gone.
    pub(super) fn forget(&mut self, index: u32, memory: &mut impl Takes) {
        memory.take_memory(Box::new(std::mem::take(&mut self.0[place_of(index).0])));
    }

    /// The id of what lives at `index`.
    pub(super) fn id(&self, index: u32) -> NodeId {
        let (number, offset) = place_of(index);
        let generation = NonZeroU32::new(self.0[number][offset]).unwrap_or(NonZeroU32::MIN);
        NodeId { index, generation }
    }

    /// Whether the node has not been freed.
    pub(super) fn is_alive(&self, id: NodeId) -> bool {
        let (number, offset) = place_of(id.index);
        let age = self.0.get(number).and_then(|ages| ages.get(offset));
        age.is_some_and(|&age| age == id.generation.get())
    }

    /// The entity at `index` has been freed. Gives the age of its successor, unless there can be none.
    pub(super) fn end(&mut self, index: u32) -> Option<u32> {
        let (number, offset) = place_of(index);
        let age = &mut self.0[number][offset];
        *age = age.checked_add(1).unwrap_or(WORN);
        (*age != WORN).then_some(*age)
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    //! For tests alone.
    use super::*;

    impl<T: Copy + Send + 'static> Pool<T> {
        /// How many places there is memory for.
        pub(crate) fn capacity(&self) -> usize {
            self.chunks.iter().map(|chunk| chunk.len()).sum()
        }

        /// The places that are in use.
        pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
            self.chunks.iter().zip(&self.rooms).zip(0u32..).flat_map(|((chunk, room), number)| {
                let is_used = |&offset: &usize| room.free[offset / 64] >> (offset % 64) & 1 == 0;
                (0..chunk.len()).filter(is_used).map(move |offset| (number << OFFSET_BITS) + offset as u32)
            })
        }
    }
}

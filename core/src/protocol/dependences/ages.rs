//! Ages: the generations of all nodes, close together.
//!
//! Of most edges nothing is asked but whether the target still lives. A node fills a line of the cache, which is far
//! away mostly; of ages there are sixteen in a line.

use std::num::NonZeroU32;

use crate::protocol::storage::Takes;

use super::{
    NodeId,
    pool::{CHUNK, place_of},
};

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

    /// What lived at `index` has been freed. Gives the age of its successor, unless there can be none.
    pub(super) fn end(&mut self, index: u32) -> Option<u32> {
        let (number, offset) = place_of(index);
        let age = &mut self.0[number][offset];
        *age = age.checked_add(1).unwrap_or(WORN);
        (*age != WORN).then_some(*age)
    }
}

//! Memory in which nothing lives any more, on its way out from under the lock.
//!
//! Freeing even a little may take milliseconds: the memory beside it may have been free for long, and an allocator gives all
//! of it back to the system once the last piece between is gone.
//!
//! **Architecture Invariant:** chunks of entities (but for a first one that grows), the list of a lookup of many, and a large table
//! of names that another replaces are never freed under the lock. They are dropped later, without it (`holds.rs`).

use std::any::Any;

/// Something to drop. It holds no value of the embedder.
pub(crate) type Memory = Box<dyn Any + Send>;

/// Takes memory along to where no thread waits for it to be freed.
pub(crate) trait Takes {
    fn take_memory(&mut self, memory: Memory);
}

/// For who hands it on later.
impl Takes for Vec<Memory> {
    fn take_memory(&mut self, memory: Memory) {
        self.push(memory);
    }
}

//! Memory in which nothing lives any more, on its way out from under the lock.
//!
//! Freeing it may take milliseconds, however little it is: what lies beside it may have been free for long, and an allocator
//! gives all of that back to the system once the last piece between is gone.
//!
//! **Architecture Invariant:** neither a chunk of entities, but for a first one that grows, nor the list of a lookup of many, nor
//! a large table of names that another replaces is freed under the lock: they are left to somebody who drops them later (`holds.rs`).

use std::any::Any;

/// Something to drop. It holds no value of the embedder.
pub(crate) type Memory = Box<dyn Any + Send>;

/// Takes memory along to where nobody waits for it to be freed.
pub(crate) trait Takes {
    fn take_memory(&mut self, memory: Memory);
}

/// For who hands it on later.
impl Takes for Vec<Memory> {
    fn take_memory(&mut self, memory: Memory) {
        self.push(memory);
    }
}

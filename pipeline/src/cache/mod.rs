#![doc = include_str!("README.md")]

mod compile;
mod counters;
mod disk;
mod event;
mod flights;
mod key;
mod memory;
mod miss;
mod mode;
mod pack;
mod range_lock;
mod write_behind;

use std::fmt;

pub use compile::{Blocking, CompileCache, CompileCacheStats, Obtained, Origin};
pub use disk::DiskCache;
pub use event::{CacheEvent, CacheObserver, EntryKind};
#[cfg(feature = "llvm")]
pub(crate) use key::ENGINE_SCHEMA;
#[cfg(all(test, feature = "llvm"))]
pub(crate) use key::changed_one_at_a_time;
pub use key::{InterfaceIngredients, Key, KeyBuilder, ObjectIngredients, UnitIngredients};
pub use memory::MemoryCache;
pub use miss::{Damage, Miss};
pub use mode::{CacheMode, ReadOnlyCache};
pub use pack::{
    Access, BadSlot, CacheOpenError, Collected, GenerationStats, Pack, PackEntry, PackLimits, PackStats,
    Verified, WriteError, Written,
};

#[cfg(feature = "llvm")]
pub(crate) use counters::Counter;

use crate::object::ObjectBuffer;

/// Entries by keys. A hit gives the bytes that were put; an entry may be gone at any time.
///
/// # Concurrency
/// Callable from any thread.
///
/// ORC: `ObjectCache`.
pub trait ObjectCache: Send + Sync + fmt::Debug {
    /// The entry of a key.
    ///
    /// # Errors
    /// [`Miss`], if there is none. Every failure is a miss.
    fn get(&self, key: &Key) -> Result<ObjectBuffer, Miss>;

    /// Stores an entry, now or later, or not at all if that is impossible.
    fn put(&self, key: &Key, object: &ObjectBuffer);

    /// Stores an entry that was made under a claim. The claim is dropped when others can find the entry.
    fn put_claimed(&self, key: &Key, object: &ObjectBuffer, claim: Claim) {
        self.put(key, object);
        drop(claim);
    }

    /// Whether [`get`](Self::get) would probably find an entry.
    fn contains(&self, key: &Key) -> bool {
        self.get(key).is_ok()
    }

    /// The right to make the entry of a key; none while another process has it. Does not wait.
    fn try_claim(&self, key: &Key) -> Option<Claim> {
        let _ = key;
        Some(Claim::none())
    }

    /// Looks what others have stored by now.
    fn refresh(&self) {}

    /// Returns when everything that was put before is stored, or cannot be.
    fn flush(&self) {}

    /// Flushes, and ends the threads of the cache. It can still be used.
    fn retire(&self) {}
}

/// The right to make the entry of a key, until it is dropped.
pub struct Claim(Option<Box<dyn Send>>);

impl Claim {
    /// A claim that excludes no other process.
    pub const fn none() -> Self {
        Self(None)
    }

    /// A claim that lasts until `held` is dropped.
    pub fn new(held: impl Send + 'static) -> Self {
        Self(Some(Box::new(held)))
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.0.is_some()).finish()
    }
}

//! [`CacheMode`]: the allowed uses of a cache; [`ReadOnlyCache`], one that is only read.

use uruk_core::sync::Arc;

use super::{Key, Miss, ObjectCache};
use crate::object::ObjectBuffer;

/// The use that a host makes of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheMode {
    /// Entries are looked up. A missing entry is compiled and stored.
    #[default]
    ReadWrite,
    /// Entries are looked up. A missing entry is compiled.
    ReadOnly,
    /// Entries are looked up. A missing entry is an error, which names it: nothing is compiled.
    RequireHit,
}

/// A cache that nothing is stored in.
#[derive(Clone, Debug)]
pub struct ReadOnlyCache(Arc<dyn ObjectCache>);

impl ReadOnlyCache {
    /// The entries of `cache`.
    pub fn new(cache: Arc<dyn ObjectCache>) -> Self {
        Self(cache)
    }
}

impl ObjectCache for ReadOnlyCache {
    fn get(&self, key: &Key) -> Result<ObjectBuffer, Miss> {
        self.0.get(key)
    }

    fn put(&self, _: &Key, _: &ObjectBuffer) {}

    fn contains(&self, key: &Key) -> bool {
        self.0.contains(key)
    }

    fn refresh(&self) {
        self.0.refresh();
    }
}

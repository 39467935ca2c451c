//! [`PartCache`]: the objects of parts of modules, by what each part holds.
//!
//! A module that was edited has a key of its own, and its object is not found. Most parts of it are as they were: these are found here.

use std::sync::Arc;

use super::cached::{CacheObserver, tell};
use super::error::CompileError;
use super::module::LockedModule;
use crate::cache::{CacheEvent, CompileCache, Counter, EntryKind, Key, KeyBuilder, Miss, ObjectCache as _};
use crate::object::ObjectBuffer;

/// How many parts were found, and how many not.
#[derive(Debug, Default)]
pub(super) struct PartCounts {
    pub(super) hits: Counter,
    pub(super) misses: Counter,
}

/// Where those who compile parts look before they do.
pub(super) struct PartCache {
    pub(super) store: Arc<CompileCache>,
    /// The key of an object that is made of nothing: of machine, compiler, options and passes.
    pub(super) options: Key,
    pub(super) counts: Arc<PartCounts>,
    pub(super) observer: Option<Arc<CacheObserver>>,
}

impl PartCache {
    /// The object of `part`, which is as it was read. `compile` compiles it if there is none.
    ///
    /// Nobody waits for another who compiles the same: those who compile parts wait for nobody.
    pub(super) fn object(
        &self,
        part: &LockedModule<'_>,
        compile: impl FnOnce() -> Result<ObjectBuffer, CompileError>,
    ) -> Result<ObjectBuffer, CompileError> {
        let key = self.key(part)?;
        let found = self.store.get(&key);
        let outcome = found.as_ref().map(|_| ()).map_err(Miss::clone);
        tell(
            self.observer.as_deref(),
            &CacheEvent::new(part.name().clone(), EntryKind::Part, Some(key), outcome),
        );
        if let Ok(object) = found {
            self.counts.hits.add(1);
            return Ok(object.renamed(part.name().clone()));
        }
        self.counts.misses.add(1);
        let object = compile()?;
        self.store.put(&key, &object);
        Ok(object)
    }

    /// Bitcode says whatever the object depends on, the name of the source among it. What it borrows from others of its context is
    /// left out.
    fn key(&self, part: &LockedModule<'_>) -> Result<Key, CompileError> {
        let copy = part.to_canonical()?;
        let bitcode = copy.lock()?.to_bitcode()?;
        let mut key = KeyBuilder::new("part");
        key.bytes("options", self.options.as_bytes()).bytes("bitcode", bitcode.bytes());
        Ok(key.finish())
    }
}

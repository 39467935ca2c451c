//! [`PartCache`]: the objects of parts of modules, by the contents of each part; and of single functions, by their module and number.
//!
//! A module that was edited has a key of its own, and its object is not found. Most parts of it are as they were: these are found here.

use std::sync::Arc;

use super::error::CompileError;
use super::module::LockedModule;
use crate::cache::{
    CacheEvent, CacheMode, CacheObserver, CompileCache, Counter, EntryKind, Key, KeyBuilder, Miss,
    ObjectCache as _,
};
use crate::object::ObjectBuffer;
use crate::tiers::FunctionShape;

/// How many parts were found, and how many not.
#[derive(Debug, Default)]
pub(super) struct PartCounts {
    pub(super) hits: Counter,
    pub(super) misses: Counter,
}

/// The cache for objects of parts and of functions.
#[derive(Clone)]
pub(super) struct PartCache {
    pub(super) store: Arc<CompileCache>,
    pub(super) mode: CacheMode,
    /// The key of machine, compiler, options and passes, without any module. For single functions it includes their module.
    pub(super) options: Key,
    pub(super) counts: Arc<PartCounts>,
    pub(super) observer: Option<Arc<CacheObserver>>,
}

impl PartCache {
    /// The object of `part`, which is as it was read. `compile` compiles it if there is none.
    ///
    /// Never waits for another thread that compiles the same part: threads that compile parts wait for no other thread.
    pub(super) fn object(
        &self,
        part: &LockedModule<'_>,
        compile: impl FnOnce() -> Result<ObjectBuffer, CompileError>,
    ) -> Result<ObjectBuffer, CompileError> {
        self.object_of(&self.key(part)?, part.name(), compile)
    }

    /// The object of the function of this number. `compile` compiles it if there is none.
    ///
    /// # Errors
    /// What that says, or [`CompileError::NotCached`].
    pub(super) fn function(
        &self,
        number: u32,
        name: &Arc<str>,
        compile: impl FnOnce() -> Result<ObjectBuffer, CompileError>,
    ) -> Result<ObjectBuffer, CompileError> {
        self.object_of(&self.key_of("function", number), name, compile)
    }

    /// Whether that would probably be found.
    pub(super) fn has_function(&self, number: u32) -> bool {
        self.store.contains(&self.key_of("function", number))
    }

    /// The size and shape of the function of this number. `read` finds them if they are not cached.
    pub(super) fn shape(
        &self,
        number: u32,
        read: impl FnOnce() -> Result<FunctionShape, CompileError>,
    ) -> Result<FunctionShape, CompileError> {
        let key = self.key_of("shape", number);
        let known = self.store.get(&key).ok();
        if let Some(shape) = known.and_then(|entry| FunctionShape::from_bytes(entry.bytes())) {
            return Ok(shape);
        }
        let shape = read()?;
        self.store.put(&key, &ObjectBuffer::new("the shape of a function", shape.to_bytes()));
        Ok(shape)
    }

    fn object_of(
        &self,
        key: &Key,
        name: &Arc<str>,
        compile: impl FnOnce() -> Result<ObjectBuffer, CompileError>,
    ) -> Result<ObjectBuffer, CompileError> {
        let found = self.store.get(key);
        let outcome = found.as_ref().map(|_| ()).map_err(Miss::clone);
        CacheEvent::new(name.clone(), EntryKind::Part, Some(*key), outcome).tell(self.observer.as_deref());
        let why = match found {
            Ok(object) => {
                self.counts.hits.add(1);
                return Ok(object.renamed(name.clone()));
            }
            Err(why) => why,
        };
        self.counts.misses.add(1);
        if self.mode == CacheMode::RequireHit {
            return Err(CompileError::NotCached { module: name.clone(), kind: EntryKind::Part, why });
        }
        let object = compile()?;
        self.store.put(key, &object);
        Ok(object)
    }

    /// The key for this `purpose` of a function.
    fn key_of(&self, purpose: &str, number: u32) -> Key {
        let mut key = KeyBuilder::new(purpose);
        key.bytes("options", self.options.as_bytes()).number("function", number.into());
        key.finish()
    }

    /// Bitcode has all that the object depends on, the name of the source among it. Types that it borrows from other modules of its context
    /// are left out.
    fn key(&self, part: &LockedModule<'_>) -> Result<Key, CompileError> {
        let copy = part.to_canonical()?;
        let bitcode = copy.lock()?.to_bitcode()?;
        let mut key = KeyBuilder::new("part");
        key.bytes("options", self.options.as_bytes()).bytes("bitcode", bitcode.bytes());
        Ok(key.finish())
    }
}

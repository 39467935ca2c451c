//! Objects of compilers of one's own, kept in the cache.

use std::error::Error;

use uruk_core::sync::Arc;
use uruk_core::{DefineError, ExecutionSession};
use uruk_pipeline::cache::{CacheEvent, CacheMode, EntryKind, Key, KeyBuilder, Miss, ObjectCache, Origin};
use uruk_pipeline::object::ObjectBuffer;

use crate::cache::CacheEntries;
use crate::error::JitError;
use crate::request::Request;
use crate::scope::Scope;

/// Nothing may be compiled, and the cache has not got the object.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{unit}: the cache has no object of it: {why}; nothing may be compiled here, so compile it once with the same key and a cache that may be written to"
)]
#[non_exhaustive]
pub struct NotCached {
    /// The first of the functions that were to be compiled.
    pub unit: Arc<str>,
    /// Why it is not there.
    pub why: Miss,
}

impl Scope {
    /// As [`add_object_fn`](Self::add_object_fn), with a look into the [cache](crate::JitBuilder::cache) first: if it has an object of this
    /// `key`, that is linked, and `compile` is not called. Otherwise the answer of `compile` is kept there. Of all threads and processes
    /// that want one object at a time, one compiles it. An engine without a cache always compiles.
    ///
    /// `key` covers all that changes the object: the source, the version of the compiler, its options, and the processor if the compiler
    /// makes use of this one. Nothing but the key is compared; an entry's bytes are verified when it is read.
    ///
    /// # Concurrency
    /// As [`add_object_fn`](Self::add_object_fn).
    ///
    /// # Errors
    /// As [`add_object_fn`](Self::add_object_fn). The functions fail with [`NotCached`] if the cache [has to
    /// hit](CacheMode::RequireHit) and does not.
    ///
    /// # Panics
    /// If there are no functions.
    pub fn add_cached_object_fn<'n, E: Into<Box<dyn Error + Send + Sync>> + 'static>(
        &self,
        functions: impl IntoIterator<Item = &'n str>,
        key: impl AsRef<[u8]>,
        compile: impl FnOnce() -> Result<ObjectBuffer, E> + Send + 'static,
    ) -> Result<(), JitError> {
        let functions: Vec<_> = functions.into_iter().collect();
        let Some(entries) = self.engine.files.cache.entries.clone() else {
            return self.add_object_fn(functions, compile);
        };
        let unit: Arc<str> = functions.first().copied().unwrap_or_default().into();
        let key = entries.key_of_object(key.as_ref());
        self.add_object_unit(functions, move |session| entries.object(session, &unit, &key, compile))
    }
}

impl Request {
    /// Has the function made by `compile` if it is not defined in the scope's dylib yet, unless the cache has an object of this `key`; see
    /// [`Scope::add_cached_object_fn`].
    ///
    /// # Errors
    /// As [`Scope::add_cached_object_fn`]; none if the function is defined: its definition is what is asked for.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # use uruk::pipeline::{cache::MemoryCache, ir::ThreadSafeModule, object::ObjectBuffer};
    /// # let store = std::sync::Arc::new(MemoryCache::new(1 << 20));
    /// # let jit = uruk::Jit::builder().threads(1).cache(store).build()?;
    /// # let compiler = jit.ir_layer().compiler().clone();
    /// # let compile = move |source: &str| {
    /// #     ThreadSafeModule::parse(&ObjectBuffer::new("f", source.as_bytes().to_vec())).and_then(|module| compiler.compile(module))
    /// # };
    /// // `compile` is any function from a source to the bytes of an object.
    /// let source = "define i64 @f() { ret i64 42 }";
    /// let request = jit.request("f").cached(["my compiler 1.0\0", source].concat(), move || compile(source))?;
    /// // SAFETY: that is the function's signature.
    /// let f = unsafe { request.get::<extern "C" fn() -> i64>() }?;
    /// assert_eq!(f(), 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cached<E: Into<Box<dyn Error + Send + Sync>> + 'static>(
        self,
        key: impl AsRef<[u8]>,
        compile: impl FnOnce() -> Result<ObjectBuffer, E> + Send + 'static,
    ) -> Result<Self, JitError> {
        match self.scope.add_cached_object_fn([self.symbol.as_str()], key, compile) {
            Ok(()) | Err(JitError::Define(DefineError::Duplicate { .. })) => Ok(self),
            Err(error) => Err(error),
        }
    }
}

impl CacheEntries {
    /// The key of an object that a compiler of the host's makes.
    fn key_of_object(&self, key: &[u8]) -> Key {
        KeyBuilder::new("object of the host").bytes("salt", &self.salt).bytes("key", key).finish()
    }

    /// The object with this key. If it is not there, `compile` makes it.
    fn object<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        session: &ExecutionSession,
        unit: &Arc<str>,
        key: &Key,
        compile: impl FnOnce() -> Result<ObjectBuffer, E>,
    ) -> Result<ObjectBuffer, Box<dyn Error + Send + Sync>> {
        let tell = |outcome: Result<(), Miss>| {
            CacheEvent::new(unit.clone(), EntryKind::Object, Some(*key), outcome)
                .tell(self.observer.as_deref());
        };
        let object = if self.mode == CacheMode::RequireHit {
            let found = self.store.get(key);
            tell(found.as_ref().map(|_| ()).map_err(Miss::clone));
            found.map_err(|why| NotCached { unit: unit.clone(), why })?
        } else {
            let blocking = |wait: &mut dyn FnMut()| session.blocking(&mut *wait).is_ok();
            let obtained = self.store.get_or_make(key, &blocking, || compile().map_err(Into::into))?;
            tell(match obtained.origin {
                Origin::Stored | Origin::Shared => Ok(()),
                Origin::Made(why) => Err(why),
            });
            obtained.object
        };
        // It may have been made under another name, and errors of the linker say whose object it is.
        Ok(object.renamed(unit.clone()))
    }
}

//! The cache and the helper processes of a [`Jit`] in use: their figures, and their end.

#[cfg(feature = "llvm")]
use uruk_core::SymbolFlags;
use uruk_core::sync::Arc;
#[cfg(feature = "llvm")]
use uruk_pipeline::cache::Miss;
use uruk_pipeline::cache::{CacheOpenError, CompileCacheStats, DiskCache, ObjectCache};
#[cfg(feature = "llvm")]
use uruk_pipeline::helpers::HelperPool;
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{IrCache, IrCacheStats, ModuleInterface};
#[cfg(feature = "llvm")]
use uruk_pipeline::object::ObjectBuffer;

use crate::cache::OpenCache;
#[cfg(feature = "llvm")]
use crate::files::Files;
use crate::jit::Jit;
#[cfg(feature = "llvm")]
use crate::unit::yields_to_libraries;

impl Jit {
    /// The questions to the cache about modules by now; nothing if there is none.
    #[cfg(feature = "llvm")]
    pub fn cache_stats(&self) -> Option<IrCacheStats> {
        Some(self.ir_cache()?.stats())
    }

    /// Where the cache's entries of all kinds came from; nothing if there is none.
    pub fn cache_entries(&self) -> Option<CompileCacheStats> {
        Some(self.open_cache().entries.as_ref()?.store.stats())
    }

    /// The cache in a directory, if that is what was asked for: its figures, and why it could not be written.
    pub fn disk_cache(&self) -> Option<&Arc<DiskCache>> {
        self.open_cache().disk.as_ref()
    }

    /// Why the directory of the cache cannot be used; nothing if it is in use, or there is none. Everything is compiled then, as without a
    /// cache.
    pub fn cache_refused(&self) -> Option<&CacheOpenError> {
        self.open_cache().refused.as_deref()
    }

    /// Whether a file of bitcode or text would be compiled, or found, if it was added to the main dylib now and wanted, as the first of
    /// its symbols. Nothing is counted, and LLVM is not called.
    ///
    /// # Errors
    /// [`Miss`]: what is in the way of a hit.
    #[cfg(feature = "llvm")]
    pub fn would_hit(&self, source: &ObjectBuffer) -> Result<(), Miss> {
        let cache = self.ir_cache().ok_or(Miss::Disabled)?;
        let Files { modules, process, .. } = &*self.engine.files;
        let discards = |interface: &ModuleInterface| {
            let is_left_out = |name: &str, flags: SymbolFlags| {
                flags.contains(SymbolFlags::COMMON) || yields_to_libraries(name, flags, process)
            };
            let symbols = interface.symbols.iter();
            let left_out = symbols.filter(|symbol| is_left_out(&symbol.name, symbol.flags));
            left_out.map(|symbol| symbol.name.clone()).collect()
        };
        cache.would_hit(modules.layer.compiler(), modules.verifies_ir, source, discards)
    }

    /// Returns when everything that was compiled by now is stored, or cannot be. Dropping the engine does so too.
    pub fn flush_cache(&self) {
        if let Some(entries) = &self.open_cache().entries {
            entries.store.flush();
        }
    }

    /// Flushes the cache, and ends its thread: for hosts that are about to fork, or to let code run that does. The cache can still be
    /// used: what is compiled then is written many entries at a time by who compiles, by [`flush_cache`](Self::flush_cache) and when the engine is
    /// dropped. No descriptor of the cache that is open then is closed later, or written to.
    pub fn retire_cache(&self) {
        if let Some(entries) = &self.open_cache().entries {
            entries.store.retire();
        }
    }

    /// The processes that compile for this engine; nothing if it compiles itself. To look at their figures, and to
    /// [retire](HelperPool::retire) them.
    #[cfg(feature = "llvm")]
    pub fn helpers(&self) -> Option<&Arc<HelperPool>> {
        self.engine.files.modules.layer.compiler().helpers()
    }

    fn open_cache(&self) -> &OpenCache {
        &self.engine.files.cache
    }

    #[cfg(feature = "llvm")]
    fn ir_cache(&self) -> Option<&Arc<IrCache>> {
        self.engine.files.modules.layer.ir_cache()
    }
}

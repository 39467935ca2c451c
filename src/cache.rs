//! A cache of a [`Jit`]: what was compiled once is found again, also by other processes.

use std::fmt;
use std::path::{Path, PathBuf};

use uruk_core::SymbolFlags;
use uruk_core::sync::Arc;
use uruk_pipeline::cache::{
    Access, CacheEvent, CacheMode, CacheOpenError, CompileCache, DiskCache, Miss, ObjectCache, PackLimits,
    ReadOnlyCache,
};
use uruk_pipeline::ir::{CacheObserver, IrCache, IrCacheStats, IrCompiler, ModuleInterface};
use uruk_pipeline::object::ObjectBuffer;

use crate::error::JitError;
use crate::files::Files;
use crate::jit::Jit;
use crate::unit::yields_to_libraries;

/// Where a [`Jit`] looks for what was compiled before, and what it may do there. A path is a directory with all defaults.
///
/// ```no_run
/// use uruk::{CacheOptions, Jit};
/// use uruk::pipeline::cache::CacheMode;
///
/// # fn main() -> Result<(), uruk::JitError> {
/// let jit = Jit::builder().cache("/home/me/.cache/my-language").build()?;
/// // Only what a build step has compiled.
/// let shipped = CacheOptions::directory("/usr/lib/my-language/cache").mode(CacheMode::RequireHit);
/// let jit = Jit::builder().cache(shipped).build()?;
/// # Ok(())
/// # }
/// ```
pub struct CacheOptions {
    place: CachePlace,
    mode: CacheMode,
    limits: PackLimits,
    memory_bytes: usize,
    salt: Box<[u8]>,
    observer: Option<Arc<CacheObserver>>,
}

enum CachePlace {
    Directory(PathBuf),
    Store(Arc<dyn ObjectCache>),
}

/// The size of the memory's part by default: entries on their way to the disk, and those that are wanted often.
const MEMORY_BYTES: usize = 16 << 20;

impl CacheOptions {
    /// A cache in a directory, which is made if it is not there. It has to be this user's or root's, and no other user may write to it.
    /// A group that shares a cache has a directory of mode 2770: each of its members may then have code run by the others.
    ///
    /// An engine whose directory cannot be used works without a cache, and [`Jit::cache_refused`] says why.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self::of(CachePlace::Directory(path.into()))
    }

    /// A cache in a store, of the host's own or of the engine's.
    pub fn store(store: Arc<dyn ObjectCache>) -> Self {
        Self::of(CachePlace::Store(store))
    }

    fn of(place: CachePlace) -> Self {
        Self {
            place,
            mode: CacheMode::default(),
            limits: PackLimits::default(),
            memory_bytes: MEMORY_BYTES,
            salt: Box::default(),
            observer: None,
        }
    }

    /// The permitted operations. By default what is missing is compiled and stored.
    #[must_use]
    pub fn mode(mut self, mode: CacheMode) -> Self {
        self.mode = mode;
        self
    }

    /// How much a directory keeps, for how long. A gigabyte and a month unless it is told otherwise.
    #[must_use]
    pub fn limits(mut self, limits: PackLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How many bytes of entries are kept in memory too. 16 MiB unless it is told otherwise.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Has entries of its own: those made with another salt are not found. For hosts whose compilers add what no key knows.
    #[must_use]
    pub fn salt(mut self, salt: impl Into<Box<[u8]>>) -> Self {
        self.salt = salt.into();
        self
    }

    /// Is told of each entry that was asked for, with the cause if it was not there. On the thread that asks, and without a lock.
    #[must_use]
    pub fn observer(mut self, observer: impl Fn(&CacheEvent) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Opens it for what `compiler` compiles. A cache that has to hit has to be there.
    pub(crate) fn open(self, compiler: &IrCompiler) -> Result<OpenCache, JitError> {
        let Self { place, mode, limits, memory_bytes, salt, observer } = self;
        let access = match mode {
            CacheMode::ReadWrite => Access::ReadWrite,
            CacheMode::ReadOnly | CacheMode::RequireHit => Access::ReadOnly,
        };
        let (below, disk): (Arc<dyn ObjectCache>, _) = match place {
            CachePlace::Directory(path) => {
                let disk = match DiskCache::open(&path, access, limits) {
                    Ok(disk) => Arc::new(disk),
                    Err(error) if mode == CacheMode::RequireHit => return Err(Arc::new(error).into()),
                    Err(error) => return Ok(OpenCache::refused(error)),
                };
                (disk.clone(), Some(disk))
            }
            CachePlace::Store(store) if access == Access::ReadOnly => {
                (Arc::new(ReadOnlyCache::new(store)), None)
            }
            CachePlace::Store(store) => (store, None),
        };
        let store = Arc::new(CompileCache::new(memory_bytes, Some(below)));
        let mut cache = IrCache::new(store, mode, compiler).salted(salt);
        if let Some(observer) = observer {
            cache = cache.observed(observer);
        }
        Ok(OpenCache { modules: Some(Arc::new(cache)), disk, refused: None })
    }
}

/// A cache in use, if there is one.
#[derive(Default)]
pub(crate) struct OpenCache {
    pub(crate) modules: Option<Arc<IrCache>>,
    pub(crate) disk: Option<Arc<DiskCache>>,
    /// Why there is none, though one was asked for.
    pub(crate) refused: Option<Box<CacheOpenError>>,
}

impl OpenCache {
    fn refused(error: CacheOpenError) -> Self {
        tracing::warn!(%error, "there is no cache");
        Self { refused: Some(Box::new(error)), ..Self::default() }
    }
}

impl From<&str> for CacheOptions {
    fn from(path: &str) -> Self {
        Self::directory(path)
    }
}

impl From<&Path> for CacheOptions {
    fn from(path: &Path) -> Self {
        Self::directory(path)
    }
}

impl From<PathBuf> for CacheOptions {
    fn from(path: PathBuf) -> Self {
        Self::directory(path)
    }
}

impl From<Arc<dyn ObjectCache>> for CacheOptions {
    fn from(store: Arc<dyn ObjectCache>) -> Self {
        Self::store(store)
    }
}

impl<S: ObjectCache + 'static> From<Arc<S>> for CacheOptions {
    fn from(store: Arc<S>) -> Self {
        Self::store(store)
    }
}

impl fmt::Debug for CacheOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("CacheOptions");
        match &self.place {
            CachePlace::Directory(path) => debug.field("directory", path),
            CachePlace::Store(store) => debug.field("store", store),
        };
        debug.field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Jit {
    /// The questions to the cache by now; nothing if there is none.
    pub fn cache_stats(&self) -> Option<IrCacheStats> {
        Some(self.ir_cache()?.stats())
    }

    /// The cache in a directory, if that is what was asked for: its figures, and why it could not be written.
    pub fn disk_cache(&self) -> Option<&Arc<DiskCache>> {
        self.engine.files.modules.disk_cache.as_ref()
    }

    /// Why the directory of the cache cannot be used; nothing if it is in use, or there is none. Everything is compiled then, as without a
    /// cache.
    pub fn cache_refused(&self) -> Option<&CacheOpenError> {
        self.engine.files.modules.cache_refused.as_deref()
    }

    /// Whether a file of bitcode or text would be compiled, or found, if it was added to the main dylib now and wanted, as the first of
    /// its symbols. Nothing is counted, and LLVM is not called.
    ///
    /// # Errors
    /// [`Miss`]: what is in the way of a hit.
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
        if let Some(cache) = self.ir_cache() {
            cache.store().flush();
        }
    }

    /// Flushes the cache, and ends its thread: for hosts that are about to fork, or to let code run that does. The cache can still be
    /// used: what is compiled then is written many entries at a time by who compiles, by [`flush_cache`](Self::flush_cache) and when the engine is
    /// dropped. No descriptor of the cache that is open then is closed later, or written to.
    pub fn retire_cache(&self) {
        if let Some(cache) = self.ir_cache() {
            cache.store().retire();
        }
    }

    fn ir_cache(&self) -> Option<&Arc<IrCache>> {
        self.engine.files.modules.layer.ir_cache()
    }
}

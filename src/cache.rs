//! A cache of a `Jit`: what was compiled once is found again, also by other processes.

use std::fmt;
use std::path::{Path, PathBuf};

use uruk_core::sync::Arc;
use uruk_pipeline::cache::{
    Access, CacheEvent, CacheMode, CacheObserver, CacheOpenError, CompileCache, DiskCache, ObjectCache,
    PackLimits, ReadOnlyCache,
};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{IrCache, IrCompiler};

use crate::error::JitError;

/// Where a [`Jit`](crate::Jit) looks for what was compiled before, and what it may do there. A path is a directory with all defaults.
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
    /// An engine whose directory cannot be used works without a cache, and [`Jit::cache_refused`](crate::Jit::cache_refused) says why.
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

    /// Opens it. A cache that has to hit has to be there.
    pub(crate) fn open(self) -> Result<OpenCache, JitError> {
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
        let entries = Arc::new(CacheEntries { store, mode, salt, observer });
        Ok(OpenCache { entries: Some(entries), disk, refused: None })
    }
}

/// A cache in use, if there is one.
#[derive(Default)]
pub(crate) struct OpenCache {
    pub(crate) entries: Option<Arc<CacheEntries>>,
    pub(crate) disk: Option<Arc<DiskCache>>,
    /// Why there is none, though one was asked for.
    pub(crate) refused: Option<Box<CacheOpenError>>,
}

/// The entries of a cache in use.
pub(crate) struct CacheEntries {
    pub(crate) store: Arc<CompileCache>,
    pub(crate) mode: CacheMode,
    pub(crate) salt: Box<[u8]>,
    pub(crate) observer: Option<Arc<CacheObserver>>,
}

#[cfg(feature = "llvm")]
impl CacheEntries {
    /// The entries of modules that `compiler` compiles.
    pub(crate) fn of_modules(&self, compiler: &IrCompiler) -> IrCache {
        let Self { store, mode, salt, observer } = self;
        let cache = IrCache::new(store.clone(), *mode, compiler).salted(salt.clone());
        observer.iter().cloned().fold(cache, IrCache::observed)
    }
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

//! The cache of code, which all LLJITs of a process share.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Once;

use uruk::CacheOptions;
use uruk::core::WithCauses;
use uruk::core::sync::{Arc, Mutex, Weak};
use uruk::pipeline::cache::{
    Access, CacheEvent, CacheOpenError, CompileCache, DiskCache, ObjectCache as _, PackLimits,
};

use crate::errors::Problem;

/// Names the directory, if there is to be a cache.
const CACHE: &str = "URUK_ORC_CACHE";

/// Has each question to the cache told on stderr, with the reason if there was no answer.
const REPORT: &str = "URUK_ORC_REPORT";

/// How many bytes of entries are kept in memory too.
const MEMORY_BYTES: usize = 16 << 20;

/// The directory of the cache.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os(CACHE).filter(|directory| !directory.is_empty()).map(PathBuf::from)
}

/// An open cache.
#[derive(Clone)]
pub(crate) struct SharedCache {
    entries: Arc<CompileCache>,
    disk: Arc<DiskCache>,
}

/// The directory, and its cache as long as it is open.
type Opened = (PathBuf, Weak<CompileCache>, Weak<DiskCache>);

/// The cache in the directory. It is open as long as an LLJIT has it. One that cannot be used is told of once: a server has many LLJITs.
pub(crate) fn open() -> Option<SharedCache> {
    static OPEN: Mutex<Option<Opened>> = Mutex::new(None);
    static REFUSED: Once = Once::new();
    let directory = directory()?;
    let mut open = OPEN.lock();
    let found = open.as_ref().filter(|(of, ..)| *of == directory).and_then(|(_, entries, disk)| {
        Some(SharedCache { entries: entries.upgrade()?, disk: disk.upgrade()? })
    });
    if found.is_some() {
        return found;
    }
    match SharedCache::open(&directory) {
        Ok(cache) => {
            *open = Some((directory, Arc::downgrade(&cache.entries), Arc::downgrade(&cache.disk)));
            Some(cache)
        }
        Err(error) => {
            drop(open);
            REFUSED.call_once(|| {
                let why = WithCauses(&error);
                Problem::new(format_args!("{CACHE} is not in use, all code is compiled: {why}")).report();
            });
            None
        }
    }
}

impl SharedCache {
    fn open(directory: &Path) -> Result<Self, CacheOpenError> {
        let disk = Arc::new(DiskCache::open(directory, Access::ReadWrite, PackLimits::default())?);
        let entries = Arc::new(CompileCache::new(MEMORY_BYTES, Some(disk.clone())));
        Ok(Self { entries, disk })
    }

    /// For an engine. All share the entries in memory too.
    pub(crate) fn options(&self) -> CacheOptions {
        let options = CacheOptions::store(self.entries.clone()).memory_bytes(0);
        let wants_report = std::env::var_os(REPORT).is_some_and(|value| value == "1");
        if wants_report { options.observer(report) } else { options }
    }

    /// Says why the cache cannot be written, if it cannot, once in a process. Entries are written on a thread of their own, so it may be
    /// the next module that finds out.
    pub(crate) fn tell_of_failure(&self) {
        static FAILED: Once = Once::new();
        if let Some(error) = self.disk.failure() {
            FAILED.call_once(|| {
                Problem::new(format_args!("{CACHE} cannot be written, new code is not kept: {error}"))
                    .report();
            });
        }
    }

    /// The engine has ended. The last one of the process writes what is still to be written.
    pub(crate) fn finish(self) {
        if Arc::strong_count(&self.entries) == 1 {
            self.disk.flush();
        }
        self.tell_of_failure();
    }
}

/// One line, which is written at once, so that those of several processes do not mix.
fn report(event: &CacheEvent) {
    // Without stderr it is lost.
    let _ = io::stderr().write_all(format!("uruk: {event}\n").as_bytes());
}

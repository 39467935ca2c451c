//! The cache of code, which all LLJITs of a process share.

use std::path::PathBuf;

use uruk::core::sync::{Arc, Mutex, Weak};
use uruk::pipeline::cache::{Access, CompileCache, DiskCache, PackLimits};

use crate::errors::Problem;

/// Names the directory, if there is to be a cache.
const CACHE: &str = "URUK_ORC_CACHE";

/// How many bytes of entries are kept in memory too.
const MEMORY_BYTES: usize = 16 << 20;

/// The directory of the cache.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os(CACHE).filter(|directory| !directory.is_empty()).map(PathBuf::from)
}

/// The cache in the directory. It is open as long as an LLJIT has it, and written when the last has gone.
pub(crate) fn open() -> Result<Option<Arc<CompileCache>>, Problem> {
    static OPEN: Mutex<Option<(PathBuf, Weak<CompileCache>)>> = Mutex::new(None);
    let Some(directory) = directory() else { return Ok(None) };
    let mut open = OPEN.lock();
    let found = open.as_ref().filter(|(of, _)| *of == directory).and_then(|(_, cache)| cache.upgrade());
    if found.is_some() {
        return Ok(found);
    }
    let disk = DiskCache::open(&directory, Access::ReadWrite, PackLimits::default())?;
    let cache = Arc::new(CompileCache::new(MEMORY_BYTES, Some(Arc::new(disk))));
    *open = Some((directory, Arc::downgrade(&cache)));
    Ok(Some(cache))
}

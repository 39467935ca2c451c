//! [`DiskCache`]: a pack behind a queue, and who makes what among processes.

use std::path::Path;

use uruk_core::sync::{Arc, Mutex};

use super::pack::{Access, CacheOpenError, Pack, PackLimits, WriteError};
use super::range_lock::RangeLock;
use super::write_behind::{Job, WriteBehind};
use super::{Claim, Key, Miss, ObjectCache};
use crate::object::ObjectBuffer;

/// The cache in a directory.
///
/// # Concurrency
/// Callable from any thread. Entries are written on a thread of the cache's own, which [`retire`](ObjectCache::retire) ends.
#[derive(Debug)]
pub struct DiskCache {
    pack: Arc<Pack>,
    writer: WriteBehind<Write>,
    trouble: Arc<Trouble>,
}

/// What is to be written. Others may make it again once it is.
#[derive(Debug)]
struct Write {
    key: Key,
    object: ObjectBuffer,
    claim: Claim,
}

/// Why the last write failed, unless it did not.
#[derive(Debug, Default)]
struct Trouble {
    failure: Mutex<Option<WriteError>>,
}

impl DiskCache {
    /// Opens the cache in a directory; see [`Pack::open`].
    ///
    /// # Errors
    /// [`CacheOpenError`].
    pub fn open(path: &Path, access: Access, limits: PackLimits) -> Result<Self, CacheOpenError> {
        Ok(Self::new(Arc::new(Pack::open(path, access, limits)?)))
    }

    /// A cache of what is in `pack`.
    pub fn new(pack: Arc<Pack>) -> Self {
        let trouble = Arc::new(Trouble::default());
        let writer = WriteBehind::new({
            let (pack, trouble) = (pack.clone(), trouble.clone());
            move |jobs| write(&pack, &trouble, jobs)
        });
        Self { pack, writer, trouble }
    }

    /// What it writes to and reads from.
    pub fn pack(&self) -> &Arc<Pack> {
        &self.pack
    }

    /// Why the last write failed; nothing if it did not.
    pub fn failure(&self) -> Option<WriteError> {
        self.trouble.failure.lock().clone()
    }

    fn push(&self, key: &Key, object: ObjectBuffer, claim: Claim) {
        if self.pack.access() == Access::ReadWrite {
            self.writer.push(Write { key: *key, object, claim });
        }
    }
}

impl ObjectCache for DiskCache {
    fn get(&self, key: &Key) -> Result<ObjectBuffer, Miss> {
        let entry = self.pack.get(key)?;
        if entry.is_ageing && self.failure().is_none() {
            // What is in use stays, where it can be written.
            self.push(key, entry.bytes.clone(), Claim::none());
        }
        Ok(entry.bytes)
    }

    fn put(&self, key: &Key, object: &ObjectBuffer) {
        self.put_claimed(key, object, Claim::none());
    }

    fn put_claimed(&self, key: &Key, object: &ObjectBuffer, claim: Claim) {
        self.push(key, object.clone(), claim);
    }

    fn contains(&self, key: &Key) -> bool {
        self.pack.contains(key)
    }

    fn try_claim(&self, key: &Key) -> Option<Claim> {
        if self.pack.access() == Access::ReadOnly {
            return Some(Claim::none());
        }
        match RangeLock::try_take(self.pack.directory(), key) {
            Ok(lock) => lock.map(Claim::new),
            // Twice is better than not at all.
            Err(error) => {
                tracing::debug!(cache = %self.pack.path().display(), %error, "cannot tell who compiles");
                Some(Claim::none())
            }
        }
    }

    fn refresh(&self) {
        self.pack.refresh();
    }

    fn flush(&self) {
        self.writer.flush();
    }

    fn retire(&self) {
        self.writer.retire();
    }
}

impl Job for Write {
    fn size_bytes(&self) -> usize {
        self.object.size_bytes()
    }
}

/// Writes entries, and lets their claims go. The first failure after a success is told; the others are counted.
fn write(pack: &Pack, trouble: &Trouble, jobs: Vec<Write>) {
    let entries: Vec<_> = jobs.iter().map(|job| (job.key, job.object.bytes())).collect();
    // Who holds the lock and does not go on has been waited for once.
    let impatient = *trouble.failure.lock() == Some(WriteError::Busy);
    let failure = pack.put_all(&entries, impatient).err();
    let before = std::mem::replace(&mut *trouble.failure.lock(), failure.clone());
    if let (None, Some(error)) = (before, failure) {
        tracing::warn!(cache = %pack.path().display(), %error, "the cache could not be written");
    }
    for Write { claim, .. } in jobs {
        drop(claim);
    }
}

//! [`DiskCache`]: a pack behind a queue, and the claims by which processes agree who makes an entry.
//!
//! When the process forks, its writing thread may hold any lock. So a child opens the files anew, and does not touch its parent's.
//!
//! A host that [retires](ObjectCache::retire) the cache may let code run that closes every descriptor it did not open. From then on, writes
//! go through new descriptors, and no descriptor that was open then is ever closed here: another file may have its number.

use std::path::Path;
use std::sync::OnceLock;

use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, Mutex};

use super::pack::{Access, CacheOpenError, Pack, PackLimits, WriteError};
use super::range_lock::RangeLock;
use super::write_behind::{Job, WriteBehind, WritersHome};
use super::{Claim, Key, Miss, ObjectCache};
use crate::object::ObjectBuffer;
use crate::runtime::tls::SignalsBlocked;

/// The cache in a directory.
///
/// # Concurrency
/// Callable from any thread. Entries are written on a thread of the cache's own, which [`retire`](ObjectCache::retire) ends. Later ones are
/// written many at a time by the threads that put them, and when the cache is flushed or dropped.
#[derive(Debug)]
pub struct DiskCache {
    own: Files,
    writer: WriteBehind<Write>,
    home: WritersHome,
    /// Of a child of the process that opened it.
    of_child: OnceLock<Files>,
}

/// The files as one process knows them.
#[derive(Clone, Debug)]
struct Files {
    pack: Arc<Pack>,
    trouble: Arc<Trouble>,
    is_retired: Arc<AtomicBool>,
}

/// An entry to be written. Others may make it again once it is written.
#[derive(Debug)]
struct Write {
    key: Key,
    object: ObjectBuffer,
    claim: Claim,
}

/// Why the last write failed, if it did.
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

    /// A cache over `pack`.
    pub fn new(pack: Arc<Pack>) -> Self {
        let own = Files::of(pack);
        let files = own.clone();
        let writer = WriteBehind::new(move |jobs| files.write(jobs));
        Self { own, writer, home: WritersHome::here(), of_child: OnceLock::new() }
    }

    /// The pack behind the queue.
    pub fn pack(&self) -> &Arc<Pack> {
        &self.files().pack
    }

    /// Why the last write failed; nothing if it did not.
    pub fn failure(&self) -> Option<WriteError> {
        self.files().trouble.failure.lock().clone()
    }

    fn push(&self, key: &Key, object: ObjectBuffer, mut claim: Claim) {
        if self.is_retired() {
            // It has a descriptor, and entries may be written late.
            claim = Claim::none();
        }
        let write = Write { key: *key, object, claim };
        match self.own.pack.access() {
            Access::ReadOnly => (),
            Access::ReadWrite if self.is_at_home() => {
                // The first write starts the thread, which inherits the mask: no handler of the host's runs on it.
                let _signals = SignalsBlocked::now();
                self.writer.push(write);
            }
            Access::ReadWrite => self.files().write(vec![write]),
        }
    }

    fn is_retired(&self) -> bool {
        // ordering[cache-retires]: Acquire.
        self.own.is_retired.load(Ordering::Acquire)
    }

    fn is_at_home(&self) -> bool {
        self.home == WritersHome::here()
    }

    fn files(&self) -> &Files {
        if self.is_at_home() {
            return &self.own;
        }
        self.of_child.get_or_init(|| {
            if !self.is_retired() {
                return Files::of(Arc::new(self.own.pack.reopened()));
            }
            let files = Files::of(Arc::new(self.own.pack.reopened_by_name()));
            // ordering[cache-retires]: Release.
            files.is_retired.store(true, Ordering::Release);
            files
        })
    }
}

impl ObjectCache for DiskCache {
    fn get(&self, key: &Key) -> Result<ObjectBuffer, Miss> {
        let entry = self.pack().get(key)?;
        if entry.is_ageing && self.failure().is_none() {
            // An entry in use stays, where it can be written.
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
        self.pack().contains(key)
    }

    fn try_claim(&self, key: &Key) -> Option<Claim> {
        let pack = self.pack();
        if pack.access() == Access::ReadOnly || self.is_retired() {
            return Some(Claim::none());
        }
        match RangeLock::try_take(pack.directory(), key) {
            Ok(lock) => lock.map(Claim::new),
            // Twice is better than not at all.
            Err(error) => {
                tracing::debug!(cache = %pack.path().display(), %error, "cannot tell who compiles");
                Some(Claim::none())
            }
        }
    }

    fn refresh(&self) {
        self.pack().refresh();
    }

    fn flush(&self) {
        // A handler that calls a function for the first time would wait for the code that it has interrupted.
        let _signals = SignalsBlocked::now();
        self.writer.flush();
    }

    fn retire(&self) {
        // ordering[cache-retires]: Release. Another thread that acts after the retirement finds it.
        self.own.is_retired.store(true, Ordering::Release);
        self.writer.retire();
        self.own.pack.freeze();
    }
}

impl Job for Write {
    fn size_bytes(&self) -> usize {
        self.object.size_bytes()
    }
}

impl Files {
    fn of(pack: Arc<Pack>) -> Self {
        Self { pack, trouble: Arc::default(), is_retired: Arc::default() }
    }

    /// Writes entries, and lets their claims go. The first failure after a success is told; the others are counted.
    fn write(&self, jobs: Vec<Write>) {
        let Self { pack, trouble, is_retired } = self;
        let entries: Vec<_> = jobs.iter().map(|job| (job.key, job.object.bytes())).collect();
        // Wait for a stalled lock holder only once.
        let impatient = *trouble.failure.lock() == Some(WriteError::Busy);
        // ordering[cache-retires]: Acquire.
        let written = if is_retired.load(Ordering::Acquire) {
            pack.put_all_anew(&entries, impatient)
        } else {
            pack.put_all(&entries, impatient)
        };
        let failure = written.err();
        let before = std::mem::replace(&mut *trouble.failure.lock(), failure.clone());
        if let (None, Some(error)) = (before, failure) {
            tracing::warn!(cache = %pack.path().display(), %error, "the cache could not be written");
        }
        for Write { claim, .. } in jobs {
            drop(claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread that writes had the list of generations locked when the process forked: the child's next lookup hung.
    #[test]
    fn a_child_waits_for_nothing_that_a_thread_of_its_parent_has_locked() {
        let path = std::env::temp_dir().join(format!("uruk-disk-{}-child", std::process::id()));
        let (first, second) = (Key::from_bytes([1; 32]), Key::from_bytes([2; 32]));
        let object = ObjectBuffer::new("object", vec![7; 100]);
        let open = || DiskCache::open(&path, Access::ReadWrite, PackLimits::default()).expect("our own");
        let mut cache = open();
        cache.put(&first, &object);
        cache.flush();
        // As a child finds it.
        cache.home = WritersHome::of_another();
        cache.own.pack.while_locked(|| {
            assert_eq!(cache.get(&first).expect("it was flushed").bytes(), object.bytes());
            cache.put(&second, &object);
            assert!(cache.contains(&second) && cache.failure().is_none());
            assert!(cache.try_claim(&first).is_some());
        });
        assert!(open().contains(&second));
        cache.home = WritersHome::here();
        drop(cache);
        std::fs::remove_dir_all(&path).expect("it is ours");
    }

    /// The thread that writes had not yet begun with an entry when the cache retired. It was written through other descriptors, and the
    /// frozen list of entries did not have it.
    ///
    /// ```text
    ///  writer:  takes 1, waits for the view ............... writes 1, then 2 by the name of the directory
    ///  test:    put 1 ── put 2 ── sees the retirement ── lets the view go ── joins ── get 2
    ///  other:                 retire ...............................................
    /// ```
    #[test]
    fn what_is_written_while_the_cache_retires_is_found_afterwards() {
        let path = std::env::temp_dir().join(format!("uruk-disk-{}-retires", std::process::id()));
        let (first, second) = (Key::from_bytes([1; 32]), Key::from_bytes([2; 32]));
        let object = ObjectBuffer::new("object", vec![7; 100]);
        let cache = DiskCache::open(&path, Access::ReadWrite, PackLimits::default()).expect("our own");
        std::thread::scope(|scope| {
            cache.own.pack.while_locked(|| {
                cache.put(&first, &object);
                while format!("{:?}", cache.writer).contains("Some(1)") {
                    std::thread::yield_now();
                }
                cache.put(&second, &object);
                scope.spawn(|| cache.retire());
                while !cache.is_retired() {
                    std::thread::yield_now();
                }
            });
        });
        assert_eq!(cache.failure(), None);
        assert_eq!(cache.get(&second).expect("it was written").bytes(), object.bytes());
        drop(cache);
        std::fs::remove_dir_all(&path).expect("it is ours");
    }
}

//! [`Pack`]: entries of all processes of a user in a few files of one directory. `pipeline/src/cache/README.md` draws each byte.
//!
//! | file | what it does |
//! |---|---|
//! | `format.rs` | bytes to headers, slots and entries, and back |
//! | `directory.rs` | the directory: whose it is, what lies in it |
//! | `generation.rs`, `index.rs` | two files that are appended to; where entries lie in them |
//! | `view.rs` | the generations as this process knows them |
//! | `append.rs`, `write_lock.rs` | how entries are written, and generations begun |
//! | `upkeep.rs` | figures, a check of everything, making room |

mod append;
mod directory;
mod format;
mod generation;
mod index;
mod upkeep;
mod view;
mod write_lock;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use uruk_core::sync::Mutex;

pub use append::{WriteError, Written};
pub use directory::CacheOpenError;
pub use upkeep::{BadSlot, Collected, GenerationStats, PackStats, Verified};

pub(in crate::cache) use directory::Directory;

use super::counters::Counter;
use super::{Damage, Key, Miss};
use crate::object::ObjectBuffer;
use view::{FoundEntry, View};

/// Whether a process writes to a pack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Entries are looked up and added.
    #[default]
    ReadWrite,
    /// Entries are looked up. Nothing is written, locked or made, so the directory may be one that cannot be written to.
    ReadOnly,
}

/// How much a pack keeps, for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackLimits {
    /// How much the files of the directory take, all of them together.
    pub size_bytes: u64,
    /// After this time an unused entry is gone. Each entry stays for at least half of it.
    pub age: Duration,
}

impl Default for PackLimits {
    /// A gigabyte, and a month.
    fn default() -> Self {
        Self { size_bytes: 1 << 30, age: Duration::from_secs(30 * 24 * 60 * 60) }
    }
}

/// A store of entries on disk that processes share.
///
/// # Concurrency
/// Callable from any thread, in any number of processes at once. Looking up locks no file, and never waits for a writer.
#[derive(Debug)]
pub struct Pack {
    directory: Arc<Directory>,
    access: Access,
    limits: PackLimits,
    view: Mutex<View>,
    counts: PackCounts,
    /// The name of an entry in messages.
    name: Arc<str>,
}

/// Counts of this process's uses of a pack.
#[derive(Debug, Default)]
struct PackCounts {
    hits: Counter,
    misses: Counter,
    bad_entries: Counter,
    written: Counter,
    written_bytes: Counter,
    failed_writes: Counter,
}

impl PackCounts {
    fn add_writes_of(&self, other: &Self) {
        let Self { hits: _, misses: _, bad_entries: _, written, written_bytes, failed_writes } = other;
        self.written.add(written.get());
        self.written_bytes.add(written_bytes.get());
        self.failed_writes.add(failed_writes.get());
    }
}

/// An entry that was found.
#[derive(Clone, Debug)]
pub struct PackEntry {
    /// The stored bytes.
    pub bytes: ObjectBuffer,
    /// Whether it is about to be evicted, and stays if it is [put](Pack::put) again.
    pub is_ageing: bool,
}

impl Pack {
    /// Opens the pack in a directory. A directory that is not there is made for this user alone, unless the pack is only read.
    ///
    /// # Errors
    /// [`CacheOpenError`] if the directory cannot be opened or made, or is not safe from others. Damaged files in it
    /// are none: they hold no entries.
    ///
    /// # Cost
    /// 35 to 100 µs: the index is read, 16 bytes for each entry.
    pub fn open(path: &Path, access: Access, limits: PackLimits) -> Result<Self, CacheOpenError> {
        let directory = Directory::open(path, access == Access::ReadWrite)?;
        Ok(Self::in_directory(directory, access, limits))
    }

    /// The same files, for a child of the process that has opened them.
    pub(super) fn reopened(&self) -> Self {
        Self::in_shared_directory(self.directory.clone(), self.access, self.limits)
    }

    /// The same files, found by the name of their directory, and [frozen](Self::freeze); none if another has that name by now.
    pub(super) fn reopened_by_name(&self) -> Self {
        let (access, limits) = (self.access, self.limits);
        let pack = match Directory::reopen(&self.directory) {
            Ok(directory) => Self::in_directory(directory, access, limits),
            Err(_) => Self::unread(self.directory.clone(), access, limits),
        };
        pack.freeze();
        pack
    }

    fn in_directory(directory: Directory, access: Access, limits: PackLimits) -> Self {
        Self::in_shared_directory(Arc::new(directory), access, limits)
    }

    fn in_shared_directory(directory: Arc<Directory>, access: Access, limits: PackLimits) -> Self {
        let pack = Self::unread(directory, access, limits);
        pack.look();
        pack
    }

    fn unread(directory: Arc<Directory>, access: Access, limits: PackLimits) -> Self {
        Self {
            name: format!("the cache in {}", directory.path().display()).into(),
            directory,
            access,
            limits,
            view: Mutex::new(View::new()),
            counts: PackCounts::default(),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Whether this process writes to it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Does something while another thread would have to wait.
    #[cfg(test)]
    pub(super) fn while_locked(&self, act: impl FnOnce()) {
        let _view = self.view.lock();
        act();
    }

    pub(super) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Reads the entry of a key. Every byte of it is as it was put.
    ///
    /// Entries of other processes are seen after a millisecond, or after [`refresh`](Self::refresh).
    ///
    /// # Errors
    /// [`Miss::NotStored`], or [`Miss::BadEntry`] if the stored entry is damaged.
    ///
    /// # Cost
    /// One system call, a copy and a checksum: 3 to 5 µs for 20 KB. A miss takes 0.1 µs.
    pub fn get(&self, key: &Key) -> Result<PackEntry, Miss> {
        let found = self.find(key);
        let mut miss = Miss::NotStored;
        for FoundEntry { generation, slot, is_newest } in found.into_iter().flatten() {
            let checked = generation.read_entry(slot).and_then(|entry| {
                let payload = format::check_entry(&entry, key)?;
                Ok((entry, payload))
            });
            match checked {
                Ok((entry, payload)) => {
                    self.counts.hits.add(1);
                    let entry = ObjectBuffer::new(self.name.clone(), entry);
                    let bytes = entry.slice(self.name.clone(), payload).expect("it was checked");
                    return Ok(PackEntry { bytes, is_ageing: !is_newest });
                }
                Err(why) => {
                    self.note_damage(key, why);
                    miss = Miss::BadEntry { why };
                }
            }
        }
        self.counts.misses.add(1);
        Err(miss)
    }

    /// Whether there is an entry for a key, by the index alone.
    pub fn contains(&self, key: &Key) -> bool {
        self.find(key)[0].is_some()
    }

    /// Reads the slots that other processes have written by now.
    pub fn refresh(&self) {
        let mut view = self.view.lock();
        if !view.is_frozen() {
            view.refresh(&self.directory, self.open_flags());
        }
    }

    /// The same for a writer, even if the view is frozen: a writer must not rely on an old view.
    fn look(&self) {
        self.view.lock().refresh(&self.directory, self.open_flags());
    }

    /// Looks for the last time, and keeps its files as they are: code of others may close some of them from here on.
    pub(in crate::cache) fn freeze(&self) {
        let mut view = self.view.lock();
        // Entries that were written through other descriptors are found as well.
        view.refresh(&self.directory, self.open_flags());
        view.freeze();
    }

    /// Where the entry of a key may lie, the newest place first.
    fn find(&self, key: &Key) -> [Option<FoundEntry>; 2] {
        let mut view = self.view.lock();
        let found = view.find(key.tag());
        if found[0].is_some() || !view.is_due() {
            return found;
        }
        view.refresh(&self.directory, self.open_flags());
        view.find(key.tag())
    }

    fn note_damage(&self, key: &Key, why: Damage) {
        self.counts.bad_entries.add(1);
        tracing::warn!(cache = &*self.name, %key, %why, "a damaged entry counts as not stored");
    }

    fn open_flags(&self) -> OFlags {
        match self.access {
            Access::ReadWrite => OFlags::RDWR,
            Access::ReadOnly => OFlags::RDONLY,
        }
    }

    /// How much the files of one generation may take: there are two.
    fn generation_bytes_max(&self) -> u64 {
        (self.limits.size_bytes / 2).min(format::OFFSET_MAX)
    }
}

/// Seconds since 1970; clocks that stand before that count as there.
fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::format::PackFileKind;
    use super::*;

    const KEY: Key = Key::from_bytes([1; 32]);

    fn scratch(test: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("uruk-pack-{}-{test}", std::process::id()))
    }

    fn of_version(path: &Path, version: u32) -> Pack {
        let directory = Directory::open_version(path, true, version).expect("a directory of our own");
        Pack::in_directory(directory, Access::ReadWrite, PackLimits::default())
    }

    #[test]
    fn two_versions_in_one_directory_do_not_disturb_each_other() {
        let path = scratch("versions");
        let [one, two] = [format::VERSION, format::VERSION + 1].map(|version| of_version(&path, version));
        one.put(&KEY, b"one").expect("there is room");
        assert_eq!(two.get(&KEY).map(drop), Err(Miss::NotStored));
        two.put(&KEY, b"two").expect("there is room");
        assert_eq!(one.get(&KEY).expect("stored").bytes.bytes(), b"one");
        one.clear().expect("nobody holds the lock");
        two.refresh();
        assert_eq!(two.get(&KEY).expect("stored").bytes.bytes(), b"two");
        assert_eq!((one.verify().entries, two.verify().entries), (0, 1));
        // Nor does a file of one that has the name of the other's.
        for kind in [PackFileKind::Data, PackFileKind::Index] {
            let [from, to] = [&two, &one].map(|pack| path.join(pack.directory.file_name(0, kind)));
            std::fs::copy(from, to).expect("it is ours");
        }
        assert_eq!(of_version(&path, format::VERSION).get(&KEY).map(drop), Err(Miss::NotStored));
        std::fs::remove_dir_all(&path).expect("it is ours");
    }

    #[test]
    fn a_generation_that_has_had_its_time_takes_no_more() {
        let path = scratch("age");
        let pack = of_version(&path, format::VERSION);
        let long_ago = now_s() - pack.limits.age.as_secs() * 2 / 3;
        drop(generation::Generation::create(&pack.directory, 5, long_ago).expect("it is new"));
        pack.put(&KEY, b"one").expect("there is room");
        let numbers: Vec<u64> = pack.stats().generations.iter().map(|generation| generation.number).collect();
        assert_eq!(numbers, [6, 5]);
        // A generation that has exceeded every age limit goes.
        pack.view.lock().forget();
        for kind in [PackFileKind::Data, PackFileKind::Index] {
            pack.directory.remove(&pack.directory.file_name(5, kind)).expect("it is ours");
        }
        let too_long_ago = now_s() - pack.limits.age.as_secs() - 1;
        drop(generation::Generation::create(&pack.directory, 5, too_long_ago).expect("it is new"));
        assert_eq!(pack.gc().expect("nobody holds the lock").generations, [5]);
        assert_eq!(pack.get(&KEY).expect("stored").bytes.bytes(), b"one");
        std::fs::remove_dir_all(&path).expect("it is ours");
    }
}

//! [`MemoryCache`]: entries in memory, up to a number of bytes.
//!
//! Entries lie in shards by their keys. A shard has two halves, as a pack has two generations: new entries go to the young half,
//! and when that is full the old one is dropped and the young one becomes old. An entry that is found in the old half moves to the
//! young one. So entries in use stay, and nothing is kept in an order.

use std::mem;

use rustc_hash::FxHashMap;
use uruk_core::sync::Mutex;

use super::{Key, Miss, ObjectCache};
use crate::object::ObjectBuffer;

/// Memory of an entry besides its bytes: its place in a table, and the owner of the bytes.
const ENTRY_BYTES: usize = 200;

/// How many parts there are, each with a lock.
const SHARDS: usize = 8;

/// A cache in memory.
///
/// # Concurrency
/// Callable from any thread. Entries are dropped when no lock is held.
#[derive(Debug)]
pub struct MemoryCache {
    shards: Box<[Mutex<Shard>]>,
    /// How many bytes half a shard takes.
    half_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    young: Half,
    old: Half,
}

/// Keys are hashes already, and no attacker chooses them.
#[derive(Debug, Default)]
struct Half {
    entries: FxHashMap<Key, ObjectBuffer>,
    bytes: usize,
}

impl MemoryCache {
    /// A cache that takes up to `bytes_max`. An entry larger than a sixteenth of that is not kept, so that none
    /// drives many others out.
    pub fn new(bytes_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, half_bytes_max: bytes_max / (2 * SHARDS) }
    }

    /// How many entries there are, and how many bytes they take.
    pub fn size(&self) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(entries, bytes), shard| {
            let shard = shard.lock();
            let halves = [&shard.young, &shard.old];
            (
                entries + halves.iter().map(|half| half.entries.len()).sum::<usize>(),
                bytes + halves.iter().map(|half| half.bytes).sum::<usize>(),
            )
        })
    }

    /// Drops all entries.
    pub fn clear(&self) {
        for shard in &self.shards {
            let dropped = mem::take(&mut *shard.lock());
            drop(dropped);
        }
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        #[expect(clippy::cast_possible_truncation, reason = "a few bits are enough")]
        let at = key.spread() as usize % self.shards.len();
        &self.shards[at]
    }
}

impl ObjectCache for MemoryCache {
    fn get(&self, key: &Key) -> Result<ObjectBuffer, Miss> {
        let mut shard = self.shard(key).lock();
        if let Some(found) = shard.young.entries.get(key) {
            return Ok(found.clone());
        }
        let found = shard.old.take(key).ok_or(Miss::NotStored)?;
        let dropped = shard.add(*key, found.clone(), self.half_bytes_max);
        drop(shard);
        drop(dropped);
        Ok(found)
    }

    fn put(&self, key: &Key, object: &ObjectBuffer) {
        if object.size_bytes() + ENTRY_BYTES > self.half_bytes_max {
            return;
        }
        let dropped = self.shard(key).lock().add(*key, object.clone(), self.half_bytes_max);
        drop(dropped);
    }

    fn contains(&self, key: &Key) -> bool {
        let shard = self.shard(key).lock();
        shard.young.entries.contains_key(key) || shard.old.entries.contains_key(key)
    }
}

impl Shard {
    /// Adds an entry that fits; gives what goes for it.
    #[must_use]
    fn add(
        &mut self,
        key: Key,
        object: ObjectBuffer,
        half_bytes_max: usize,
    ) -> (Half, [Option<ObjectBuffer>; 2]) {
        let replaced = [self.young.take(&key), self.old.take(&key)];
        let bytes = object.size_bytes() + ENTRY_BYTES;
        let mut gone = Half::default();
        if self.young.bytes + bytes > half_bytes_max {
            let young = mem::take(&mut self.young);
            gone = mem::replace(&mut self.old, young);
        }
        self.young.bytes += bytes;
        self.young.entries.insert(key, object);
        (gone, replaced)
    }
}

impl Half {
    fn take(&mut self, key: &Key) -> Option<ObjectBuffer> {
        let object = self.entries.remove(key)?;
        self.bytes -= object.size_bytes() + ENTRY_BYTES;
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        let mut builder = super::super::KeyBuilder::new("test");
        builder.number("number", number).finish()
    }

    fn object(size_bytes: usize) -> ObjectBuffer {
        ObjectBuffer::new("object", vec![1; size_bytes])
    }

    #[test]
    fn a_hundred_thousand_entries_take_no_more_than_they_may() {
        const BYTES_MAX: usize = 1 << 20;
        let cache = MemoryCache::new(BYTES_MAX);
        for number in 0..100_000 {
            cache.put(&key(number), &object(number as usize % 3000));
            // An entry in use stays.
            if number > 0 {
                cache.get(&key(0)).expect("it was asked for a moment ago");
            }
        }
        let (entries, bytes) = cache.size();
        assert!(bytes <= BYTES_MAX && bytes > BYTES_MAX / 4, "{entries} entries take {bytes} bytes");
        assert!(cache.contains(&key(99_999)) && !cache.contains(&key(50_000)));
        cache.clear();
        assert_eq!(cache.size(), (0, 0));
    }

    #[test]
    fn an_entry_that_is_put_again_counts_once() {
        let cache = MemoryCache::new(1 << 20);
        for size_bytes in [10, 1000, 100] {
            cache.put(&key(1), &object(size_bytes));
            assert_eq!(cache.size(), (1, size_bytes + ENTRY_BYTES));
            assert_eq!(cache.get(&key(1)).expect("stored").size_bytes(), size_bytes);
        }
    }

    #[test]
    fn an_entry_that_is_too_large_is_not_kept() {
        let cache = MemoryCache::new(1 << 20);
        cache.put(&key(1), &object(1 << 16));
        assert_eq!(cache.get(&key(1)).map(drop), Err(Miss::NotStored));
        MemoryCache::new(0).put(&key(1), &object(0));
    }
}

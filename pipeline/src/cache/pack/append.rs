//! Writing to a pack: entries go behind the last one, then their slots, all under one lock of the writers'.
//!
//! A kill leaves bytes that no slot names, or a part of a slot that names nothing. The next writer goes on behind them.

use std::sync::Arc;

use rustix::io::Errno;

use super::format::{
    FILE_HEADER_BYTES, PackFileKind, PackSlot, SLOT_BYTES, align, check_entry, encode_entry,
};
use super::generation::{Generation, GenerationExtent, SLOTS_MAX, entry_bytes};
use super::write_lock::WriteLock;
use super::{Access, Directory, Pack, now_s};
use crate::cache::Key;

/// Why an entry was not written. The program goes on without it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The pack is only read.
    #[error("the cache is only read")]
    ReadOnly,
    /// Another process is writing, and does not go on.
    #[error("another process holds the cache's lock and does not go on")]
    Busy,
    /// The entry is larger than a pack of this size allows.
    #[error("the entry has {bytes} bytes, and the cache keeps entries up to {bytes_max}")]
    TooLarge {
        /// How large it is.
        bytes: u64,
        /// How large it may be: half of the pack's size.
        bytes_max: u64,
    },
    /// The system refused.
    #[error("the system refused: {0}")]
    System(#[from] Errno),
}

/// Counts of written entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// How many were written.
    pub entries: u64,
    /// How many were there already.
    pub known: u64,
}

/// How many bytes are gathered before they are written.
const BATCH_BYTES: usize = 1 << 20;

impl Pack {
    /// Writes an entry, unless it is there and intact.
    ///
    /// # Errors
    /// [`WriteError`]. Earlier entries are unchanged.
    ///
    /// # Cost
    /// 20 to 70 µs, of which most goes away if many are written at once.
    pub fn put(&self, key: &Key, bytes: &[u8]) -> Result<Written, WriteError> {
        self.put_all(&[(*key, bytes)], false)
    }

    /// Writes entries under one lock. An `impatient` caller does not wait if another process holds it.
    ///
    /// # Errors
    /// [`WriteError`], the first if there are several. One that is too large keeps no other from being written.
    pub fn put_all(&self, entries: &[(Key, &[u8])], impatient: bool) -> Result<Written, WriteError> {
        let mut written = Written::default();
        let result = self.write(entries, impatient, &mut written);
        let done = written.entries + written.known;
        self.counts.failed_writes.add((entries.len() as u64).saturating_sub(done));
        result.map(|()| written)
    }

    /// The same through descriptors that are opened for it and closed.
    pub(in crate::cache) fn put_all_anew(
        &self,
        entries: &[(Key, &[u8])],
        impatient: bool,
    ) -> Result<Written, WriteError> {
        let all_failed = |_: &Errno| self.counts.failed_writes.add(entries.len() as u64);
        let directory = Directory::reopen(&self.directory).inspect_err(all_failed)?;
        let anew = Self::in_directory(directory, self.access, self.limits);
        let result = anew.put_all(entries, impatient);
        self.counts.add_writes_of(&anew.counts);
        result
    }

    fn write(
        &self,
        entries: &[(Key, &[u8])],
        impatient: bool,
        written: &mut Written,
    ) -> Result<(), WriteError> {
        if self.access == Access::ReadOnly {
            return Err(WriteError::ReadOnly);
        }
        let lock = WriteLock::take(&self.directory, impatient)?;
        let mut batch = Batch::at_end_of(self.generation_to_append_to(&lock)?)?;
        let mut failure = None;
        for (key, bytes) in entries {
            let size_bytes = align(entry_bytes(bytes.len()) as u64);
            if let Err(error) = self.check_size(size_bytes) {
                failure.get_or_insert(error);
            } else if batch.holds(key) || self.holds_intact(key) {
                written.known += 1;
            } else {
                if !batch.has_room(size_bytes, self.generation_bytes_max()) {
                    self.write_batch(&mut batch, written)?;
                    batch = Batch::at_end_of(self.begin_generation(&lock)?)?;
                }
                batch.push(key, bytes);
                if batch.bytes.len() >= BATCH_BYTES {
                    self.write_batch(&mut batch, written)?;
                }
            }
        }
        self.write_batch(&mut batch, written)?;
        drop(lock);
        failure.map_or(Ok(()), Err)
    }

    /// Begins a generation behind the newest one, and removes those that are no longer read.
    pub(super) fn begin_generation(&self, _: &WriteLock) -> Result<Arc<Generation>, WriteError> {
        let sealed = self.newest();
        if let Some((generation, false)) = &sealed {
            // Sealed before there is a newer one: a writer that still appends to it looks for the newer one, and finds it or none.
            generation.append_slots(&PackSlot::SEAL.encode())?;
        }
        let numbers = self.directory.generations()?;
        let number = numbers.last().map_or(0, |last| last.saturating_add(1));
        let generation = Arc::new(Generation::create(&self.directory, number, now_s())?);
        let kept = sealed.map(|(generation, _)| generation.number);
        for gone in numbers.into_iter().filter(|number| Some(*number) != kept) {
            self.remove_generation(gone)?;
        }
        self.view.lock().forget();
        self.look();
        Ok(generation)
    }

    pub(super) fn remove_generation(&self, number: u64) -> Result<(), WriteError> {
        // A generation without its data file is never opened, so that file goes first.
        for kind in [PackFileKind::Data, PackFileKind::Index] {
            self.directory.remove(&self.directory.file_name(number, kind))?;
        }
        Ok(())
    }

    /// The newest generation, as the files have it now, unless it is at its end.
    fn generation_to_append_to(&self, lock: &WriteLock) -> Result<Arc<Generation>, WriteError> {
        self.look();
        for _ in 0..2 {
            let Some((generation, is_sealed)) = self.newest() else { break };
            if generation.extent()?.is_unlinked {
                // Another process has removed it since.
                self.view.lock().forget();
                self.look();
            } else if is_sealed || self.is_old(&generation) {
                break;
            } else {
                return Ok(generation);
            }
        }
        self.begin_generation(lock)
    }

    /// The newest generation, and whether it is sealed.
    pub(super) fn newest(&self) -> Option<(Arc<Generation>, bool)> {
        let view = self.view.lock();
        view.newest().map(|newest| (newest.generation.clone(), newest.index.is_sealed()))
    }

    /// Whether a generation takes no more, by its age.
    pub(super) fn is_old(&self, generation: &Generation) -> bool {
        now_s().saturating_sub(generation.created_s) > self.limits.age.as_secs() / 2
    }

    fn check_size(&self, size_bytes: u64) -> Result<(), WriteError> {
        let bytes_max = self.generation_bytes_max().min(u64::from(u32::MAX));
        if size_bytes > bytes_max {
            return Err(WriteError::TooLarge { bytes: size_bytes, bytes_max });
        }
        Ok(())
    }

    /// Whether the newest generation has the entry of a key, and every byte of it.
    fn holds_intact(&self, key: &Key) -> bool {
        let [Some(found), _] = self.view.lock().find(key.tag()) else { return false };
        let entry = found.is_newest.then(|| found.generation.read_entry(found.slot));
        entry.is_some_and(|entry| entry.is_ok_and(|entry| check_entry(&entry, key).is_ok()))
    }

    /// Writes what was gathered, data first: a slot never names what is not there.
    fn write_batch(&self, batch: &mut Batch, written: &mut Written) -> Result<(), WriteError> {
        if batch.slots.is_empty() {
            return Ok(());
        }
        let slots: Vec<u8> = batch.slots.iter().flat_map(|slot| slot.encode()).collect();
        batch.generation.write_data(&batch.bytes, batch.offset)?;
        batch.generation.append_slots(&slots)?;
        let entries = batch.slots.len() as u64;
        written.entries += entries;
        self.counts.written.add(entries);
        self.counts.written_bytes.add(batch.bytes.len() as u64);
        batch.advance();
        self.look();
        Ok(())
    }
}

/// Entries that are about to be written behind the last one of a generation.
struct Batch {
    generation: Arc<Generation>,
    /// Where they begin.
    offset: u64,
    bytes: Vec<u8>,
    slots: Vec<PackSlot>,
    /// How many bytes of slots the generation has without them.
    index_bytes: u64,
}

impl Batch {
    fn at_end_of(generation: Arc<Generation>) -> Result<Self, WriteError> {
        let GenerationExtent { data_bytes, index_bytes, .. } = generation.extent()?;
        Ok(Self { generation, offset: align(data_bytes), bytes: Vec::new(), slots: Vec::new(), index_bytes })
    }

    fn holds(&self, key: &Key) -> bool {
        self.slots.iter().any(|slot| slot.tag == key.tag())
    }
    fn has_room(&self, size_bytes: u64, bytes_max: u64) -> bool {
        // One slot more, for the seal.
        let slots_bytes = (self.slots.len() + 2) * SLOT_BYTES;
        let index_bytes = self.index_bytes + slots_bytes as u64;
        let data_bytes = align(self.offset + self.bytes.len() as u64) + size_bytes;
        let is_empty = self.bytes.is_empty() && self.offset == align(FILE_HEADER_BYTES as u64);
        is_empty || (data_bytes + index_bytes <= bytes_max && index_bytes <= SLOTS_MAX * SLOT_BYTES as u64)
    }

    fn push(&mut self, key: &Key, payload: &[u8]) {
        self.bytes.resize(align(self.bytes.len() as u64) as usize, 0);
        let (offset, start) = (self.offset + self.bytes.len() as u64, self.bytes.len());
        encode_entry(&mut self.bytes, key, payload);
        let slot = PackSlot::new(key, offset, self.bytes.len() - start);
        self.slots.push(slot.expect("a generation is no larger than slots can say"));
    }

    /// The gathered entries are written.
    fn advance(&mut self) {
        self.offset = align(self.offset + self.bytes.len() as u64);
        self.index_bytes += (self.slots.len() * SLOT_BYTES) as u64;
        self.bytes.clear();
        self.slots.clear();
    }
}

//! Upkeep: figures of a pack, a check of all that is in it, and making room.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::append::WriteError;
use super::format::{PackFileKind, PackSlot, decode_entry};
use super::generation::Generation;
use super::view::Live;
use super::write_lock::WriteLock;
use super::{Access, Pack, now_s};
use crate::cache::Damage;

/// Figures of a pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackStats {
    /// The generations in the directory, the newest first.
    pub generations: Vec<GenerationStats>,
    /// How many lookups of this process found an entry.
    pub hits: u64,
    /// How many did not.
    pub misses: u64,
    /// How many entries it found damaged.
    pub bad_entries: u64,
    /// How many entries it has written.
    pub written: u64,
    /// How many bytes these take.
    pub written_bytes: u64,
    /// How often it could not write.
    pub failed_writes: u64,
}

/// Figures of one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GenerationStats {
    /// Its number.
    pub number: u64,
    /// When it was begun.
    pub created: SystemTime,
    /// Whether nothing is added to it any more.
    pub is_sealed: bool,
    /// How many entries it has.
    pub entries: u64,
    /// How many bytes these take.
    pub entry_bytes: u64,
    /// How many bytes its files have.
    pub file_bytes: u64,
}

/// The result of a check of a whole pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// How many entries are as they were written.
    pub entries: u64,
    /// How many bytes these take.
    pub entry_bytes: u64,
    /// How many bytes of data files belong to no entry: left by kills, full disks and entries that were written again.
    pub orphan_bytes: u64,
    /// Entries that are not as they were written. They are never served.
    pub bad: Vec<BadSlot>,
    /// Generations whose files cannot be used.
    pub unusable: Vec<u64>,
}

/// An entry that is not as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSlot {
    /// Its generation.
    pub generation: u64,
    /// Where it begins in the data file.
    pub offset: u64,
    /// The damage.
    pub why: Damage,
}

/// The removed generations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// The numbers of the generations.
    pub generations: Vec<u64>,
    /// How many bytes their files had. Processes that have them open keep them until they end.
    pub bytes: u64,
}

impl Pack {
    /// Figures, as of now.
    pub fn stats(&self) -> PackStats {
        let mut view = self.view.lock();
        view.refresh(&self.directory, self.open_flags());
        let generations = view.live().iter().map(GenerationStats::of).collect();
        drop(view);
        let counts = &self.counts;
        PackStats {
            generations,
            hits: counts.hits.get(),
            misses: counts.misses.get(),
            bad_entries: counts.bad_entries.get(),
            written: counts.written.get(),
            written_bytes: counts.written_bytes.get(),
            failed_writes: counts.failed_writes.get(),
        }
    }

    /// Reads and checks every entry. Others may write meanwhile.
    pub fn verify(&self) -> Verified {
        self.look();
        let (mut verified, mut usable) = (Verified::default(), Vec::new());
        for (generation, slots) in self.generations() {
            usable.push(generation.number);
            let entry_bytes_before = verified.entry_bytes;
            for slot in slots {
                match check_slot(&generation, slot) {
                    Ok(entry_bytes) => {
                        verified.entries += 1;
                        verified.entry_bytes += entry_bytes;
                    }
                    Err(why) => verified.bad.push(BadSlot {
                        generation: generation.number,
                        offset: slot.offset(),
                        why,
                    }),
                }
            }
            let data_bytes = generation.extent().map_or(0, |extent| extent.data_bytes);
            let used_bytes = verified.entry_bytes - entry_bytes_before;
            verified.orphan_bytes += data_bytes.saturating_sub(used_bytes);
        }
        let numbers = self.directory.generations().unwrap_or_default();
        verified.unusable = numbers.into_iter().filter(|number| !usable.contains(number)).collect();
        verified
    }

    /// Makes room: removes generations beyond the limits of age and size, and files that kills have left behind.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn gc(&self) -> Result<Collected, WriteError> {
        let _lock = self.lock_for_upkeep()?;
        let age_max_s = self.limits.age.as_secs();
        let is_kept = |generation: &Generation| now_s().saturating_sub(generation.created_s) <= age_max_s;
        let size_bytes =
            |generation: &Generation| generation.extent().map_or(0, |has| has.data_bytes + has.index_bytes);
        let mut kept = Vec::new();
        let mut left_bytes = self.limits.size_bytes;
        for (generation, _) in self.generations() {
            let bytes = size_bytes(&generation);
            if is_kept(&generation) && bytes <= left_bytes {
                left_bytes -= bytes;
                kept.push(generation.number);
            }
        }
        self.remove_all_but(&kept)
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn clear(&self) -> Result<Collected, WriteError> {
        let _lock = self.lock_for_upkeep()?;
        self.remove_all_but(&[])
    }

    /// Takes the writers' lock, and looks what there is.
    fn lock_for_upkeep(&self) -> Result<WriteLock, WriteError> {
        if self.access == Access::ReadOnly {
            return Err(WriteError::ReadOnly);
        }
        let lock = WriteLock::take(&self.directory, false)?;
        self.look();
        Ok(lock)
    }

    fn remove_all_but(&self, kept: &[u64]) -> Result<Collected, WriteError> {
        if let Some((newest, false)) = self.newest()
            && !kept.contains(&newest.number)
        {
            // Others learn by the seal that they have to look for another. A disk may be too full for it; then those who write learn
            // it because the file has no name any more.
            let _ = newest.append_slots(&PackSlot::SEAL.encode());
        }
        let mut collected = Collected::default();
        for number in self.directory.generations()? {
            if kept.contains(&number) {
                continue;
            }
            for kind in [PackFileKind::Data, PackFileKind::Index] {
                collected.bytes += self.directory.size_bytes(&self.directory.file_name(number, kind));
            }
            self.remove_generation(number)?;
            collected.generations.push(number);
        }
        self.view.lock().forget();
        self.look();
        Ok(collected)
    }

    /// The generations with their slots, the newest first. Entries are read without the lock.
    fn generations(&self) -> impl Iterator<Item = (Arc<Generation>, Vec<PackSlot>)> {
        let view = self.view.lock();
        let generations: Vec<_> =
            view.live().iter().map(|live| (live.generation.clone(), live.index.slots().to_vec())).collect();
        generations.into_iter()
    }
}

impl GenerationStats {
    fn of(live: &Live) -> Self {
        let extent = live.generation.extent();
        Self {
            number: live.generation.number,
            created: SystemTime::UNIX_EPOCH + Duration::from_secs(live.generation.created_s),
            is_sealed: live.index.is_sealed(),
            entries: live.index.slots().len() as u64,
            entry_bytes: live.index.slots().iter().filter_map(|slot| slot.length().ok()).sum::<usize>()
                as u64,
            file_bytes: extent.map_or(0, |extent| extent.data_bytes + extent.index_bytes),
        }
    }
}

/// Checks the entry of a slot; says how many bytes it has.
fn check_slot(generation: &Generation, slot: PackSlot) -> Result<u64, Damage> {
    let entry = generation.read_entry(slot)?;
    let (_, key) = decode_entry(&entry)?;
    if key.tag() == slot.tag { Ok(entry.len() as u64) } else { Err(Damage::OtherKey) }
}

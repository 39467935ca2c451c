//! [`Generation`]: one data file and its index file. Both are only appended to, and in the end unlinked.

use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::{self, OFlags};
use rustix::io::{self, Errno};

use super::directory::Directory;
use super::format::{ENTRY_HEADER_BYTES, FILE_HEADER_BYTES, FileHeader, PackFileKind, PackSlot, SLOT_BYTES};
use super::index::PackIndex;
use crate::cache::Damage;

/// How many slots an index has at most: it is read whole when a pack is opened.
pub(super) const SLOTS_MAX: u64 = 1 << 17;

/// The open files of one generation.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) created_s: u64,
    data: OwnedFd,
    index: OwnedFd,
}

/// How much there is of a generation, and whether it still has a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct GenerationExtent {
    pub(super) data_bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) is_unlinked: bool,
}

impl Generation {
    /// Opens a generation. There is none if it is gone, damaged where it begins, or not safe from others.
    pub(super) fn open(directory: &Directory, number: u64, access: OFlags) -> Option<Self> {
        let open = |kind| {
            let file = directory.open_file(&directory.file_name(number, kind), access).ok()?;
            let mut bytes = [0; FILE_HEADER_BYTES];
            let read = read_full(&file, &mut bytes, 0).ok()?;
            let header = FileHeader::decode(&bytes, kind, directory.version());
            let header = header.filter(|header| read == bytes.len() && header.generation == number)?;
            Some((file, header))
        };
        let (data, header) = open(PackFileKind::Data)?;
        let (index, of_index) = open(PackFileKind::Index)?;
        (header == of_index).then_some(Self { number, created_s: header.created_s, data, index })
    }

    /// Begins a generation. A kill in between leaves a file without a header, or one file alone, which is never opened.
    pub(super) fn create(directory: &Directory, number: u64, created_s: u64) -> Result<Self, Errno> {
        let create = |kind: PackFileKind| {
            let name = directory.file_name(number, kind);
            let file = directory.open_file(&name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
            let header = FileHeader { generation: number, created_s };
            write_all(&file, &header.encode(kind, directory.version()), 0)?;
            Ok(file)
        };
        let index = create(PackFileKind::Index)?;
        Ok(Self { number, created_s, data: create(PackFileKind::Data)?, index })
    }

    /// Reads what was appended to the index since the last look.
    pub(super) fn read_index(&self, index: &mut PackIndex) -> Result<(), Errno> {
        let mut bytes = [0; 64 * SLOT_BYTES];
        while index.read() < SLOTS_MAX + 1 {
            let offset = FILE_HEADER_BYTES as u64 + index.read() * SLOT_BYTES as u64;
            let read = read_full(&self.index, &mut bytes, offset)?;
            index.extend(&bytes[..read]);
            if read < bytes.len() {
                break;
            }
        }
        Ok(())
    }

    /// Reads the whole index.
    pub(super) fn load_index(&self) -> Result<PackIndex, Errno> {
        let size_bytes = fs::fstat(&self.index)?.st_size as u64;
        let slots = size_bytes.saturating_sub(FILE_HEADER_BYTES as u64) / SLOT_BYTES as u64;
        let mut bytes = Vec::with_capacity(slots.min(SLOTS_MAX + 1) as usize * SLOT_BYTES);
        read_into(&self.index, &mut bytes, FILE_HEADER_BYTES as u64)?;
        let mut index = PackIndex::default();
        index.extend(&bytes);
        Ok(index)
    }

    /// Reads what a slot says is an entry. Nothing of it is checked but its length.
    pub(super) fn read_entry(&self, slot: PackSlot) -> Result<Vec<u8>, Damage> {
        let length = slot.length()?;
        let mut entry = Vec::new();
        // A damaged slot may ask for much.
        entry.try_reserve_exact(length).map_err(|_| Damage::NoMemory(length as u64))?;
        read_into(&self.data, &mut entry, slot.offset()).map_err(Damage::Unreadable)?;
        if entry.len() < length {
            return Err(Damage::CutOff);
        }
        entry.truncate(length);
        Ok(entry)
    }

    pub(super) fn extent(&self) -> Result<GenerationExtent, Errno> {
        let (data, index) = (fs::fstat(&self.data)?, fs::fstat(&self.index)?);
        Ok(GenerationExtent {
            data_bytes: data.st_size as u64,
            index_bytes: index.st_size as u64,
            is_unlinked: data.st_nlink == 0 || index.st_nlink == 0,
        })
    }

    /// Writes entries at `offset` of the data file. For who has the writers' lock.
    pub(super) fn write_data(&self, entries: &[u8], offset: u64) -> Result<(), Errno> {
        write_all(&self.data, entries, offset)
    }

    /// Appends slots to the index. A part of a slot that a kill has left counts as one. The caller holds the writers' lock.
    pub(super) fn append_slots(&self, slots: &[u8]) -> Result<(), Errno> {
        let end = fs::fstat(&self.index)?.st_size as u64;
        let past_header = end.saturating_sub(FILE_HEADER_BYTES as u64).next_multiple_of(SLOT_BYTES as u64);
        write_all(&self.index, slots, FILE_HEADER_BYTES as u64 + past_header)
    }
}

/// The least length in a slot, and the bytes that are added to a payload.
pub(super) const fn entry_bytes(payload_bytes: usize) -> usize {
    ENTRY_HEADER_BYTES + payload_bytes
}

/// Reads into spare capacity until it is full or the file ends.
fn read_into(file: impl AsFd, bytes: &mut Vec<u8>, offset: u64) -> Result<(), Errno> {
    while bytes.len() < bytes.capacity() {
        let from = offset + bytes.len() as u64;
        match io::pread(&file, spare_capacity(bytes), from) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `bytes` are full or the file ends; says how many were read.
fn read_full(file: impl AsFd, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut read = 0;
    while read < bytes.len() {
        match io::pread(&file, &mut bytes[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn write_all(file: impl AsFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match io::pwrite(&file, bytes, offset) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

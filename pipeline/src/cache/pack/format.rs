//! The bytes of a pack, as `pipeline/src/cache/README.md` draws them. Nothing here reads or writes files.

use std::ops::Range;

use twox_hash::XxHash3_128;

use crate::cache::{Damage, Key};

/// Version of the format. It stands in the names of files, so that two versions share a directory and nothing else.
pub(super) const VERSION: u32 = 1;

/// How long the header of a file is.
pub(super) const FILE_HEADER_BYTES: usize = 64;
/// How long the header of an entry is.
pub(super) const ENTRY_HEADER_BYTES: usize = 64;
/// How long a slot of the index is.
pub(super) const SLOT_BYTES: usize = 16;
/// Entries begin at multiples of this.
pub(super) const ALIGNMENT_BYTES: u64 = 64;
/// Where the last entry of a file may begin.
pub(super) const OFFSET_MAX: u64 = u32::MAX as u64 * ALIGNMENT_BYTES;

const CHECKSUM_BYTES: usize = 16;
const ENTRY_MAGIC: [u8; 8] = *b"urukobj\n";

/// Which of the two files of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackFileKind {
    Data,
    Index,
}

impl PackFileKind {
    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Data => *b"urukdat\n",
            Self::Index => *b"urukidx\n",
        }
    }

    /// How the names of such files end.
    pub(super) const fn ending(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Index => "index",
        }
    }
}

/// The content of a file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// The number of the generation.
    pub(super) generation: u64,
    /// When it was begun, in seconds since 1970.
    pub(super) created_s: u64,
}

impl FileHeader {
    pub(super) fn encode(self, kind: PackFileKind, version: u32) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&kind.magic());
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.created_s.to_le_bytes());
        let checksum = checksum(&bytes[..FILE_HEADER_BYTES - CHECKSUM_BYTES]);
        bytes[FILE_HEADER_BYTES - CHECKSUM_BYTES..].copy_from_slice(&checksum);
        bytes
    }

    /// The header in a file's first bytes. `None` if they are damaged, or of another kind or version.
    pub(super) fn decode(bytes: &[u8; FILE_HEADER_BYTES], kind: PackFileKind, version: u32) -> Option<Self> {
        let header = Self { generation: word(bytes, 16), created_s: word(bytes, 24) };
        (header.encode(kind, version) == *bytes).then_some(header)
    }
}

/// A hint where the entry of a key lies. A reader that follows it checks the bytes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackSlot {
    /// The key's first eight bytes.
    pub(super) tag: u64,
    /// Where the entry begins, in units of [`ALIGNMENT_BYTES`].
    position: u32,
    /// How long it is, its header included.
    length: u32,
}

impl PackSlot {
    /// Says that no entry follows: there is a newer generation, or is to be one.
    pub(super) const SEAL: Self = Self { tag: u64::MAX, position: u32::MAX, length: u32::MAX };

    /// Of an entry at `offset`, if the numbers fit.
    pub(super) fn new(key: &Key, offset: u64, length: usize) -> Option<Self> {
        let position = u32::try_from(offset / ALIGNMENT_BYTES).ok()?;
        Some(Self { tag: key.tag(), position, length: u32::try_from(length).ok()? })
    }

    pub(super) fn encode(self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[0..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.position.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; SLOT_BYTES]) -> Self {
        let half = |start: usize| u32::from_le_bytes(std::array::from_fn(|at| bytes[start + at]));
        Self { tag: word(bytes, 0), position: half(8), length: half(12) }
    }

    pub(super) fn offset(self) -> u64 {
        u64::from(self.position) * ALIGNMENT_BYTES
    }

    /// How long the entry is, if an entry can be so long.
    pub(super) fn length(self) -> Result<usize, Damage> {
        let length = self.length as usize;
        if length < ENTRY_HEADER_BYTES { Err(Damage::Length) } else { Ok(length) }
    }
}

/// Where the next entry may begin.
pub(super) const fn align(offset: u64) -> u64 {
    offset.next_multiple_of(ALIGNMENT_BYTES)
}

/// Appends the entry of `key` to `buffer`.
pub(super) fn encode_entry(buffer: &mut Vec<u8>, key: &Key, payload: &[u8]) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; CHECKSUM_BYTES]);
    buffer.extend_from_slice(&ENTRY_MAGIC);
    buffer.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    buffer.extend_from_slice(key.as_bytes());
    buffer.extend_from_slice(payload);
    let checksum = checksum(&buffer[start + CHECKSUM_BYTES..]);
    buffer[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum);
}

/// Where the payload lies in an entry, if that is the entry of `key`, and every byte is as it was written.
pub(super) fn check_entry(entry: &[u8], key: &Key) -> Result<Range<usize>, Damage> {
    let (payload, stored) = decode_entry(entry)?;
    if stored == *key { Ok(payload) } else { Err(Damage::OtherKey) }
}

/// Where the payload lies in an entry, and its key, if every byte is as it was written.
pub(super) fn decode_entry(entry: &[u8]) -> Result<(Range<usize>, Key), Damage> {
    let header: &[u8; ENTRY_HEADER_BYTES] = entry.first_chunk().ok_or(Damage::CutOff)?;
    let payload = ENTRY_HEADER_BYTES..entry.len();
    if header[16..24] != ENTRY_MAGIC || word(header, 24) != payload.len() as u64 {
        return Err(Damage::Header);
    }
    if header[..CHECKSUM_BYTES] != checksum(&entry[CHECKSUM_BYTES..]) {
        return Err(Damage::Checksum);
    }
    Ok((payload, Key::from_bytes(std::array::from_fn(|at| header[32 + at]))))
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    XxHash3_128::oneshot(bytes).to_le_bytes()
}

fn word(bytes: &[u8], start: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|at| bytes[start + at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::from_bytes([7; 32]);

    #[test]
    fn each_flipped_bit_of_an_entry_is_noticed() {
        let mut entry = Vec::new();
        encode_entry(&mut entry, &KEY, b"an object");
        assert_eq!(check_entry(&entry, &KEY), Ok(64..73));
        for bit in 0..entry.len() * 8 {
            entry[bit / 8] ^= 1 << (bit % 8);
            check_entry(&entry, &KEY).expect_err("a bit is flipped");
            entry[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(check_entry(&entry, &Key::from_bytes([8; 32])), Err(Damage::OtherKey));
        for length in 0..entry.len() {
            check_entry(&entry[..length], &KEY).expect_err("the end is missing");
        }
        entry.push(0);
        check_entry(&entry, &KEY).expect_err("something follows");
    }

    #[test]
    fn each_flipped_bit_of_a_file_header_is_noticed() {
        let header = FileHeader { generation: 3, created_s: 4 };
        let mut bytes = header.encode(PackFileKind::Data, VERSION);
        assert_eq!(FileHeader::decode(&bytes, PackFileKind::Data, VERSION), Some(header));
        assert_eq!(FileHeader::decode(&bytes, PackFileKind::Index, VERSION), None);
        assert_eq!(FileHeader::decode(&bytes, PackFileKind::Data, VERSION + 1), None);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FileHeader::decode(&bytes, PackFileKind::Data, VERSION), None);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_slot_says_where_an_entry_lies_and_refuses_what_does_not_fit() {
        let slot = PackSlot::new(&KEY, 128, 73).expect("small numbers");
        assert_eq!(PackSlot::decode(&slot.encode()), slot);
        assert_eq!((slot.offset(), slot.length()), (128, Ok(73)));
        assert_eq!(PackSlot::new(&KEY, (1 << 32) * ALIGNMENT_BYTES, 73), None);
        assert_eq!(PackSlot::new(&KEY, 0, 1 << 32), None);
        assert_eq!(PackSlot::decode(&[0; 16]).length(), Err(Damage::Length));
    }
}

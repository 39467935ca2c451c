//! [`Relocations`]: those of one section, in either form: as an array, or compact (`SHT_CREL`).

use std::slice;

use object::LittleEndian;
use object::elf;
use object::read::elf::{Crel, CrelIterator, SectionHeader};

const ENDIAN: LittleEndian = LittleEndian;

/// Relocations that are still to be read. One that cannot be read is the last.
#[derive(Clone, Debug)]
pub(crate) enum Relocations<'a> {
    Plain(slice::Iter<'a, elf::Rela64<LittleEndian>>),
    Compact(CrelIterator<'a>),
}

impl<'a> Relocations<'a> {
    /// The relocations of a section of that kind; nothing if it is of another, or its relocations have no addends.
    pub(crate) fn of(
        section: &elf::SectionHeader64<LittleEndian>,
        bytes: &'a [u8],
    ) -> Result<Option<Self>, object::read::Error> {
        if let Some((plain, _)) = section.rela(ENDIAN, bytes)? {
            return Ok(Some(Self::Plain(plain.iter())));
        }
        let compact = section.crel(ENDIAN, bytes)?.filter(|(compact, _)| compact.is_rela());
        Ok(compact.map(|(compact, _)| Self::Compact(compact)))
    }

    /// No more than this many follow, if they lie in `section_bytes`. The section's own count may be false.
    pub(crate) fn count_max(&self, section_bytes: u64) -> usize {
        match self {
            Self::Plain(plain) => plain.len(),
            Self::Compact(compact) => compact.len().min(section_bytes as usize),
        }
    }
}

impl Iterator for Relocations<'_> {
    type Item = Result<Crel, object::read::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Plain(plain) => {
                plain.next().map(|relocation| Ok(Crel::from_rela(relocation, ENDIAN, false)))
            }
            Self::Compact(compact) => compact.next(),
        }
    }
}

//! Limits of a file: memory and time in proportion to its size.
//!
//! The tables of an object or an archive may all point at the same bytes. A megabyte could so describe gigabytes of
//! contents, or of names. Two rules exclude that, and each reader of a file applies them before it allocates:
//!
//! - the contents of all sections together have at most as many bytes as the file;
//! - the names that are read in full have together at most [`NAMES_PER_BYTE`] times as many.
//!
//! Names may overlap up to a point because tools share the ends of strings: `.text.f` lies in `.rela.text.f`.

use object::LittleEndian;
use object::elf;
use object::read::elf::SectionHeader;

type ObjectSection = elf::SectionHeader64<LittleEndian>;
const ENDIAN: LittleEndian = LittleEndian;

/// How often each byte of a file may occur in names, on average. Compilers stay below 1; the most that four sections,
/// a symbol and a group of one function could reach together is 3.
const NAMES_PER_BYTE: usize = 4;

/// How many bytes of names may still be read from a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameBudget {
    left_bytes: usize,
    file_bytes: usize,
}

/// The names of a file overlap too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its names overlap: together they are longer than {NAMES_PER_BYTE} times the file, which has {file_bytes} bytes"
)]
pub(crate) struct NamesTooLong {
    file_bytes: usize,
}

impl NameBudget {
    /// The budget of a file of this size.
    pub(crate) const fn of_file(file_bytes: usize) -> Self {
        Self { left_bytes: file_bytes.saturating_mul(NAMES_PER_BYTE), file_bytes }
    }

    /// Notes that a name was read. Finding its end has been paid for by then, so what a file costs in vain is one name.
    #[inline]
    pub(crate) fn spend(&mut self, name: &[u8]) -> Result<(), NamesTooLong> {
        match self.left_bytes.checked_sub(name.len()) {
            Some(left) => {
                self.left_bytes = left;
                Ok(())
            }
            None => Err(NamesTooLong { file_bytes: self.file_bytes }),
        }
    }
}

/// A false statement of section headers about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SectionsError {
    /// A section is not where it is said to be.
    #[error("section {index} reaches from {start:#x} to {end:#x}, past the end of the file")]
    Bounds { index: usize, start: u64, end: u64 },
    /// All sections up to this one have more contents than the file.
    #[error(
        "sections overlap: up to section {index} they have {sum_bytes} bytes of contents, the file has {file_bytes}"
    )]
    Overlap { index: usize, sum_bytes: u64, file_bytes: u64 },
}

/// Checks that the contents of `sections` lie in the file, and fit into it beside each other.
pub(crate) fn check_sections(sections: &[ObjectSection], file_bytes: usize) -> Result<(), SectionsError> {
    let file_bytes = file_bytes as u64;
    let mut sum_bytes = 0_u64;
    for (index, section) in sections.iter().enumerate() {
        // The first header is of no section: where there are very many, its size is how many.
        if matches!(section.sh_type(ENDIAN), elf::SHT_NOBITS | elf::SHT_NULL) {
            continue;
        }
        let (start, size) = (section.sh_offset(ENDIAN), section.sh_size(ENDIAN));
        let end = start.saturating_add(size);
        if end > file_bytes {
            return Err(SectionsError::Bounds { index, start, end });
        }
        // Neither is larger than a file, so the sum stays small.
        sum_bytes += size;
        if sum_bytes > file_bytes {
            return Err(SectionsError::Overlap { index, sum_bytes, file_bytes });
        }
    }
    Ok(())
}

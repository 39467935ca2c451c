//! Functions of an object for which no stub can stand.

use std::collections::HashSet;

use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{LittleEndian, SectionIndex, elf};

use super::ObjectBuffer;
use super::interface::ObjectInterface;
use crate::arch::Architecture;

const ENDIAN: LittleEndian = LittleEndian;

/// Alignment of a stub in bytes.
const STUB_ALIGN: u64 = 16;

/// With KCFI a hash stands before each function, at a symbol of its own that looks like a function.
const KCFI_PREFIX: &[u8] = b"__cfi_";

/// A section, and an offset there.
type SectionOffset = (usize, u64);

impl ObjectInterface<'_> {
    /// Whether a function of `object`, whose interface this is, is more than a stub can stand for. There are four kinds:
    ///
    /// - Its callers may read words before its code: KCFI, `-fsanitize=function`, prefix data, tables of GHC. All bytes between the
    ///   function and the end of the function before it count, unless they are padding. Padding is shorter than the alignment that
    ///   it makes.
    /// - Its callers may read words at the start of its code: prologue data, which a jump leads over.
    /// - Its address may be aligned to more than a stub is. A function tells no alignment of its own, so its place tells: that of the
    ///   section, as far as its offset has it.
    /// - It has a local name too. Code of the same section may take its address by that name, and no linker is told.
    ///
    /// Some objects are counted in vain, and are linked before the program:
    ///
    /// - Those compiled with `-falign-functions=32`, or whose loops are aligned so. They look like functions that ask for alignment.
    /// - Those with a function that begins with a jump to the test of its loop.
    /// - Those with a function behind assembly whose symbols have no sizes.
    ///
    /// A damaged symbol table is reported when the object is linked, so it counts as such.
    ///
    /// # Cost
    /// A pass over the symbol table, and a sort of the functions. Of the code only what lies between functions is read.
    pub fn is_beyond_stubs(&self, object: &ObjectBuffer) -> bool {
        self.find_beyond_stubs(object).unwrap_or(true)
    }

    fn find_beyond_stubs(&self, object: &ObjectBuffer) -> object::read::Result<bool> {
        let data = object.bytes();
        let sections = elf::FileHeader64::<LittleEndian>::parse(data)?.sections(ENDIAN, data)?;
        let symbols = sections.symbols(ENDIAN, data, elf::SHT_SYMTAB)?;
        let exported: HashSet<SectionOffset> = self.defined.iter().filter_map(|symbol| symbol.code).collect();
        let mut functions = Vec::new();
        for (index, symbol) in symbols.enumerate() {
            if symbol.st_type() != elf::STT_FUNC {
                continue;
            }
            let Some(section) = symbols.symbol_section(ENDIAN, symbol, index)? else { continue };
            let place = (section.0, symbol.st_value(ENDIAN));
            if symbol.st_bind() == elf::STB_LOCAL && exported.contains(&place) {
                return Ok(true);
            }
            if !symbol.name(ENDIAN, symbols.strings())?.starts_with(KCFI_PREFIX) {
                functions.push((place, place.1.saturating_add(symbol.st_size(ENDIAN))));
            }
        }
        functions.sort_unstable();
        let mut before = (0, 0);
        for (place, end) in functions {
            if before.0 != place.0 {
                before = (place.0, 0);
            }
            if exported.contains(&place)
                && is_more_than_code(self.architecture, (&sections, data), before.1, (place, end))?
            {
                return Ok(true);
            }
            before.1 = before.1.max(end);
        }
        Ok(false)
    }
}

/// Whether a function at a place, up to an end, is aligned to more than a stub is, or has words before its code, behind `start`, or at
/// the start of it.
fn is_more_than_code(
    arch: Architecture,
    (sections, data): (&SectionTable<'_, elf::FileHeader64<LittleEndian>>, &[u8]),
    start: u64,
    ((section, offset), end): (SectionOffset, u64),
) -> object::read::Result<bool> {
    let section = sections.section(SectionIndex(section))?;
    let align_of_offset = if offset == 0 { u64::MAX } else { 1 << offset.trailing_zeros() };
    let align = section.sh_addralign(ENDIAN).max(1).min(align_of_offset);
    // A function that lies inside another has no gap.
    let start = start.min(offset);
    if align > STUB_ALIGN || offset - start >= align {
        return Ok(true);
    }
    let code = section.data(ENDIAN, data)?;
    let between = |start, end| code.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?);
    let (Some(gap), Some(function)) = (between(start, offset), between(offset, end)) else { return Ok(true) };
    Ok(!arch.is_padding(gap) || arch.begins_with_jump_over(function))
}

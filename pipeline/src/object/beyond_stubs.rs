//! Functions of an object for which no stub can stand.

use std::collections::{HashMap, HashSet};

use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex, elf};

use super::ObjectBuffer;
use super::interface::ObjectInterface;
use crate::arch::Architecture;

const ENDIAN: LittleEndian = LittleEndian;

/// Alignment of a stub in bytes.
const STUB_ALIGN: u64 = 16;

/// With KCFI a hash stands before each function, at a symbol of its own.
const KCFI_PREFIX: &[u8] = b"__cfi_";

impl ObjectInterface<'_> {
    /// Whether a function of `object`, whose interface this is, is more than a stub can stand for. There are three kinds:
    ///
    /// - Its callers may read words before its code: KCFI, `-fsanitize=function`, prefix data. All bytes between the function and the
    ///   symbol before it count, unless they are padding.
    /// - Its address may be aligned to more than a stub is. A function tells no alignment of its own, so that of the section counts.
    /// - It has a local name too. Code of the same section may take its address by that name, and no linker is told.
    ///
    /// Files compiled with `-falign-functions=32`, or loops aligned so, are of the second kind. Code of assembly whose symbols have no
    /// sizes may look like the first.
    ///
    /// A damaged symbol table is reported when the object is linked, so it counts as such.
    pub fn is_beyond_stubs(&self, object: &ObjectBuffer) -> bool {
        self.has_names_beyond(object).unwrap_or(true) || self.has_words_before(object).unwrap_or(true)
    }

    fn has_names_beyond(&self, object: &ObjectBuffer) -> object::read::Result<bool> {
        let data = object.bytes();
        let sections = elf::FileHeader64::<LittleEndian>::parse(data)?.sections(ENDIAN, data)?;
        let symbols = sections.symbols(ENDIAN, data, elf::SHT_SYMTAB)?;
        let places: HashSet<_> = self.defined.iter().filter_map(|symbol| symbol.code).collect();
        for (index, symbol) in symbols.enumerate() {
            if symbol.st_type() != elf::STT_FUNC {
                continue;
            }
            if symbol.name(ENDIAN, symbols.strings())?.starts_with(KCFI_PREFIX) {
                return Ok(true);
            }
            let section = symbols.symbol_section(ENDIAN, symbol, index)?;
            let place = section.map(|section| (section.0, symbol.st_value(ENDIAN)));
            if symbol.st_bind() == elf::STB_LOCAL && place.is_some_and(|place| places.contains(&place)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether something other than padding stands right before a function, or a function lies at a large alignment.
    fn has_words_before(&self, object: &ObjectBuffer) -> object::read::Result<bool> {
        let data = object.bytes();
        let sections = elf::FileHeader64::<LittleEndian>::parse(data)?.sections(ENDIAN, data)?;
        let symbols = sections.symbols(ENDIAN, data, elf::SHT_SYMTAB)?;
        let mut functions: HashMap<usize, Vec<u64>> = HashMap::new();
        for (section, offset) in self.defined.iter().filter_map(|symbol| symbol.code) {
            functions.entry(section).or_default().push(offset);
        }
        // Start and end of each symbol, by section.
        let mut extents: HashMap<usize, Vec<(u64, u64)>> = HashMap::new();
        for (index, symbol) in symbols.enumerate() {
            let Some(section) = symbols.symbol_section(ENDIAN, symbol, index)? else { continue };
            if functions.contains_key(&section.0) && symbol.st_type() != elf::STT_SECTION {
                let start = symbol.st_value(ENDIAN);
                let end = start.saturating_add(symbol.st_size(ENDIAN));
                extents.entry(section.0).or_default().push((start, end));
            }
        }
        for (section, mut offsets) in functions {
            let header = sections.section(SectionIndex(section))?;
            let align = header.sh_addralign(ENDIAN);
            if align > STUB_ALIGN && offsets.iter().any(|offset| offset % align == 0) {
                return Ok(true);
            }
            let code = header.data(ENDIAN, data)?;
            offsets.sort_unstable();
            let mut extents = extents.remove(&section).unwrap_or_default();
            extents.sort_unstable();
            let (mut extents, mut end) = (extents.into_iter().peekable(), 0);
            for offset in offsets {
                while let Some((_, next)) = extents.next_if(|(start, _)| *start < offset) {
                    end = end.max(next);
                }
                let gap = usize::try_from(end).ok().zip(usize::try_from(offset).ok());
                // A function that lies inside another has no gap.
                if gap
                    .and_then(|(end, offset)| code.get(end..offset))
                    .is_some_and(|gap| !Architecture::HOST.is_padding(gap))
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

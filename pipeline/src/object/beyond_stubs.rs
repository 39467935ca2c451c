//! Functions of an object for which no stub can stand.

use std::collections::HashSet;

use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex, elf};

use super::ObjectBuffer;
use super::interface::ObjectInterface;

const ENDIAN: LittleEndian = LittleEndian;

/// With `-fsanitize=function` these four bytes and a hash of the type stand before each function. A caller reads both.
const SANITIZED: [u8; 4] = 0xc105_cafe_u32.to_le_bytes();
const SANITIZED_BEFORE: u64 = 8;

/// With KCFI a hash stands before each function, at a symbol of its own.
const KCFI_PREFIX: &[u8] = b"__cfi_";

impl ObjectInterface<'_> {
    /// Whether a function of `object`, whose interface this is, is more than a stub can stand for. There are two kinds:
    ///
    /// - Callers read words before its code: KCFI, `-fsanitize=function`.
    /// - It has a local name too. Code of the same section may take its address by that name, and no linker is told.
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

    fn has_words_before(&self, object: &ObjectBuffer) -> object::read::Result<bool> {
        let data = object.bytes();
        let sections = elf::FileHeader64::<LittleEndian>::parse(data)?.sections(ENDIAN, data)?;
        for (section, offset) in self.defined.iter().filter_map(|symbol| symbol.code) {
            let Some(before) = offset.checked_sub(SANITIZED_BEFORE) else { continue };
            let code = sections.section(SectionIndex(section))?.data(ENDIAN, data)?;
            let words = usize::try_from(before).ok().and_then(|before| code.get(before..));
            if words.is_some_and(|words| words.starts_with(&SANITIZED)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

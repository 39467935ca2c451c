//! The debug sections of objects, joined and relocated to where the code lies.
//!
//! An object's debug sections refer to each other by offsets, and to code and data by addresses. Both are relocations. So the sections of
//! several objects can stand one behind the other, under one name, as a static linker has them.
//!
//! An object is not trusted: a reference that leads nowhere becomes zero, as linkers write it for functions that have gone.
//! Compressed sections are left out.

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym as _};
use object::{SectionIndex, SymbolIndex};
use rustc_hash::FxHashMap;

use super::code::DebugFile;
use crate::arch::Architecture;

type DebugFileHeader = elf::FileHeader64<LittleEndian>;
const ENDIAN: LittleEndian = LittleEndian;

/// A section of debug information.
pub(super) struct DebugSection {
    pub(super) name: Box<str>,
    pub(super) bytes: Vec<u8>,
}

/// The debug sections of objects.
#[derive(Default)]
pub(super) struct Dwarf {
    pub(super) sections: Vec<DebugSection>,
}

impl Dwarf {
    /// Adds the sections of an object. `None` if it cannot be read: nothing of it is added, or it stands unfinished at the end.
    pub(super) fn add(&mut self, file: &DebugFile) -> Option<()> {
        let bytes = file.bytes();
        let header = DebugFileHeader::parse(bytes).ok()?;
        let arch = Architecture::of_machine(header.e_machine(ENDIAN).0)?;
        let sections = header.sections(ENDIAN, bytes).ok()?;
        let symbols = sections.symbols(ENDIAN, bytes, elf::SHT_SYMTAB).ok()?;
        // Where each debug section of the object begins: which of ours, and the offset there.
        let mut placed: FxHashMap<usize, (usize, usize)> = FxHashMap::default();
        for (index, section) in sections.enumerate() {
            let name = sections.section_name(ENDIAN, section).ok()?;
            let Some(name) = std::str::from_utf8(name).ok().filter(|name| name.starts_with(".debug_")) else {
                continue;
            };
            let flags = section.sh_flags(ENDIAN);
            let is_table = matches!(section.sh_type(ENDIAN), elf::SHT_RELA | elf::SHT_NOBITS);
            if is_table || flags.contains(elf::SHF_ALLOC) || flags.contains(elf::SHF_COMPRESSED) {
                continue;
            }
            let content = section.data(ENDIAN, bytes).ok()?;
            placed.insert(index.0, self.append(name, content, section.sh_addralign(ENDIAN)));
        }
        for (_, section) in sections.enumerate() {
            let Some((relocations, _)) = section.rela(ENDIAN, bytes).ok()? else { continue };
            let Some(&(target, base)) = placed.get(&section.info_link(ENDIAN).0) else { continue };
            let is_ranges = matches!(&*self.sections[target].name, ".debug_ranges" | ".debug_loc");
            for relocation in relocations {
                let index = SymbolIndex(relocation.r_sym(ENDIAN, false) as usize);
                let value = symbols.symbol(index).ok().and_then(|symbol| {
                    let value = symbol.st_value(ENDIAN);
                    if symbol.st_type() == elf::STT_TLS || symbol.st_shndx(ENDIAN) == elf::SHN_ABS {
                        return Some(value);
                    }
                    let SectionIndex(section) = symbols.symbol_section(ENDIAN, symbol, index).ok()??;
                    let start = match placed.get(&section) {
                        Some(&(_, base)) => base as u64,
                        None => file.address_of(u32::try_from(section).ok()?)?,
                    };
                    Some(start.wrapping_add(value))
                });
                // In a list of ranges, two zeros are its end.
                let value = match value {
                    Some(value) => value.wrapping_add_signed(relocation.r_addend.get(ENDIAN)),
                    None => u64::from(is_ranges),
                };
                let kind = relocation.r_type(ENDIAN, false);
                let Some(size) = arch.debug_field_bytes(kind) else { continue };
                let field = usize::try_from(relocation.r_offset.get(ENDIAN)).ok().and_then(|offset| {
                    let start = base.checked_add(offset)?;
                    self.sections[target].bytes.get_mut(start..start.checked_add(size)?)
                });
                if let Some(field) = field {
                    field.copy_from_slice(&value.to_le_bytes()[..size]);
                }
            }
        }
        Some(())
    }

    /// The section of that name; empty if there is none.
    pub(super) fn section(&self, name: &str) -> &[u8] {
        self.sections.iter().find(|section| &*section.name == name).map_or(&[], |section| &section.bytes)
    }

    fn append(&mut self, name: &str, content: &[u8], align: u64) -> (usize, usize) {
        let known = self.sections.iter().position(|section| &*section.name == name);
        let index = known.unwrap_or_else(|| {
            self.sections.push(DebugSection { name: name.into(), bytes: Vec::new() });
            self.sections.len() - 1
        });
        let bytes = &mut self.sections[index].bytes;
        let align = usize::try_from(align).unwrap_or(1).clamp(1, 16);
        bytes.resize(bytes.len().next_multiple_of(align), 0);
        let base = bytes.len();
        bytes.extend_from_slice(content);
        (index, base)
    }
}

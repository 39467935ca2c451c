//! Which symbols an object has to have near, read from its relocations without linking it.
//!
//! Objects built without position-independent code hold addresses in 32 bits, and those of position-independent
//! executables read variables of others directly. Both depend on where things lie, which is decided before they are
//! linked; so this is read when they are added.
//!
//! Works on untrusted bytes: what is malformed is left out here, and told when the object is linked.

use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex, SymbolIndex};

use super::ObjectBuffer;
use super::proportion::{NameBudget, check_sections};
use super::relocations::Relocations;

/// The symbols an object has to have near; names borrow from the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseReferences<'data> {
    /// Whether it holds addresses in 32 bits that only the link decides on.
    pub needs_low_addresses: bool,
    /// Undefined or replaceable symbols that it refers to by an address of 32 bits, or by a distance of 32 bits other than that of a call
    /// or jump.
    pub names: Vec<&'data str>,
}

const ENDIAN: LittleEndian = LittleEndian;

impl<'data> CloseReferences<'data> {
    /// Reads the references of `object`.
    ///
    /// # Cost
    /// One pass over the relocations; nothing is copied.
    pub fn read(object: &'data ObjectBuffer) -> Self {
        let mut references = Self::default();
        // Malformed bytes end the reading.
        let _ = references.read_sections(object.bytes());
        references
    }

    fn read_sections(&mut self, data: &'data [u8]) -> Result<(), object::read::Error> {
        let header = elf::FileHeader64::<LittleEndian>::parse(data)?;
        if check_sections(header.section_headers(ENDIAN, data)?, data.len()).is_err() {
            return Ok(());
        }
        let mut names = NameBudget::of_file(data.len());
        let sections = header.sections(ENDIAN, data)?;
        let symbols = sections.symbols(ENDIAN, data, elf::SHT_SYMTAB)?;
        let mut seen = vec![false; symbols.len()];
        for section in sections.iter() {
            let Some(relocations) = Relocations::of(section, data)? else { continue };
            let target = sections.section(SectionIndex(section.sh_info(ENDIAN) as usize))?;
            if !target.sh_flags(ENDIAN).contains(elf::SHF_ALLOC) {
                continue;
            }
            let bytes = target.data(ENDIAN, data)?;
            for relocation in relocations {
                let relocation = relocation?;
                let (index, kind) = (SymbolIndex(relocation.r_sym as usize), relocation.r_type);
                if index == SymbolIndex(0) {
                    continue;
                }
                let is_address = matches!(kind, elf::R_X86_64_32 | elf::R_X86_64_32S);
                let is_distance = kind == elf::R_X86_64_PC32 && !is_branch(bytes, relocation.r_offset);
                if !is_address && (!is_distance || seen.get(index.0) == Some(&true)) {
                    continue;
                }
                let symbol = symbols.symbol(index)?;
                self.needs_low_addresses |= is_address && !symbol.is_absolute(ENDIAN);
                let seen = seen.get_mut(index.0).map(|seen| std::mem::replace(seen, true));
                if seen == Some(true) || !may_be_elsewhere(symbol) {
                    continue;
                }
                let name = symbol.name(ENDIAN, symbols.strings())?;
                if names.spend(name).is_err() {
                    return Ok(());
                }
                self.names.extend(std::str::from_utf8(name));
            }
        }
        Ok(())
    }
}

/// Whether another object's definition may be the one that counts.
fn may_be_elsewhere(symbol: &elf::Sym64<LittleEndian>) -> bool {
    let is_own = !symbol.is_undefined(ENDIAN) && !symbol.is_common(ENDIAN);
    match symbol.st_bind() {
        elf::STB_LOCAL => false,
        elf::STB_GLOBAL => !is_own,
        _ => true,
    }
}

/// Whether the field at `offset` belongs to a call or jump, which may go through a stub.
fn is_branch(bytes: &[u8], offset: u64) -> bool {
    let before = |back: u64| bytes.get(usize::try_from(offset.checked_sub(back)?).ok()?).copied();
    matches!(before(1), Some(0xe8 | 0xe9))
        || (before(2) == Some(0x0f) && matches!(before(1), Some(0x80..=0x8f)))
}

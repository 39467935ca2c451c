//! Which symbols an object has to have near, read from its relocations without linking it.
//!
//! Objects built without position-independent code hold addresses in 32 bits, and those of position-independent
//! executables read variables of others directly. Both depend on where things lie, which is decided before they are
//! linked; so this is read when they are added. The meaning of a relocation and of its instruction is the architecture's, as for the graph.
//!
//! Works on untrusted bytes: malformed parts are left out here, and reported when the object is linked.

use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex, SymbolIndex};

use super::ENDIAN;
use crate::arch::{Architecture, Class, FarForm, Meaning};
use crate::object::{NameBudget, ObjectBuffer, Relocations, check_sections};

/// The symbols an object has to have near; names borrow from the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refs32<'data> {
    /// Whether it holds addresses in 32 bits that only the link decides on.
    pub needs_low_addresses: bool,
    /// Undefined or replaceable symbols that it refers to by an address of 32 bits, or by a distance of 32 bits other than that of a call
    /// or jump.
    pub names: Vec<&'data str>,
}

impl<'data> Refs32<'data> {
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
        let (arch, mut seen) =
            (Architecture::of_machine(header.e_machine(ENDIAN).0), vec![false; symbols.len()]);
        let Some(arch) = arch else { return Ok(()) };
        for section in sections.iter() {
            let Some(relocations) = Relocations::of(section, data)? else { continue };
            let target = sections.section(SectionIndex(section.sh_info(ENDIAN) as usize))?;
            if !target.sh_flags(ENDIAN).contains(elf::SHF_ALLOC) {
                continue;
            }
            let bytes = target.data(ENDIAN, data)?;
            for relocation in relocations {
                let relocation = relocation?;
                let index = SymbolIndex(relocation.r_sym as usize);
                if index == SymbolIndex(0) {
                    continue;
                }
                let Meaning::Edge(kind) = arch.meaning(relocation.r_type) else { continue };
                let is_distance = || match (kind.class(), usize::try_from(relocation.r_offset)) {
                    (Class::Near, Ok(offset)) => {
                        arch.far_form(bytes, offset, relocation.r_addend) != Some(FarForm::Stub)
                    }
                    _ => false,
                };
                let is_address = kind.class() == Class::LowAddress;
                if !is_address && (seen.get(index.0) == Some(&true) || !is_distance()) {
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

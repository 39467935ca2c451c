//! The sections that take part, and their roles.

use object::elf;
use object::read::elf::SectionHeader;
use object::{LittleEndian, SectionIndex};

use super::fragments::fragment_role;
use super::relocations::Cie;
use super::{ENDIAN, OBJECT, Parser};
use crate::link::eh_frame::{self, RecordKind};
use crate::link::error::LinkError;
use crate::link::graph::{Block, BlockId, Frame, Group, InitRole, Name, Section, SectionId, SectionRole};

/// Sections of the large code model, which may lie further away than a 32-bit displacement reaches.
const SHF_X86_64_LARGE: u64 = 0x1000_0000;
/// Page tables end at 47 bits: a section that is larger cannot be placed anywhere.
pub(in crate::link) const SECTION_BYTES_MAX: u64 = 1 << 46;
/// One gibibyte, the largest page. A larger alignment in an object is damage.
pub(in crate::link) const ALIGN_LOG2_MAX: u32 = 30;
/// The priority of a section without a number in its name, which is the last to run before the program.
const DEFAULT_PRIORITY: u16 = 65535;

impl<'a> Parser<'a> {
    /// Adds every section that occupies memory, with its blocks.
    pub(super) fn read_sections(&mut self) -> Result<(), LinkError> {
        let sections = self.sections;
        for (index, header) in sections.enumerate() {
            let name = self.section_name(header)?;
            self.spend_name("", name.as_bytes())?;
            let role = role_of(header, name).map_err(|what| self.error(name, 0, what))?;
            self.graph.files[0] |= name == ".debug_info";
            let Some(role) = role else { continue };
            let fragment = fragment_role(header, name);
            if let Some(init) = fragment {
                self.start_fragment(header, name, init)?;
            }
            let id = self.add_section(header, name, role)?;
            self.graph.sections[id.index()].number = index.0 as u32;
            self.section_ids[index.0] = Some(id);
            if fragment.is_some() {
                self.end_fragment();
            }
        }
        Ok(())
    }

    fn add_section(
        &mut self,
        header: &'a elf::SectionHeader64<LittleEndian>,
        name: &'a str,
        role: SectionRole,
    ) -> Result<SectionId, LinkError> {
        let size = header.sh_size(ENDIAN);
        if size > SECTION_BYTES_MAX {
            return Err(self.error(name, 0, format!("the section's size {size:#x} is out of bounds")));
        }
        let content = header.data(ENDIAN, self.bytes).map_err(|_| {
            self.error(name, header.sh_offset(ENDIAN), "the section reaches beyond the end of the object")
        })?;
        let align = header.sh_addralign(ENDIAN).max(1);
        if !align.is_power_of_two() || align.ilog2() > ALIGN_LOG2_MAX {
            return Err(self.error(
                name,
                0,
                format!("alignment {align:#x} is not a power of two up to 2^30"),
            ));
        }
        let section = Section {
            name: self.keep_section_name(header.sh_name(ENDIAN), name),
            object: OBJECT,
            file: 0,
            number: 0,
            role,
            init: init_role(header.sh_type(ENDIAN), name),
            size,
            align_log2: align.ilog2() as u8,
            is_grouped: false,
            first_block: BlockId::of(self.graph.blocks.len()),
            block_count: 0,
        };
        let id = SectionId::of(self.graph.sections.len());
        self.graph.sections.push(section);
        self.graph.contents.push(content);
        if role == SectionRole::EhFrame {
            self.add_frames(id, name, content)?;
        } else {
            self.add_block(id, 0, size, section.align_log2);
        }
        Ok(id)
    }

    /// Splits `.eh_frame`, so that an entry can go where its function goes.
    fn add_frames(&mut self, section: SectionId, name: &str, content: &[u8]) -> Result<(), LinkError> {
        let records = eh_frame::split(content).map_err(|(offset, what)| self.error(name, offset, what))?;
        for record in records {
            let block = self.add_block(section, record.offset, record.size, 0);
            match record.kind {
                RecordKind::Cie => {
                    self.cies.push(Cie { section, offset: record.offset, block, symbol: None })
                }
                RecordKind::Fde => self.graph.frames.push(Frame { block, function: u32::MAX }),
            }
        }
        Ok(())
    }

    pub(super) fn add_block(
        &mut self,
        section: SectionId,
        offset: u64,
        size: u64,
        align_log2: u8,
    ) -> BlockId {
        let id = BlockId::of(self.graph.blocks.len());
        let block =
            Block { section, offset, size, align_log2, discardable: false, live: true, edges: (0, 0) };
        self.graph.blocks.push(block);
        self.graph.sections[section.index()].block_count += 1;
        id
    }

    /// Adds a section for the object's common symbols, each a block of zeros of its own.
    pub(super) fn add_common(
        &mut self,
        role: SectionRole,
        size: u64,
        align: u64,
    ) -> Result<BlockId, LinkError> {
        let align = align.max(1);
        if size > SECTION_BYTES_MAX || !align.is_power_of_two() || align.ilog2() > ALIGN_LOG2_MAX {
            return Err(self.error(
                "COMMON",
                0,
                format!("a common symbol of {size:#x} bytes, aligned to {align:#x}"),
            ));
        }
        let section = Section {
            name: self.common_name()?,
            object: OBJECT,
            file: 0,
            number: 0,
            role,
            init: None,
            size,
            align_log2: align.ilog2() as u8,
            is_grouped: false,
            first_block: BlockId::of(self.graph.blocks.len()),
            block_count: 0,
        };
        let id = SectionId::of(self.graph.sections.len());
        self.graph.sections.push(section);
        self.graph.contents.push(&[]);
        Ok(self.add_block(id, 0, size, section.align_log2))
    }

    /// Reads the COMDAT groups. Other groups have no meaning for a link that drops nothing on its own.
    pub(super) fn read_groups(&mut self) -> Result<(), LinkError> {
        let sections = self.sections;
        for (index, header) in sections.enumerate() {
            let group = header
                .group(ENDIAN, self.bytes)
                .map_err(|error| self.error(&self.section_name_or_number(index.0), 0, error.to_string()))?;
            let Some((flags, members)) = group else { continue };
            if !flags.contains(elf::GRP_COMDAT) {
                continue;
            }
            let (signature, name) = self.group_signature(index, header)?;
            self.spend_name(".group", signature.as_bytes())?;
            let mut group = Group { signature: name, sections: Vec::new() };
            for member in members {
                let member = member.get(ENDIAN) as usize;
                let Some(section) = self.section_ids.get(member) else {
                    let what = format!("member {member} of group `{signature}` is not a section");
                    return Err(self.error(&self.section_name_or_number(index.0), 0, what));
                };
                let Some(section) = *section else { continue };
                // The format has it so; without it, a small group could mean many blocks many times.
                if self.graph.sections[section.index()].is_grouped {
                    let what = format!("member {member} of group `{signature}` is in a group already");
                    return Err(self.error(&self.section_name_or_number(index.0), 0, what));
                }
                self.graph.sections[section.index()].is_grouped = true;
                group.sections.push(section);
            }
            self.graph.groups.push(group);
        }
        Ok(())
    }

    fn group_signature(
        &self,
        index: SectionIndex,
        header: &elf::SectionHeader64<LittleEndian>,
    ) -> Result<(&'a str, Name), LinkError> {
        let fail = |what: &str| self.error(&self.section_name_or_number(index.0), 0, what);
        let symbol = header.info_link(ENDIAN).0;
        let symbol = self
            .symbols
            .symbol(object::SymbolIndex(symbol))
            .map_err(|_| fail("the group's signature is not a symbol"))?;
        let name = self
            .symbols
            .symbol_name(ENDIAN, symbol)
            .map_err(|_| fail("the group's signature has no name"))?;
        if name.is_empty() && symbol.st_info.st_type() == elf::STT_SECTION {
            let section = self
                .sections
                .section(SectionIndex(usize::from(symbol.st_shndx.get(ENDIAN).0)))
                .map_err(|_| fail("the group's signature is not a section"))?;
            let text = self.section_name(section)?;
            return Ok((text, self.keep_section_name(section.sh_name(ENDIAN), text)));
        }
        let kept = self.keep_symbol_name(symbol.st_name.get(ENDIAN), name);
        let (kept, _) = kept.ok_or_else(|| fail("the group's signature is not UTF-8"))?;
        Ok((std::str::from_utf8(name).unwrap_or_default(), kept))
    }
}

/// The role of a section, or nothing if it takes no part.
fn role_of(
    header: &elf::SectionHeader64<LittleEndian>,
    name: &str,
) -> Result<Option<SectionRole>, &'static str> {
    let flags = header.sh_flags(ENDIAN);
    let kind = header.sh_type(ENDIAN);
    if name == ".note.GNU-stack" && flags.contains(elf::SHF_EXECINSTR) {
        return Err(
            "the object wants an executable stack, as nested functions of GNU C do whose address is taken; \
                    such memory is never made",
        );
    }
    if !flags.contains(elf::SHF_ALLOC) || flags.contains(elf::SHF_EXCLUDE) || is_note_for_linkers(kind, name)
    {
        return Ok(None);
    }
    if matches!(
        kind,
        elf::SHT_NULL
            | elf::SHT_SYMTAB
            | elf::SHT_STRTAB
            | elf::SHT_RELA
            | elf::SHT_REL
            | elf::SHT_CREL
            | elf::SHT_GROUP
            | elf::SHT_DYNAMIC
            | elf::SHT_DYNSYM
            | elf::SHT_HASH
            | elf::SHT_SYMTAB_SHNDX
    ) {
        return Err("a table of the object claims to occupy memory");
    }
    if flags.contains(elf::SHF_COMPRESSED) {
        return Err("a section that occupies memory is compressed");
    }
    let writable = flags.contains(elf::SHF_WRITE);
    let zero_fill = kind == elf::SHT_NOBITS;
    let large = flags.0 & SHF_X86_64_LARGE != 0;
    if flags.contains(elf::SHF_EXECINSTR) {
        return match name {
            _ if writable => Err("the section is writable and executable; such memory is never made"),
            _ if zero_fill => Err("the section is executable and has no contents"),
            _ => Ok(Some(SectionRole::Code)),
        };
    }
    Ok(Some(match () {
        () if flags.contains(elf::SHF_TLS) && zero_fill => SectionRole::TlsZeroFill,
        () if flags.contains(elf::SHF_TLS) => SectionRole::TlsData,
        () if zero_fill && large => SectionRole::LargeZeroFill,
        () if zero_fill => SectionRole::ZeroFill,
        () if kind == elf::SHT_X86_64_UNWIND || name == ".eh_frame" => SectionRole::EhFrame,
        () if !writable || is_constant_after_relocation(kind, name) => SectionRole::ReadOnly,
        () if large => SectionRole::LargeData,
        () => SectionRole::Data,
    }))
}

fn is_note_for_linkers(kind: elf::SectionType, name: &str) -> bool {
    kind == elf::SHT_NOTE && (name == ".note.gnu.property" || name == ".note.GNU-stack")
}

/// Sections that are writable for the sake of the dynamic linker alone.
fn is_constant_after_relocation(kind: elf::SectionType, name: &str) -> bool {
    let named =
        |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    named(".data.rel.ro") || named(".ldata.rel.ro") || init_role(kind, name).is_some()
}

fn init_role(kind: elf::SectionType, name: &str) -> Option<InitRole> {
    let priority = |prefix: &str| match name.strip_prefix(prefix)? {
        "" => Some(DEFAULT_PRIORITY),
        rest => {
            let number = rest.strip_prefix('.')?.parse::<u64>();
            Some(number.map_or(DEFAULT_PRIORITY, |number| u16::try_from(number).unwrap_or(DEFAULT_PRIORITY)))
        }
    };
    match kind {
        elf::SHT_PREINIT_ARRAY => return Some(InitRole::Preinit),
        elf::SHT_INIT_ARRAY => {
            return Some(InitRole::Init(priority(".init_array").unwrap_or(DEFAULT_PRIORITY)));
        }
        elf::SHT_FINI_ARRAY => {
            return Some(InitRole::Fini(priority(".fini_array").unwrap_or(DEFAULT_PRIORITY)));
        }
        elf::SHT_PROGBITS => {}
        _ => return None,
    }
    // The numbers of the old sections count the other way: `.ctors.65434` is `.init_array.101`.
    let inverted = |prefix: &str| match priority(prefix)? {
        DEFAULT_PRIORITY => Some(DEFAULT_PRIORITY),
        number => Some(DEFAULT_PRIORITY - number),
    };
    if name == ".preinit_array" {
        return Some(InitRole::Preinit);
    }
    let init = priority(".init_array").map(InitRole::Init);
    let fini = priority(".fini_array").map(InitRole::Fini);
    init.or(fini)
        .or_else(|| inverted(".ctors").map(InitRole::Ctors))
        .or_else(|| inverted(".dtors").map(InitRole::Dtors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_come_from_names_and_old_ones_count_backwards() {
        assert_eq!(init_role(elf::SHT_INIT_ARRAY, ".init_array"), Some(InitRole::Init(65535)));
        assert_eq!(init_role(elf::SHT_INIT_ARRAY, ".init_array.00101"), Some(InitRole::Init(101)));
        assert_eq!(init_role(elf::SHT_FINI_ARRAY, ".fini_array.7"), Some(InitRole::Fini(7)));
        assert_eq!(init_role(elf::SHT_PROGBITS, ".ctors.65434"), Some(InitRole::Ctors(101)));
        assert_eq!(init_role(elf::SHT_PROGBITS, ".dtors"), Some(InitRole::Dtors(65535)));
        assert_eq!(init_role(elf::SHT_PROGBITS, ".ctorsy"), None);
        assert_eq!(init_role(elf::SHT_PROGBITS, ".data"), None);
    }
}

//! The image as an ELF file: headers, and a symbol table behind all that is mapped.
//!
//! The loader reads none of it. Profilers name the functions of a mapped file by it, and a debugger takes it by `add-symbol-file FILE -o BASE`.

use object::elf;

use super::format::{PAGE_BYTES, SymbolTraits};
use super::link::{BuiltImage, BuiltSymbol};
use crate::arch::Architecture;
use crate::memory::SegmentKind;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const SECTION_HEADER_BYTES: u64 = 64;
const SYMBOL_BYTES: u64 = 24;

impl BuiltSymbol {
    /// Whether lookups find it.
    pub(super) fn is_global(&self) -> bool {
        self.traits.contains(SymbolTraits::GLOBAL)
    }

    /// Whether it is code, with a place in the image.
    pub(super) fn is_code(&self) -> bool {
        self.traits.contains(SymbolTraits::CALLABLE) && !self.traits.contains(SymbolTraits::ABSOLUTE)
    }
}

/// ElfNames of sections, and where each begins.
#[derive(Default)]
struct ElfNames(Vec<u8>);

impl ElfNames {
    fn add(&mut self, name: &str) -> u32 {
        if self.0.is_empty() {
            self.0.push(0);
        }
        let at = self.0.len() as u32;
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        at
    }
}

/// Section headers.
#[derive(Default)]
struct SectionHeaders {
    names: ElfNames,
    bytes: Vec<u8>,
    count: u16,
}

impl SectionHeaders {
    /// Name, type, flags, and the numbers from the address on: address, offset, size, link and info, alignment, size of an entry.
    fn add(&mut self, name: &str, kind: u32, flags: u64, numbers: [u64; 6]) {
        let name = if self.count == 0 { 0 } else { self.names.add(name) };
        self.bytes.extend([name, kind].into_iter().flat_map(u32::to_le_bytes));
        self.bytes.extend([flags].into_iter().chain(numbers).flat_map(u64::to_le_bytes));
        self.count += 1;
    }
}

/// Appends the symbol table, its names and the section headers to `file`, and fills its first page.
pub(super) fn append(image: &BuiltImage, file: &mut Vec<u8>) {
    let mut sections = SectionHeaders::default();
    sections.add("", 0, 0, [0; 6]);
    for segment in &image.segments {
        let (name, kind, flags) = match segment.kind {
            SegmentKind::Code => (".text", elf::SHT_PROGBITS, elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0),
            SegmentKind::ReadOnly => (".rodata", elf::SHT_PROGBITS, elf::SHF_ALLOC.0),
            _ if segment.content_bytes == 0 => (".bss", elf::SHT_NOBITS, elf::SHF_ALLOC.0 | elf::SHF_WRITE.0),
            _ => (".data", elf::SHT_PROGBITS, elf::SHF_ALLOC.0 | elf::SHF_WRITE.0),
        };
        let size = if segment.content_bytes == 0 { segment.zero_fill_bytes } else { segment.content_bytes };
        sections.add(name, kind.0, flags, [segment.address, segment.file_offset, size, 0, 16, 0]);
    }
    let (symbols, locals, names) = symbols(image);
    let mut place = |bytes: &[u8]| {
        file.resize(file.len().next_multiple_of(8), 0);
        let at = file.len() as u64;
        file.extend_from_slice(bytes);
        (at, bytes.len() as u64)
    };
    let (at, size) = place(&symbols);
    let strings = u64::from(sections.count + 1);
    sections.add(".symtab", elf::SHT_SYMTAB.0, 0, [0, at, size, strings | locals << 32, 8, SYMBOL_BYTES]);
    let (at, size) = place(&names);
    sections.add(".strtab", elf::SHT_STRTAB.0, 0, [0, at, size, 0, 1, 0]);
    sections.names.add(".shstrtab");
    let section_names = std::mem::take(&mut sections.names.0);
    let (at, size) = place(&section_names);
    // Its own name is the last one.
    let own = (section_names.len() - ".shstrtab\0".len()) as u32;
    sections.bytes.extend([own, elf::SHT_STRTAB.0].into_iter().flat_map(u32::to_le_bytes));
    sections.bytes.extend([0, 0, at, size, 0, 1, 0].into_iter().flat_map(u64::to_le_bytes));
    let (headers_at, _) = place(&sections.bytes);
    let head = head(image, headers_at, sections.count + 1);
    file[..head.len()].copy_from_slice(&head);
}

/// The header of the file, and the program headers.
fn head(image: &BuiltImage, sections_at: u64, sections: u16) -> Vec<u8> {
    let mut programs = Vec::new();
    let mut program = |kind: u32, flags: u32, numbers: [u64; 6]| {
        programs.extend([kind, flags].into_iter().flat_map(u32::to_le_bytes));
        programs.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
    };
    for segment in &image.segments {
        let flags = match segment.kind {
            SegmentKind::Code => elf::PF_R.0 | elf::PF_X.0,
            SegmentKind::ReadOnly => elf::PF_R.0,
            SegmentKind::Data | SegmentKind::FarData => elf::PF_R.0 | elf::PF_W.0,
        };
        let (address, size) = (segment.address, segment.content_bytes + segment.zero_fill_bytes);
        let numbers = [segment.file_offset, address, address, segment.content_bytes, size, PAGE_BYTES];
        program(elf::PT_LOAD.0, flags, numbers);
    }
    let hdr = image.layout.eh_frame_hdr;
    let constants = image.segments.iter().find(|segment| segment.kind == SegmentKind::ReadOnly);
    if let Some(constants) = constants.filter(|_| hdr != 0) {
        let offset = hdr - constants.address + constants.file_offset;
        program(elf::PT_GNU_EH_FRAME.0, elf::PF_R.0, [offset, hdr, hdr, 12, 12, 4]);
    }
    let mut head = Vec::with_capacity(HEADER_BYTES + programs.len());
    head.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    head.extend([elf::ET_DYN.0, Architecture::HOST.machine().0].into_iter().flat_map(u16::to_le_bytes));
    head.extend(1_u32.to_le_bytes());
    head.extend([0, HEADER_BYTES as u64, sections_at].into_iter().flat_map(u64::to_le_bytes));
    head.extend(0_u32.to_le_bytes());
    let count = (programs.len() / PROGRAM_HEADER_BYTES) as u16;
    let sizes = [HEADER_BYTES as u16, PROGRAM_HEADER_BYTES as u16, count, SECTION_HEADER_BYTES as u16];
    head.extend(sizes.into_iter().chain([sections, sections - 1]).flat_map(u16::to_le_bytes));
    head.extend_from_slice(&programs);
    head
}

/// The symbol table, local symbols first; how many of these there are; and the names.
fn symbols(image: &BuiltImage) -> (Vec<u8>, u64, Vec<u8>) {
    let section_of = |address: u64| {
        let holds = |segment: &crate::memory::FileSegment| {
            let size = segment.content_bytes + segment.zero_fill_bytes;
            (segment.address..segment.address + size).contains(&address)
        };
        image.segments.iter().position(holds).map(|index| index as u16 + 1)
    };
    let (mut table, mut names) = (vec![0; SYMBOL_BYTES as usize], ElfNames::default());
    let mut locals = 1;
    for is_global in [false, true] {
        for symbol in image.symbols.iter().filter(|symbol| symbol.is_global() == is_global) {
            let Some(section) = section_of(symbol.address) else { continue };
            locals += u64::from(!is_global);
            let kind =
                if symbol.traits.contains(SymbolTraits::CALLABLE) { elf::STT_FUNC } else { elf::STT_OBJECT };
            let binding = if is_global { elf::STB_GLOBAL } else { elf::STB_LOCAL };
            let name = names.add(&symbol.name);
            table.extend(name.to_le_bytes());
            table.extend([binding.0 << 4 | kind.0, 0]);
            table.extend(section.to_le_bytes());
            table.extend([symbol.address, symbol.size_bytes].into_iter().flat_map(u64::to_le_bytes));
        }
    }
    (table, locals, names.0)
}

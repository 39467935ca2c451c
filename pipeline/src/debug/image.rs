//! Pieces of linked code as one executable file in memory, for debuggers.
//!
//! ```text
//!   header | .debug_* of all objects, joined and relocated | .debug_frame | .symtab | .strtab | .shstrtab | section headers
//! ```
//!
//! A section without contents stands for the instructions of each piece, at their address. So nothing of a piece is copied but what
//! describes it.

use object::elf;

use super::code::NamedCode;
use super::dwarf::Dwarf;
use super::{frames, memory};
use crate::arch::Architecture;
use uruk_core::sync::Arc;

const HEADER_BYTES: usize = 64;

/// A file has fewer sections than this without tricks; some are for tables.
pub(super) const PIECES_MAX: usize = 60_000;

/// The file.
///
/// # Safety
/// The pieces are registered, and stay so until this returns.
pub(super) unsafe fn of(pieces: &[Arc<NamedCode>]) -> Vec<u8> {
    let mut dwarf = Dwarf::default();
    let mut frames = Vec::new();
    for piece in pieces {
        // An object that cannot be read has names alone.
        piece.files.iter().for_each(|file| _ = dwarf.add(file));
        // SAFETY: the caller's obligation.
        unsafe { add_frames(&mut frames, piece) };
    }
    let mut image = ImageWriter::new();
    for piece in pieces {
        image.add(".text", elf::SHT_NOBITS.0, elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0, Content::Code(piece));
    }
    for section in &dwarf.sections {
        // Records of objects' own stand in front of ours.
        if &*section.name != ".debug_frame" {
            image.add(&section.name, elf::SHT_PROGBITS.0, 0, Content::Bytes(&section.bytes));
        }
    }
    let frames = joined(dwarf.section(".debug_frame"), frames);
    image.add(".debug_frame", elf::SHT_PROGBITS.0, 0, Content::Bytes(&frames));
    let (symbols, names) = symbols(pieces);
    let table = image.add(".symtab", elf::SHT_SYMTAB.0, 0, Content::Bytes(&symbols));
    let strings = image.add(".strtab", elf::SHT_STRTAB.0, 0, Content::Bytes(&names));
    image.link_symbols(table, strings);
    image.finish()
}

/// # Safety
/// As for [`of`].
unsafe fn add_frames(frames: &mut Vec<u8>, piece: &NamedCode) {
    let Some(hdr) = piece.eh_frame_hdr else { return };
    // SAFETY: the caller's obligation; constants are never written.
    let header = unsafe { memory::bytes_from(piece, hdr) };
    let Some(relative) = header.get(4..8).and_then(|bytes| bytes.try_into().ok()).map(i32::from_le_bytes)
    else {
        return;
    };
    let start = (hdr + 4).wrapping_add_signed(relative.into());
    // SAFETY: as above.
    frames::add(frames, unsafe { memory::bytes_from(piece, start) }, start);
}

/// The offsets of the records of `ours` are those in `ours`, so these stand in front; those of objects are relocated to stand alone.
fn joined(of_objects: &[u8], ours: Vec<u8>) -> Vec<u8> {
    if ours.is_empty() { of_objects.to_vec() } else { ours }
}

/// The symbol table of all functions, and its names.
fn symbols(pieces: &[Arc<NamedCode>]) -> (Vec<u8>, Vec<u8>) {
    const GLOBAL_FUNCTION: u8 = (1 << 4) | 2;
    let (mut table, mut names) = (vec![0; 24], vec![0]);
    for (index, piece) in pieces.iter().enumerate() {
        for symbol in piece.symbols.iter().filter(|symbol| symbol.is_code) {
            let Ok(name) = u32::try_from(names.len()) else { break };
            names.extend_from_slice(piece.told_name(&symbol).as_bytes());
            names.push(0);
            table.extend_from_slice(&name.to_le_bytes());
            table.extend_from_slice(&[GLOBAL_FUNCTION, 0]);
            // The first section is none.
            table.extend_from_slice(&(index as u16 + 1).to_le_bytes());
            table.extend_from_slice(&symbol.start.to_le_bytes());
            table.extend_from_slice(&symbol.size.to_le_bytes());
        }
    }
    (table, names)
}

enum Content<'c> {
    Bytes(&'c [u8]),
    Code(&'c NamedCode),
}

/// A file in the making.
struct ImageWriter {
    bytes: Vec<u8>,
    headers: Vec<[u64; 8]>,
    names: Vec<u8>,
}

impl ImageWriter {
    fn new() -> Self {
        Self { bytes: vec![0; HEADER_BYTES], headers: vec![[0; 8]], names: vec![0] }
    }

    /// Adds a section; gives its number. A header is kept as name, type, flags, address, offset, size, link and info, entry size.
    fn add(&mut self, name: &str, kind: u32, flags: u64, content: Content<'_>) -> usize {
        let name_at = if name == ".text" && self.headers.len() > 1 {
            self.headers[1][0]
        } else {
            self.names.extend_from_slice(name.as_bytes());
            self.names.push(0);
            (self.names.len() - name.len() - 1) as u64
        };
        let (address, size) = match content {
            Content::Bytes(bytes) => {
                self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
                (0, bytes.len() as u64)
            }
            Content::Code(piece) => (piece.code.start, piece.code.end - piece.code.start),
        };
        self.headers.push([name_at, kind.into(), flags, address, self.bytes.len() as u64, size, 0, 0]);
        if let Content::Bytes(bytes) = content {
            self.bytes.extend_from_slice(bytes);
        }
        self.headers.len() - 1
    }

    /// The names of the symbols; all but the first symbol are global.
    fn link_symbols(&mut self, table: usize, strings: usize) {
        self.headers[table][6] = strings as u64 | (1 << 32);
        self.headers[table][7] = 24;
    }

    fn finish(mut self) -> Vec<u8> {
        let names = std::mem::take(&mut self.names);
        let own_name = names.len() as u64;
        let names = [&names[..], b".shstrtab\0"].concat();
        let strings = self.add("", elf::SHT_STRTAB.0, 0, Content::Bytes(&names));
        self.headers[strings][0] = own_name;
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let table_at = self.bytes.len() as u64;
        for [name, kind, flags, address, offset, size, link_and_info, entry] in &self.headers {
            self.bytes.extend_from_slice(&(*name as u32).to_le_bytes());
            self.bytes.extend_from_slice(&(*kind as u32).to_le_bytes());
            for word in [*flags, *address, *offset, *size, *link_and_info, 1, *entry] {
                self.bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&elf::ELFMAG);
        header.extend_from_slice(&[elf::ELFCLASS64.0, elf::ELFDATA2LSB.0, 1]);
        header.resize(16, 0);
        header.extend_from_slice(&elf::ET_EXEC.0.to_le_bytes());
        header.extend_from_slice(&Architecture::HOST.machine().0.to_le_bytes());
        header.extend_from_slice(&1_u32.to_le_bytes());
        for word in [0, 0, table_at] {
            header.extend_from_slice(&word.to_le_bytes());
        }
        header.extend_from_slice(&0_u32.to_le_bytes());
        for half in [HEADER_BYTES, 0, 0, 64, self.headers.len(), strings] {
            header.extend_from_slice(&(half as u16).to_le_bytes());
        }
        self.bytes[..HEADER_BYTES].copy_from_slice(&header);
        self.bytes
    }
}

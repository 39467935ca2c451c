//! A relocatable ELF object becomes a [`LinkGraph`] of its architecture.
//!
//! Only sections that occupy memory take part. Nothing is copied but the tables of names; nothing is trusted: input that is truncated,
//! foreign, out of bounds or out of proportion is an error that says where. Parsing is linear in the size of the object, however its tables
//! overlap.

mod fragments;
mod names;
mod refs32;
mod relocations;
mod sections;
mod symbols;

pub use refs32::Refs32;
pub(super) use sections::{ALIGN_LOG2_MAX, SECTION_BYTES_MAX};
pub(super) use symbols::null_symbol;

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, SectionTable, SymbolTable};

use super::error::{LinkError, Site};
use super::graph::{LinkGraph, ObjectId, SectionId};
use crate::arch::Architecture;
use crate::object::{check_sections, foreign_format};

type Header = elf::FileHeader64<LittleEndian>;
const ENDIAN: LittleEndian = LittleEndian;

/// Reads the object `bytes`, called `name` in messages, into a graph that borrows its contents.
///
/// # Errors
/// [`LinkError::Object`] if the bytes are not a relocatable object for an [`Architecture`], contradict themselves, or describe more
/// than their size allows;
/// [`LinkError::UnsupportedRelocation`] and [`LinkError::StaticTls`] for relocations that cannot be applied.
///
/// # Cost
/// Linear in the object's size; the tables of names are copied, contents are not.
pub fn parse<'a>(name: &str, bytes: &'a [u8]) -> Result<LinkGraph<'a>, LinkError> {
    let phase = uruk_core::phase!("link.parse", unit = name, size_bytes = bytes.len());
    let _inside = uruk_core::inside(phase);
    let mut parser = Parser::new(name, bytes)?;
    parser.read_sections()?;
    parser.read_symbols()?;
    parser.read_groups()?;
    parser.read_relocations()?;
    Ok(parser.graph)
}

/// The object being read, and the graph so far.
struct Parser<'a> {
    bytes: &'a [u8],
    sections: SectionTable<'a, Header>,
    symbols: SymbolTable<'a, Header>,
    names: names::Names<'a>,
    graph: LinkGraph<'a>,
    /// The graph's section of each section of the object, if it takes part.
    section_ids: Vec<Option<SectionId>>,
    /// Common information entries of each `.eh_frame`: section, offset, and (later) index of their symbol.
    cies: Vec<relocations::Cie>,
}

const OBJECT: ObjectId = ObjectId::of(0);

impl<'a> Parser<'a> {
    fn new(name: &str, bytes: &'a [u8]) -> Result<Self, LinkError> {
        let fail = |what: String| LinkError::Object {
            site: Box::new(Site { object: name.into(), section: "".into(), offset: 0 }),
            what: what.into(),
        };
        let arch = check_ident(bytes).map_err(&fail)?;
        let header = Header::parse(bytes).map_err(|error| fail(error.to_string()))?;
        let sections = header.sections(ENDIAN, bytes).map_err(|error| fail(error.to_string()))?;
        let symbols =
            sections.symbols(ENDIAN, bytes, elf::SHT_SYMTAB).map_err(|error| fail(error.to_string()))?;
        if u32::try_from(symbols.len()).is_err() {
            return Err(fail("more than 2^32 symbols".into()));
        }
        let headers = header.section_headers(ENDIAN, bytes).map_err(|error| fail(error.to_string()))?;
        check_sections(headers, bytes.len()).map_err(|error| fail(error.to_string()))?;
        let mut graph =
            LinkGraph { arch, objects: vec![name.into()], files: vec![false], ..LinkGraph::default() };
        let names = names::Names::keep(&mut graph, header, bytes, &sections, &symbols)?;
        let section_ids = vec![None; sections.len()];
        Ok(Self { bytes, sections, symbols, names, graph, section_ids, cies: Vec::new() })
    }

    fn section_name(&self, header: &elf::SectionHeader64<LittleEndian>) -> Result<&'a str, LinkError> {
        let name = self
            .sections
            .section_name(ENDIAN, header)
            .map_err(|error| self.error("", 0, error.to_string()))?;
        std::str::from_utf8(name).map_err(|_| self.error("", 0, "a section's name is not UTF-8"))
    }

    /// The name of a section, for a message about it.
    fn section_name_or_number(&self, index: usize) -> String {
        let header = self.sections.section(object::SectionIndex(index)).ok();
        match header.and_then(|header| self.sections.section_name(ENDIAN, header).ok()) {
            Some(name) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
            _ => format!("section {index}"),
        }
    }

    fn error(&self, section: &str, offset: u64, what: impl Into<Box<str>>) -> LinkError {
        let object = self.graph.objects[OBJECT.index()].clone();
        LinkError::Object {
            site: Box::new(Site { object, section: section.into(), offset }),
            what: what.into(),
        }
    }
}

/// The architecture of an object; an error that says what else the bytes are.
fn check_ident(bytes: &[u8]) -> Result<Architecture, String> {
    const IDENT_AND_TYPE: usize = 20;
    if bytes.is_empty() {
        return Err("the object is empty".into());
    }
    if !bytes.starts_with(&elf::ELFMAG) {
        let what = foreign_format(bytes).map(|what| format!(", but {what}"));
        return Err(format!("not an ELF object{}", what.unwrap_or_default()));
    }
    let Some(head) = bytes.get(..IDENT_AND_TYPE) else {
        return Err(format!("the object is truncated: {} bytes", bytes.len()));
    };
    if head[4] != elf::ELFCLASS64.0 || head[5] != elf::ELFDATA2LSB.0 {
        return Err("not a 64-bit little-endian object, such as this linker links".into());
    }
    let machine = u16::from_le_bytes([head[18], head[19]]);
    let Some(arch) = Architecture::of_machine(machine) else {
        return Err(format!("the object is for machine {machine}, which this linker does not know"));
    };
    match u16::from_le_bytes([head[16], head[17]]) {
        kind if kind == elf::ET_REL.0 => Ok(arch),
        kind if kind == elf::ET_DYN.0 => Err(
            "a shared library or position-independent executable, not a relocatable object; load it instead"
                .into(),
        ),
        kind => Err(format!("an ELF file of type {kind}, not a relocatable object (1)")),
    }
}

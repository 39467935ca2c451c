//! Names: slices of the object's string tables, which the graph keeps as a whole.
//!
//! Names of an object may overlap, and as slices they still do. So however many symbols share a name, its bytes are
//! kept once, and keeping all of them is one copy of a table.

use std::ffi::CStr;

use object::SectionIndex;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, SymbolTable};

use super::{ENDIAN, Header, Parser};
use crate::link::error::LinkError;
use crate::link::graph::{LinkGraph, Name};
use crate::object::NameBudget;

/// How much is kept of a name that is only ever shown. Where local names share a long text, reading each to its end would take time out of
/// proportion.
const SHOWN_BYTES_MAX: usize = 1024;

/// A string table of the object, and where it lies among the graph's names.
#[derive(Clone, Copy, Debug, Default)]
struct Table<'a> {
    bytes: &'a [u8],
    start: u32,
    /// Whether all of it is UTF-8, so that a name is if it begins and ends between characters.
    is_text: bool,
}

/// The string tables of the object, and how much may still be read from them.
#[derive(Debug)]
pub(super) struct Names<'a> {
    sections: Table<'a>,
    symbols: Table<'a>,
    budget: NameBudget,
    common: Option<Name>,
}

impl<'a> Names<'a> {
    /// Copies the tables into `graph`.
    pub(super) fn keep(
        graph: &mut LinkGraph<'a>,
        header: &'a Header,
        bytes: &'a [u8],
        sections: &SectionTable<'a, Header>,
        symbols: &SymbolTable<'a, Header>,
    ) -> Result<Self, LinkError> {
        let read = |index: SectionIndex| {
            sections.section(index).and_then(|section| section.data(ENDIAN, bytes)).unwrap_or_default()
        };
        // Without a table, every name is refused by the reader of the tables.
        let of_sections = SectionIndex(header.shstrndx(ENDIAN, bytes).unwrap_or_default() as usize);
        let of_symbols = symbols.string_section();
        let section_names = keep_table(graph, read(of_sections))?;
        let symbol_names =
            if of_sections == of_symbols { section_names } else { keep_table(graph, read(of_symbols))? };
        Ok(Self {
            sections: section_names,
            symbols: symbol_names,
            budget: NameBudget::of_file(bytes.len()),
            common: None,
        })
    }

    /// The name of the parser's own sections for common symbols.
    pub(super) fn common(&mut self, graph: &mut LinkGraph<'_>) -> Result<Name, LinkError> {
        match self.common {
            Some(name) => Ok(name),
            None => Ok(*self.common.insert(graph.add_name("COMMON")?)),
        }
    }
}

/// Adds a string table to the graph's names. Question marks take the place of bytes that are not UTF-8.
fn keep_table<'a>(graph: &mut LinkGraph<'_>, bytes: &'a [u8]) -> Result<Table<'a>, LinkError> {
    let start = graph.names.len();
    let (Ok(start), Ok(_)) = (u32::try_from(start), u32::try_from(start + bytes.len())) else {
        return Err(graph.too_large("more than 4 GiB of names"));
    };
    let text = std::str::from_utf8(bytes);
    match text {
        Ok(text) => graph.names.push_str(text),
        Err(_) => {
            for chunk in bytes.utf8_chunks() {
                graph.names.push_str(chunk.valid());
                graph.names.extend(chunk.invalid().iter().map(|_| '?'));
            }
        }
    }
    Ok(Table { bytes, start, is_text: text.is_ok() })
}

impl Table<'_> {
    fn name(&self, offset: u32, len: usize) -> Name {
        // The reader found the name inside the table, whose end fits.
        Name::new(if len == 0 { 0 } else { self.start + offset }, len as u32)
    }
}

impl Parser<'_> {
    /// The name of a section, whose text the reader has found at `offset`.
    pub(super) fn keep_section_name(&self, offset: u32, text: &str) -> Name {
        self.names.sections.name(offset, text.len())
    }

    /// The name of a symbol that others refer to, whose bytes the reader has found at `offset`, and its text. `None` if
    /// that is not UTF-8.
    pub(super) fn keep_symbol_name(&self, offset: u32, name: &[u8]) -> Option<(Name, &str)> {
        let table = &self.names.symbols;
        let kept = table.name(offset, name.len());
        let is_text = table.is_text || std::str::from_utf8(name).is_ok();
        let start = table.start as usize + offset as usize;
        let text = self.graph.names.get(start..start + name.len()).filter(|_| is_text)?;
        Some((kept, text))
    }

    /// The name of a symbol that is only shown in messages.
    pub(super) fn keep_shown_name(&self, offset: u32) -> Option<Name> {
        let text = self.names.symbols.bytes.get(offset as usize..)?;
        let text = &text[..text.len().min(SHOWN_BYTES_MAX)];
        let len = match CStr::from_bytes_until_nul(text) {
            Ok(text) => text.count_bytes(),
            Err(_) if text.len() == SHOWN_BYTES_MAX => {
                let start = self.names.symbols.start as usize + offset as usize;
                self.graph.names.floor_char_boundary(start + SHOWN_BYTES_MAX).saturating_sub(start)
            }
            Err(_) => return None,
        };
        Some(self.names.symbols.name(offset, len))
    }

    /// Notes that a name was read to its end.
    pub(super) fn spend_name(&mut self, section: &str, name: &[u8]) -> Result<(), LinkError> {
        self.names.budget.spend(name).map_err(|error| self.error(section, 0, error.to_string()))
    }

    /// The name of the section that holds a common symbol.
    pub(super) fn common_name(&mut self) -> Result<Name, LinkError> {
        self.names.common(&mut self.graph)
    }
}

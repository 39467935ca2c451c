//! The symbol table. A symbol's number in the object is its number in the graph.

use object::elf;
use object::{LittleEndian, SymbolIndex};

use super::{ENDIAN, OBJECT, Parser};
use crate::link::error::LinkError;
use crate::link::graph::{
    Binding, Block, BlockId, LinkGraph, Location, Name, Section, SectionId, SectionRole, Symbol, SymbolId,
    SymbolKind,
};
use crate::object::default_version;

/// The mark that gcc defines in objects that only its own linker plugin understands.
const LTO_MARKER: &str = "__gnu_lto_slim";
/// A common symbol of the large code model.
const SHN_X86_64_LCOMMON: u16 = 0xff02;

impl Parser<'_> {
    /// Adds every symbol, then one for each common information entry so that edges can refer to it.
    pub(super) fn read_symbols(&mut self) -> Result<(), LinkError> {
        self.graph.symbols.reserve(self.symbols.len() + self.cies.len());
        let symbols = self.symbols;
        for (index, symbol) in symbols.enumerate() {
            let symbol = self.read_symbol(index, symbol)?;
            self.graph.symbols.push(symbol);
        }
        if symbols.is_empty() {
            self.graph.symbols.push(null_symbol());
        }
        for index in 0..self.cies.len() {
            let block = self.cies[index].block;
            self.cies[index].symbol = Some(SymbolId::of(self.graph.symbols.len()));
            self.graph.symbols.push(Symbol { location: Location::Block(block, 0), ..null_symbol() });
        }
        Ok(())
    }

    fn read_symbol(
        &mut self,
        index: SymbolIndex,
        symbol: &elf::Sym64<LittleEndian>,
    ) -> Result<Symbol, LinkError> {
        if index.0 == 0 {
            return Ok(null_symbol());
        }
        let binding = match symbol.st_info.st_bind() {
            elf::STB_LOCAL => Binding::Local,
            elf::STB_GLOBAL => Binding::Strong,
            // One instance in the process, as for vague linkage: the first definition wins.
            elf::STB_WEAK | elf::STB_GNU_UNIQUE => Binding::Weak,
            other => return Err(self.symbol_error(index, format!("unknown binding {other}"))),
        };
        let name = self.read_name(index, symbol, binding)?;
        if is_common(symbol) && self.graph.text(name) == LTO_MARKER {
            let what = "the object holds the compiler's intermediate code and no machine code; recompile it \
                        with -ffat-lto-objects or without -flto";
            return Err(self.symbol_error(index, what));
        }
        let location = self.read_location(index, symbol)?;
        self.check_not_start_of_fragments(index, binding, name, location)?;
        let exported = matches!(symbol.st_other.visibility(), elf::STV_DEFAULT | elf::STV_PROTECTED);
        Ok(Symbol {
            name,
            location,
            size: symbol.st_size.get(ENDIAN),
            object: OBJECT,
            binding,
            kind: kind_of(&self.graph, symbol, location),
            exported,
            common: is_common(symbol),
        })
    }

    /// The name of a symbol. One that is local here and nowhere asked for need not be read to its end.
    fn read_name(
        &mut self,
        index: SymbolIndex,
        symbol: &elf::Sym64<LittleEndian>,
        binding: Binding,
    ) -> Result<Name, LinkError> {
        let offset = symbol.st_name.get(ENDIAN);
        if binding == Binding::Local && symbol.st_shndx.get(ENDIAN) != elf::SHN_UNDEF {
            let name = self.keep_shown_name(offset);
            return name.ok_or_else(|| self.symbol_error(index, "its name lies outside of the names"));
        }
        let name = self
            .symbols
            .symbol_name(ENDIAN, symbol)
            .map_err(|error| self.symbol_error(index, error.to_string()))?;
        self.spend_name(".symtab", name)?;
        let Some((name, text)) = self.keep_symbol_name(offset, name) else {
            return Err(self.symbol_error(index, "its name is not UTF-8"));
        };
        Ok(name.shortened(default_version(text).len()))
    }

    fn read_location(
        &mut self,
        index: SymbolIndex,
        symbol: &elf::Sym64<LittleEndian>,
    ) -> Result<Location, LinkError> {
        let value = symbol.st_value.get(ENDIAN);
        if symbol.st_info.st_type() == elf::STT_FILE {
            return Ok(Location::NotLoaded);
        }
        if is_common(symbol) {
            let role = match symbol.st_shndx.get(ENDIAN).0 {
                _ if symbol.st_info.st_type() == elf::STT_TLS => SectionRole::TlsZeroFill,
                SHN_X86_64_LCOMMON => SectionRole::LargeZeroFill,
                _ => SectionRole::ZeroFill,
            };
            return Ok(Location::Block(self.add_common(role, symbol.st_size.get(ENDIAN), value)?, 0));
        }
        match symbol.st_shndx.get(ENDIAN) {
            elf::SHN_UNDEF => return Ok(Location::Undefined),
            elf::SHN_ABS => return Ok(Location::Absolute(value)),
            _ => {}
        }
        let section = self
            .symbols
            .symbol_section(ENDIAN, symbol, index)
            .map_err(|error| self.symbol_error(index, error.to_string()))?;
        let Some(section) = section else {
            let number = symbol.st_shndx.get(ENDIAN);
            return Err(self.symbol_error(index, format!("reserved section index {:#x}", number.0)));
        };
        match self.section_ids.get(section.0) {
            None => Err(self.symbol_error(index, format!("section {} does not exist", section.0))),
            // Such a section starts at 0, as it does in a linked file.
            Some(None) => Ok(Location::Absolute(value)),
            Some(&Some(section)) => {
                let is_resolver = symbol.st_info.st_type() == elf::STT_GNU_IFUNC;
                self.locate(index, section, value, is_resolver)
            }
        }
    }

    /// Refuses the C library's crti.o, whose fragments are the start of the function that all of them make.
    fn check_not_start_of_fragments(
        &self,
        index: SymbolIndex,
        binding: Binding,
        name: Name,
        location: Location,
    ) -> Result<(), LinkError> {
        let Location::Block(block, _) = location else { return Ok(()) };
        let function = match self.graph.section_name(self.graph.blocks[block.index()].section) {
            ".init" => "_init",
            ".fini" => "_fini",
            _ => return Ok(()),
        };
        if binding == Binding::Local || self.graph.text(name) != function {
            return Ok(());
        }
        let what = "it starts a function without end, as in the C library's crti.o; leave that object out, each \
                    fragment of code in .init and .fini gets a start of its own";
        Err(self.symbol_error(index, what))
    }

    /// The place `value` bytes after the start of a section. Assembly may put a name before or behind its section:
    /// that is an address like any other, and nothing of it is read. But a function that is called while linking lies in it.
    fn locate(
        &self,
        index: SymbolIndex,
        section: SectionId,
        value: u64,
        is_resolver: bool,
    ) -> Result<Location, LinkError> {
        if let Some((block, offset)) = block_at(&self.graph, section, value) {
            return Ok(Location::Block(block, offset));
        }
        let Section { size, first_block, block_count, .. } = self.graph.sections[section.index()];
        if is_resolver {
            let what = format!(
                "its value {value:#x} lies beyond the {size:#x} bytes of section `{}`",
                self.graph.section_name(section)
            );
            return Err(self.symbol_error(index, what));
        }
        let is_empty = block_count == 0;
        Ok(if is_empty { Location::NotLoaded } else { Location::Block(first_block, value) })
    }

    fn symbol_error(&self, index: SymbolIndex, what: impl std::fmt::Display) -> LinkError {
        let name = self
            .symbols
            .symbol(index)
            .and_then(|symbol| self.symbols.symbol_name(ENDIAN, symbol))
            .map(String::from_utf8_lossy)
            .unwrap_or_default();
        self.error(
            ".symtab",
            index.0 as u64 * size_of::<elf::Sym64<LittleEndian>>() as u64,
            format!("symbol {} `{name}`: {what}", index.0),
        )
    }
}

/// The block of a section that holds `offset`, and how far into it. The end belongs to the last block.
pub(super) fn block_at(graph: &LinkGraph<'_>, section: SectionId, offset: u64) -> Option<(BlockId, u64)> {
    let section = &graph.sections[section.index()];
    let first = section.first_block.index();
    let blocks: &[Block] = &graph.blocks[first..first + section.block_count as usize];
    let after = blocks.partition_point(|block| block.offset <= offset);
    let index = after.checked_sub(1)?;
    let inner = offset - blocks[index].offset;
    (inner <= blocks[index].size).then(|| (BlockId::of(first + index), inner))
}

/// Symbol 0 of every object: relocations against it have no symbol, so it counts as the number 0.
pub(in crate::link) fn null_symbol() -> Symbol {
    Symbol {
        name: Default::default(),
        location: Location::Absolute(0),
        size: 0,
        object: OBJECT,
        binding: Binding::Local,
        kind: SymbolKind::Unknown,
        exported: false,
        common: false,
    }
}

fn is_common(symbol: &elf::Sym64<LittleEndian>) -> bool {
    let section = symbol.st_shndx.get(ENDIAN);
    section == elf::SHN_COMMON || section.0 == SHN_X86_64_LCOMMON
}

fn kind_of(graph: &LinkGraph<'_>, symbol: &elf::Sym64<LittleEndian>, location: Location) -> SymbolKind {
    match symbol.st_info.st_type() {
        elf::STT_TLS => SymbolKind::ThreadLocal,
        elf::STT_FUNC => SymbolKind::Code,
        elf::STT_GNU_IFUNC => SymbolKind::IndirectFunction,
        elf::STT_OBJECT | elf::STT_COMMON => SymbolKind::Data,
        elf::STT_SECTION => SymbolKind::Section,
        // Assembly often leaves out `.type`; a symbol in code is code.
        _ => match location {
            Location::Block(block, _) if graph.section_of(block).role == SectionRole::Code => {
                SymbolKind::Code
            }
            _ => SymbolKind::Unknown,
        },
    }
}

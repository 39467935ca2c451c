//! An object as a graph: blocks of bytes, the symbols that name them, the edges between them.
//!
//! Everything is a flat vector, everything refers by index, and bytes are borrowed from the object until
//! they are copied into their memory. The graph never holds an address: those belong to the phases.
//!
//! Holds: ids are in range; an edge's field lies within its block's content; the edges of a block are contiguous. A symbol's offset may
//! lead out of its block: nothing is read there.

mod builder;
mod section;
mod symbol;

use std::ops::Range;

use uruk_core::SymbolFlags;

use super::error::{LinkError, Site};
use crate::arch::{Architecture, EdgeKind};

pub use builder::LinkGraphBuilder;
pub use section::{InitRole, Section, SectionRole};
pub use symbol::{Binding, Location, Symbol, SymbolKind};

macro_rules! ids {
    ($($(#[$meta:meta])* $name:ident)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(super) u32);

        impl $name {
            /// The id as an index into the graph's vector.
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of the element with this index. The parser refuses objects with 2^32 of anything.
            pub(crate) const fn of(index: usize) -> Self {
                Self(index as u32)
            }
        }
    )*};
}

ids! {
    /// An input object of the graph.
    ObjectId
    /// A section of one object.
    SectionId
    /// A run of bytes that is kept or dropped as a whole.
    BlockId
    /// A symbol.
    SymbolId
    /// A COMDAT group.
    GroupId
}

/// A name in the graph's string arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name {
    start: u32,
    len: u32,
}

/// An object, or several merged, on the way to memory.
///
/// JITLink: `LinkGraph`.
#[derive(Debug, Default)]
pub struct LinkGraph<'a> {
    pub(super) arch: Architecture,
    pub(crate) objects: Vec<Box<str>>,
    pub(super) names: String,
    pub(super) sections: Vec<Section>,
    /// The bytes of each section, empty for zero fill. Parallel to `sections`; gone once they are copied.
    pub(super) contents: Vec<&'a [u8]>,
    pub(super) blocks: Vec<Block>,
    pub(super) symbols: Vec<Symbol>,
    pub(super) edges: Vec<Edge>,
    pub(super) groups: Vec<Group>,
    pub(super) frames: Vec<Frame>,
    /// For each file that the graph was read from, whether it has DWARF.
    pub(crate) files: Vec<bool>,
}

/// A run of bytes that is kept or dropped as a whole: a section, a record of `.eh_frame`, a common symbol.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub(super) section: SectionId,
    /// Where the block starts in its section.
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) align_log2: u8,
    /// Dropped unless something that stays refers to it.
    pub(super) discardable: bool,
    /// Whether the block takes part in the link.
    pub(super) live: bool,
    /// Its edges: first and one past the last, in the graph's vector.
    pub(super) edges: (u32, u32),
}

impl Block {
    /// The section the block is part of.
    pub fn section(&self) -> SectionId {
        self.section
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    /// Whether the block takes part in the link.
    pub fn is_live(&self) -> bool {
        self.live
    }

    pub(super) fn edge_range(&self) -> Range<usize> {
        self.edges.0 as usize..self.edges.1 as usize
    }
}

/// A field of a block that is computed from the address of a symbol.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Where the field is, in its block.
    pub offset: u64,
    /// Added to the target's address.
    pub addend: i64,
    /// The symbol referred to.
    pub target: SymbolId,
    /// How the field is computed.
    pub kind: EdgeKind,
}

/// Sections that are kept or dropped together, because another object has the same.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) signature: Name,
    pub(super) sections: Vec<SectionId>,
}

/// A frame description entry: it lives as long as the function it describes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) block: BlockId,
    /// Index of the edge that holds the start of the function.
    pub(super) function: u32,
}

impl<'a> LinkGraph<'a> {
    /// Starts a graph of no blocks, for compilers that write no object files. `name` is for messages.
    pub fn builder(name: &str) -> LinkGraphBuilder<'a> {
        LinkGraphBuilder::new(name)
    }

    /// The name for messages: the object's, or the first object's and how many follow.
    pub fn name(&self) -> String {
        match self.objects.as_slice() {
            [] => String::new(),
            [only] => only.to_string(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        }
    }

    /// All sections.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// All blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// All symbols.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// All groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The blocks of all sections of that name.
    pub fn section_blocks(&self, name: &str) -> Vec<BlockId> {
        let named = |block: &BlockId| self.section_name(self.blocks[block.index()].section) == name;
        (0..self.blocks.len()).map(BlockId::of).filter(named).collect()
    }

    /// The edges out of a block.
    pub fn edges(&self, block: BlockId) -> &[Edge] {
        &self.edges[self.blocks[block.index()].edge_range()]
    }

    /// The bytes of a block; empty for zero fill, and after they have been copied to their memory.
    pub fn content(&self, block: BlockId) -> &'a [u8] {
        let block = &self.blocks[block.index()];
        let section = self.contents.get(block.section.index()).copied().unwrap_or_default();
        let start = usize::try_from(block.offset).unwrap_or(usize::MAX);
        let size = usize::try_from(block.size).unwrap_or(usize::MAX);
        section.get(start..start.saturating_add(size)).unwrap_or_default()
    }

    /// The name of a section.
    pub fn section_name(&self, section: SectionId) -> &str {
        self.text(self.sections[section.index()].name)
    }

    /// The name of a symbol; that of its section if it has none of its own.
    pub fn symbol_name(&self, symbol: SymbolId) -> &str {
        let symbol = &self.symbols[symbol.index()];
        match symbol.location {
            Location::Block(block, _) if symbol.name.len == 0 => {
                self.section_name(self.blocks[block.index()].section)
            }
            _ => self.text(symbol.name),
        }
    }

    /// The section a block is part of.
    pub fn section_of(&self, block: BlockId) -> &Section {
        &self.sections[self.blocks[block.index()].section.index()]
    }

    /// Whether the symbol is a thread-local variable, or the section of some.
    pub fn is_thread_local(&self, symbol: SymbolId) -> bool {
        let symbol = &self.symbols[symbol.index()];
        match symbol.location {
            Location::Block(block, _) => self.section_of(block).role.is_tls(),
            _ => symbol.kind == SymbolKind::ThreadLocal,
        }
    }

    /// The place of an offset in a block, for messages.
    pub fn site(&self, block: BlockId, offset: u64) -> Site {
        let block = &self.blocks[block.index()];
        let section = &self.sections[block.section.index()];
        Site {
            object: self.objects[section.object.index()].clone(),
            section: self.text(section.name).into(),
            offset: block.offset.saturating_add(offset),
        }
    }

    /// The name of the function or variable that has the byte at `offset` of a block, for messages.
    pub(super) fn symbol_at(&self, block: BlockId, offset: u64) -> Option<&str> {
        let covers = |symbol: &&Symbol| {
            let is_named = symbol.kind != SymbolKind::Section && symbol.name.len != 0;
            is_named
                && matches!(symbol.location, Location::Block(at, start) if at == block
                    && start <= offset && (symbol.size == 0 || offset - start < symbol.size))
        };
        let start = |symbol: &&Symbol| match symbol.location {
            Location::Block(_, start) => start,
            _ => 0,
        };
        Some(self.text(self.symbols.iter().filter(covers).max_by_key(start)?.name))
    }

    /// The flags of a definition for the session.
    pub(super) fn flags(&self, symbol: SymbolId) -> SymbolFlags {
        let symbol = &self.symbols[symbol.index()];
        let is_grouped =
            matches!(symbol.location, Location::Block(block, _) if self.section_of(block).is_grouped);
        let mut flags = SymbolFlags::empty();
        flags.set(SymbolFlags::EXPORTED, symbol.exported);
        flags.set(SymbolFlags::WEAK, symbol.binding == Binding::Weak || is_grouped);
        flags.set(SymbolFlags::COMMON, symbol.common);
        let is_in_code = matches!(symbol.location, Location::Block(block, _) if self.section_of(block).role == SectionRole::Code);
        let is_function = matches!(symbol.kind, SymbolKind::Code | SymbolKind::IndirectFunction);
        flags.set(SymbolFlags::CALLABLE, is_function && is_in_code);
        flags.set(SymbolFlags::THREAD_LOCAL, symbol.kind == SymbolKind::ThreadLocal);
        flags.set(SymbolFlags::ABSOLUTE, matches!(symbol.location, Location::Absolute(_)));
        flags
    }

    /// The blocks that take part in the link, with their ids.
    pub(super) fn live_blocks(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks
            .iter()
            .enumerate()
            .filter(|(_, block)| block.live)
            .map(|(index, block)| (BlockId::of(index), block))
    }

    pub(super) fn text(&self, name: Name) -> &str {
        let start = name.start as usize;
        self.names.get(start..start + name.len as usize).unwrap_or_default()
    }

    /// Stores a name. The arena is bounded by 4 GiB, which the parser checks per object.
    pub(super) fn add_name(&mut self, text: &str) -> Result<Name, LinkError> {
        if text.is_empty() {
            return Ok(Name::default());
        }
        let start = u32::try_from(self.names.len());
        let (Ok(start), Ok(len)) = (start, u32::try_from(text.len())) else {
            return Err(self.too_large("more than 4 GiB of names"));
        };
        self.names.push_str(text);
        if u32::try_from(self.names.len()).is_err() {
            return Err(self.too_large("more than 4 GiB of names"));
        }
        Ok(Name { start, len })
    }

    /// Checks that the graph is for processors of an architecture.
    ///
    /// # Errors
    /// [`LinkError::Object`] that names both.
    pub(crate) fn check_architecture(&self, wanted: Architecture) -> Result<(), LinkError> {
        if self.arch == wanted {
            return Ok(());
        }
        let (own, wanted) = (self.arch.name(), wanted.name());
        Err(self.too_large(&format!("the object is for {own}, and the others, or the process, for {wanted}")))
    }

    /// Checks that an image can hold the code: its loader knows the fields of this process's architecture alone.
    ///
    /// # Errors
    /// [`LinkError::Object`].
    pub(crate) fn check_imageable(&self) -> Result<(), LinkError> {
        let (own, known) = (self.arch, Architecture::HOST);
        if own == known {
            return Ok(());
        }
        Err(self.too_large(&format!("the object is for {own}, and images have code for {known} alone")))
    }

    /// An error about the last object as a whole.
    pub(super) fn too_large(&self, what: &str) -> LinkError {
        let object = self.objects.last().cloned().unwrap_or_default();
        LinkError::Object {
            site: Box::new(Site { object, section: "".into(), offset: 0 }),
            what: what.into(),
        }
    }

    /// The graph without the object's bytes, once these have been copied.
    pub(super) fn without_contents(self) -> LinkGraph<'static> {
        let Self {
            arch,
            objects,
            names,
            sections,
            contents: _,
            blocks,
            symbols,
            edges,
            groups,
            frames,
            files,
        } = self;
        LinkGraph {
            arch,
            objects,
            names,
            sections,
            contents: Vec::new(),
            blocks,
            symbols,
            edges,
            groups,
            frames,
            files,
        }
    }
}

impl Name {
    /// A name that lies in the arena already. Bytes that are no text read as empty.
    pub(super) const fn new(start: u32, len: u32) -> Self {
        Self { start, len }
    }

    /// The first `len` bytes of it.
    pub(super) const fn shortened(self, len: usize) -> Self {
        Self { start: self.start, len: len as u32 }
    }

    /// The name without its first `len` bytes, of which it has as many.
    pub(super) const fn without_first(self, len: usize) -> Self {
        Self { start: self.start + len as u32, len: self.len - len as u32 }
    }

    /// The same name in an arena that has `by` bytes in front of this one's.
    pub(super) fn moved(self, by: u32) -> Self {
        if self.len == 0 { self } else { Self { start: self.start + by, len: self.len } }
    }
}

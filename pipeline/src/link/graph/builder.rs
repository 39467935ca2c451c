//! Graphs of compilers that write no object files: blocks, symbols and edges as they come.

use std::collections::HashSet;

use super::{
    Binding, Block, BlockId, Edge, LinkGraph, Location, ObjectId, Section, SectionId, SectionRole, Symbol,
    SymbolId, SymbolKind,
};
use crate::link::elf::{ALIGN_LOG2_MAX, SECTION_BYTES_MAX, null_symbol};
use crate::link::error::{LinkError, Site};

/// Builds a [`LinkGraph`] from bytes that a compiler has in memory.
///
/// [`ObjectLinkingLayer::emit_graph`](crate::link::ObjectLinkingLayer::emit_graph) links the result.
///
/// A *block* is a run of bytes that is kept as a whole: mostly one function or one variable. An *edge* is a field of a block that the
/// linker computes from the address of a symbol. Unwind tables and initialiser arrays have no form here: code that needs them comes as
/// an object file.
///
/// ```
/// use uruk_pipeline::link::graph::{Edge, LinkGraph, SectionRole};
/// use uruk_pipeline::link::x86_64::EdgeKind;
///
/// let mut graph = LinkGraph::builder("five.src");
/// // lea rdi, [rip + text]; jmp strlen
/// let code = [0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
/// let code = graph.block(".text", SectionRole::Code, &code, 16);
/// let text = graph.block(".rodata", SectionRole::ReadOnly, b"five!\0", 1);
/// graph.define("five", code, 0);
/// let text = graph.define_local("text", text, 0);
/// let strlen = graph.external("strlen");
/// // Both fields are distances from their own ends, which lie 4 bytes further.
/// graph.edge(code, Edge { offset: 3, kind: EdgeKind::Delta32, target: text, addend: -4 });
/// graph.edge(code, Edge { offset: 8, kind: EdgeKind::Branch32, target: strlen, addend: -4 });
/// let graph = graph.build()?;
/// assert_eq!(graph.edges(graph.section_blocks(".text")[0]).len(), 2);
/// # Ok::<(), uruk_pipeline::link::LinkError>(())
/// ```
///
/// JITLink: `LinkGraph`'s `createSection`, `createContentBlock`, `addDefinedSymbol` and `Block::addEdge`.
#[derive(Debug)]
pub struct LinkGraphBuilder<'a> {
    graph: LinkGraph<'a>,
    /// By block.
    edges: Vec<Vec<Edge>>,
    /// What was wrong first.
    error: Option<LinkError>,
}

/// The one input of such a graph.
const OBJECT: ObjectId = ObjectId(0);

impl<'a> LinkGraphBuilder<'a> {
    pub(super) fn new(name: &str) -> Self {
        let graph =
            LinkGraph { objects: vec![name.into()], symbols: vec![null_symbol()], ..LinkGraph::default() };
        Self { graph, edges: Vec::new(), error: None }
    }

    /// Adds bytes, aligned to `align`, to the section of that name.
    ///
    /// A role without bytes in the object takes the length of `content` and not the bytes; see [`LinkGraphBuilder::zero_fill`].
    pub fn block(&mut self, section: &str, role: SectionRole, content: &'a [u8], align: u64) -> BlockId {
        self.add(section, role, content, content.len() as u64, align)
    }

    /// Adds `size_bytes` of writable zeros, aligned to `align`, to the section of that name.
    pub fn zero_fill(&mut self, section: &str, size_bytes: u64, align: u64) -> BlockId {
        self.add(section, SectionRole::ZeroFill, &[], size_bytes, align)
    }

    /// Defines a name that others may look up: the place `offset` bytes into a block. What lies in code is a function.
    pub fn define(&mut self, name: &str, block: BlockId, offset: u64) -> SymbolId {
        self.define_as(name, block, offset, Binding::Strong)
    }

    /// Defines a name that this graph alone knows.
    pub fn define_local(&mut self, name: &str, block: BlockId, offset: u64) -> SymbolId {
        self.define_as(name, block, offset, Binding::Local)
    }

    /// Refers to a name that somebody else defines. Where nobody does, the link fails.
    pub fn external(&mut self, name: &str) -> SymbolId {
        self.symbol(name, Location::Undefined, Binding::Strong, SymbolKind::Unknown)
    }

    /// Refers to a name that somebody else may define. Where nobody does, its address is 0.
    pub fn weak_external(&mut self, name: &str) -> SymbolId {
        self.symbol(name, Location::Undefined, Binding::Weak, SymbolKind::Unknown)
    }

    /// Adds a field to a block. What the field holds before the link is ignored.
    pub fn edge(&mut self, block: BlockId, edge: Edge) {
        match self.edges.get_mut(block.index()) {
            Some(edges) => edges.push(edge),
            None => self.refuse("", edge.offset, "an edge of a block of another graph"),
        }
    }

    /// The graph.
    ///
    /// # Errors
    /// [`LinkError::Object`] if a field does not lie in its block's bytes, an edge or a symbol belongs to another graph, an alignment is
    /// not a power of two up to 2^30, or the role is that of unwind tables; [`LinkError::Duplicate`] if a name is defined twice.
    pub fn build(mut self) -> Result<LinkGraph<'a>, LinkError> {
        let symbols = self.graph.symbols.len();
        for (index, edges) in std::mem::take(&mut self.edges).into_iter().enumerate() {
            let first = self.graph.edges.len();
            let Block { section, size, .. } = self.graph.blocks[index];
            let content = if self.graph.sections[section.index()].role.is_zero_fill() { 0 } else { size };
            for edge in edges {
                let end = edge.offset.checked_add(edge.kind.field().bytes() as u64);
                let wrong = if end.is_none_or(|end| end > content) {
                    Some(format!("the field of {} ends past the block's {content} bytes", edge.kind.name()))
                } else {
                    let is_foreign = edge.target.index() >= symbols;
                    is_foreign.then(|| "an edge to a symbol of another graph".to_owned())
                };
                if let Some(what) = wrong {
                    let section = self.graph.section_name(section).to_owned();
                    self.refuse(&section, edge.offset, &what);
                }
                self.graph.edges.push(edge);
            }
            self.graph.blocks[index].edges = (first as u32, self.graph.edges.len() as u32);
        }
        self.check_names();
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.graph),
        }
    }

    fn add(&mut self, section: &str, role: SectionRole, content: &'a [u8], size: u64, align: u64) -> BlockId {
        if role == SectionRole::EhFrame {
            self.refuse(section, 0, "unwind tables are taken from object files only");
        }
        let is_aligned = align.is_power_of_two() && align.ilog2() <= ALIGN_LOG2_MAX;
        if !is_aligned || size > SECTION_BYTES_MAX {
            self.refuse(section, 0, &format!("a block of {size:#x} bytes, aligned to {align:#x}"));
        }
        let align_log2 = if is_aligned { align.ilog2() as u8 } else { 0 };
        // A section a block: the contents of a section are one slice, and nothing is copied before the block has its place.
        let (id, block) = (SectionId::of(self.graph.sections.len()), BlockId::of(self.graph.blocks.len()));
        let name = self.name(section);
        self.graph.sections.push(Section {
            name,
            object: OBJECT,
            role,
            init: None,
            size,
            align_log2,
            is_grouped: false,
            first_block: block,
            block_count: 1,
        });
        self.graph.contents.push(if role.is_zero_fill() { &[] } else { content });
        self.graph.blocks.push(Block {
            section: id,
            offset: 0,
            size,
            align_log2,
            discardable: false,
            live: true,
            edges: (0, 0),
        });
        self.edges.push(Vec::new());
        block
    }

    fn define_as(&mut self, name: &str, block: BlockId, offset: u64, binding: Binding) -> SymbolId {
        let Some(&Block { section, size, .. }) = self.graph.blocks.get(block.index()) else {
            self.refuse("", offset, &format!("`{name}` lies in a block of another graph"));
            return SymbolId::of(0);
        };
        if offset > size {
            let section = self.graph.section_name(section).to_owned();
            self.refuse(&section, offset, &format!("`{name}` lies past the {size} bytes of its block"));
        }
        let kind = match self.graph.sections[section.index()].role {
            SectionRole::Code => SymbolKind::Code,
            role if role.is_tls() => SymbolKind::ThreadLocal,
            _ => SymbolKind::Data,
        };
        let id = self.symbol(name, Location::Block(block, offset), binding, kind);
        self.graph.symbols[id.index()].size = size.saturating_sub(offset);
        id
    }

    fn symbol(&mut self, name: &str, location: Location, binding: Binding, kind: SymbolKind) -> SymbolId {
        let id = SymbolId::of(self.graph.symbols.len());
        let name = self.name(name);
        let exported = binding != Binding::Local;
        self.graph.symbols.push(Symbol {
            name,
            location,
            size: 0,
            object: OBJECT,
            binding,
            kind,
            exported,
            common: false,
        });
        id
    }

    fn name(&mut self, text: &str) -> super::Name {
        match self.graph.add_name(text) {
            Ok(name) => name,
            Err(error) => {
                self.error.get_or_insert(error);
                super::Name::default()
            }
        }
    }

    fn check_names(&mut self) {
        let graph = &self.graph;
        let mut names = HashSet::new();
        let defined = graph.symbols.iter().filter(|symbol| {
            symbol.binding != Binding::Local && matches!(symbol.location, Location::Block(..))
        });
        let twice = defined.map(|symbol| graph.text(symbol.name)).find(|name| !names.insert(*name));
        if let Some(symbol) = twice {
            let object = &graph.objects[OBJECT.index()];
            let error =
                LinkError::Duplicate { symbol: symbol.into(), first: object.clone(), second: object.clone() };
            self.error.get_or_insert(error);
        }
    }

    fn refuse(&mut self, section: &str, offset: u64, what: &str) {
        let object = self.graph.objects[OBJECT.index()].clone();
        let site = Box::new(Site { object, section: section.into(), offset });
        self.error.get_or_insert(LinkError::Object { site, what: what.into() });
    }
}

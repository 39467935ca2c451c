//! Graphs of compilers that write no object files: blocks, symbols and edges as they come.

use std::collections::{HashMap, HashSet};

use super::{
    Binding, Block, BlockId, Edge, Frame, InitRole, LinkGraph, Location, ObjectId, Section, SectionId,
    SectionRole, Symbol, SymbolId, SymbolKind,
};
use crate::arch::Architecture;
use crate::link::eh_frame::{self, RecordKind};
use crate::link::elf::{ALIGN_LOG2_MAX, SECTION_BYTES_MAX, null_symbol};
use crate::link::error::{LinkError, Site};

/// Builds a [`LinkGraph`] from bytes that a compiler has in memory.
///
/// [`ObjectLinkingLayer::emit_graph`](crate::linking::ObjectLinkingLayer::emit_graph) links the result.
///
/// A *block* is a run of bytes that is kept as a whole: mostly one function or one variable. An *edge* is a field of a block that the
/// linker computes from the address of a symbol. Exceptions pass through code that has an [unwind table](Self::unwind_table).
///
/// ```
/// use uruk_pipeline::arch::x86_64::kinds;
/// use uruk_pipeline::link::graph::{Edge, LinkGraph, SectionRole};
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
/// graph.edge(code, Edge { offset: 3, kind: kinds::DELTA_32, target: text, addend: -4 });
/// graph.edge(code, Edge { offset: 8, kind: kinds::BRANCH_32, target: strlen, addend: -4 });
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
    /// The first error.
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

    /// The same, for processors of an architecture.
    pub(crate) fn of_architecture(mut self, arch: Architecture) -> Self {
        self.graph.arch = arch;
        self
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

    /// Adds call frame information of functions of this graph, as `.eh_frame` has it: common entries, and an entry for each function.
    ///
    /// `fields` are the fields that hold addresses, each at its offset in `content`: in each function's entry the one that begins at its
    /// byte 8, and those of personality functions and of language-specific data, if there are some. The linker finds the distance from an
    /// entry to its common entry in `content`, and writes it anew.
    ///
    /// All entries of a function go in one call, its common entry included.
    pub fn unwind_table(&mut self, content: &'a [u8], fields: &[Edge]) {
        const NAME: &str = ".eh_frame";
        let records = match eh_frame::split(content) {
            Ok(records) => records,
            Err((offset, what)) => return self.refuse(NAME, offset, what),
        };
        let first = BlockId::of(self.graph.blocks.len());
        let section = self.add_section(NAME, SectionRole::EhFrame, content, content.len() as u64, 3, None);
        self.graph.sections[section.index()].block_count = records.len() as u32;
        let mut common: HashMap<u64, SymbolId> = HashMap::new();
        for record in &records {
            let block = self.add_block(section, record.offset, record.size, 0);
            match record.kind {
                RecordKind::Cie => {
                    common.insert(record.offset, self.define_local("", block, 0));
                }
                RecordKind::Fde => self.graph.frames.push(Frame { block, function: u32::MAX }),
            }
        }
        for (index, record) in records.iter().enumerate() {
            let bytes = &content[record.offset as usize..(record.offset + record.size) as usize];
            let Some(cie) = eh_frame::cie_of(bytes, record.offset) else { continue };
            let Some(&target) = common.get(&cie) else {
                let what = format!("the entry's common entry is said to be at {cie:#x}, and is not there");
                return self.refuse(NAME, record.offset, &what);
            };
            let (offset, kind) = (eh_frame::CIE_POINTER_OFFSET, self.graph.arch.distance_back());
            self.edges[first.index() + index].push(Edge { offset, kind, target, addend: 0 });
        }
        for field in fields {
            let record = records.partition_point(|record| record.offset <= field.offset).checked_sub(1);
            match record.filter(|&index| field.offset < records[index].offset + records[index].size) {
                Some(index) => {
                    let offset = field.offset - records[index].offset;
                    self.edges[first.index() + index].push(Edge { offset, ..*field });
                }
                None => self.refuse(NAME, field.offset, "a field that lies in no record"),
            }
        }
    }

    /// Has functions of this graph, of type `void (void)`, called when its dylib is initialised: by `priority`, lower first, 65535 being
    /// that of most, then in the order of these calls.
    ///
    /// The graph's unit has a place among others only if it was declared to the platform as one that [runs at
    /// start](crate::object::UnitTraits::runs_at_start), and carries that initializer symbol. Otherwise they are not called.
    pub fn init_array(&mut self, priority: u16, functions: &[SymbolId]) {
        self.call_at(".init_array", InitRole::Init(priority), functions);
    }

    /// Has functions called at the end of code that [`init_array`](Self::init_array) has begun: higher priorities first, and last to first.
    pub fn fini_array(&mut self, priority: u16, functions: &[SymbolId]) {
        self.call_at(".fini_array", InitRole::Fini(priority), functions);
    }

    fn call_at(&mut self, section: &str, role: InitRole, functions: &[SymbolId]) {
        for &target in functions {
            let (block, kind) = (
                self.add_as(section, SectionRole::ReadOnly, &[0; 8], 8, 8, Some(role)),
                self.graph.arch.pointer(),
            );
            self.edge(block, Edge { offset: 0, kind, target, addend: 0 });
        }
    }

    /// Defines a name that others may look up: the place `offset` bytes into a block. A name in code is a function.
    pub fn define(&mut self, name: &str, block: BlockId, offset: u64) -> SymbolId {
        self.define_as(name, block, offset, Binding::Strong)
    }

    /// Defines a name that this graph alone knows.
    pub fn define_local(&mut self, name: &str, block: BlockId, offset: u64) -> SymbolId {
        self.define_as(name, block, offset, Binding::Local)
    }

    /// Refers to a name that is defined elsewhere. Without a definition the link fails.
    pub fn external(&mut self, name: &str) -> SymbolId {
        self.symbol(name, Location::Undefined, Binding::Strong, SymbolKind::Unknown)
    }

    /// Refers to a name that may be defined elsewhere. Without a definition its address is 0.
    pub fn weak_external(&mut self, name: &str) -> SymbolId {
        self.symbol(name, Location::Undefined, Binding::Weak, SymbolKind::Unknown)
    }

    /// Adds a field to a block. The field's content before the link is ignored.
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
    /// not a power of two up to 2^30, an unwind table is malformed, or its role was given to a block; [`LinkError::Duplicate`] if a name is defined twice.
    pub fn build(mut self) -> Result<LinkGraph<'a>, LinkError> {
        let (arch, symbols) = (self.graph.arch, self.graph.symbols.len());
        for (index, edges) in std::mem::take(&mut self.edges).into_iter().enumerate() {
            let first = self.graph.edges.len();
            let Block { section, size, .. } = self.graph.blocks[index];
            let content = if self.graph.sections[section.index()].role.is_zero_fill() { 0 } else { size };
            for edge in edges {
                let end = edge.offset.checked_add(arch.field_bytes(edge.kind) as u64);
                let wrong = if end.is_none_or(|end| end > content) {
                    let kind = arch.kind_name(edge.kind);
                    Some(format!("the field of {kind} ends past the block's {content} bytes"))
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
        self.find_functions_of_frames();
        self.check_names();
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.graph),
        }
    }

    fn add(&mut self, section: &str, role: SectionRole, content: &'a [u8], size: u64, align: u64) -> BlockId {
        if role == SectionRole::EhFrame {
            self.refuse(section, 0, "an unwind table is no block: it is added by `unwind_table`");
        }
        self.add_as(section, role, content, size, align, None)
    }

    fn add_as(
        &mut self,
        section: &str,
        role: SectionRole,
        content: &'a [u8],
        size: u64,
        align: u64,
        init: Option<InitRole>,
    ) -> BlockId {
        let is_aligned = align.is_power_of_two() && align.ilog2() <= ALIGN_LOG2_MAX;
        if !is_aligned || size > SECTION_BYTES_MAX {
            self.refuse(section, 0, &format!("a block of {size:#x} bytes, aligned to {align:#x}"));
        }
        let align_log2 = if is_aligned { align.ilog2() as u8 } else { 0 };
        // A section a block: the contents of a section are one slice, and nothing is copied before the block has its place.
        let id = self.add_section(section, role, content, size, align_log2, init);
        self.add_block(id, 0, size, align_log2)
    }

    /// Adds a section for one block, which is to be added next.
    fn add_section(
        &mut self,
        name: &str,
        role: SectionRole,
        content: &'a [u8],
        size: u64,
        align_log2: u8,
        init: Option<InitRole>,
    ) -> SectionId {
        let (id, first_block) =
            (SectionId::of(self.graph.sections.len()), BlockId::of(self.graph.blocks.len()));
        let name = self.name(name);
        let (object, is_grouped, block_count) = (OBJECT, false, 1);
        let section = Section {
            name,
            object,
            file: 0,
            number: 0,
            role,
            init,
            size,
            align_log2,
            is_grouped,
            first_block,
            block_count,
        };
        self.graph.sections.push(section);
        self.graph.contents.push(if role.is_zero_fill() { &[] } else { content });
        id
    }

    fn add_block(&mut self, section: SectionId, offset: u64, size: u64, align_log2: u8) -> BlockId {
        let id = BlockId::of(self.graph.blocks.len());
        let block =
            Block { section, offset, size, align_log2, discardable: false, live: true, edges: (0, 0) };
        self.graph.blocks.push(block);
        self.edges.push(Vec::new());
        id
    }

    /// Finds the edge to the function of each entry of an unwind table.
    fn find_functions_of_frames(&mut self) {
        for index in 0..self.graph.frames.len() {
            let block = self.graph.blocks[self.graph.frames[index].block.index()];
            let range = block.edge_range();
            let edges = &self.graph.edges[range.clone()];
            match edges.iter().position(|edge| edge.offset == eh_frame::FUNCTION_OFFSET) {
                Some(edge) => self.graph.frames[index].function = (range.start + edge) as u32,
                None => self.refuse(".eh_frame", block.offset, "an entry whose function no field names"),
            }
        }
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

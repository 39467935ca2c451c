//! The global offset table and the stubs of a graph: which symbols need an entry or a stub.
//!
//! Where an external symbol will be is unknown while memory is laid out, so everything that may turn out too
//! far away gets its entry now; whether it is used is decided edge by edge in `fixup.rs`. The table is
//! private writable memory, never shared with a child of `fork`; stubs are code.
//!
//! ```text
//!  table:     | address of symbol u64 | ...
//!  pointers:  | address of symbol + offset u64 | ...        for an operand that an instruction may fail to reach
//!  stub:      jump to the address in its entry
//! ```

use super::graph::{Block, Edge, LinkGraph, Location, SectionRole, SymbolId};
use crate::arch::{Class, FarForm};
use std::collections::HashMap;

/// Size of an entry of the table.
pub(super) const ENTRY_BYTES: u64 = 8;

/// An index for each symbol that has one, and the symbols in the order of their indices.
#[derive(Debug, Default)]
pub(super) struct Slots {
    by_symbol: Vec<u32>,
    symbols: Vec<SymbolId>,
}

const NO_SLOT: u32 = u32::MAX;

impl Slots {
    pub(super) fn with_symbols(count: usize) -> Self {
        Self { by_symbol: vec![NO_SLOT; count], symbols: Vec::new() }
    }

    pub(super) fn add(&mut self, symbol: SymbolId) {
        let slot = &mut self.by_symbol[symbol.index()];
        if *slot == NO_SLOT {
            *slot = self.symbols.len() as u32;
            self.symbols.push(symbol);
        }
    }

    /// The index of a symbol's slot.
    pub(super) fn get(&self, symbol: SymbolId) -> Option<u64> {
        self.by_symbol.get(symbol.index()).copied().filter(|slot| *slot != NO_SLOT).map(u64::from)
    }

    /// The symbols, in the order of their slots.
    pub(super) fn symbols(&self) -> &[SymbolId] {
        &self.symbols
    }

    pub(super) fn len(&self) -> u64 {
        self.symbols.len() as u64
    }
}

/// Entries and stubs of a graph.
#[derive(Debug, Default)]
pub(super) struct GotPlt {
    pub(super) entries: Slots,
    pub(super) stubs: Slots,
    pub(super) pointers: Pointers,
}

/// Pointers into symbols, each once.
#[derive(Debug, Default)]
pub(super) struct Pointers {
    by_target: HashMap<(SymbolId, i64), u64>,
    targets: Vec<(SymbolId, i64)>,
}

impl Pointers {
    fn add(&mut self, symbol: SymbolId, offset: i64) {
        let next = self.targets.len() as u64;
        self.by_target.entry((symbol, offset)).or_insert_with(|| {
            self.targets.push((symbol, offset));
            next
        });
    }

    /// The index of the pointer to `offset` bytes behind a symbol.
    pub(super) fn get(&self, symbol: SymbolId, offset: i64) -> Option<u64> {
        self.by_target.get(&(symbol, offset)).copied()
    }

    /// The targets of the entries, in the order of the indices.
    pub(super) fn targets(&self) -> &[(SymbolId, i64)] {
        &self.targets
    }

    pub(super) fn len(&self) -> u64 {
        self.targets.len() as u64
    }
}

/// Finds out which symbols need an entry or a stub.
pub(super) fn plan(graph: &LinkGraph<'_>) -> GotPlt {
    let count = graph.symbols.len();
    let mut plan = GotPlt {
        entries: Slots::with_symbols(count),
        stubs: Slots::with_symbols(count),
        pointers: Pointers::default(),
    };
    for (id, block) in graph.live_blocks() {
        let content = graph.content(id);
        for edge in graph.edges(id) {
            plan.add(graph, block, content, edge);
        }
    }
    plan
}

impl GotPlt {
    fn add(&mut self, graph: &LinkGraph<'_>, block: &Block, content: &[u8], edge: &Edge) {
        match edge.kind.class() {
            Class::GotEntry => self.entries.add(edge.target),
            Class::Branch if is_far(graph, edge.target) => self.add_stub(edge.target),
            Class::Near if is_far(graph, edge.target) => self.add_rescue(graph, block, content, edge),
            // Should the descriptor be too far away, its address is loaded from here.
            Class::TlsDescriptor if is_far(graph, edge.target) => self.add_pointer(graph, edge),
            _ => {}
        }
    }

    /// A distance to something that may be out of reach can be saved where the instruction has another form.
    fn add_rescue(&mut self, graph: &LinkGraph<'_>, block: &Block, content: &[u8], edge: &Edge) {
        if graph.sections[block.section.index()].role != SectionRole::Code {
            return;
        }
        match graph.arch.far_form(content, edge.offset as usize, edge.addend) {
            Some(FarForm::Stub) => self.add_stub(edge.target),
            Some(FarForm::Pointer) => self.add_pointer(graph, edge),
            None => {}
        }
    }

    fn add_pointer(&mut self, graph: &LinkGraph<'_>, edge: &Edge) {
        self.pointers.add(edge.target, graph.arch.pointed_offset(edge.addend));
    }

    fn add_stub(&mut self, symbol: SymbolId) {
        self.entries.add(symbol);
        self.stubs.add(symbol);
    }
}

/// Whether the symbol may be out of reach of the graph's own code.
fn is_far(graph: &LinkGraph<'_>, symbol: SymbolId) -> bool {
    match graph.symbols[symbol.index()].location {
        Location::Undefined | Location::Absolute(_) => true,
        Location::Block(block, _) => {
            matches!(
                graph.section_of(block).role,
                SectionRole::GreatZeroFill | SectionRole::LargeData | SectionRole::LargeZeroFill
            )
        }
        _ => false,
    }
}

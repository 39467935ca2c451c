//! The global offset table and the stubs of a graph: who needs an entry, and what a stub is.
//!
//! Where an external symbol will be is unknown while memory is laid out, so everything that may turn out too
//! far away gets its entry now; whether it is used is decided edge by edge in `fixup.rs`. The table is
//! private writable memory, never shared with a child of `fork`; stubs are code.
//!
//! ```text
//!  table:     | address of symbol u64 | ...
//!  pointers:  | address of symbol + offset u64 | ...        for what `lea` may fail to reach
//!  stub:      jmp *entry(%rip); int3; int3                  8 bytes
//! ```

use super::graph::{Block, Edge, LinkGraph, Location, SectionRole, SymbolId};
use super::relax;
use super::x86_64::EdgeKind;
use std::collections::HashMap;

/// Size of an entry of the table.
pub(super) const ENTRY_BYTES: u64 = 8;
/// Size of a stub.
pub(super) const STUB_BYTES: u64 = 8;

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

    /// What is pointed to, in the order of the indices.
    pub(super) fn targets(&self) -> &[(SymbolId, i64)] {
        &self.targets
    }

    pub(super) fn len(&self) -> u64 {
        self.targets.len() as u64
    }
}

/// Where the operand of a `lea` with this addend points, from its symbol on.
pub(super) const fn pointed_offset(addend: i64) -> i64 {
    addend.wrapping_sub(relax::END_OF_INSTRUCTION)
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
        match edge.kind {
            EdgeKind::GotEntryDelta32
            | EdgeKind::GotEntryDelta32Relaxable
            | EdgeKind::GotEntryDelta64
            | EdgeKind::GotEntryOffset32
            | EdgeKind::GotEntryOffset64 => self.entries.add(edge.target),
            EdgeKind::Branch32 if is_far(graph, edge.target) => self.add_stub(edge.target),
            EdgeKind::Delta32 if is_far(graph, edge.target) => self.add_rescue(graph, block, content, edge),
            // Should the descriptor be too far away, its address is loaded from here.
            EdgeKind::TlsDescriptorDelta32 if is_far(graph, edge.target) => {
                self.pointers.add(edge.target, pointed_offset(edge.addend));
            }
            _ => {}
        }
    }

    /// A distance to something that may be out of reach can be saved where the instruction has another form.
    fn add_rescue(&mut self, graph: &LinkGraph<'_>, block: &Block, content: &[u8], edge: &Edge) {
        if graph.sections[block.section.index()].role != SectionRole::Code {
            return;
        }
        let offset = edge.offset as usize;
        if relax::is_branch(content, offset, edge.addend) {
            self.add_stub(edge.target);
        } else if relax::is_lea(content, offset) {
            self.pointers.add(edge.target, pointed_offset(edge.addend));
        }
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

/// Writes the stub at `address` that jumps to what the entry at `entry` holds.
///
/// # Errors
/// The distance, if the table is out of reach of the code.
pub(super) fn write_stub(stub: &mut [u8], address: u64, entry: u64) -> Result<(), i64> {
    const JUMP_BYTES: u64 = 6;
    let distance = entry.wrapping_sub(address + JUMP_BYTES).cast_signed();
    let displacement = i32::try_from(distance).map_err(|_| distance)?;
    stub[..2].copy_from_slice(&[0xff, 0x25]);
    stub[2..6].copy_from_slice(&displacement.to_le_bytes());
    stub[6..8].fill(0xcc);
    Ok(())
}

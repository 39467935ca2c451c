//! Thread-local variables: the image of a graph, and the descriptors that name its variables.
//!
//! To the session a thread-local symbol's address is that of a 16-byte `tls_index`, the constant pair
//! `{module, offset}` that `__tls_get_addr` takes. A graph with thread-local variables has one module: its
//! `.tdata` followed by its `.tbss`. Each variable that others may refer to has a descriptor, as has each that the graph
//! refers to itself; one more, `{module, 0}`, serves the local-dynamic model.
//!
//! Two more tables serve objects that do not call `__tls_get_addr`, one entry for each variable they refer to:
//!
//! ```text
//!  distances:   | distance from the thread pointer i64 | ...        initial-exec
//!  resolvers:   | function u64 | its argument u64 | ...             TLS descriptors
//! ```
//! Local-exec needs no table: the instruction holds the distance. Whether a variable has the same distance on every
//! thread is the process side's to say. Without that, a TLS descriptor goes the way of `__tls_get_addr`, initial-exec code
//! takes a detour there (`tls_detour.rs`), and local-exec is an error.
//!
//! Which number a module has is known only when the process side has been asked; [`Link::place_tls`] puts it in,
//! and the process side may give several images one module, each at its own offset.
//!
//! [`Link::place_tls`]: super::phases::Link::place_tls

use rustc_hash::FxHashSet;

use super::error::LinkError;
use super::got_plt::Slots;
use super::graph::{Binding, BlockId, Edge, LinkGraph, Location, SectionRole, SymbolId, SymbolKind};
use super::layout::TlsLayout;
use super::tls_detour::{DetourSite, Detours};
use crate::arch::Class;

/// The limit of each thread's copy of a graph's thread-local variables: the reach of the 32-bit offsets of compiled code. A thread gets all
/// of them with the first one that it touches, when it is too late to refuse.
const BLOCK_BYTES_MAX: u64 = 1 << 31;
/// The largest alignment of a thread's copy: a large page.
const BLOCK_ALIGN_LOG2_MAX: u8 = 21;

/// Size of a descriptor.
pub(super) const DESCRIPTOR_BYTES: u64 = 16;
/// Size of a pair of resolver and argument.
pub(super) const RESOLVER_BYTES: u64 = 16;

/// The entries that a graph needs for its thread-local variables.
#[derive(Debug, Default)]
pub(super) struct Tls {
    pub(super) descriptors: Slots,
    /// Whether something refers to the module as a whole.
    pub(super) has_module_descriptor: bool,
    /// Variables defined elsewhere whose offset in their module, or whose module, the graph asks for. That
    /// is how variables of hidden visibility are reached in other objects of the same dylib.
    pub(super) foreign: FxHashSet<SymbolId>,
    /// Variables whose distance from the thread pointer is loaded from memory.
    pub(super) distances: Slots,
    /// Variables that are reached through a pair of resolver and argument.
    pub(super) resolvers: Slots,
    /// Instructions that load such a distance, and go another way if there is none.
    pub(super) detours: Detours,
    /// Variables defined elsewhere whose distance from the thread pointer is of use.
    pub(super) distant: FxHashSet<SymbolId>,
    /// Whether the distance of the graph's own image is of use, and whether there is no way without.
    pub(super) own_distance: Option<Need>,
}

/// How much a graph needs its own variables at a distance from the thread pointer that every thread shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// There is another, slower way.
    Useful,
    /// The graph cannot be linked without, or has to take detours.
    Required,
}

impl Tls {
    fn with_symbols(count: usize) -> Self {
        let slots = || Slots::with_symbols(count);
        Self { descriptors: slots(), distances: slots(), resolvers: slots(), ..Self::default() }
    }

    /// Notes what a field needs.
    fn add_edge(&mut self, graph: &LinkGraph<'_>, block: BlockId, edge: &Edge) {
        let Edge { kind, target, offset, addend } = *edge;
        let location = graph.symbols[target.index()].location;
        let is_local = matches!(location, Location::Block(..));
        self.has_module_descriptor |= kind.class() == Class::TlsModule || location == Location::TlsModuleBase;
        match kind.class() {
            Class::TlsDescriptor if is_local => self.descriptors.add(target),
            Class::TlsDescriptor => {}
            Class::TlsDistance => {
                self.add_distance(target, is_local, Need::Required);
            }
            Class::TlsDistanceEntry => {
                self.distances.add(target);
                self.add_distance(target, is_local, Need::Required);
                let is_code = graph.section_of(block).role == SectionRole::Code;
                let load = graph.arch.distance_load(kind, graph.content(block), offset as usize, addend);
                if let Some(load) = load.filter(|_| is_code) {
                    self.add_resolver(target, location);
                    self.detours.add(DetourSite { block, offset, symbol: target, load });
                }
            }
            Class::TlsResolver => {
                self.add_resolver(target, location);
                self.add_distance(target, is_local, Need::Useful);
            }
            _ if is_local || location == Location::TlsModuleBase => {}
            _ => drop(self.foreign.insert(target)),
        }
    }

    /// Notes that a pair of resolver and argument is needed, and the possible target of the argument.
    fn add_resolver(&mut self, symbol: SymbolId, location: Location) {
        self.resolvers.add(symbol);
        if let Location::Block(..) = location {
            self.descriptors.add(symbol);
        }
    }

    fn add_distance(&mut self, symbol: SymbolId, is_local: bool, need: Need) {
        if is_local {
            self.own_distance = self.own_distance.max(Some(need));
        } else {
            self.distant.insert(symbol);
        }
    }

    pub(super) fn descriptor_bytes(&self) -> u64 {
        (self.descriptors.len() + u64::from(self.has_module_descriptor)) * DESCRIPTOR_BYTES
    }

    /// The offset of the module's own descriptor among the descriptors.
    pub(super) fn module_descriptor(&self) -> Option<u64> {
        self.has_module_descriptor.then(|| self.descriptors.len() * DESCRIPTOR_BYTES)
    }
}

/// Checks that a thread's copy of the graph's variables is of a size that every thread can have.
///
/// # Errors
/// [`LinkError::Object`] that names the largest section of the variables, or the one with the largest alignment.
pub(super) fn check_size(graph: &LinkGraph<'_>, layout: Option<&TlsLayout>) -> Result<(), LinkError> {
    let Some(&TlsLayout { total_bytes, align_log2, .. }) = layout else { return Ok(()) };
    let blocks = || graph.live_blocks().filter(|(id, _)| graph.section_of(*id).role.is_tls());
    let (worst, what) = if total_bytes > BLOCK_BYTES_MAX {
        let largest = blocks().max_by_key(|(_, block)| block.size);
        let size = largest.map_or(0, |(_, block)| block.size);
        let what = format!(
            "{size} bytes of thread-local variables, {total_bytes} with those of other sections; each thread may have \
             {BLOCK_BYTES_MAX} at most; allocate them when they are needed"
        );
        (largest, what)
    } else if align_log2 > BLOCK_ALIGN_LOG2_MAX {
        let what = format!(
            "thread-local variables with an alignment of {} bytes; {} are possible at most",
            1_u64 << align_log2,
            1_u64 << BLOCK_ALIGN_LOG2_MAX
        );
        (blocks().max_by_key(|(_, block)| block.align_log2), what)
    } else {
        return Ok(());
    };
    match worst {
        Some((id, _)) => {
            Err(LinkError::Object { site: Box::new(graph.site(id, 0)), what: what.into_boxed_str() })
        }
        None => Err(graph.too_large(&what)),
    }
}

/// Finds the descriptors a graph needs.
pub(super) fn plan(graph: &LinkGraph<'_>) -> Tls {
    let mut tls = Tls::with_symbols(graph.symbols.len());
    for (index, symbol) in graph.symbols.iter().enumerate() {
        let Location::Block(block, _) = symbol.location else { continue };
        let is_public = symbol.binding != Binding::Local && symbol.kind == SymbolKind::ThreadLocal;
        if is_public && graph.blocks[block.index()].live && graph.section_of(block).role.is_tls() {
            tls.descriptors.add(SymbolId::of(index));
        }
    }
    for (id, _) in graph.live_blocks() {
        for edge in graph.edges(id).iter().filter(|edge| edge.kind.is_thread_local()) {
            tls.add_edge(graph, id, edge);
        }
    }
    tls
}

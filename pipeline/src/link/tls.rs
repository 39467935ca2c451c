//! Thread-local variables: the image of a graph, and the descriptors that name its variables.
//!
//! To the session a thread-local symbol's address is that of a 16-byte `tls_index`, the constant pair
//! `{module, offset}` that `__tls_get_addr` takes. A graph with thread-local variables has one module: its
//! `.tdata` followed by its `.tbss`. Each variable that others may refer to has a descriptor, as has each that the graph
//! refers to itself; one more, `{module, 0}`, serves the local-dynamic model.
//!
//! Which number a module has is known only when the process side has been asked; [`Link::place_tls`] puts it in,
//! and the process side may give several images one module, each at its own offset.
//!
//! [`Link::place_tls`]: super::phases::Link::place_tls

use rustc_hash::FxHashSet;
use uruk_core::ExecutorAddr;

use super::got_plt::Slots;
use super::graph::{Binding, LinkGraph, Location, SymbolId, SymbolKind};
use super::x86_64::EdgeKind;

/// Size of a descriptor.
pub(super) const DESCRIPTOR_BYTES: u64 = 16;

/// Initial values of a graph's thread-local variables, as `__tls_get_addr` needs them for a new thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsImage {
    /// Where the initial values are; written when the link is fixed.
    pub address: ExecutorAddr,
    /// How many bytes of initial values there are.
    pub image_bytes: u64,
    /// Size of a thread's copy; zeros follow the initial values.
    pub total_bytes: u64,
    /// Alignment of a thread's copy.
    pub align: u64,
}

/// Where in the process's thread-local storage something is: the two words of a `tls_index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsPlacement {
    /// The module's number, as `__tls_get_addr` takes it.
    pub module: u64,
    /// The offset in the module's block.
    pub offset: u64,
}

/// What a graph needs for its thread-local variables.
#[derive(Debug, Default)]
pub(super) struct Tls {
    pub(super) descriptors: Slots,
    /// Whether something refers to the module as a whole.
    pub(super) has_module_descriptor: bool,
    /// Variables defined elsewhere whose offset in their module, or whose module, the graph asks for. That
    /// is how variables of hidden visibility are reached in other objects of the same dylib.
    pub(super) foreign: FxHashSet<SymbolId>,
}

impl Tls {
    pub(super) fn descriptor_bytes(&self) -> u64 {
        (self.descriptors.len() + u64::from(self.has_module_descriptor)) * DESCRIPTOR_BYTES
    }

    /// The offset of the module's own descriptor among the descriptors.
    pub(super) fn module_descriptor(&self) -> Option<u64> {
        self.has_module_descriptor.then(|| self.descriptors.len() * DESCRIPTOR_BYTES)
    }
}

/// Finds the descriptors a graph needs.
pub(super) fn plan(graph: &LinkGraph<'_>) -> Tls {
    let mut tls = Tls { descriptors: Slots::with_symbols(graph.symbols.len()), ..Tls::default() };
    for (index, symbol) in graph.symbols.iter().enumerate() {
        let Location::Block(block, _) = symbol.location else { continue };
        let is_public = symbol.binding != Binding::Local && symbol.kind == SymbolKind::ThreadLocal;
        if is_public && graph.blocks[block.index()].live && graph.section_of(block).role.is_tls() {
            tls.descriptors.add(SymbolId::of(index));
        }
    }
    for (id, _) in graph.live_blocks() {
        for edge in graph.edges(id).iter().filter(|edge| edge.kind.is_thread_local()) {
            let is_local = matches!(graph.symbols[edge.target.index()].location, Location::Block(..));
            match edge.kind {
                EdgeKind::TlsDescriptorDelta32 if is_local => tls.descriptors.add(edge.target),
                EdgeKind::TlsDescriptorDelta32 => {}
                _ if is_local => {}
                _ => drop(tls.foreign.insert(edge.target)),
            }
            tls.has_module_descriptor |= edge.kind == EdgeKind::TlsModuleDelta32;
        }
    }
    tls
}

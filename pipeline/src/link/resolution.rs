//! The targets of a graph's references, once everything has its address.

use rustc_hash::FxHashMap;
use uruk_core::ExecutorAddr;

use super::graph::{Location, SymbolId};
use super::placed::Placed;
use super::terms::LinkEnvironment;
use super::tls::Tls;
use crate::executor::{NotStatic, TlsPlacement, TlsResolvers};

/// The addresses that references have been given.
#[derive(Debug)]
pub(super) struct Resolution {
    /// Of each symbol.
    pub(super) addresses: Vec<u64>,
    /// Whether each symbol is thread-local; for references, as their definition says.
    pub(super) thread_local: Vec<bool>,
    /// Whether each reference leads to code, as its definition says.
    pub(super) callable: Vec<bool>,
    /// Thread-local variables of other objects that are reached by their offset.
    pub(super) foreign_tls: FxHashMap<SymbolId, TlsPlacement>,
    /// How far from the thread pointer thread-local variables of other objects and of libraries are.
    pub(super) distances: FxHashMap<SymbolId, Result<i64, NotStatic>>,
    /// The module of the graph's own thread-local variables, and of the foreign ones that it reaches by their offset in it.
    pub(super) module: Option<u64>,
    /// How far from the thread pointer that module's start is.
    pub(super) module_distance: Result<i64, NotStatic>,
    /// How far from the thread pointer the graph's own image is.
    pub(super) own_distance: Result<i64, NotStatic>,
    pub(super) tls_resolvers: TlsResolvers,
    pub(super) ifunc_thunk: u64,
}

impl Resolution {
    pub(super) fn of_own_symbols(placed: &Placed, environment: &LinkEnvironment<'_>) -> Self {
        let own_image = placed.tls.filter(|_| placed.plan.tls.own_distance.is_some());
        let symbols = || (0..placed.graph.symbols.len()).map(SymbolId::of);
        Self {
            addresses: symbols().map(|id| placed.address(id).unwrap_or(0)).collect(),
            thread_local: symbols().map(|id| placed.graph.is_thread_local(id)).collect(),
            callable: vec![false; placed.graph.symbols.len()],
            foreign_tls: FxHashMap::default(),
            distances: FxHashMap::default(),
            module: placed.tls.map(|own| own.module),
            module_distance: Err(NotStatic::Unknown),
            own_distance: own_image.map_or(Err(NotStatic::Unknown), environment.tls_distance),
            tls_resolvers: environment.entries.tls_resolvers,
            ifunc_thunk: environment.entries.ifunc_thunk.value(),
        }
    }

    /// Notes what the graph needs to know of a variable that is defined elsewhere.
    pub(super) fn find_variable(
        &mut self,
        tls: &Tls,
        environment: &LinkEnvironment<'_>,
        id: SymbolId,
        descriptor: ExecutorAddr,
    ) {
        let (is_foreign, is_distant) = (tls.foreign.contains(&id), tls.distant.contains(&id));
        if !is_foreign && !is_distant {
            return;
        }
        let placement = (environment.tls_placement)(descriptor);
        if let Some(placement) = placement.filter(|_| is_foreign) {
            self.foreign_tls.insert(id, placement);
        }
        if is_distant {
            let distance = placement.map_or(Err(NotStatic::Unknown), environment.tls_distance);
            self.distances.insert(id, distance);
        }
    }

    /// Finds out about the graph's module, once all its variables are known.
    pub(super) fn find_module(&mut self, tls: &Tls, environment: &LinkEnvironment<'_>) {
        self.module =
            self.module.or_else(|| self.foreign_tls.values().next().map(|placement| placement.module));
        if let Some(module) = self.module.filter(|_| tls.has_module_descriptor && tls.resolvers.len() > 0) {
            self.module_distance = (environment.tls_distance)(TlsPlacement { module, offset: 0 });
        }
    }

    /// How far from the thread pointer a variable is, in this graph or elsewhere.
    pub(super) fn distance(&self, placed: &Placed, symbol: SymbolId) -> Result<i64, NotStatic> {
        match placed.graph.symbols[symbol.index()].location {
            Location::Block(..) => {
                self.own_distance.map(|image| image.wrapping_add_unsigned(placed.image_offset(symbol)))
            }
            Location::TlsModuleBase => self.module_distance,
            _ => self.distances.get(&symbol).copied().unwrap_or(Err(NotStatic::Unknown)),
        }
    }
}

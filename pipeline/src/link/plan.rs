//! Decisions before memory is allocated: external symbols, and the tables, stubs and descriptors that are needed.

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::{LinkError, SHOWN, UndefinedSymbol};
use super::got_plt::{self, GotPlt};
use super::graph::{BlockId, LinkGraph, Location, SymbolId};
use super::ifunc::{self, IndirectFunctions};
use super::layout;
use super::low::{self, LowPlan};
use super::prune;
use super::section_bounds::{self, SectionBounds};
use super::terms::LinkOptions;
use super::tls::{self, Tls};

/// Facts that are known before memory is allocated, apart from the graph.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) got_plt: GotPlt,
    pub(super) tls: Tls,
    pub(super) ifuncs: IndirectFunctions,
    pub(super) bounds: SectionBounds,
    pub(super) externals: Vec<SymbolId>,
    pub(super) low: LowPlan,
    /// Whether fields that change with the place of the graph are noted.
    pub(super) is_rebasable: bool,
    /// Code that comes before all other.
    pub(super) first: Vec<BlockId>,
}

/// Prunes the graph, binds the names that only the linker can define, and counts what is needed.
pub(super) fn plan(graph: &mut LinkGraph<'_>, options: &LinkOptions<'_>) -> Result<Plan, LinkError> {
    let first = prune::prune(graph, options.is_discarded, options.order.as_ref());
    let bounds = section_bounds::collect(graph, options.binds_section_bounds);
    bind_conventional_names(graph);
    ifunc::bind_constant(graph);
    layout::set_great_zero_fill_aside(graph);
    let externals = externals(graph)?;
    Ok(Plan {
        got_plt: got_plt::plan(graph),
        tls: tls::plan(graph),
        ifuncs: ifunc::plan(graph)?,
        low: low::plan(graph, options.is_wanted_low),
        is_rebasable: options.is_rebasable,
        first,
        bounds,
        externals,
    })
}

/// Binds the conventional names of the table, of the thread-local module and of the graph itself, by which code refers to them.
fn bind_conventional_names(graph: &mut LinkGraph<'_>) {
    for index in 0..graph.symbols.len() {
        let symbol = &graph.symbols[index];
        if symbol.location != Location::Undefined {
            continue;
        }
        if let Some(location) = conventional_location(graph.text(symbol.name)) {
            graph.symbols[index].location = location;
        }
    }
}

fn conventional_location(name: &str) -> Option<Location> {
    match name {
        "_GLOBAL_OFFSET_TABLE_" => Some(Location::GotBase),
        "_TLS_MODULE_BASE_" => Some(Location::TlsModuleBase),
        // As each natively linked program and library has its own.
        "__dso_handle" => Some(Location::DsoHandle),
        _ => None,
    }
}

/// The undefined symbols that something refers to, in the order of their first reference.
fn externals(graph: &LinkGraph<'_>) -> Result<Vec<SymbolId>, LinkError> {
    let mut seen = vec![false; graph.symbols.len()];
    let mut externals = Vec::new();
    for (id, _) in graph.live_blocks() {
        for edge in graph.edges(id) {
            let target = edge.target.index();
            if seen[target] || edge.kind.ignores_target() {
                continue;
            }
            seen[target] = true;
            match graph.symbols[target].location {
                Location::Undefined => externals.push(edge.target),
                Location::NotLoaded => {
                    let name = graph.symbol_name(edge.target);
                    let what = format!("refers to `{name}`, which lies in a section that is not loaded");
                    return Err(LinkError::Object {
                        site: Box::new(graph.site(id, edge.offset)),
                        what: what.into(),
                    });
                }
                _ => {}
            }
        }
    }
    Ok(externals)
}

/// One place that needs each of `missing`.
pub(super) fn undefined(graph: &LinkGraph<'_>, missing: &[SymbolId]) -> Vec<UndefinedSymbol> {
    let mut sites: FxHashMap<SymbolId, (BlockId, u64)> = FxHashMap::default();
    let mut wanted: FxHashSet<SymbolId> = missing.iter().copied().collect();
    for (id, _) in graph.live_blocks() {
        for edge in graph.edges(id) {
            if wanted.remove(&edge.target) {
                sites.insert(edge.target, (id, edge.offset));
            }
        }
    }
    let undefined = missing.iter().filter_map(|id| Some((id, sites.remove(id)?))).enumerate();
    undefined
        .map(|(index, (id, (block, offset)))| UndefinedSymbol {
            symbol: graph.symbol_name(*id).into(),
            site: graph.site(block, offset),
            // Each looks at all symbols, so those that are not printed do without.
            referrer: (index < SHOWN).then(|| graph.symbol_at(block, offset)).flatten().map(Into::into),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::BOUND_BY_LINKER;

    #[test]
    fn names_that_the_linker_binds_have_a_location() {
        assert!(BOUND_BY_LINKER.iter().all(|name| conventional_location(name).is_some()));
        assert!(conventional_location("main").is_none());
    }
}

//! Definitions of an object that do not count, because another unit defines the name.

use std::collections::HashSet;

use rustc_hash::FxHashSet;
use uruk_core::{MaterializationResponsibility, SymbolName};

use crate::link::LinkGraph;
use crate::link::graph::{Binding, Location, SymbolId};

/// The definitions of objects that lost against other definitions.
///
/// A definition beyond the unit's promise is either of two things. An exported symbol, or one that the dylib defines elsewhere, lost
/// against another definition: references go there, as a static linker would have it. A hidden symbol without another definition came up
/// during code generation (the personality reference of exception tables is one) and stays local to the object.
pub(super) fn discarded_definitions(
    responsibilities: &[MaterializationResponsibility],
    graph: &LinkGraph<'_>,
) -> HashSet<Box<str>> {
    let (mut discarded, mut hidden) = (HashSet::default(), Vec::new());
    let Some(first) = responsibilities.first() else { return discarded };
    // Of objects that are linked together; mostly it is one.
    let others = responsibilities[1..].iter().flat_map(|responsibility| responsibility.symbols().keys());
    let others: FxHashSet<&SymbolName> = others.collect();
    for (name, exported) in global_definitions(graph) {
        let symbol = first.session().intern(name);
        if first.symbols().contains_key(&symbol) || others.contains(&symbol) {
            continue;
        }
        if exported {
            discarded.insert(name.into());
        } else {
            hidden.push(symbol);
        }
    }
    if !hidden.is_empty() {
        let elsewhere = first.dylib().flags(hidden);
        discarded.extend(elsewhere.into_iter().map(|(name, _)| name.as_str().into()));
    }
    discarded
}

/// Definitions that other objects could refer to by name, and whether other dylibs could.
fn global_definitions<'g>(graph: &'g LinkGraph<'_>) -> impl Iterator<Item = (&'g str, bool)> {
    graph.symbols().iter().enumerate().filter_map(|(index, symbol)| {
        let is_definition = matches!(symbol.location(), Location::Block(..) | Location::Absolute(_));
        let is_global = is_definition && symbol.binding() != Binding::Local;
        is_global.then(|| (graph.symbol_name(SymbolId::of(index)), symbol.is_exported()))
    })
}

//! A simple state for tests: everything of the embedder is a number, there is one dylib, and units have no properties.

use crate::ids::DylibId;
use crate::protocol::state::SessionState;
use crate::protocol::state::lookups::query::Search;
use crate::protocol::state::payload::Payload;
use crate::protocol::symbols::define::Definition;
use crate::{
    JitDylibLookupFlags, LookupKind, LookupSet, RequiredState, SymbolFlags, SymbolFlagsMap, SymbolName,
    SymbolStringPool, TaskPriority,
};

pub(in crate::protocol) enum Numbers {}

impl Payload for Numbers {
    type Unit = u32;
    type Handler = u32;
    type Generator = u32;
    type Resource = u32;
}

/// A state, with names for it, that has the dylib `main`.
pub(in crate::protocol) fn with_main(observed: bool) -> (SessionState<Numbers>, SymbolStringPool, DylibId) {
    let mut state = SessionState::new(observed);
    let main = state.create_dylib("main".into()).expect("the first");
    (state, SymbolStringPool::new(), main)
}

pub(in crate::protocol) fn exported<'a>(names: impl IntoIterator<Item = &'a SymbolName>) -> SymbolFlagsMap {
    names.into_iter().map(|name| (name.clone(), SymbolFlags::EXPORTED)).collect()
}

pub(in crate::protocol) fn definition(unit_name: &SymbolName, symbols: SymbolFlagsMap) -> Definition {
    Definition {
        unit_name: unit_name.clone(),
        symbols,
        initializer: None,
        priority: TaskPriority::Demanded,
        serial_queue: None,
        hints: Default::default(),
        number: None,
        by_task: false,
    }
}

pub(in crate::protocol) fn search(
    dylib: DylibId,
    symbols: LookupSet,
    required_state: RequiredState,
) -> Search {
    Search {
        kind: LookupKind::Static,
        order: [(dylib, JitDylibLookupFlags::MatchAllSymbols)].into_iter().collect(),
        symbols,
        required_state,
        ..Search::default()
    }
}

//! Generators of dylibs, and lookups that are on their way past them.

use std::collections::VecDeque;

use crate::protocol::state::search::Search;
use crate::protocol::storage::ids::{DylibId, GeneratorId, QueryId};
use crate::sync::Arc;
use crate::{SymbolLookupFlags, SymbolName};

/// A generator that was added to a dylib.
#[derive(Debug)]
pub(crate) struct Generator<G> {
    pub(crate) value: G,
    pub(crate) name: Arc<str>,
    pub(crate) dylib: DylibId,
    /// The lookup it has been asked about and not finished. May have ended since.
    pub(crate) occupant: Option<QueryId>,
    /// Lookups that want to ask it next. Some may have ended since.
    pub(crate) queue: VecDeque<QueryId>,
}

/// A lookup on its way along the search order.
#[derive(Debug)]
pub(crate) struct Suspended {
    pub(crate) search: Search,
    /// Symbols that no dylib before `position` defines.
    pub(in crate::protocol) remaining: Vec<(SymbolName, SymbolLookupFlags)>,
    /// The dylib of the order that is being asked.
    pub(in crate::protocol) position: usize,
    /// Its generators that are still to be asked; none until the dylib itself has been searched.
    pub(in crate::protocol) generators: Option<VecDeque<GeneratorId>>,
    /// The generator that is busy with it, or that it has queued up at.
    pub(in crate::protocol) waits_at: Option<GeneratorId>,
    /// That generator has been asked and is busy with it no more, though it has not finished.
    pub(in crate::protocol) apart: Option<Apart>,
}

/// What a generator does for a lookup while it serves others.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    /// Of the lookups that it has made meanwhile so that this one can go on, the last that came to a generator; may have ended.
    pub(in crate::protocol) question: Option<QueryId>,
}

impl Suspended {
    /// The symbols that no dylib so far defines.
    pub(in crate::protocol) fn missing(&self) -> impl Iterator<Item = &SymbolName> {
        self.remaining.iter().map(|(name, _)| name)
    }

    /// Whether this generator goes on with the lookup while it serves others.
    pub(in crate::protocol) fn is_apart_at(&self, generator: GeneratorId) -> bool {
        self.apart.is_some() && self.waits_at == Some(generator)
    }

    pub(crate) fn new(search: Search) -> Self {
        let remaining = search.symbols.0.to_vec();
        Self { search, remaining, position: 0, generators: None, waits_at: None, apart: None }
    }
}

//! Lookup of one symbol that is found at sight: what `lookup.rs` does for any number of them, without lists.
//!
//! Most threads that block ask for one symbol, and mostly for one that a unit is to provide or is providing. Without this
//! `lookup_contended` takes a sixth more, and 790 of 5,200 instructions a lookup more.
//!
//! **Architecture Invariant:** a lookup that is made here does what [`SessionState::lookup`] would do, which `twins.rs` holds beside it.
//! One that is not as usual is left to that, and has changed nothing.

use crate::sync::weakened;
use crate::{JitDylibLookupFlags, LookupSet, RequiredState, SymbolName, TaskPriority};

use crate::protocol::state::{
    Asker, Effects, Entries, Entry, Lodged, Lodging, Order, Payload, Phase, Progress, Query, RisingPriority,
    RowState, Search, SessionState, Source,
};
use crate::protocol::storage::{DylibId, QueryId, RowId};

/// A symbol that shall become Ready.
///
/// Its maker has touched the name's count, so that a cache miss on it does not happen under the lock.
#[derive(Clone, Debug)]
pub(crate) struct Sought {
    pub(crate) name: SymbolName,
    /// See [`Search`] for this and what follows.
    pub(crate) by_task: bool,
    pub(crate) asked_by: Option<Asker>,
    /// None leaves the unit at its own priority.
    pub(crate) priority: Option<TaskPriority>,
}

impl Sought {
    /// The same as any lookup is asked for.
    pub(crate) fn into_search(self, order: Order) -> Search {
        let Self { name, by_task, asked_by, priority } = self;
        Search { order, symbols: LookupSet::one(name), by_task, asked_by, priority, ..Search::default() }
    }
}

impl<P: Payload> SessionState<P> {
    /// Looks one symbol up, if its lookup will wait for a unit and for nothing else. Gives back what it was given otherwise.
    pub(crate) fn lookup_one(
        &mut self,
        sought: Sought,
        order: impl Iterator<Item = (DylibId, JitDylibLookupFlags)>,
        handler: P::Handler,
        effects: &mut Effects<P>,
    ) -> Result<QueryId, (Sought, P::Handler)> {
        let Some(row) = self.at_sight(&sought, order) else { return Err((sought, handler)) };
        let Sought { name, asked_by, priority, .. } = sought;
        let priority = priority.map(RisingPriority::at);
        self.claim(row, priority, effects);
        let progress = Progress::Waiting { previous: Lodging::NONE, next: Lodging::NONE };
        let query = self.lookups.begin(Query {
            handler: Some(handler),
            phase: Phase::Lodged(Lodged {
                required_state: RequiredState::Ready,
                outstanding: 1,
                entries: Entries::from_buf([Entry { name, row, progress }]),
                alias: None,
                ended: false,
            }),
            asked_by: asked_by.map(|asker| asker.claim),
            priority,
        });
        self.lookups.lodge(query, &mut self.definitions);
        // No thread is known to be blocked in it yet, and it is no lookup of aliases: no edge of a cycle appears.
        self.begins_to_need(query, None);
        Ok(query)
    }

    /// The row of the symbol, if nothing could come before it and it is on its way to be Ready or can be sent.
    fn at_sight(
        &self,
        sought: &Sought,
        order: impl Iterator<Item = (DylibId, JitDylibLookupFlags)>,
    ) -> Option<RowId> {
        if !self.admits(sought.by_task) {
            return None;
        }
        let first = self.definitions.first_named(&sought.name)?;
        let mut seen = None;
        for (id, flags) in order {
            // Every dylib of the order must be there.
            let dylib = self.definitions.dylib(id)?;
            if seen.is_some() {
                continue;
            }
            let named = self.definitions.named_in(first, id, &sought.name);
            seen = named.filter(|(_, row)| row.is_seen_with(flags));
            if seen.is_none()
                && !dylib.generators.is_empty()
                && !weakened("generate::at_sight_nobody_is_asked")
            {
                return None;
            }
        }
        let (id, row) = seen?;
        let is_usual = match row.state {
            RowState::NeverSearched { source: Source::Unit(_) } | RowState::Returned { .. } => true,
            _ => row.waiting().is_some(),
        };
        (is_usual && !row.is_for_side_effects_only()).then_some(id)
    }
}

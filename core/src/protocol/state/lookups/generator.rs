//! Generators, and the lookups that wait at them.
//!
//! A lookup that is suspended waits at one generator. That serves it, has it in its queue, serves it apart, or was removed meanwhile.
//!
//! A generator may rule names out, and is not asked for these again. That holds for one count of changes of generators: the count at
//! which it was asked.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::protocol::state::payload::Payload;
use crate::protocol::storage::{DylibId, GeneratorId, QueryId, Takes};
use crate::sync::{Arc, weakened};
use crate::{SymbolLookupFlags, SymbolName};

use super::Lookups;
use super::query::{Phase, Query, Search};

/// A generator that was added to a dylib.
#[derive(Debug)]
pub(crate) struct Generator<G> {
    pub(crate) value: G,
    pub(crate) name: Arc<str>,
    pub(crate) dylib: DylibId,
    /// The lookup it has been asked about and not finished. May have ended since.
    pub(super) occupant: Option<QueryId>,
    /// Lookups that want to ask it next. Some may have ended since.
    pub(super) queue: VecDeque<QueryId>,
    /// Names that it does not have.
    ruled_out: RuledOut,
}

/// Each generator remembers so many names that it does not have.
const RULED_OUT_MAX: usize = 4096;

/// Names that a generator does not have.
#[derive(Debug, Default)]
pub(crate) struct RuledOut {
    pub(crate) symbols: FxHashSet<SymbolName>,
    /// How often generators had changed when it was asked.
    generators_changed: u64,
}

/// A lookup on its way along the search order.
#[derive(Debug)]
pub(crate) struct Suspended {
    pub(crate) search: Search,
    /// Symbols that no dylib before `position` defines.
    pub(crate) remaining: Vec<(SymbolName, SymbolLookupFlags)>,
    /// The dylib of the order that is being asked.
    pub(crate) position: usize,
    /// Its generators that are still to be asked; none until the dylib itself has been searched.
    pub(crate) generators: Option<VecDeque<GeneratorId>>,
    /// The generator that is busy with it, or that it has queued up at.
    pub(super) waits_at: Option<GeneratorId>,
    /// That generator has been asked and is busy with it no more, though it has not finished.
    pub(super) apart: Option<ServedApart>,
}

/// A lookup's state at a generator that serves others meanwhile.
#[derive(Debug, Default)]
pub(super) struct ServedApart {
    /// Of the lookups that it has made meanwhile so that this one can go on, the last that came to a generator; may have ended.
    question: Option<QueryId>,
}

impl Suspended {
    /// The symbols that no dylib so far defines.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &SymbolName> {
        self.remaining.iter().map(|(name, _)| name)
    }

    /// Whether this generator goes on with the lookup while it serves others.
    pub(super) fn is_apart_at(&self, generator: GeneratorId) -> bool {
        self.apart.is_some() && self.waits_at == Some(generator)
    }

    /// The generator that is busy with it, or that it has queued up at.
    pub(crate) fn waits_at(&self) -> Option<GeneratorId> {
        self.waits_at
    }

    /// Whether a generator goes on with it while that serves others.
    pub(crate) fn is_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// Of the lookups that its generator has made apart so that it can go on, the last that came to a generator. May have ended.
    pub(crate) fn question(&self) -> Option<QueryId> {
        self.apart.as_ref()?.question
    }

    pub(crate) fn new(search: Search) -> Self {
        let remaining = search.symbols.0.to_vec();
        Self { search, remaining, position: 0, generators: None, waits_at: None, apart: None }
    }
}

/// The outcome of a lookup's arrival at a generator.
pub(crate) enum Arrival<G> {
    /// The generator is to be asked.
    Served { generator: G, name: Arc<str> },
    /// It is busy: the lookup stands in its queue.
    Queued,
    /// It was removed.
    Gone,
}

impl<G> Generator<G> {
    /// The lookup it has been asked about and not finished. May have ended since.
    pub(crate) fn occupant(&self) -> Option<QueryId> {
        self.occupant
    }

    /// Lookups that want to ask it next. Some may have ended since.
    pub(crate) fn queue(&self) -> impl Iterator<Item = QueryId> {
        self.queue.iter().copied()
    }
}

impl<P: Payload> Lookups<P> {
    /// Adds a generator that serves no lookup yet.
    pub(crate) fn add_generator(
        &mut self,
        value: P::Generator,
        name: Arc<str>,
        dylib: DylibId,
    ) -> GeneratorId {
        self.generators_changed += 1;
        let (queue, ruled_out) = (VecDeque::new(), RuledOut::default());
        self.generators.insert(Generator { value, name, dylib, occupant: None, queue, ruled_out })
    }

    /// The names that a generator that is asked now has ruled out: none yet.
    pub(crate) fn nothing_ruled_out(&self) -> RuledOut {
        RuledOut { symbols: FxHashSet::default(), generators_changed: self.generators_changed }
    }

    /// A generator does not have these symbols. Gives names that are to be dropped.
    pub(crate) fn rule_out(&mut self, generator: GeneratorId, mut ruled_out: RuledOut) -> RuledOut {
        if self.generators_changed == ruled_out.generators_changed
            && let Some(Generator { ruled_out: known, .. }) = self.generators.get_mut(generator)
        {
            let is_like = known.generators_changed == ruled_out.generators_changed;
            if !is_like || known.symbols.len() >= RULED_OUT_MAX {
                std::mem::swap(known, &mut ruled_out);
            } else {
                known.symbols.extend(ruled_out.symbols.drain());
            }
        }
        ruled_out
    }

    /// Whether a generator is known not to have the symbol.
    pub(crate) fn has_ruled_out(&self, generator: GeneratorId, symbol: &SymbolName) -> bool {
        self.generators.get(generator).is_some_and(|Generator { ruled_out, .. }| {
            ruled_out.generators_changed == self.generators_changed && ruled_out.symbols.contains(symbol)
        })
    }

    /// Takes a generator out. Gives the lookups in its queue too, each of which is to be failed.
    pub(crate) fn remove_generator(
        &mut self,
        generator: GeneratorId,
        memory: &mut impl Takes,
    ) -> Option<(Generator<P::Generator>, VecDeque<QueryId>)> {
        let mut generator = self.generators.remove(generator, memory)?;
        let queue = std::mem::take(&mut generator.queue);
        Some((generator, queue))
    }

    /// Takes a suspended lookup out for a walk along its order, which borrows all of the state; to be given back.
    pub(crate) fn take_walker(&mut self, query: QueryId) -> Option<Box<Suspended>> {
        let suspended = self.suspended_mut(query)?;
        Some(std::mem::replace(suspended, Box::new(Suspended::new(Search::default()))))
    }

    /// The lookup has come to a generator on its walk.
    pub(crate) fn arrive(
        &mut self,
        query: QueryId,
        walker: &mut Suspended,
        id: GeneratorId,
    ) -> Arrival<P::Generator> {
        let Some(generator) = self.generators.get_mut(id) else { return Arrival::Gone };
        (walker.waits_at, walker.apart) = (Some(id), None);
        if generator.occupant.is_some() && !weakened("generate::asks_while_it_is_busy") {
            // Lookups that have ended stay in the queue; they make room before it grows.
            if generator.queue.len() == generator.queue.capacity() {
                generator.queue.retain(|query| self.queries.contains(*query));
                // Where most still wait it grows all the same, or each newcomer would pay for another look.
                generator.queue.reserve(generator.queue.len());
            }
            generator.queue.push_back(query);
            return Arrival::Queued;
        }
        generator.occupant = Some(query);
        Arrival::Served { generator: generator.value.clone(), name: generator.name.clone() }
    }

    /// The walk has come to a generator, where the lookup waits.
    pub(crate) fn suspend(&mut self, query: QueryId, walker: Box<Suspended>) {
        let asks = walker.search.on_behalf_of;
        if let Some(suspended) = self.suspended_mut(query) {
            *suspended = walker;
        }
        if let Some(asks) = asks
            && let Some(apart) = self.suspended_mut(asks).and_then(|asks| asks.apart.as_mut())
        {
            apart.question = Some(query);
        }
    }

    /// A generator is no longer busy with a lookup, if it was.
    pub(crate) fn leave_generator(&mut self, generator: GeneratorId, query: QueryId) {
        if let Some(row) = self.generators.get_mut(generator)
            && row.occupant == Some(query)
            && !weakened("generate::keeps_its_place")
        {
            row.occupant = None;
        }
    }

    /// The next lookup in the queue of a generator that is free.
    pub(crate) fn next_in_queue(&mut self, generator: GeneratorId) -> Option<QueryId> {
        let generator = self.generators.get_mut(generator).filter(|row| row.occupant.is_none())?;
        generator.queue.pop_front()
    }

    /// A generator goes on with a lookup apart.
    pub(crate) fn set_apart(&mut self, generator: GeneratorId, query: QueryId) {
        if let Some(suspended) = self.suspended_mut(query) {
            suspended.apart.get_or_insert_default();
        }
        self.leave_generator(generator, query);
    }

    /// A generator comes back for a lookup that it goes on with apart, if it is free.
    pub(crate) fn come_back(&mut self, generator: GeneratorId, query: QueryId) {
        if let Some(row) = self.generators.get_mut(generator)
            && row.occupant.is_none()
            && let Some(Query { phase: Phase::Suspended(suspended), .. }) = self.queries.get_mut(query)
            && suspended.is_apart_at(generator)
        {
            row.occupant = Some(query);
            suspended.apart = None;
        }
    }

    /// The generators that go on with a lookup apart. Walks over all lookups.
    pub(crate) fn serving_apart(&self) -> FxHashSet<GeneratorId> {
        let served_at = |query: &Query<P::Handler>| match &query.phase {
            Phase::Suspended(suspended) => suspended.apart.as_ref().and(suspended.waits_at),
            Phase::Lodged(_) => None,
        };
        self.queries
            .iter()
            .filter(|(_, query)| query.is_live())
            .filter_map(|(_, query)| served_at(query))
            .collect()
    }

    /// Whether a lookup that is made so that another one can go on, or so that one can that is made for it, comes to a generator that
    /// has been asked for that other: its occupant, or one that it serves apart.
    pub(crate) fn leads_back(
        &self,
        search: &Search,
        generator: GeneratorId,
        occupant: Option<QueryId>,
    ) -> bool {
        let mut maker = search.on_behalf_of;
        while let Some(id) = maker.filter(|id| Some(*id) != occupant) {
            maker = match self.queries.get(id) {
                Some(Query { phase: Phase::Suspended(suspended), .. }) => {
                    if suspended.is_apart_at(generator) {
                        return true;
                    }
                    suspended.search.on_behalf_of
                }
                _ => None,
            };
        }
        maker.is_some()
    }

    fn suspended_mut(&mut self, query: QueryId) -> Option<&mut Box<Suspended>> {
        match &mut self.queries.get_mut(query)?.phase {
            Phase::Suspended(suspended) => Some(suspended),
            Phase::Lodged(_) => None,
        }
    }
}

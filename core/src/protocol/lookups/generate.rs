//! Generate: lookups that miss symbols are suspended while definition generators are asked.
//!
//! ```text
//! for each dylib of the order:   drop from `remaining` what the dylib defines visibly
//!     for each generator:        occupied? -> queue up, suspend
//!                                else occupy it, ask, suspend; go on here when it has finished
//! nothing remaining, or order exhausted: match everything again, in one transaction (`lookup.rs`)
//! ```
//!
//! A generator serves one lookup at a time; the others queue at it in order. One that asks other dylibs on behalf of a lookup serves
//! that *apart*, and is free for others meanwhile: two such generators that ask each other's dylibs would otherwise wait for each other.
//! With the answer it comes back for the lookup alone, if it is free.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::failure::shared_error;
use crate::sync::{Arc, weakened};
use crate::{
    EventKind, JitDylibLookupFlags, LookupError, LookupSet, SharedError, SymbolLookupFlags, SymbolName,
};

use crate::protocol::lookups::lookup::Visibility;
use crate::protocol::state::SessionState;
use crate::protocol::state::effects::{Effects, Generation, Leftover};
use crate::protocol::state::generator::{Generator, Suspended};
use crate::protocol::state::payload::Payload;
use crate::protocol::state::query::{Phase, Query};
use crate::protocol::state::search::Search;
use crate::protocol::storage::ids::{DylibId, GeneratorId, QueryId};

/// What a step along the order led to.
enum Step {
    /// All that can be generated has been.
    Done,
    /// Waits for a generator to finish, or to be free.
    Suspend,
    /// The generator is busy with a lookup that waits for this one.
    WaitsForItself(GeneratorId),
    /// The lookup is made so that another one can go on, which has ended.
    AskerGone,
    /// A generator was removed while the lookup was on its way to it.
    GeneratorGone(DylibId),
}

impl<P: Payload> SessionState<P> {
    /// See [`crate::JitDylib::add_generator`]. None if the dylib was removed or the session is closed; the generator
    /// leaves then.
    pub(crate) fn add_generator(
        &mut self,
        dylib: DylibId,
        name: Arc<str>,
        value: P::Generator,
        effects: &mut Effects<P>,
    ) -> Option<GeneratorId> {
        let open = !self.is_closed();
        if !open || !self.definitions.has_dylib(dylib) {
            effects.leave(Leftover::Generator(value));
            return None;
        }
        let id =
            self.generators.insert(Generator { value, name, dylib, occupant: None, queue: VecDeque::new() });
        self.definitions.add_generator(dylib, id);
        Some(id)
    }

    /// See [`crate::JitDylib::remove_generator`].
    pub(crate) fn remove_generator(
        &mut self,
        dylib: DylibId,
        generator: GeneratorId,
        effects: &mut Effects<P>,
    ) -> bool {
        if self.generators.get(generator).is_none_or(|generator| generator.dylib != dylib) {
            return false;
        }
        self.definitions.remove_generator(dylib, generator);
        self.drop_generator(generator, effects);
        true
    }

    /// Lets a generator go that its dylib has no more: lookups in its queue fail, the one it is busy with may still finish.
    pub(crate) fn drop_generator(&mut self, generator: GeneratorId, effects: &mut Effects<P>) {
        let Some(Generator { value, name, dylib, queue, .. }) = self.generators.remove(generator, effects)
        else {
            return;
        };
        effects.leave(Leftover::Generator(value));
        let dylib = self.definitions[dylib].name.clone();
        for query in queue.into_iter().filter(|_| !weakened("generate::removal_forgets_its_queue")) {
            let source = shared_error("it was removed while the lookup waited for it");
            let (dylib, generator) = (dylib.clone(), name.clone());
            self.fail_query(query, LookupError::Generator { dylib, generator, source }, effects);
        }
    }

    /// A generator goes on with a lookup apart: the next in its queue is served.
    pub(crate) fn serve_apart(&mut self, generator: GeneratorId, query: QueryId, effects: &mut Effects<P>) {
        if let Some(Query { phase: Phase::Suspended(suspended), .. }) = self.queries.get_mut(query) {
            suspended.apart.get_or_insert_default();
        }
        self.leave_generator(generator, query);
        self.serve_next(generator, effects);
    }

    /// A generator defines what it has found apart, and serves nobody else until it has finished; unless it is busy with another lookup
    /// at the moment.
    ///
    /// Code of the embedder may run meanwhile that looks for the very same: asked again the generator would find and define it
    /// again, and so on for ever.
    pub(crate) fn serve_alone(&mut self, generator: GeneratorId, query: QueryId) {
        if let Some(row) = self.generators.get_mut(generator)
            && row.occupant.is_none()
            && let Some(Query { phase: Phase::Suspended(suspended), .. }) = self.queries.get_mut(query)
            && suspended.is_apart_at(generator)
        {
            row.occupant = Some(query);
            suspended.apart = None;
        }
    }

    /// A generator has finished with a lookup, which goes on or fails; then the next in its queue is served.
    pub(crate) fn generated(
        &mut self,
        generator: GeneratorId,
        query: QueryId,
        outcome: Result<(), SharedError>,
        effects: &mut Effects<P>,
    ) {
        self.leave_generator(generator, query);
        match outcome {
            Ok(()) => self.advance(query, effects),
            Err(source) => {
                let error = self.generator_error(generator, source);
                self.fail_query(query, error, effects);
            }
        }
        self.serve_next(generator, effects);
    }

    fn leave_generator(&mut self, generator: GeneratorId, query: QueryId) {
        if let Some(row) = self.generators.get_mut(generator)
            && row.occupant == Some(query)
            && !weakened("generate::keeps_its_place")
        {
            row.occupant = None;
        }
    }

    fn serve_next(&mut self, generator: GeneratorId, effects: &mut Effects<P>) {
        while let Some(row) = self.generators.get_mut(generator)
            && row.occupant.is_none()
            && let Some(next) = row.queue.pop_front()
        {
            self.advance(next, effects);
            if weakened("generate::serves_one_even_if_it_has_ended") {
                break;
            }
        }
    }

    /// Moves a suspended lookup along its order, as far as it comes without waiting.
    pub(crate) fn advance(&mut self, query: QueryId, effects: &mut Effects<P>) {
        let Some(Query { phase: Phase::Suspended(suspended), .. }) = self.queries.get_mut(query) else {
            return;
        };
        let asks = suspended.search.on_behalf_of;
        // Taken out for the walk, which borrows the whole state.
        let mut walker = std::mem::replace(suspended, Box::new(Suspended::new(Search::default())));
        let step = loop {
            match self.step(query, &mut walker, effects) {
                Some(step) => break step,
                None => {
                    walker.position += 1;
                    walker.generators = None;
                }
            }
        };
        match step {
            Step::Suspend => {
                if let Some(Query { phase: Phase::Suspended(suspended), .. }) = self.queries.get_mut(query) {
                    *suspended = walker;
                }
                if let Some(asks) = asks
                    && let Some(Query { phase: Phase::Suspended(asks), .. }) = self.queries.get_mut(asks)
                    && let Some(apart) = &mut asks.apart
                {
                    apart.question = Some(query);
                }
            }
            Step::Done => self.conclude(query, walker, effects),
            // Heard by a request whose lookup is gone.
            Step::AskerGone => self.fail_query(query, LookupError::Closed, effects),
            Step::WaitsForItself(generator) => {
                let source = shared_error(
                    "what it is asked for leads back to it; define the symbol in one of the dylibs",
                );
                let error = self.generator_error(generator, source);
                self.set_phase(query, Phase::Suspended(walker));
                self.fail_query(query, error, effects);
            }
            Step::GeneratorGone(dylib) => {
                let dylib = self.definitions[dylib].name.clone();
                let source = shared_error("it was removed while the lookup was on its way to it");
                let error = LookupError::Generator { dylib, generator: "(removed)".into(), source };
                self.set_phase(query, Phase::Suspended(walker));
                self.fail_query(query, error, effects);
            }
        }
    }

    /// Searches the dylib at the lookup's position and asks its next generator. Nothing when the lookup may
    /// go on to the next dylib.
    fn step(&mut self, query: QueryId, walker: &mut Suspended, effects: &mut Effects<P>) -> Option<Step> {
        let Some(&(dylib, flags)) = walker.search.order.get(walker.position) else { return Some(Step::Done) };
        let ahead = walker.generators.as_ref();
        // Those that are removed before the lookup comes to them are not passed over.
        let asks = ahead.map_or(!self.definitions[dylib].generators.is_empty(), |ahead| !ahead.is_empty());
        let candidates = self.drop_defined(dylib, flags, asks, &mut walker.remaining);
        if walker.remaining.is_empty() {
            return Some(Step::Done);
        }
        let row = &self.definitions[dylib];
        let generators = walker.generators.get_or_insert_with(|| row.generators.iter().copied().collect());
        if candidates.is_empty() {
            return None;
        }
        let id = *generators.front()?;
        // Whoever asks may have been told that it waits for itself: the answer would lead to the same again, and so on for ever.
        let asks = walker.search.on_behalf_of;
        if asks.is_some_and(|asks| !self.queries.get(asks).is_some_and(Query::is_live)) {
            return Some(Step::AskerGone);
        }
        let occupant = self.generators.get(id).and_then(|generator| generator.occupant);
        if self.leads_back(&walker.search, id, occupant) {
            return Some(Step::WaitsForItself(id));
        }
        let Some(generator) = self.generators.get_mut(id) else { return Some(Step::GeneratorGone(dylib)) };
        (walker.waits_at, walker.apart) = (Some(id), None);
        if generator.occupant.is_some() && !weakened("generate::asks_while_it_is_busy") {
            // Lookups that have ended stay in the queue; they make room before it grows.
            if generator.queue.len() == generator.queue.capacity() {
                generator.queue.retain(|query| self.queries.contains(*query));
                // Where most still wait it grows all the same, or each newcomer would pay for another look.
                generator.queue.reserve(generator.queue.len());
            }
            generator.queue.push_back(query);
            return Some(Step::Suspend);
        }
        generators.pop_front();
        generator.occupant = Some(query);
        let (value, name) = (generator.value.clone(), generator.name.clone());
        let dylib_name = row.name.clone();
        if self.observed {
            let (dylib, generator) = (dylib_name.clone(), name);
            self.observe(effects, || EventKind::Generating { dylib, generator });
        }
        effects.more().generations.push(Generation {
            generator: value,
            id,
            query,
            dylib,
            dylib_name,
            kind: walker.search.kind,
            lookup_flags: flags,
            symbols: LookupSet(candidates.into()),
        });
        Some(Step::Suspend)
    }

    /// The generators that go on with a lookup apart. Walks over all lookups.
    pub(in crate::protocol) fn serving_apart(&self) -> FxHashSet<GeneratorId> {
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
    fn leads_back(&self, search: &Search, generator: GeneratorId, occupant: Option<QueryId>) -> bool {
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

    /// Drops from `remaining` what the dylib defines visibly, and gives what its generators may be asked
    /// for if it `asks`: not what a hidden symbol matched.
    fn drop_defined(
        &self,
        dylib: DylibId,
        flags: JitDylibLookupFlags,
        asks: bool,
        remaining: &mut Vec<(SymbolName, SymbolLookupFlags)>,
    ) -> Vec<(SymbolName, SymbolLookupFlags)> {
        let mut candidates = Vec::new();
        remaining.retain(|(name, lookup_flags)| match self.visibility(dylib, name, flags) {
            Visibility::Visible => false,
            Visibility::Hidden => true,
            Visibility::Undefined => {
                if asks {
                    candidates.push((name.clone(), *lookup_flags));
                }
                true
            }
        });
        candidates
    }

    /// Fails every suspended lookup whose order names `dylib`, which is about to be removed.
    pub(crate) fn fail_suspended_in(&mut self, dylib: DylibId, effects: &mut Effects<P>) {
        let names_it = |query: &Query<P::Handler>| match &query.phase {
            Phase::Suspended(suspended) => suspended.search.order.iter().any(|(id, _)| *id == dylib),
            Phase::Lodged(_) => false,
        };
        let queries: Vec<_> =
            self.queries.iter().filter(|(_, query)| names_it(query)).map(|(id, _)| id).collect();
        let name = self.definitions[dylib].name.clone();
        for query in queries {
            self.fail_query(query, LookupError::DylibRemoved { dylib: name.clone() }, effects);
        }
    }

    fn generator_error(&self, generator: GeneratorId, source: SharedError) -> LookupError {
        let Some(Generator { name, dylib, .. }) = self.generators.get(generator) else {
            return LookupError::Generator {
                dylib: "(removed)".into(),
                generator: "(removed)".into(),
                source,
            };
        };
        let dylib = self.definitions[*dylib].name.clone();
        LookupError::Generator { dylib, generator: name.clone(), source }
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use crate::RequiredState;
    use crate::protocol::tests::numbers::{search, with_main};

    #[test]
    fn lookups_withdrawn_from_a_queue_leave_no_trace() {
        let (mut state, pool, dylib) = with_main(false);
        let mut effects = Effects::default();
        let generator = state.add_generator(dylib, "busy".into(), 0, &mut effects).unwrap();
        let name = pool.intern("a");
        for round in 0..10_000 {
            let search = search(dylib, LookupSet::one(name.clone()), RequiredState::Ready);
            let query = state.lookup(search, round, |_| "main".into(), &mut effects).unwrap();
            if round > 0 {
                state.withdraw(query, &mut effects);
            }
        }
        assert!(state.generators[generator].queue.len() < 100, "{}", state.generators[generator].queue.len());
    }
}

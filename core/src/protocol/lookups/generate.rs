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

use crate::shared_error;
use crate::sync::{Arc, weakened};
use crate::{
    EventKind, JitDylibLookupFlags, LookupError, LookupSet, SharedError, SymbolLookupFlags, SymbolName,
};

use crate::protocol::lookups::lookup::Visibility;
use crate::protocol::state::{
    Arrival, Effects, Generation, Generator, Leftover, Payload, Phase, Query, RuledOut, SessionState,
    Suspended,
};
use crate::protocol::storage::{DylibId, GeneratorId, QueryId};

/// The result of a step along the order.
enum WalkStep {
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
        let id = self.lookups.add_generator(value, name, dylib);
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
        if self.lookups.generator(generator).is_none_or(|generator| generator.dylib != dylib) {
            return false;
        }
        self.definitions.remove_generator(dylib, generator);
        self.drop_generator(generator, effects);
        true
    }

    /// Lets a generator go that its dylib has no more: lookups in its queue fail, the one it is busy with may still finish.
    pub(crate) fn drop_generator(&mut self, generator: GeneratorId, effects: &mut Effects<P>) {
        let Some((generator, queue)) = self.lookups.remove_generator(generator, effects) else { return };
        let Generator { value, name, dylib, .. } = generator;
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
        self.lookups.set_apart(generator, query);
        self.serve_next(generator, effects);
    }

    /// A generator that serves a lookup apart defines its finds, and serves no other lookup until it has finished; unless it is busy
    /// with another lookup at the moment.
    ///
    /// Code of the embedder may run meanwhile that looks for the very same: asked again the generator would find and define it
    /// again, and so on for ever.
    pub(crate) fn serve_alone(&mut self, generator: GeneratorId, query: QueryId) {
        self.lookups.come_back(generator, query);
    }

    /// A generator has finished with a lookup, which goes on or fails; then the next in its queue is served.
    pub(crate) fn generated(
        &mut self,
        generator: GeneratorId,
        query: QueryId,
        outcome: Result<(), SharedError>,
        effects: &mut Effects<P>,
    ) {
        self.lookups.leave_generator(generator, query);
        match outcome {
            Ok(()) => self.advance(query, effects),
            Err(source) => {
                let error = self.generator_error(generator, source);
                self.fail_query(query, error, effects);
            }
        }
        self.serve_next(generator, effects);
    }

    /// See [`crate::GenerateRequest::rule_out`]. Gives names that are to be dropped.
    pub(crate) fn rule_out(&mut self, generator: GeneratorId, ruled_out: RuledOut) -> RuledOut {
        self.lookups.rule_out(generator, ruled_out)
    }

    /// Whether a generator of the order might provide `symbol`.
    pub(super) fn may_generate(&self, symbol: &SymbolName, order: &[(DylibId, JitDylibLookupFlags)]) -> bool {
        let mut generators = order.iter().flat_map(|(dylib, _)| self.definitions[*dylib].generators.iter());
        generators.any(|id| !self.lookups.has_ruled_out(*id, symbol))
    }

    fn serve_next(&mut self, generator: GeneratorId, effects: &mut Effects<P>) {
        while let Some(next) = self.lookups.next_in_queue(generator) {
            self.advance(next, effects);
            if weakened("generate::serves_one_even_if_it_has_ended") {
                break;
            }
        }
    }

    /// Moves a suspended lookup along its order, as far as it comes without waiting.
    pub(crate) fn advance(&mut self, query: QueryId, effects: &mut Effects<P>) {
        let Some(mut walker) = self.lookups.take_walker(query) else { return };
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
            WalkStep::Suspend => self.lookups.suspend(query, walker),
            WalkStep::Done => self.conclude(query, walker, effects),
            // Heard by a request whose lookup is gone.
            WalkStep::AskerGone => self.fail_query(query, LookupError::Closed, effects),
            WalkStep::WaitsForItself(generator) => {
                let source = shared_error(
                    "what it is asked for leads back to it; define the symbol in one of the dylibs",
                );
                let error = self.generator_error(generator, source);
                self.lookups.set_phase(query, Phase::Suspended(walker));
                self.fail_query(query, error, effects);
            }
            WalkStep::GeneratorGone(dylib) => {
                let dylib = self.definitions[dylib].name.clone();
                let source = shared_error("it was removed while the lookup was on its way to it");
                let error = LookupError::Generator { dylib, generator: "(removed)".into(), source };
                self.lookups.set_phase(query, Phase::Suspended(walker));
                self.fail_query(query, error, effects);
            }
        }
    }

    /// Searches the dylib at the lookup's position and asks its next generator. Nothing when the lookup may
    /// go on to the next dylib.
    fn step(&mut self, query: QueryId, walker: &mut Suspended, effects: &mut Effects<P>) -> Option<WalkStep> {
        let Some(&(dylib, flags)) = walker.search.order.get(walker.position) else {
            return Some(WalkStep::Done);
        };
        let ahead = walker.generators.as_ref();
        // Those that are removed before the lookup comes to them are not passed over.
        let asks = ahead.map_or(!self.definitions[dylib].generators.is_empty(), |ahead| !ahead.is_empty());
        let mut candidates = self.drop_defined(dylib, flags, asks, &mut walker.remaining);
        if walker.remaining.is_empty() {
            return Some(WalkStep::Done);
        }
        let row = &self.definitions[dylib];
        let generators = walker.generators.get_or_insert_with(|| row.generators.iter().copied().collect());
        if candidates.is_empty() {
            return None;
        }
        while let Some(&id) = generators.front()
            && candidates.iter().all(|(symbol, _)| self.lookups.has_ruled_out(id, symbol))
        {
            generators.pop_front();
        }
        let id = *generators.front()?;
        candidates.retain(|(symbol, _)| !self.lookups.has_ruled_out(id, symbol));
        // The asking lookup may have failed because it waits for itself: the answer would lead to the same again, and so on for
        // ever.
        let asks = walker.search.on_behalf_of;
        if asks.is_some_and(|asks| self.lookups.live(asks).is_none()) {
            return Some(WalkStep::AskerGone);
        }
        let occupant = self.lookups.generator(id).and_then(Generator::occupant);
        if self.lookups.leads_back(&walker.search, id, occupant) {
            return Some(WalkStep::WaitsForItself(id));
        }
        let (generator, name) = match self.lookups.arrive(query, walker, id) {
            Arrival::Served { generator, name } => (generator, name),
            Arrival::Queued => return Some(WalkStep::Suspend),
            Arrival::Gone => return Some(WalkStep::GeneratorGone(dylib)),
        };
        if let Some(ahead) = &mut walker.generators {
            ahead.pop_front();
        }
        let dylib_name = row.name.clone();
        if self.events.is_observed() {
            let (dylib, generator) = (dylib_name.clone(), name);
            self.observe(effects, || EventKind::Generating { dylib, generator });
        }
        effects.more().generations.push(Generation {
            generator,
            id,
            query,
            dylib,
            dylib_name,
            kind: walker.search.kind,
            lookup_flags: flags,
            symbols: LookupSet(candidates.into()),
            ruled_out: self.lookups.nothing_ruled_out(),
        });
        Some(WalkStep::Suspend)
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
            self.lookups.queries().filter(|(_, query)| names_it(query)).map(|(id, _)| id).collect();
        let name = self.definitions[dylib].name.clone();
        for query in queries {
            self.fail_query(query, LookupError::DylibRemoved { dylib: name.clone() }, effects);
        }
    }

    fn generator_error(&self, generator: GeneratorId, source: SharedError) -> LookupError {
        let Some(Generator { name, dylib, .. }) = self.lookups.generator(generator) else {
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
        assert!(
            state.lookups[generator].queue().count() < 100,
            "{}",
            state.lookups[generator].queue().count()
        );
    }
}

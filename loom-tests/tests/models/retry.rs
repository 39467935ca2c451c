//! Retry: what a unit misses comes while it fails, and threads look its symbol up.
//!
//! ```text
//!  lookup(needs)                      another thread
//!  the unit looks `late` up:
//!    the search begins, asks who is there
//!                                ◀──  a definition, or a generator that knows one
//!    the search ends: not found
//!  fails for the want of `late`
//!                                     lookup(needs): it may have come ─ the spare takes the place of what failed
//! ```
//!
//! Proven, in every order with at most three preemptions: when both have ended, a lookup finds the symbol. However many ask, there is one
//! further attempt for what has come.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `retry::counts_changes_when_the_search_ends`: a failure is compared with what there is when its search ends, not when it begins | `core/src/protocol/lookups/lookup.rs` | `a_generator_that_comes_while_a_unit_fails_is_asked_by_the_next_lookup` |
//! | `retry::overlooks_definitions`: a definition of what was missing is no reason for another attempt | `core/src/protocol/lookups/anew.rs` | `threads_that_ask_at_once_have_it_made_once_more` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, model_within, resolve_and_emit, unit};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{
    DefinitionGenerator, GenerateRequest, JitDylib, LookupRequest, LookupSet, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, SymbolFlags, SymbolName,
};

const PREEMPTIONS_MAX: usize = 3;

/// ```text
///  main: lookup(needs)        another: add_generator
/// ```
#[test]
fn a_generator_that_comes_while_a_unit_fails_is_asked_by_the_next_lookup() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let needy = Needy::on(&stage);
        stage.dylib.add_generator(Arc::new(Knows(None))).expect("the dylib is there");
        let other = thread::spawn({
            let (stage, late) = (stage.clone(), needy.late.clone());
            move || stage.dylib.add_generator(Arc::new(Knows(Some(late)))).expect("the dylib is there")
        });
        let _ = stage.lookup(&needy.name);
        other.join().expect("no panic");
        stage.lookup(&needy.name).expect("it has come");
        // Relaxed: both threads have been joined.
        assert!(needy.made.load(Ordering::Relaxed) <= 2);
    });
}

/// ```text
///  main: lookup(needs)        another: lookup(needs)        both: after it has failed, and `late` has come
/// ```
#[test]
fn threads_that_ask_at_once_have_it_made_once_more() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let needy = Needy::on(&stage);
        stage.lookup(&needy.name).expect_err("nothing defines what it needs");
        stage.define(&[&needy.late], resolve_and_emit);
        let other = stage.lookup_beside(&needy.name);
        stage.lookup(&needy.name).expect("it has come");
        other.join().expect("no panic").expect("it has come");
        // Relaxed: both threads have been joined.
        assert_eq!(needy.made.load(Ordering::Relaxed), 2);
    });
}

/// A unit that needs `late`.
#[derive(Clone)]
struct Needy {
    name: SymbolName,
    late: SymbolName,
    made: Arc<AtomicUsize>,
}

impl Needy {
    fn on(stage: &Stage) -> Self {
        let [name, late] = ["needs", "late"].map(|name| stage.session.intern(name));
        let needy = Self { name, late, made: Arc::new(AtomicUsize::new(0)) };
        stage.dylib.define(Box::new(needy.clone())).expect("a new name");
        needy
    }
}

impl MaterializationUnit for Needy {
    fn name(&self) -> &str {
        "needy"
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new([(self.name.clone(), SymbolFlags::EXPORTED)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        // Relaxed: read when all threads have been joined.
        self.made.fetch_add(1, Ordering::Relaxed);
        let late = LookupRequest::along(responsibility.dylib(), LookupSet::one(self.late));
        match responsibility.session().lookup(late) {
            Ok(_) => resolve_and_emit(responsibility),
            Err(error) => responsibility.fail(std::sync::Arc::new(error)),
        }
    }

    fn spare(&self) -> Option<Box<dyn MaterializationUnit>> {
        Some(Box::new(self.clone()))
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

/// A generator of one symbol, or of none.
struct Knows(Option<SymbolName>);

impl DefinitionGenerator for Knows {
    fn name(&self) -> &str {
        "knows"
    }

    fn generate(&self, request: GenerateRequest) {
        if let Some(name) = &self.0
            && request.symbols().iter().any(|(asked, _)| asked == name)
        {
            request.dylib().define(unit(&[name], resolve_and_emit)).expect("nothing defines it");
        }
        request.finish(Ok(()));
    }
}

loom_tests::catches_its_weakenings!();

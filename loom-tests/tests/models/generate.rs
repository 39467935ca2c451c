//! Generate: a lookup is suspended at a generator and finished on another thread, while others queue and the generator goes.
//!
//! ```text
//!  first lookup            generator             second lookup           finisher
//!  occupies it     ──▶     keeps the request
//!  waits                                         queues up, waits
//!                                                                        define ─ finish the request:
//!  matches again, lodges                                                 the place is free, the first lookup goes on,
//!                          is asked        ◀──   occupies it       ◀──   the next in the queue that still lives is served
//! ```
//!
//! Proven, in every order with at most three preemptions: a generator has one lookup at a time; every lookup is answered, also
//! if others of the queue were given up; the removal of the generator leaves no lookup in its queue (I12).
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `generate::asks_while_it_is_busy`: a lookup does not ask whether the generator has another | `core/src/protocol/state/lookups/generator.rs` | `a_lookup_queues_behind_a_suspended_one` |
//! | `generate::keeps_its_place`: a finished request does not free the generator before its queue is served | `core/src/protocol/state/lookups/generator.rs` | `a_lookup_queues_behind_a_suspended_one` |
//! | `generate::serves_one_even_if_it_has_ended`: a lookup that was given up takes the turn of the next | `core/src/protocol/lookups/generate.rs` | `a_lookup_given_up_in_the_queue_costs_nobody_their_turn` |
//! | `generate::removal_forgets_its_queue`: a generator goes, and lookups that queued there stay | `core/src/protocol/lookups/generate.rs` | `a_generator_that_goes_leaves_nobody_in_its_queue` |
//! | `generate::overlooks_what_comes_before`: a lookup overlooks generators that come before what it finds | `core/src/protocol/lookups/lookup.rs` | `what_a_generator_defines_comes_before_what_lies_behind_it` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, definition, model_within, resolve_and_emit, unit};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{
    DefinitionGenerator, DetachedRequest, GenerateRequest, JitDylibLookupFlags, LookupError, SearchOrder,
};

/// More add nothing but time: three threads meet at one lock.
const PREEMPTIONS_MAX: usize = 3;

/// ```text
///  main: lookup(b)        another: lookup(c)        finisher: finishes a's request
/// ```
#[test]
fn a_lookup_queues_behind_a_suspended_one() {
    model_within(PREEMPTIONS_MAX, || {
        let (stage, keeper, told) = suspended();
        let [b, c] = ["b", "c"].map(|name| stage.session.intern(name));
        let finisher = thread::spawn(move || keeper.finish());
        let other = thread::spawn({
            let stage = stage.clone();
            move || stage.lookup(&c)
        });
        assert_eq!(stage.lookup(&b).expect("found"), definition());
        assert_eq!(other.join().expect("no panic").expect("found"), definition());
        finisher.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  main: gives up b           another: lookup(c)        finisher: finishes a's request
/// ```
#[test]
fn a_lookup_given_up_in_the_queue_costs_nobody_their_turn() {
    model_within(PREEMPTIONS_MAX, || {
        let (stage, keeper, told) = suspended();
        let [b, c] = ["b", "c"].map(|name| stage.session.intern(name));
        let given_up = stage.session.lookup_future(stage.request(&b));
        let finisher = thread::spawn(move || keeper.finish());
        let other = thread::spawn({
            let stage = stage.clone();
            move || stage.lookup(&c)
        });
        drop(given_up);
        assert_eq!(other.join().expect("no panic").expect("found"), definition());
        finisher.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  main: removes the generator        another: lookup(b)        finisher: finishes a's request
/// ```
#[test]
fn a_generator_that_goes_leaves_nobody_in_its_queue() {
    model_within(PREEMPTIONS_MAX, || {
        let (stage, keeper, told) = suspended();
        let b = stage.session.intern("b");
        let generator = keeper.generator;
        let finisher = thread::spawn(move || keeper.finish());
        let other = thread::spawn({
            let stage = stage.clone();
            move || stage.lookup(&b)
        });
        assert!(stage.dylib.remove_generator(generator));
        match other.join().expect("no panic") {
            Ok(found) => assert_eq!(found, definition()),
            Err(LookupError::Generator { .. } | LookupError::NotFound { .. }) => {}
            Err(error) => panic!("neither found, missing nor refused: {error}"),
        }
        finisher.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  main, another: lookup(a) ─ at the generator's dylib ─ behind it
/// ```
#[test]
fn what_a_generator_defines_comes_before_what_lies_behind_it() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let a = stage.session.intern("a");
        let behind = stage.define_counted(&[&a]);
        let first = stage.session.create_jit_dylib("first").expect("its name is new");
        let busy = Arc::new(AtomicUsize::new(0));
        // It has been asked before, and keeps nothing.
        let generator = Generator { kept: Arc::default(), asked: AtomicUsize::new(1), busy };
        first.add_generator(Arc::new(generator)).expect("the session is open");
        let all = JitDylibLookupFlags::MatchAllSymbols;
        let order = SearchOrder::from([(first, all), (stage.dylib.clone(), all)]);
        let other = thread::spawn({
            let (stage, a, order) = (stage.clone(), a.clone(), order.clone());
            move || stage.session.lookup_symbol(&order, &a)
        });
        assert_eq!(stage.session.lookup_symbol(&order, &a).expect("found"), definition());
        assert_eq!(other.join().expect("no panic").expect("found"), definition());
        assert_eq!(behind.load(Ordering::Relaxed), 0, "nobody has come to it");
    });
}

/// Defines what it is asked for. It keeps its first request, and finishes all others at once.
struct Generator {
    kept: Arc<Mutex<Option<DetachedRequest>>>,
    asked: AtomicUsize,
    busy: Arc<AtomicUsize>,
}

impl DefinitionGenerator for Generator {
    fn name(&self) -> &str {
        "keeper"
    }

    fn generate(&self, request: GenerateRequest) {
        // Relaxed, here and below: the session's lock orders a request behind the end of the one before.
        assert_eq!(self.busy.fetch_add(1, Ordering::Relaxed), 0, "it has one lookup at a time");
        if self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
            *self.kept.lock() = Some(request.detach());
        } else {
            provide(request, &self.busy);
        }
    }
}

/// The first request, to be finished on any thread.
struct Keeper {
    request: DetachedRequest,
    busy: Arc<AtomicUsize>,
    generator: uruk_core::GeneratorId,
}

impl Keeper {
    fn finish(self) {
        provide(self.request.attach(), &self.busy);
    }
}

fn provide(request: GenerateRequest, busy: &AtomicUsize) {
    for (name, _) in request.symbols().iter() {
        request.dylib().define(unit(&[name], resolve_and_emit)).expect("nobody else defines it");
    }
    busy.fetch_sub(1, Ordering::Relaxed);
    request.finish(Ok(()));
}

/// A stage with a generator that is busy with a lookup of `a`, and how often that lookup was told that `a` is found.
fn suspended() -> (Arc<Stage>, Keeper, Arc<AtomicUsize>) {
    let stage = Stage::new();
    let (kept, busy, told) =
        (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let generator = Generator { kept: kept.clone(), asked: AtomicUsize::new(0), busy: busy.clone() };
    let generator = stage.dylib.add_generator(Arc::new(generator)).expect("the session is open");
    let a = stage.session.intern("a");
    stage.session.lookup_async(stage.request(&a), {
        let told = told.clone();
        move |found| {
            assert_eq!(found.expect("found").get(&a), Some(definition()));
            told.fetch_add(1, Ordering::Relaxed);
        }
    });
    let request = kept.lock().take().expect("the generator was asked on this thread");
    (stage, Keeper { request, busy, generator }, told)
}

loom_tests::catches_its_weakenings!();

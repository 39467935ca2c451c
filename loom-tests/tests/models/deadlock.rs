//! Deadlock: two threads block on each other's symbols.
//!
//! ```text
//!  thread 1                                     thread 2
//!  lookup a: run unit A                         lookup b: run unit B
//!    lookup b: lodge, tell what it holds          lookup a: lodge, tell what it holds
//!    no cycle yet: wait                           a cycle: WouldDeadlock
//!     ⋮                                           fail b
//!    b failed: fail a                     ◀──
//! ```
//!
//! Models have no clock. A thread looks when it begins to wait and when it is about to sleep; a thread that brings the last edge about looks
//! on behalf of those that sleep already, as they would themselves some time later.
//!
//! Proven, in every order with at most three preemptions: exactly one of the two lookups is told of the cycle, whichever thread
//! runs which unit; both clients' lookups end, with a failure. The last edge may be an emission, an alias that leads back, or a
//! wait for a turn. Then the blocked thread is told, whether it was blocked before or comes later. If another thread finishes a
//! detached responsibility, no lookup is told and all find their symbols. That holds even if the thread that detached it is
//! blocked in the same cycle. No lookup is told of a cycle that a removal is about to end. At most two preemptions if there are
//! three threads.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `deadlock::never_looks`: a blocked thread does not look for a cycle | `core/src/protocol/deadlock/look.rs` | `two_units_that_block_on_each_other_are_told_once` |
//! | `deadlock::looks_only_once`: it looks when it begins to wait, and not again after the last edge has appeared | `core/src/protocol/deadlock/look.rs` | `an_emission_may_close_the_circle` |
//! | `deadlock::looks_only_once`: the same | `core/src/protocol/deadlock/look.rs` | `an_alias_may_close_the_circle` |
//! | `deadlock::looks_only_once`: the same | `core/src/protocol/deadlock/look.rs` | `a_replacement_that_waits_for_its_turn_may_close_the_circle` |
//! | `deadlock::looks_while_rows_fall`: it looks between two slices of a removal | `core/src/protocol/deadlock/look.rs` | `who_comes_during_a_removal_is_not_told_of_what_that_ends` |
//! | `deadlock::detach_keeps_the_hold`: a thread goes on holding what it has detached | `core/src/session/responsibility/duty.rs` | `a_circle_through_what_was_detached_is_waited_for` |
//!
//! In no row: `what_another_thread_finishes_is_waited_for`, where the thread that has detached has ended its unit, and so holds
//! nothing; `a_circle_through_what_was_detached_is_waited_for` is the one that could close the circle. All but the first row need an
//! interleaving: the last edge comes before the wait as well as after it, and B before the removal, during it and after it.
#![cfg(uruk_loom)]

use loom_tests::stage::{
    Stage, definition, emit_beside, model, model_within, resolve, resolve_and_emit, unit,
};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{
    AliasTarget, DependenceGroup, JitDylib, LookupError, LookupRequest, LookupSet, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, SerialQueue, SymbolFlags, SymbolName, symbol_aliases,
};

loom_tests::catches_its_weakenings!();

/// Defines `symbol`, whose unit blocks in a lookup of `needs`.
fn define_blocking(stage: &Arc<Stage>, symbol: &SymbolName, needs: &SymbolName, told: &Arc<AtomicUsize>) {
    stage.dylib.define(blocking_unit(stage, symbol, needs, told)).expect("names are new");
}

/// A unit of `symbol` that blocks in a lookup of `needs`, and counts in `told` if it is told of a cycle.
fn blocking_unit(
    stage: &Arc<Stage>,
    symbol: &SymbolName,
    needs: &SymbolName,
    told: &Arc<AtomicUsize>,
) -> Box<dyn MaterializationUnit> {
    let (needs, told, looking) = (needs.clone(), told.clone(), Arc::downgrade(stage));
    unit(&[symbol], move |responsibility| {
        let stage = looking.upgrade().expect("the stage outlives its units");
        match stage.lookup(&needs) {
            Ok(_) => resolve(responsibility).notify_emitted(Vec::new()).expect("nothing can refuse it"),
            Err(error) => {
                let cycle = matches!(error, LookupError::WouldDeadlock { .. });
                // Relaxed: read after both threads have been joined.
                told.fetch_add(usize::from(cycle), Ordering::Relaxed);
                responsibility.fail(Arc::new(error));
            }
        }
    })
}

#[test]
fn two_units_that_block_on_each_other_are_told_once() {
    model(|| {
        let stage = Stage::new();
        let (a, b) = (stage.session.intern("a"), stage.session.intern("b"));
        let told = Arc::new(AtomicUsize::new(0));
        define_blocking(&stage, &a, &b, &told);
        define_blocking(&stage, &b, &a, &told);
        let other = thread::spawn({
            let (stage, b) = (stage.clone(), b.clone());
            move || stage.lookup(&b)
        });
        assert!(matches!(stage.lookup(&a), Err(LookupError::Failed(_))));
        assert!(matches!(other.join().expect("no panic"), Err(LookupError::Failed(_))));
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  thread 1: lookup b ─ unit B blocks for a ─ …     thread 2: attach a ─ resolve ─ emit
/// ```
#[test]
fn what_another_thread_finishes_is_waited_for() {
    model(|| {
        let stage = Stage::new();
        let (a, b) = (stage.session.intern("a"), stage.session.intern("b"));
        let told = Arc::new(AtomicUsize::new(0));
        let emitter = Arc::new(Mutex::new(None));
        stage.define(&[&a], {
            let emitter = emitter.clone();
            move |responsibility| {
                let parked = responsibility.detach();
                let thread = thread::spawn(move || {
                    resolve(parked.attach()).notify_emitted(Vec::new()).expect("nothing can refuse it");
                });
                *emitter.lock() = Some(thread);
            }
        });
        define_blocking(&stage, &b, &a, &told);
        assert_eq!(stage.lookup(&b).expect("found"), definition());
        let emitter = emitter.lock().take().expect("the unit ran");
        emitter.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 0);
    });
}

/// ```text
///  thread 1: lookup a ─ unit A detaches a ─ lookup b ─ …     thread 2: lookup b ─ unit B: lookup a ─ …
///  thread 3: attach a ─ resolve ─ emit
/// ```
///
/// A circle but for the detaching, whenever thread 3 comes last. Threads 2 and 3 begin in unit A: on thread 2 it would lie
/// above unit B, which is a circle of its own.
#[test]
fn a_circle_through_what_was_detached_is_waited_for() {
    model_within(2, || {
        let stage = Stage::new();
        let (a, b) = (stage.session.intern("a"), stage.session.intern("b"));
        let told = Arc::new(AtomicUsize::new(0));
        let threads = Arc::new(Mutex::new(None));
        stage.define(&[&a], {
            let (b, threads, looking) = (b.clone(), threads.clone(), Arc::downgrade(&stage));
            move |responsibility| {
                let stage = looking.upgrade().expect("the stage outlives its units");
                let parked = responsibility.detach();
                *threads.lock() = Some((stage.lookup_beside(&b), emit_beside(parked)));
                // The result is ignored: the client's lookups below show whether a unit failed.
                let _ = stage.lookup(&b);
            }
        });
        define_blocking(&stage, &b, &a, &told);
        assert_eq!(stage.lookup(&a).expect("found"), definition());
        let (other, emitter) = threads.lock().take().expect("the unit ran");
        let found = other.join().expect("no panic");
        emitter.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 0);
        assert_eq!(found.expect("found"), definition());
        assert_eq!(stage.lookup(&b).expect("found"), definition());
    });
}

/// ```text
///  thread 1: lookup a ─ unit A: lookup x ─ …     thread 2: emit x as depending on a
/// ```
#[test]
fn an_emission_may_close_the_circle() {
    model(|| {
        let stage = Stage::new();
        let (a, x) = (stage.session.intern("a"), stage.session.intern("x"));
        let told = Arc::new(AtomicUsize::new(0));
        // Searched once and given to another unit, so that there is a token of it.
        let parked = stage.parked(&[&a]).attach();
        let dependencies = vec![parked.dependency(&a).expect("it covers a")];
        parked.replace(blocking_unit(&stage, &a, &x, &told)).expect("the same symbol");
        let emits = stage.parked(&[&x]);
        let emitter = thread::spawn({
            let (x, session) = (x.clone(), stage.session.clone());
            move || {
                let group = DependenceGroup { symbols: vec![x], dependencies };
                let _refused = resolve(emits.attach()).notify_emitted(vec![group]);
                session.look_for_deadlocks();
            }
        });
        assert!(matches!(stage.lookup(&a), Err(LookupError::Failed(_))));
        // The emission claims `a` where it comes first, and then runs its unit; where it comes last it may be refused.
        emitter.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  thread 1: lookup a ─ unit A: lookup alias ─ …     thread 2: alias: its unit looks a up, and does not wait
/// ```
#[test]
fn an_alias_may_close_the_circle() {
    model(|| {
        let stage = Stage::new();
        let (a, alias) = (stage.session.intern("a"), stage.session.intern("alias"));
        let told = Arc::new(AtomicUsize::new(0));
        define_blocking(&stage, &a, &alias, &told);
        let target = AliasTarget { source: a.clone(), flags: SymbolFlags::EXPORTED };
        let aliases = [(alias.clone(), target)].into_iter().collect();
        stage.dylib.define(symbol_aliases(aliases)).expect("names are new");
        let other = thread::spawn({
            let (stage, asked) = (stage.clone(), stage.request(&alias));
            move || {
                stage.session.lookup_async(asked, drop);
                stage.session.look_for_deadlocks();
            }
        });
        assert!(matches!(stage.lookup(&a), Err(LookupError::Failed(_))));
        other.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  thread 1: lookup a ─ unit A, in its turn: lookup x ─ …     thread 2: replaces x by a unit of the same queue
/// ```
#[test]
fn a_replacement_that_waits_for_its_turn_may_close_the_circle() {
    model_within(3, || {
        let stage = Stage::new();
        let (a, x) = (stage.session.intern("a"), stage.session.intern("x"));
        let (queue, told) = (SerialQueue::new(), Arc::new(AtomicUsize::new(0)));
        let parked = stage.parked(&[&x]);
        let first = blocking_unit(&stage, &a, &x, &told);
        stage.dylib.define(Box::new(InTurn(queue.clone(), first))).expect("names are new");
        let replaces = thread::spawn({
            let second = InTurn(queue, unit(&[&x], resolve_and_emit));
            let session = stage.session.clone();
            move || {
                parked.attach().replace(Box::new(second)).expect("the same symbol");
                session.look_for_deadlocks();
            }
        });
        assert!(matches!(stage.lookup(&a), Err(LookupError::Failed(_))));
        replaces.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert_eq!(stage.lookup(&x).expect("its turn has come"), definition());
    });
}

/// ```text
///  thread 1: lookup a ─ unit A: lookup r ─ …     thread 2: remove gone ─ r falls ─ a fails
///  thread 3: attach b ─ lookup a ─ …             r depends on gone, and on b
/// ```
#[test]
fn who_comes_during_a_removal_is_not_told_of_what_that_ends() {
    model_within(2, || {
        let stage = Stage::new();
        let [a, b, r, gone] = ["a", "b", "r", "gone"].map(|name| stage.session.intern(name));
        let told = Arc::new(AtomicUsize::new(0));
        let parked_b = stage.parked(&[&b]).attach();
        let on_b = parked_b.dependency(&b).expect("it covers b");
        let parked_b = parked_b.detach();
        let tracker = stage.dylib.create_tracker();
        let (falls, on_gone) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let parks = unit(&[&gone], {
            let (falls, on_gone, gone) = (falls.clone(), on_gone.clone(), gone.clone());
            move |responsibility| {
                *on_gone.lock() = responsibility.dependency(&gone);
                *falls.lock() = Some(responsibility.detach());
            }
        });
        stage.dylib.define_with_tracker(parks, &tracker).expect("the name is new");
        drop(stage.session.lookup_future(stage.until_resolved(&gone)));
        let on_gone = on_gone.lock().take().expect("its unit has run");
        let group = DependenceGroup { symbols: vec![r.clone()], dependencies: vec![on_gone, on_b] };
        resolve(stage.parked(&[&r]).attach()).notify_emitted(vec![group]).expect("nothing can refuse it");
        define_blocking(&stage, &a, &r, &told);
        let client = stage.lookup_beside(&a);
        let remover = thread::spawn(move || tracker.remove().expect("it has no resource"));
        let gone = LookupSet::weakly_referenced([gone]);
        let left = stage.session.lookup_flags(LookupRequest::new(stage.order(), gone));
        if left.expect("nothing is missing").is_empty() {
            let b = parked_b.attach();
            let error = stage.lookup(&a).expect_err("r falls, and a with it");
            assert!(!matches!(error, LookupError::WouldDeadlock { .. }), "{error}");
            b.fail(Arc::new(error));
        } else {
            drop(parked_b);
        }
        remover.join().expect("no panic");
        assert!(client.join().expect("no panic").is_err());
        let falls = falls.lock().take();
        drop(falls);
    });
}

/// A unit that runs in its turn.
struct InTurn(SerialQueue, Box<dyn MaterializationUnit>);

impl MaterializationUnit for InTurn {
    fn name(&self) -> &str {
        self.1.name()
    }

    fn interface(&self) -> MaterializationInterface {
        self.1.interface()
    }

    fn serial_queue(&self) -> Option<SerialQueue> {
        Some(self.0.clone())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.1.materialize(responsibility);
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

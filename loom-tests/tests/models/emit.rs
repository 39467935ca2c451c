//! Emit: units that depend on each other are emitted on two threads, and one may fail.
//!
//! ```text
//!  thread 1: lookup(a)                       thread 2: lookup(b)
//!  unit a: resolve ─ address of b?           unit b: resolve ─ address of a?
//!  emit(a, depends on b)                     emit(b, depends on a)
//!      a hangs on b, or: b hangs on a, root of b is a: a cycle, both Ready
//!  slice: a Ready, queries end               slice: b Ready, queries end
//! ```
//!
//! In model builds a transaction does one step of the forest's work, so that other threads come between any two steps.
//!
//! Proven, in every order with at most four preemptions: a lookup is answered only after its symbol and all that it depends on
//! were emitted (I4), and is always answered; a failure reaches all dependants, however its spreading and their emission
//! interleave.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `emit::leaves_its_slices`: a transaction does not come back for the rest after its first slice | `core/src/session/deliver.rs` | `two_emissions_that_close_a_cycle_make_both_ready` |
//! | `emit::nobody_takes_over`: a thread that takes over the slices does not come back for the next | `core/src/protocol/slices/agenda.rs` | `whoever_takes_over_goes_on` |
//! | `emit::looks_for_no_root`: a component hangs without asking whether it closes a cycle | `core/src/protocol/dependences/resume.rs` | `two_emissions_that_close_a_cycle_make_both_ready` |
//! | `emit::trusts_its_dependencies`: a dependency that failed before the emission does not refuse it | `core/src/protocol/symbols/emit.rs` | `a_failure_reaches_an_emission_in_every_order` |
//! | `emit::failure_tells_no_dependants`: a failure stays with the node where it began | `core/src/protocol/dependences/fail.rs` | `a_failure_reaches_an_emission_in_every_order` |
//! | `emit::leaves_its_slices`: the same, along a chain | `core/src/session/deliver.rs` | `a_chain_is_ready_from_its_end_whoever_emits_it` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, definition, model, model_within, resolve, resolve_and_emit_depending_on};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{LookupError, LookupRequest, LookupSet};

#[test]
fn two_emissions_that_close_a_cycle_make_both_ready() {
    model(|| {
        let stage = Stage::new();
        let (a, b) = (stage.session.intern("a"), stage.session.intern("b"));
        let emitted = Arc::new(AtomicUsize::new(0));
        for (name, other) in [(&a, &b), (&b, &a)] {
            let (dependency, emitted) = (stage.until_resolved(other), emitted.clone());
            stage.define(&[name], move |responsibility| {
                resolve_and_emit_depending_on(responsibility, dependency, emitted);
            });
        }
        let other = thread::spawn({
            let (stage, b, emitted) = (stage.clone(), b.clone(), emitted.clone());
            move || {
                assert_eq!(stage.lookup(&b).expect("found"), definition());
                assert_eq!(emitted.load(Ordering::Relaxed), 2);
            }
        });
        assert_eq!(stage.lookup(&a).expect("found"), definition());
        assert_eq!(emitted.load(Ordering::Relaxed), 2);
        other.join().expect("no panic");
    });
}

/// ```text
///  thread 1: lookup(top): top depends on middle, middle on bottom        thread 2: lookup(bottom)
/// ```
#[test]
fn a_chain_is_ready_from_its_end_whoever_emits_it() {
    model(|| {
        let stage = Stage::new();
        let [top, middle, bottom] = ["top", "middle", "bottom"].map(|name| stage.session.intern(name));
        let emitted = Arc::new(AtomicUsize::new(0));
        for (name, dependency) in [(&top, &middle), (&middle, &bottom)] {
            let (dependency, emitted) = (stage.until_resolved(dependency), emitted.clone());
            stage.define(&[name], move |responsibility| {
                resolve_and_emit_depending_on(responsibility, dependency, emitted);
            });
        }
        stage.define(&[&bottom], {
            let emitted = emitted.clone();
            move |responsibility| {
                let resolved = resolve(responsibility);
                // Relaxed: read by threads that the session has told of the emission.
                emitted.fetch_add(1, Ordering::Relaxed);
                resolved.notify_emitted(Vec::new()).expect("nothing can refuse it");
            }
        });
        let other = thread::spawn({
            let stage = stage.clone();
            move || stage.lookup(&bottom).map(drop)
        });
        assert_eq!(stage.lookup(&top).expect("found"), definition());
        assert_eq!(emitted.load(Ordering::Relaxed), 3);
        other.join().expect("no panic").expect("found");
    });
}

/// ```text
///  thread 1: lookup(needs): resolve ─ address of broken ─ emit     thread 2: fails broken, which is resolved
/// ```
#[test]
fn a_failure_reaches_an_emission_in_every_order() {
    model(|| {
        let stage = Stage::new();
        let (needs, broken) = (stage.session.intern("needs"), stage.session.intern("broken"));
        let emitted = Arc::new(AtomicUsize::new(0));
        let parked = Arc::new(uruk_core::sync::Mutex::new(None));
        stage.define(&[&broken], {
            let parked = parked.clone();
            move |responsibility| *parked.lock() = Some(resolve(responsibility).detach())
        });
        let dependency = stage.until_resolved(&broken);
        stage.define(&[&needs], move |responsibility| {
            resolve_and_emit_depending_on(responsibility, dependency, emitted);
        });
        // Resolved, and its responsibility parked, before the race begins.
        stage.session.lookup_async(stage.until_resolved(&broken), |found| drop(found.expect("resolved")));
        let breaker = thread::spawn(move || {
            let responsibility = parked.lock().take();
            drop(responsibility);
        });
        assert!(matches!(stage.lookup(&needs), Err(LookupError::Failed(_))));
        breaker.join().expect("no panic");
        assert!(matches!(stage.lookup(&broken), Err(LookupError::Failed(_))));
    });
}

/// ```text
///  thread 1: emit x ─ slice ─ slice: relieved? go         thread 2: emit y ─ emit z: take over? slice ─ slice
/// ```
///
/// Each of the three has a dependant, which is Ready in a later slice.
#[test]
fn whoever_takes_over_goes_on() {
    model_within(3, || {
        let stage = Stage::new();
        let (emitted, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let parked = Arc::new(Mutex::new(Vec::new()));
        for (name, dependant) in [("x", "on x"), ("y", "on y"), ("z", "on z")] {
            let (name, dependant) = (stage.session.intern(name), stage.session.intern(dependant));
            let (dependency, emitted) = (stage.until_resolved(&name), emitted.clone());
            stage.define(&[&name], {
                let parked = parked.clone();
                move |responsibility| parked.lock().push(resolve(responsibility).detach())
            });
            stage.define(&[&dependant], move |responsibility| {
                resolve_and_emit_depending_on(responsibility, dependency, emitted);
            });
            let request = LookupRequest::new(stage.order(), LookupSet::required([dependant]));
            let answers = answers.clone();
            stage.session.lookup_async(request, move |answer| {
                assert!(answer.is_ok());
                // Relaxed: read when both threads have been joined.
                answers.fetch_add(1, Ordering::Relaxed);
            });
        }
        let emit = move || {
            let resolved = parked.lock().pop().expect("three were parked");
            resolved.attach().notify_emitted(Vec::new()).expect("nothing can refuse it");
        };
        let other = thread::spawn({
            let emit = emit.clone();
            move || {
                emit();
                emit();
            }
        });
        emit();
        other.join().expect("no panic");
        assert_eq!(answers.load(Ordering::Relaxed), 3);
    });
}

loom_tests::catches_its_weakenings!();

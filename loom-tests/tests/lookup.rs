//! Lookup: two threads ask for symbols of one unit, while it is materialized or fails.
//!
//! ```text
//!  thread 1                                     thread 2
//!  transact: match, claim, lodge                transact: match, lodge
//!  run the unit: resolve ─ emit                  ⋮
//!    transact: Ready, both queries end          wait on the latch
//!    store the answer ─ open the latch     ──▶  take the answer
//! ```
//!
//! Proven, in every order with at most four preemptions: the unit is materialized once; each lookup returns once, with the
//! address or with the failure, whether it lodged before, during or after; a lookup by a thread that found nothing
//! to run sleeps only if somebody will wake it.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `lookup::wakes_before_it_answers`: the latch opens before the answer is stored | `core/src/query.rs` | `two_lookups_of_one_unit_materialize_it_once` |
//! | `lookup::looks_before_it_locks`: the lock is free between a waiter's look and its sleep | `core/src/sync/latch.rs` | `a_lookup_that_lodges_while_its_symbol_is_emitted_is_answered` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, definition, model, resolve, resolve_and_emit_depending_on};
use uruk_core::LookupError;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};

#[test]
fn two_lookups_of_one_unit_materialize_it_once() {
    model(|| {
        let stage = Stage::new();
        let (first, second) = (stage.session.intern("first"), stage.session.intern("second"));
        let started = Arc::new(AtomicUsize::new(0));
        stage.define(&[&first, &second], {
            let started = started.clone();
            move |responsibility| {
                // Relaxed: read after both threads have been told of the end.
                started.fetch_add(1, Ordering::Relaxed);
                resolve(responsibility).notify_emitted(Vec::new()).expect("nothing can refuse it");
            }
        });
        let other = thread::spawn({
            let (stage, second) = (stage.clone(), second.clone());
            move || stage.lookup(&second)
        });
        assert_eq!(stage.lookup(&first).expect("found"), definition());
        assert_eq!(other.join().expect("no panic").expect("found"), definition());
        assert_eq!(started.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  thread 1: lookup ─ unit parks its responsibility     emitter: resolve ─ emit     thread 2: lookup
/// ```
#[test]
fn a_lookup_that_lodges_while_its_symbol_is_emitted_is_answered() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let emitter = Arc::new(uruk_core::sync::Mutex::new(None));
        stage.define(&[&name], {
            let emitter = emitter.clone();
            move |responsibility| {
                let parked = responsibility.detach();
                let thread = thread::spawn(move || {
                    resolve(parked.attach()).notify_emitted(Vec::new()).expect("nothing can refuse it");
                });
                *emitter.lock() = Some(thread);
            }
        });
        let other = thread::spawn({
            let (stage, name) = (stage.clone(), name.clone());
            move || stage.lookup(&name)
        });
        assert_eq!(stage.lookup(&name).expect("found"), definition());
        assert_eq!(other.join().expect("no panic").expect("found"), definition());
        let emitter = emitter.lock().take().expect("the unit ran");
        emitter.join().expect("no panic");
    });
}

#[test]
fn every_lookup_of_what_fails_is_told() {
    model(|| {
        let stage = Stage::new();
        let (needs, broken) = (stage.session.intern("needs"), stage.session.intern("broken"));
        let emitted = Arc::new(AtomicUsize::new(0));
        stage.define(&[&broken], |responsibility| drop(resolve(responsibility)));
        let dependency = stage.until_resolved(&broken);
        stage.define(&[&needs], move |responsibility| {
            resolve_and_emit_depending_on(responsibility, dependency, emitted);
        });
        let other = thread::spawn({
            let (stage, broken) = (stage.clone(), broken.clone());
            move || stage.lookup(&broken)
        });
        assert!(matches!(stage.lookup(&needs), Err(LookupError::Failed(_))));
        assert!(matches!(other.join().expect("no panic"), Err(LookupError::Failed(_))));
        assert!(matches!(stage.lookup(&needs), Err(LookupError::Failed(_))));
    });
}

/// ```text
///  thread 1: define ─ lookup ─ ...               thread 2: remove
/// ```
#[test]
fn a_lookup_beside_a_removal_finds_or_misses() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        stage.define(&[&name], |responsibility| {
            resolve(responsibility).notify_emitted(Vec::new()).expect("nothing can refuse it");
        });
        let remover = thread::spawn({
            let (stage, name) = (stage.clone(), name.clone());
            move || stage.dylib.remove(&[name])
        });
        let found = stage.lookup(&name);
        let removed = remover.join().expect("no panic");
        match found {
            Ok(found) => assert_eq!(found, definition()),
            Err(LookupError::NotFound { .. }) => assert!(removed.is_ok()),
            Err(error) => panic!("neither found nor missing: {error}"),
        }
    });
}

loom_tests::catches_its_weakenings!();

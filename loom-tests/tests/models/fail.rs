//! Fail against lodge: lookups come while their symbol fails.
//!
//! ```text
//!  lookup                                    unit, on another thread
//!  transact: Failed by now ─ the error       fail: mark the row ─ tell who is lodged
//!            else ─ lodge on the row
//!  wait on the latch                    ◀──  store the error ─ open the latch
//! ```
//!
//! The same two sides as in `lodge.rs`, with the failure in the place of the emission.
//!
//! Proven, in every order with at most four preemptions: every lookup of a symbol that fails, or of a dependant, is told of the
//! failure, once, whether it lodged before or came after.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `fail::lookups_overlook_it`: a lookup lodges on a symbol without asking whether it has failed | `core/src/protocol/lookups/lookup.rs` | `a_lookup_that_lodges_while_its_symbol_fails_is_told` |
//! | `fail::tells_no_queries`: a row is marked, and its lodged lookups stay | `core/src/protocol/symbols/fail.rs` | `a_lookup_that_lodges_while_its_symbol_fails_is_told` |
//! | `fail::leaves_ended_lookups_lodged`: a lookup that has ended stays in the lists of its other symbols | `core/src/protocol/state/lookups/query.rs` | `a_lookup_lodged_on_two_symbols_that_fail_is_told_once` |
//! | `fail::tells_no_queries`: the same, where the unit itself fails on one thread while the other looks up | `core/src/protocol/symbols/fail.rs` | `every_lookup_of_what_fails_is_told` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, model, resolve, resolve_and_emit_depending_on};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{LookupError, LookupRequest, LookupSet};

#[test]
fn a_lookup_that_lodges_while_its_symbol_fails_is_told() {
    model(|| {
        let stage = Stage::new();
        let broken = stage.session.intern("broken");
        let parked = stage.parked(&[&broken]);
        let breaker = thread::spawn(move || drop(parked));
        let other = thread::spawn({
            let (stage, broken) = (stage.clone(), broken.clone());
            move || stage.lookup(&broken)
        });
        assert!(matches!(stage.lookup(&broken), Err(LookupError::Failed(_))));
        assert!(matches!(other.join().expect("no panic"), Err(LookupError::Failed(_))));
        breaker.join().expect("no panic");
    });
}

/// The first symbol that fails ends the lookup, which is then in no list of the second.
///
/// ```text
///  asker: lookup of both, lodged twice       breaker: fails both       main: lookup of the second
/// ```
#[test]
fn a_lookup_lodged_on_two_symbols_that_fail_is_told_once() {
    model(|| {
        let stage = Stage::new();
        let (first, second) = (stage.session.intern("first"), stage.session.intern("second"));
        let told = Arc::new(AtomicUsize::new(0));
        let parked = stage.parked(&[&first, &second]);
        let breaker = thread::spawn(move || drop(resolve(parked.attach())));
        let asker = thread::spawn({
            let (stage, told) = (stage.clone(), told.clone());
            let both = LookupRequest::new(stage.order(), LookupSet::required([first, second.clone()]));
            move || {
                stage.session.lookup_async(both, move |found| {
                    assert!(matches!(found, Err(LookupError::Failed(_))));
                    // Relaxed: read when both threads have been joined.
                    told.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert!(matches!(stage.lookup(&second), Err(LookupError::Failed(_))));
        asker.join().expect("no panic");
        breaker.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  main: lookup(needs): resolve ─ address of broken? ─ emit         another: lookup(broken): resolve ─ drop
/// ```
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

loom_tests::catches_its_weakenings!();

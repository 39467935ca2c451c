//! Lodge against emit: lookups come while a symbol gets its address and is emitted.
//!
//! ```text
//!  lookup                                     unit, on another thread
//!  no record: not Ready yet
//!                                             resolve: answer who asked for an address
//!  transact: Ready by now ─ take the address  emit: Ready ─ answer who is lodged
//!            else ─ lodge on the row
//!  wait on the latch                     ◀──  store the answer ─ open the latch
//! ```
//!
//! Either the lookup finds the symbol Ready under the lock, or it is lodged before the emission looks who is.
//!
//! Proven, in every order with at most four preemptions: a lookup is answered once, however it meets the emission; one
//! that asks for Ready symbols not before all of them are emitted; one that asks for addresses as soon as there are any.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `lodge::overlooks_what_is_ready`: a lookup that found no record lodges without looking again under the lock | `core/src/protocol/lookups/lookup.rs` | `a_lookup_that_lodges_while_its_symbol_is_emitted_is_answered` |
//! | `lodge::ready_tells_nobody`: a symbol becomes Ready and its lodged lookups stay | `core/src/protocol/symbols/emit.rs` | `a_lookup_that_lodges_while_its_symbol_is_emitted_is_answered` |
//! | `lodge::looks_before_it_locks`: the lock is free between a waiter's look at the latch and its sleep | `core/src/sync/latch.rs` | `a_lookup_that_lodges_while_its_symbol_is_emitted_is_answered` |
//! | `lodge::addresses_answer_everybody`: a resolution answers those who asked for Ready as well | `core/src/protocol/state/lookups/query.rs`, `core/src/protocol/state/definitions/rows.rs` | `an_address_answers_only_who_asked_for_it` |
//! | `lodge::ends_with_its_first_symbol`: a lookup is answered when one of its symbols is there | `core/src/protocol/state/lookups/query.rs` | `a_lookup_of_two_units_ends_with_the_last` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, definition, emit_beside, model, resolve};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{LookupRequest, LookupSet};

#[test]
fn a_lookup_that_lodges_while_its_symbol_is_emitted_is_answered() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let parked = stage.parked(&[&name]);
        let emitter = emit_beside(parked);
        let other = stage.lookup_beside(&name);
        assert_eq!(stage.lookup(&name).expect("found"), definition());
        assert_eq!(other.join().expect("no panic").expect("found"), definition());
        emitter.join().expect("no panic");
    });
}

/// ```text
///  main: lookup, Ready         linker: lookup, Resolved        emitter: resolve ─ emit
/// ```
#[test]
fn an_address_answers_only_who_asked_for_it() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let (emitted, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let parked = stage.parked(&[&name]);
        let emitter = thread::spawn({
            let emitted = emitted.clone();
            move || {
                let resolved = resolve(parked.attach());
                // Relaxed, here and below: read by threads that the session has told.
                emitted.store(1, Ordering::Relaxed);
                resolved.notify_emitted(Vec::new()).expect("nothing can refuse it");
            }
        });
        let linker = thread::spawn({
            let (stage, name, told) = (stage.clone(), name.clone(), told.clone());
            move || {
                stage.session.lookup_async(stage.until_resolved(&name), move |found| {
                    assert_eq!(found.expect("found").get(&name), Some(definition()));
                    told.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(stage.lookup(&name).expect("found"), definition());
        assert_eq!(emitted.load(Ordering::Relaxed), 1);
        linker.join().expect("no panic");
        emitter.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  main: lookup of both        emitter: first ─ resolve ─ emit       another: second ─ resolve ─ emit
/// ```
#[test]
fn a_lookup_of_two_units_ends_with_the_last() {
    model(|| {
        let stage = Stage::new();
        let names = ["first", "second"].map(|name| stage.session.intern(name));
        let emitters = names.each_ref().map(|name| {
            let parked = stage.parked(&[name]);
            emit_beside(parked)
        });
        let found = stage
            .session
            .lookup(LookupRequest::new(stage.order(), LookupSet::required(names.clone())))
            .expect("found");
        assert!(names.iter().all(|name| found.get(name) == Some(definition())));
        emitters.into_iter().for_each(|emitter| emitter.join().expect("no panic"));
    });
}

loom_tests::catches_its_weakenings!();

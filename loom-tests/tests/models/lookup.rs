//! Lookup: two threads ask for symbols of one unit.
//!
//! ```text
//!  thread 1                                     thread 2
//!  transact: match, claim the unit, lodge       transact: match, lodge: the unit is claimed
//!  run the unit: resolve ─ emit                  ⋮
//!    transact: Ready, both queries end          no answer? leave a latch, wait
//!    its own answer stays on the thread           ⋮
//!    store the other, and find a latch or not
//!    open the latch                        ──▶  take the answer
//! ```
//!
//! A claim moves the unit out, and all its symbols to Materializing: a later lookup of any of them lodges.
//!
//! Proven, in every order with at most four preemptions: the unit is materialized once (I1); each lookup returns once, with the
//! address (I2); a lookup by a thread that found nothing to run sleeps only if another thread will wake it.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `lookup::claims_one_symbol_of_the_unit`: the unit's other symbols stay as they were | `core/src/protocol/state/definitions/claim.rs` | `two_lookups_of_one_unit_materialize_it_once` |
//! | `lookup::waits_where_the_answer_is_not_seen`: the answer may come between a waiter's look for it and the latch it leaves | `core/src/session/answers.rs` | `two_lookups_of_one_unit_materialize_it_once` |
//! | `lookup::wakes_before_it_answers`: the latch opens before the answer is stored | `core/src/session/answers.rs` | `two_lookups_of_one_unit_materialize_it_once` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, definition, model};
use uruk_core::sync::atomic::Ordering;
use uruk_core::sync::thread;

#[test]
fn two_lookups_of_one_unit_materialize_it_once() {
    model(|| {
        let stage = Stage::new();
        let (first, second) = (stage.session.intern("first"), stage.session.intern("second"));
        let started = stage.define_counted(&[&first, &second]);
        let other = thread::spawn({
            let (stage, second) = (stage.clone(), second.clone());
            move || stage.lookup(&second)
        });
        assert_eq!(stage.lookup(&first).expect("found"), definition());
        assert_eq!(other.join().expect("no panic").expect("found"), definition());
        // Relaxed: both threads have been told of the end.
        assert_eq!(started.load(Ordering::Relaxed), 1);
    });
}

loom_tests::catches_its_weakenings!();

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
//! Proven, in every order with at most three preemptions: exactly one of the two lookups is told of the cycle, whichever thread
//! runs which unit; both clients' lookups end, with a failure; where the responsibility is detached and another thread
//! finishes it, nobody is told and both find their symbol.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `deadlock::begins_without_a_look`: a wait begins without a look for a cycle | `core/src/protocol/waits_for.rs` | `two_units_that_block_on_each_other_are_told_once` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, definition, model, resolve};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{LookupError, SymbolName};

loom_tests::catches_its_weakenings!();

/// Defines `symbol`, whose unit blocks in a lookup of `needs`.
fn define_blocking(stage: &Arc<Stage>, symbol: &SymbolName, needs: &SymbolName, told: &Arc<AtomicUsize>) {
    let (needs, told, looking) = (needs.clone(), told.clone(), Arc::downgrade(stage));
    stage.define(&[symbol], move |responsibility| {
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
    });
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

//! A lookup that runs its claims on its own thread, while others want the same, remove it, or close the session.
//!
//! ```text
//!  caller                                        lookup beside it              remover, or closer
//!  transact: claim the unit ─ count its task     transact: claimed by then     transact: rows are gone
//!  queue it on this thread                       lodge                         wait until all that is counted is over
//!  run the queue: begin ─ resolve ─ emit         sleep
//!  sleep, if others have to finish               the answer comes
//! ```
//!
//! But for the close, the dispatcher takes tasks and never runs one: only these threads run units.
//!
//! Proven, in every order with at most three preemptions: the unit runs once at most, and on the caller, if that has claimed
//! it; every lookup is answered; when a close returns, nothing runs.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `on_caller::counts_when_it_queues`: what was claimed is counted when the caller queues it, after the lock | `core/src/session/on_caller.rs` | `a_close_waits_for_what_a_caller_has_claimed` |
//!
//! `two_callers_make_one_unit` is in no row: nothing new decides who claims. `a_removal_ends_the_lookup_or_comes_after_it` is in no row: what it watches belongs to removal, whose model leaves steps out. Here it
//! says that a lookup on its caller changes nothing of that.
#![cfg(uruk_loom)]

use loom_tests::queue::Queue;
use loom_tests::stage::{Stage, definition, model_within, resolve_and_emit, unit};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{ExecutorSymbolDef, LookupError, SymbolName};

/// More add nothing but time.
const PREEMPTIONS_MAX: usize = 3;

fn look_up_here(stage: &Stage, name: &SymbolName) -> Result<ExecutorSymbolDef, LookupError> {
    let found = stage.session.lookup(stage.request(name).here())?;
    Ok(found.get(name).expect("it was asked for"))
}

/// ```text
///  main: lookup here                             another: lookup here
/// ```
#[test]
fn two_callers_make_one_unit() {
    model_within(PREEMPTIONS_MAX, || {
        let (stage, _queue, name, started) = Stage::queued::<Queue>();
        let other = thread::spawn({
            let (stage, name) = (stage.clone(), name.clone());
            move || look_up_here(&stage, &name)
        });
        assert_eq!(look_up_here(&stage, &name).expect("found"), definition());
        assert_eq!(other.join().expect("no panic").expect("found"), definition());
        assert_eq!(started.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  main: lookup here                             another: remove the tracker
/// ```
#[test]
fn a_removal_ends_the_lookup_or_comes_after_it() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let name = stage.session.intern("removed");
        let tracker = stage.dylib.create_tracker();
        let at_work = unit(&[&name], |responsibility| {
            let addresses = loom_tests::stage::addresses(&responsibility);
            if let Ok(resolved) = responsibility.notify_resolved(&addresses) {
                let _ = resolved.notify_emitted(Vec::new());
            }
        });
        stage.dylib.define_with_tracker(at_work, &tracker).expect("the name is new");
        let remover = thread::spawn(move || tracker.remove().expect("nothing complains"));
        match look_up_here(&stage, &name) {
            Ok(found) => assert_eq!(found, definition()),
            Err(LookupError::NotFound { .. } | LookupError::Failed(_)) => {}
            Err(error) => panic!("neither found, failed nor missing: {error}"),
        }
        remover.join().expect("no panic");
    });
}

/// ```text
///  main: lookup here                             another: close
/// ```
#[test]
fn a_close_waits_for_what_a_caller_has_claimed() {
    model_within(PREEMPTIONS_MAX, || {
        // In place, for the end of a session has tasks of its own.
        let stage = Stage::new();
        let name = stage.session.intern("late");
        let closed = Arc::new(AtomicUsize::new(0));
        stage.define(&[&name], {
            let closed = closed.clone();
            move |responsibility| {
                // Acquire, and Release below: a unit that runs although its session is known to be closed.
                assert_eq!(closed.load(Ordering::Acquire), 0, "it runs in a closed session");
                resolve_and_emit(responsibility);
            }
        });
        let closer = thread::spawn({
            let (stage, closed) = (stage.clone(), closed.clone());
            move || {
                stage.session.close().expect("nothing complains");
                closed.store(1, Ordering::Release);
            }
        });
        match look_up_here(&stage, &name) {
            Ok(found) => assert_eq!(found, definition()),
            Err(LookupError::Closed | LookupError::Failed(_)) => {}
            Err(error) => panic!("neither found nor closed: {error}"),
        }
        closer.join().expect("no panic");
    });
}

loom_tests::catches_its_weakenings!();

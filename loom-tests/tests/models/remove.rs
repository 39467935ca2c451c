//! Remove against materialize: symbols are removed while their unit is at work, and while others come to depend on them.
//!
//! ```text
//!  unit at work                               remover
//!  add a resource                             transact: rows go, the claim ends, the tracker is defunct;
//!  resolve                                              lookups and dependants are told
//!  emit                                       remove the resources
//! ```
//!
//! Each step of the unit comes before the removal, and the removal takes its result, or after it, and is refused.
//!
//! Proven, in every order with at most four preemptions: a lookup beside a removal finds, fails or misses, and always
//! returns; a resource is removed with its tracker or was refused; what was removed is not emitted; nothing that depends
//! on what is removed before it is Ready becomes Ready (I4); a removal by name leaves alone what is at work.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `remove::claim_outlives_its_rows`: the last row that goes does not end the claim | `core/src/protocol/state/definitions/rows.rs` | `a_unit_at_work_learns_that_its_tracker_is_gone` |
//! | `remove::tracker_lives_on`: the emptied tracker takes further resources | `core/src/protocol/state/definitions/tracker.rs` | `a_resource_beside_a_removal_is_removed_or_refused` |
//! | `remove::tells_no_queries`: rows go, and their lodged lookups stay | `core/src/protocol/symbols/remove.rs` | `a_unit_at_work_learns_that_its_tracker_is_gone` |
//! | `remove::takes_what_is_at_work`: a removal by name does not ask whether a unit is at work | `core/src/protocol/removal/remove.rs` | `a_lookup_beside_a_removal_by_name_finds_or_misses` |
//! | `remove::tells_no_dependants`: rows go, and symbols that were emitted on them stay | `core/src/protocol/symbols/remove.rs` | `what_is_removed_is_depended_on_by_nothing` |
//! | `remove::emission_trusts_old_tokens`: a dependency that was removed before the emission does not refuse it | `core/src/protocol/symbols/emit.rs` | `what_is_removed_is_depended_on_by_nothing` |
#![cfg(uruk_loom)]

use loom_tests::stage::{
    Stage, addresses, definition, model, resolve_and_emit, resolve_and_emit_depending_on, unit,
};
use loom_tests::witness::Witness;
use uruk_core::LookupError;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};

#[test]
fn a_unit_at_work_learns_that_its_tracker_is_gone() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let witness = Arc::new(Witness::default());
        let (gone, ran, accepted) = (flag(), flag(), flag());
        let tracker = stage.dylib.create_tracker();
        let at_work = unit(&[&name], {
            let (witness, gone, ran, accepted) =
                (witness.clone(), gone.clone(), ran.clone(), accepted.clone());
            move |responsibility| {
                ran.store(1, Ordering::Relaxed);
                // Relaxed: what is seen is true, and seeing it late only asks for less.
                let was_gone = gone.load(Ordering::Relaxed) == 1;
                if responsibility.add_resource(witness.resource()).is_ok() {
                    accepted.store(1, Ordering::Relaxed);
                    assert!(!was_gone, "a tracker that is gone took a resource");
                }
                let addresses = addresses(&responsibility);
                let Ok(resolved) = responsibility.notify_resolved(&addresses) else { return };
                let was_gone = gone.load(Ordering::Relaxed) == 1;
                let emitted = resolved.notify_emitted(Vec::new());
                assert!(!was_gone || emitted.is_err(), "what is gone was emitted");
            }
        });
        stage.dylib.define_with_tracker(at_work, &tracker).expect("the name is new");
        let asker = stage.lookup_beside(&name);
        tracker.remove().expect("the resource does not complain");
        gone.store(1, Ordering::Relaxed);
        match asker.join().expect("no panic") {
            Ok(found) => assert_eq!(found, definition()),
            Err(LookupError::NotFound { .. } | LookupError::Failed(_)) => {}
            Err(error) => panic!("neither found, failed nor missing: {error}"),
        }
        assert!(matches!(stage.lookup(&name), Err(LookupError::NotFound { .. })));
        assert_eq!(witness.removed(), accepted.load(Ordering::Relaxed));
        assert_eq!(witness.dropped(), ran.load(Ordering::Relaxed));
    });
}

/// ```text
///  main: remove the tracker                      another: add a resource to it
/// ```
#[test]
fn a_resource_beside_a_removal_is_removed_or_refused() {
    model(|| {
        let stage = Stage::new();
        let tracker = stage.dylib.create_tracker();
        let witness = Arc::new(Witness::default());
        let adder = thread::spawn({
            let (tracker, witness) = (tracker.clone(), witness.clone());
            move || tracker.add_resource(witness.resource())
        });
        tracker.remove().expect("the resource does not complain");
        let added = adder.join().expect("no panic");
        assert_eq!((witness.removed(), witness.dropped()), (usize::from(added.is_ok()), 1));
    });
}

/// ```text
///  main: lookup ─ materialize ─ emit             remover: refused while the unit is at work
/// ```
#[test]
fn a_lookup_beside_a_removal_by_name_finds_or_misses() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        stage.define(&[&name], resolve_and_emit);
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

/// `below` has an address and is never emitted, so that nothing on it is ever Ready.
///
/// ```text
///  main: lookup(needs): resolve ─ address of below? ─ emit        remover: removes below
/// ```
#[test]
fn what_is_removed_is_depended_on_by_nothing() {
    model(|| {
        let stage = Stage::new();
        let (needs, below) = (stage.session.intern("needs"), stage.session.intern("below"));
        let (emitted, parked) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
        let tracker = stage.dylib.create_tracker();
        let parks = unit(&[&below], {
            let parked = parked.clone();
            move |responsibility| {
                let addresses = addresses(&responsibility);
                // Refused if it is removed while it is at work.
                if let Ok(resolved) = responsibility.notify_resolved(&addresses) {
                    *parked.lock() = Some(resolved.detach());
                }
            }
        });
        stage.dylib.define_with_tracker(parks, &tracker).expect("the name is new");
        let dependency = stage.until_resolved(&below);
        stage.define(&[&needs], move |responsibility| {
            resolve_and_emit_depending_on(responsibility, dependency, emitted);
        });
        let remover = thread::spawn(move || tracker.remove());
        assert!(matches!(stage.lookup(&needs), Err(LookupError::Failed(_))));
        remover.join().expect("no panic").expect("there is no resource");
        assert!(matches!(stage.lookup(&below), Err(LookupError::NotFound { .. })));
        // A responsibility for removed symbols can be dropped.
        let responsibility = parked.lock().take();
        drop(responsibility);
    });
}

/// A flag of an event that has not happened yet.
fn flag() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

loom_tests::catches_its_weakenings!();

//! Transfer: a tracker's symbols and resources move while their unit is at work, and beside a removal.
//!
//! ```text
//!  unit at work, in tracker a           main
//!  add a resource                       a.transfer_to(b): rows, what claims say of their tracker, resources
//!  resolve ─ emit                       a is defunct
//!                                       b.remove(): all of it goes
//! ```
//!
//! A transfer is one change of the state: an addition of the unit comes before it and moves, or after it and goes to `b`.
//!
//! Proven, in every order with at most four preemptions: a transfer disturbs no unit and no lookup; what a unit has
//! added before or after is removed with the destination, once; a transfer beside a removal happens whole or not at all.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `transfer::leaves_claims_behind`: the claim of a row in flight goes on naming the old tracker | `core/src/protocol/state/definitions/tracker.rs` | `what_a_unit_at_work_adds_goes_with_its_tracker` |
//! | `transfer::leaves_resources_behind`: rows move, resources do not | `core/src/protocol/state/definitions/tracker.rs` | `what_a_unit_at_work_adds_goes_with_its_tracker` |
//! | `transfer::last_handle_gives_nothing`: the last handle goes, and its tracker's symbols get no other tracker | `core/src/protocol/removal/remove.rs` | `a_dropped_handle_gives_to_the_default_tracker` |
//! | `transfer::leaves_resources_behind`: the same, so that half of it happens | `core/src/protocol/state/definitions/tracker.rs` | `a_transfer_beside_a_removal_happens_whole_or_not_at_all` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, definition, model, resolve_and_emit, unit};
use loom_tests::witness::Witness;
use uruk_core::sync::{Arc, thread};
use uruk_core::{LookupError, ResourceTracker, SymbolName};

#[test]
fn what_a_unit_at_work_adds_goes_with_its_tracker() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let [source, destination] = [(); 2].map(|()| stage.dylib.create_tracker());
        let witness = define_with_resource(&stage, &name, &source);
        let asker = stage.lookup_beside(&name);
        source.transfer_to(&destination).expect("both are live");
        assert_eq!(asker.join().expect("no panic").expect("found"), definition());
        source.remove().expect("there is nothing left to complain");
        assert_eq!((witness.removed(), witness.dropped()), (0, 0));
        assert_eq!(stage.lookup(&name).expect("still there"), definition());
        destination.remove().expect("the resource does not complain");
        assert_eq!((witness.removed(), witness.dropped()), (1, 1));
        assert!(matches!(stage.lookup(&name), Err(LookupError::NotFound { .. })));
    });
}

/// ```text
///  main: source.transfer_to(destination)          another: destination.remove()
/// ```
#[test]
fn a_transfer_beside_a_removal_happens_whole_or_not_at_all() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let [source, destination] = [(); 2].map(|()| stage.dylib.create_tracker());
        let witness = define_with_resource(&stage, &name, &source);
        stage.lookup(&name).expect("found");
        let remover = thread::spawn({
            let destination = destination.clone();
            move || destination.remove()
        });
        let moved = source.transfer_to(&destination).is_ok();
        remover.join().expect("no panic").expect("the resource does not complain");
        assert_eq!(witness.removed(), usize::from(moved));
        assert_eq!(stage.lookup(&name).is_err(), moved);
        source.remove().expect("the resource does not complain");
        assert_eq!((witness.removed(), witness.dropped()), (1, 1));
        assert!(stage.lookup(&name).is_err());
    });
}

/// ```text
///  main: drop(tracker)          another: lookup ─ unit: add a resource ─ resolve ─ emit
/// ```
#[test]
fn a_dropped_handle_gives_to_the_default_tracker() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let tracker = stage.dylib.create_tracker();
        let witness = define_with_resource(&stage, &name, &tracker);
        let asker = stage.lookup_beside(&name);
        drop(tracker);
        assert_eq!(asker.join().expect("no panic").expect("found"), definition());
        stage.dylib.default_tracker().remove().expect("the resource does not complain");
        assert_eq!((witness.removed(), witness.dropped()), (1, 1));
        assert!(matches!(stage.lookup(&name), Err(LookupError::NotFound { .. })));
    });
}

/// Defines a unit that adds one resource, and gives what becomes of it.
fn define_with_resource(stage: &Stage, name: &SymbolName, tracker: &ResourceTracker) -> Arc<Witness> {
    let witness = Arc::new(Witness::default());
    let adds = unit(&[name], {
        let witness = witness.clone();
        move |responsibility| {
            responsibility.add_resource(witness.resource()).expect("some tracker has the symbol");
            resolve_and_emit(responsibility);
        }
    });
    stage.dylib.define_with_tracker(adds, tracker).expect("the name is new");
    witness
}

loom_tests::catches_its_weakenings!();

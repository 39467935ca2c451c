//! Dependants: a tracker is removed while a unit comes to depend on its symbols.
//!
//! ```text
//!  a unit that needs `below`                  remover of `below`
//!  resolve ─ address of `below`?              transact: who needs it? ─ none: it goes
//!  emit: `below` is noted as needed                               └─── some: refused, or they go too
//! ```
//!
//! A remover asks and removes in one transaction, and an emission notes its needs in its own. So the emission comes before the
//! question, which then finds it, or after the removal, which then refuses the emission.
//!
//! Proven, in every order with at most four preemptions: a removal that may be refused is refused if and only if the dependant becomes
//! Ready; after one that takes dependants along, neither symbol is found.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `dependants::asks_before_it_removes`: who needs the symbols is asked in a transaction before that of the removal | `core/src/session/resource.rs` | `what_is_needed_is_not_removed` |
//! | `dependants::notes_nothing`: an emission does not note what it needs | `core/src/protocol/symbols/emit.rs` | `what_is_needed_is_not_removed` |
//! | `dependants::refuses_nothing`: dependants are found, and the removal goes on | `core/src/protocol/removal/policy.rs` | `what_is_needed_is_not_removed` |
//! | `dependants::nobody_goes_along`: dependants are found, and stay | `core/src/protocol/removal/policy.rs` | `who_needs_what_goes_goes_along` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, definition, model, resolve_and_emit, resolve_and_emit_depending_on, unit};
use uruk_core::sync::atomic::AtomicUsize;
use uruk_core::sync::{Arc, thread};
use uruk_core::{LookupError, RemovalPolicy, RemoveError, ResourceTracker, SymbolName};

/// `below` is Ready in a tracker of its own; `needs` is defined, and depends on it.
fn scene() -> (Arc<Stage>, SymbolName, SymbolName, ResourceTracker) {
    let stage = Stage::keeping_dependants();
    let (needs, below) = (stage.session.intern("needs"), stage.session.intern("below"));
    let tracker = stage.dylib.create_tracker();
    stage.dylib.define_with_tracker(unit(&[&below], resolve_and_emit), &tracker).expect("the name is new");
    stage.lookup(&below).expect("it needs nothing");
    let dependency = stage.until_resolved(&below);
    stage.define(&[&needs], move |responsibility| {
        resolve_and_emit_depending_on(responsibility, dependency, Arc::new(AtomicUsize::new(0)));
    });
    (stage, needs, below, tracker)
}

#[test]
fn what_is_needed_is_not_removed() {
    model(|| {
        let (stage, needs, below, tracker) = scene();
        let remover = thread::spawn(move || tracker.remove());
        let found = stage.lookup(&needs);
        let removed = remover.join().expect("no panic");
        match (found, removed) {
            (Ok(found), Err(RemoveError::Needed { dependants, count: 1, .. })) => {
                assert_eq!((found, dependants), (definition(), vec![needs]));
                assert_eq!(stage.lookup(&below).expect("it stays"), definition());
            }
            (Err(LookupError::Failed(_)), Ok(())) => {
                assert!(matches!(stage.lookup(&below), Err(LookupError::NotFound { .. })));
            }
            (found, removed) => panic!("found {found:?}, removed {removed:?}"),
        }
    });
}

#[test]
fn who_needs_what_goes_goes_along() {
    model(|| {
        let (stage, needs, below, tracker) = scene();
        let remover = thread::spawn(move || tracker.remove_with(RemovalPolicy::Cascade));
        match stage.lookup(&needs) {
            Ok(found) => assert_eq!(found, definition()),
            Err(LookupError::NotFound { .. } | LookupError::Failed(_)) => {}
            Err(error) => panic!("neither found, failed nor missing: {error}"),
        }
        remover.join().expect("no panic").expect("there is no resource");
        assert!(stage.lookup(&needs).is_err(), "it needs what is gone");
        assert!(matches!(stage.lookup(&below), Err(LookupError::NotFound { .. })));
    });
}

loom_tests::catches_its_weakenings!();

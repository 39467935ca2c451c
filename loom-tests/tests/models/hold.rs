//! Hold against removal: a thread holds the code at a symbol's address while another removes the symbol, or the source of its
//! alias.
//!
//! ```text
//!  who wants a handle                            remover
//!    look the symbol up: an address                transact: rows go
//!    lock: what lies there? hold it                remove the resource: what lies there goes ...
//!    transact: is the definition there,                                  ... and something else is put there
//!              and all that it is an alias of?
//!      no ─ let it go, and begin again
//! ```
//!
//! A handle of a Ready symbol asks the ready index instead, whose gate moves with each removal (`while_unchanged`).
//!
//! The place is one slot behind a lock, as the linker's map of its code is (`pipeline/src/linking/code.rs`).
//!
//! Proven, in every order with at most four preemptions: the code that is held is that of the symbol that was found; a symbol
//! whose source is gone gives nothing.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `hold::looks_before_it_holds`: the session is asked before the place is looked at | `core/src/session/presence.rs` | `what_is_held_is_what_was_found` |
//! | `hold::trusts_aliases`: the source of an alias is not looked at | `core/src/protocol/symbols/presence.rs` | `an_alias_is_held_with_its_source` |
//! | `hold::alias_keeps_its_record`: the records still have an alias whose source is gone | `core/src/protocol/state/definitions/publish.rs` | `an_alias_is_not_found_when_its_source_is_gone` |
//! | `hold::looks_once`: the gate is not looked at after the hold | `core/src/session/presence.rs` | `what_is_held_while_nothing_changes_is_what_was_found` |
//!
//! The first two, and the last, need an order of two threads: the removal comes between the lookup, or the question, and the hold.
#![cfg(uruk_loom)]

use std::error::Error;

use loom_tests::stage::{Stage, model, resolve_and_emit, unit};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{
    AliasTarget, LookupError, LookupRequest, LookupSet, Resource, ResourceTracker, SymbolFlags, SymbolName,
    symbol_aliases,
};

/// The thing at the address: the symbol's code until that is removed, then something else.
type Place = Arc<Mutex<&'static str>>;

struct Scene {
    stage: Arc<Stage>,
    place: Place,
    tracker: ResourceTracker,
    name: SymbolName,
}

struct Code(Place);

impl Resource for Code {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        *self.0.lock() = "something else";
        Ok(())
    }
}

impl Scene {
    /// A symbol that is Ready, and its code.
    fn new() -> Self {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let tracker = stage.dylib.create_tracker();
        stage.dylib.define_with_tracker(unit(&[&name], resolve_and_emit), &tracker).expect("a new name");
        let place: Place = Arc::new(Mutex::new("its code"));
        tracker.add_resource(Box::new(Code(place.clone()))).expect("it is there");
        stage.lookup(&name).expect("it emits");
        Self { stage, place, tracker, name }
    }

    /// Removes the symbol on another thread.
    fn remove(&self) -> thread::JoinHandle<()> {
        let tracker = self.tracker.clone();
        thread::spawn(move || tracker.remove().expect("the resource does not complain"))
    }

    /// Holds the code of `name`, as a handle does.
    fn take(&self, name: &SymbolName) -> Result<&'static str, LookupError> {
        let session = &self.stage.session;
        loop {
            let found =
                session.lookup(LookupRequest::new(self.stage.order(), LookupSet::one(name.clone())))?;
            let definition = found.dependency(name).expect("it was found");
            if let Some(held) = session.while_present(definition, || *self.place.lock())? {
                return Ok(held);
            }
        }
    }
}

#[test]
fn what_is_held_is_what_was_found() {
    model(|| {
        let scene = Scene::new();
        let remover = scene.remove();
        match scene.take(&scene.name) {
            Ok(held) => assert_eq!(held, "its code"),
            Err(LookupError::NotFound { .. }) => {}
            Err(error) => panic!("neither held nor missing: {error}"),
        }
        remover.join().expect("no panic");
    });
}

#[test]
fn what_is_held_while_nothing_changes_is_what_was_found() {
    model(|| {
        let scene = Scene::new();
        let remover = scene.remove();
        let (session, order) = (&scene.stage.session, scene.stage.order());
        let held = session
            .while_unchanged(|| session.ready_symbol(&order, &scene.name).map(|_| *scene.place.lock()));
        assert!(matches!(held, None | Some(None | Some("its code"))), "{held:?}");
        remover.join().expect("no panic");
    });
}

/// An alias of the scene's symbol, which is Ready as that is.
fn alias_in(scene: &Scene) -> SymbolName {
    let alias = scene.stage.session.intern("alias");
    let target = AliasTarget { source: scene.name.clone(), flags: SymbolFlags::EXPORTED };
    let aliases = symbol_aliases([(alias.clone(), target)].into_iter().collect());
    scene.stage.dylib.define(aliases).expect("a new name");
    scene.stage.lookup(&alias).expect("its source is Ready");
    alias
}

#[test]
fn an_alias_is_held_with_its_source() {
    model(|| {
        let scene = Scene::new();
        let alias = alias_in(&scene);
        let remover = scene.remove();
        match scene.take(&alias) {
            Ok(held) => assert_eq!(held, "its code"),
            Err(LookupError::AliasOfRemoved { .. }) => {}
            Err(error) => panic!("neither held nor refused: {error}"),
        }
        remover.join().expect("no panic");
    });
}

/// ```text
///  main: lookup of the alias ─ is the code there?          remover: rows go ─ the code goes
/// ```
#[test]
fn an_alias_is_not_found_when_its_source_is_gone() {
    model(|| {
        let scene = Scene::new();
        let alias = alias_in(&scene);
        let remover = scene.remove();
        // The code goes after the rows, so who finds it gone before the lookup has seen the removal.
        let was_gone = *scene.place.lock() != "its code";
        match scene.stage.lookup(&alias) {
            Ok(_) => assert!(!was_gone, "it leads nowhere"),
            Err(LookupError::AliasOfRemoved { .. }) => {}
            Err(error) => panic!("neither found nor refused: {error}"),
        }
        remover.join().expect("no panic");
    });
}

loom_tests::catches_its_weakenings!();

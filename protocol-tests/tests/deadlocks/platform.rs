//! A platform that looks symbols up when it is told of a unit, in cycles of waits.

use std::sync::{Arc, mpsc};

use protocol_tests::deadlock::{Told, define_blocking, look_up, look_up_as, the_cycle};
use protocol_tests::on::{EVERYWHERE, On};

use protocol_tests::*;
use uruk_core::{
    AddedUnit, ExecutionSession, JitDylib, JitDylibLookupFlags, LookupError, LookupRequest, LookupResult,
    LookupSet, Platform, ReexportsGenerator, SharedError, UnitNumber,
};

/// Looks a symbol up, blocking, before a re-export is defined; tells of an error.
struct LooksUpFirst(&'static str, mpsc::Sender<(String, LookupError)>);

impl Platform for LooksUpFirst {
    fn unit_adding(&self, unit: &AddedUnit<'_>) -> Result<(), SharedError> {
        match unit.name.as_str() {
            "<reexports>" => {
                let outcome = look_up_as("platform", unit.dylib, &[self.0], &self.1);
                outcome.map_err(|error| Arc::new(error) as _)
            }
            _ => Ok(()),
        }
    }

    fn unit_removed(&self, _: UnitNumber) {}
}

/// On it a session, and a dylib that re-exports `x` of another.
fn with_reexports(on: On, platform: impl Platform + 'static) -> (ExecutionSession, JitDylib) {
    let platform = Arc::new(platform);
    let session = ExecutionSession::builder().dispatcher(on.dispatcher()).platform(platform).build();
    let [main, library] = ["main", "library"].map(|name| session.create_jit_dylib(name).unwrap());
    define_simple(&library, "X", &["x"]);
    let reexports = ReexportsGenerator::new(library, JitDylibLookupFlags::MatchExportedSymbolsOnly);
    main.add_generator(Arc::new(reexports)).unwrap();
    (session, main)
}

/// ```text
///   lookup of `a` ─▶ its unit ─▶ lookup of `x` ─▶ re-exports, which have found it ─▶ platform ─▶ lookup of `a`
/// ```
///
/// Such a generator serves a lookup apart from others. The thread that goes on with it was not known, and no lookup was told.
#[test]
fn who_goes_on_with_a_lookup_that_is_served_apart_is_waited_for() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (teller, told): (_, Told) = mpsc::channel();
            let (_session, main) = with_reexports(on, LooksUpFirst("a", teller.clone()));
            define_blocking(&main, "a", &["x"], &teller);
            look_up(&main, &["a"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("platform".into(), vec!["(generator)".into(), "a".into()]));
        });
    }
}

/// It was asked about each such lookup, found and was about to define the same, and the platform looked for it once more: that went on
/// until the stack was at its end, or the threads.
#[test]
fn a_platform_that_waits_for_what_is_about_to_be_defined_is_told() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (teller, told) = mpsc::channel();
            let (_session, main) = with_reexports(on, LooksUpFirst("x", teller));
            look_up(&main, &["x"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("platform".into(), vec!["(generator)".into()]));
        });
    }
}

/// Asks for all symbols of a re-export that is about to be defined, and waits for none.
struct AsksAtOnce(mpsc::Sender<Result<LookupResult, LookupError>>);

impl Platform for AsksAtOnce {
    fn unit_adding(&self, unit: &AddedUnit<'_>) -> Result<(), SharedError> {
        if unit.name.as_str() == "<reexports>" {
            let (send, dylib) = (self.0.clone(), unit.dylib);
            let asked = LookupRequest::new(order(dylib), LookupSet::required(unit.symbols.keys().cloned()));
            // The test may have ended.
            dylib.session().lookup_async(asked, move |answer| drop(send.send(answer)));
        }
        Ok(())
    }

    fn unit_removed(&self, _: UnitNumber) {}
}

/// Its lookup came to the generator before the symbol was there, which then was about to be defined once more, and the platform was told.
#[test]
fn a_platform_that_asks_for_what_is_about_to_be_defined_is_answered() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (send, answers) = mpsc::channel();
            let (session, main) = with_reexports(on, AsksAtOnce(send));
            look_up(&main, &["x"]).unwrap();
            answers.recv().unwrap().unwrap();
            session.close().unwrap();
            assert!(answers.try_recv().is_err(), "it was told once");
        });
    }
}

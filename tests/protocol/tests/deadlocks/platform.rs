//! A platform that looks symbols up when it is told of a unit, in cycles of waits.

use std::sync::{Arc, mpsc};

use protocol_tests::deadlock::{Told, define_blocking, look_up, look_up_as, the_cycle};
use protocol_tests::on::EVERYWHERE;

use protocol_tests::*;
use uruk_core::{
    AddedUnit, ExecutionSession, JitDylibLookupFlags, LookupError, Platform, ReexportsGenerator, SharedError,
    UnitNumber,
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

/// ```text
///   lookup of `a` ─▶ its unit ─▶ lookup of `x` ─▶ re-exports, which have found it ─▶ platform ─▶ lookup of `a`
/// ```
///
/// Such a generator serves a lookup apart from others. The thread that goes on with it was not known to, and nobody was told.
#[test]
fn who_goes_on_with_a_lookup_that_is_served_apart_is_waited_for() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (teller, told): (_, Told) = mpsc::channel();
            let platform = Arc::new(LooksUpFirst("a", teller.clone()));
            let session = ExecutionSession::builder().dispatcher(on.dispatcher()).platform(platform).build();
            let [main, library] = ["main", "library"].map(|name| session.create_jit_dylib(name).unwrap());
            define_simple(&library, "X", &["x"]);
            define_blocking(&main, "a", &["x"], &teller);
            let reexports = ReexportsGenerator::new(library, JitDylibLookupFlags::MatchExportedSymbolsOnly);
            main.add_generator(Arc::new(reexports)).unwrap();
            look_up(&main, &["a"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("platform".into(), vec!["(generator)".into(), "a".into()]));
        });
    }
}

//! Generators in cycles of waits.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock, mpsc};

use protocol_tests::deadlock::{LooksUp, Teller, define_blocking, look_up, look_up_as, the_cycle};
use protocol_tests::on::EVERYWHERE;
use protocol_tests::*;
use uruk_core::{
    AliasTarget, DeadlockStep, DefinitionGenerator, GenerateRequest, JitDylib, JitDylibLookupFlags,
    LookupError, ReexportsGenerator, SymbolFlags, WhyState, symbol_aliases,
};

#[test]
fn a_generator_that_waits_for_itself_is_told() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (_session, main) = on.session();
            let (told_by, told) = mpsc::channel();
            main.add_generator(Arc::new(LooksUp { needs: "missing too", told: told_by }));
            look_up(&main, &["missing"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("looks up".into(), vec!["(generator)".into()]));
        });
    }
}

#[test]
fn a_generator_that_waits_for_a_unit_that_waits_for_it_is_told() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (_session, main) = on.session();
            let (teller, told) = mpsc::channel();
            define_blocking(&main, "a", &["missing"], &teller);
            main.add_generator(Arc::new(LooksUp { needs: "a", told: teller }));
            look_up(&main, &["a"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("looks up".into(), vec!["(generator)".into(), "a".into()]));
        });
    }
}

#[test]
fn a_generator_whose_request_was_detached_is_waited_for() {
    struct Detaches(mpsc::Sender<uruk_core::DetachedRequest>);
    impl DefinitionGenerator for Detaches {
        fn name(&self) -> &str {
            "detaches"
        }
        fn generate(&self, request: GenerateRequest) {
            let main = request.dylib().clone();
            let is_first = request.symbols().iter().all(|(name, _)| name.as_str() == "missing");
            self.0.send(request.detach()).unwrap();
            if !is_first {
                return;
            }
            // Queued behind itself, and served once another thread has finished.
            let told = look_up(&main, &["missing too"]);
            assert!(!matches!(told, Err(LookupError::WouldDeadlock { .. })), "{told:?}");
        }
    }
    for on in EVERYWHERE {
        within_reason(move || {
            let (session, main) = on.session();
            let (send, requests) = mpsc::channel();
            main.add_generator(Arc::new(Detaches(send)));
            std::thread::scope(|scope| {
                let client = scope.spawn(|| look_up(&main, &["missing"]));
                let request = requests.recv().unwrap();
                // The generator's own thread is blocked behind the lookup that it serves.
                let queued = || match session.why(&main, &session.intern("missing too")).state {
                    WhyState::Undefined { generators } => generators[0].queued,
                    state => panic!("{state}"),
                };
                while queued() == 0 {
                    std::thread::yield_now();
                }
                for (request, name) in [(Some(request), "missing"), (None, "missing too")] {
                    let request = request.unwrap_or_else(|| requests.recv().unwrap()).attach();
                    assert_eq!(request.symbols().iter().next().unwrap().0.as_str(), name);
                    request.finish(Ok(()));
                }
                let told = client.join().unwrap();
                assert!(matches!(told, Err(LookupError::NotFound { .. })), "{told:?}");
            });
        });
    }
}

#[test]
fn a_generator_that_waits_for_the_alias_it_is_asked_on_behalf_of_is_told() {
    within_reason(|| {
        let (session, main) = session();
        let (teller, told) = mpsc::channel();
        let target = AliasTarget { source: session.intern("x"), flags: SymbolFlags::EXPORTED };
        main.define(symbol_aliases([(session.intern("a"), target)].into_iter().collect())).unwrap();
        main.add_generator(Arc::new(LooksUp { needs: "a", told: teller }));
        look_up(&main, &["a"]).unwrap_err();
        let (_, error) = told.try_recv().unwrap();
        let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
        let is_alias = |step: &DeadlockStep| matches!(step, DeadlockStep::AliasOf { .. });
        let is_generator = |step: &DeadlockStep| matches!(step, DeadlockStep::Generator { .. });
        assert!(path.len() == 2 && path.iter().any(is_alias) && path.iter().any(is_generator), "{error}");
    });
}

/// ```text
///   facade ─ re-exports ─▶ library, whose generator looks for `y` in the facade, which asks what the library has
/// ```
///
/// The question of a re-export's generator was in no cycle, so no lookup was told.
#[test]
fn a_generator_that_waits_for_a_re_export_of_what_it_would_have_to_provide_is_told() {
    struct LooksIn(JitDylib, Teller);
    impl DefinitionGenerator for LooksIn {
        fn name(&self) -> &str {
            "looks in"
        }
        fn generate(&self, request: GenerateRequest) {
            let outcome = look_up_as(self.name(), &self.0, &["y"], &self.1);
            request.finish(outcome.map_err(|error| Arc::new(error) as _));
        }
    }
    for on in EVERYWHERE {
        within_reason(move || {
            let (session, facade) = on.session();
            let (told_by, told) = mpsc::channel();
            let library = session.create_jit_dylib("library").unwrap();
            library.add_generator(Arc::new(LooksIn(facade.clone(), told_by))).unwrap();
            let reexports = ReexportsGenerator::new(library, JitDylibLookupFlags::MatchExportedSymbolsOnly);
            facade.add_generator(Arc::new(reexports)).unwrap();
            look_up(&facade, &["x"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("looks in".into(), vec!["(generator)".into()]));
            session.close().unwrap();
        });
    }
}

/// An error may block while its causes are read: until then, the request is not finished.
#[test]
fn an_error_that_waits_for_the_generator_that_fails_with_it_is_told() {
    struct Asks(JitDylib, Teller, OnceLock<()>);
    impl fmt::Debug for Asks {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("asks")
        }
    }
    impl fmt::Display for Asks {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("asks")
        }
    }
    impl Error for Asks {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            let Self(main, teller, asked) = self;
            asked.get_or_init(|| {
                look_up_as("error", main, &["missing too"], teller).unwrap_err();
            });
            None
        }
    }
    struct FailsWith(Teller);
    impl DefinitionGenerator for FailsWith {
        fn name(&self) -> &str {
            "fails"
        }
        fn generate(&self, request: GenerateRequest) {
            let asks = Asks(request.dylib().clone(), self.0.clone(), OnceLock::new());
            request.finish(Err(Arc::new(asks)));
        }
    }
    for on in EVERYWHERE {
        within_reason(move || {
            let (_session, main) = on.session();
            let (teller, told) = mpsc::channel();
            main.add_generator(Arc::new(FailsWith(teller))).unwrap();
            look_up(&main, &["missing"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("error".into(), vec!["(generator)".into()]));
        });
    }
}

//! Definition generators: asked for what is missing, suspended, queued, failing.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::{
    DefinitionGenerator, DetachedRequest, GenerateRequest, JitDylibLookupFlags, LookupError, SymbolFlags,
    absolute_symbols, shared_error,
};

/// Defines what it is asked for, at one address.
struct Defines(u64);

impl DefinitionGenerator for Defines {
    fn name(&self) -> &str {
        "defines"
    }

    fn generate(&self, request: GenerateRequest) {
        let symbols = request.symbols().iter().map(|(name, _)| (name.clone(), at(self.0))).collect();
        request.dylib().define(absolute_symbols(symbols)).unwrap();
        request.finish(Ok(()));
    }
}

/// Sends each request to the test.
struct Sends(mpsc::Sender<DetachedRequest>);

impl DefinitionGenerator for Sends {
    fn name(&self) -> &str {
        "sends"
    }

    fn generate(&self, request: GenerateRequest) {
        // A test that has ended drops the request, which fails the lookup.
        let _ = self.0.send(request.detach());
    }
}

fn sends() -> (Arc<Sends>, mpsc::Receiver<DetachedRequest>) {
    let (send, requests) = mpsc::channel();
    (Arc::new(Sends(send)), requests)
}

#[test]
fn missing_symbols_are_generated() {
    let (session, main) = session();
    main.add_generator(Arc::new(Defines(5)));
    define_simple(&main, "unit", &["a"]);
    let found = session.lookup(&order(&main), set(&session, &["a", "b"])).unwrap();
    assert_eq!(found[&session.intern("b")], at(5));
    assert_eq!(found[&session.intern("a")], at(0x1000));
}

#[test]
fn an_earlier_dylibs_generator_comes_before_a_later_dylibs_definition() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    main.add_generator(Arc::new(Defines(5)));
    define_simple(&other, "unit", &["a"]);
    let all = JitDylibLookupFlags::MatchAllSymbols;
    let both = [(main.clone(), all), (other, all)].into();
    assert_eq!(session.lookup_symbol(&both, &session.intern("a")).unwrap(), at(5));
}

#[test]
fn a_generator_may_finish_later_on_another_thread() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let request = requests.try_recv().unwrap();
    assert!(answer.try_recv().is_err());
    std::thread::spawn(move || {
        let request = request.attach();
        assert_eq!(request.symbols().len(), 1);
        define_simple(request.dylib(), "late", &["a"]);
        request.finish(Ok(()));
    })
    .join()
    .unwrap();
    assert!(answer.recv().unwrap().is_ok());
}

#[test]
fn lookups_queue_at_a_busy_generator() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let first = look_up_later(&session, request(&main, &["a"]));
    let second = look_up_later(&session, request(&main, &["a"]));
    let third = look_up_later(&session, request(&main, &["c"]));
    let asked = requests.try_recv().unwrap().attach();
    assert!(requests.try_recv().is_err(), "one lookup at a time");
    define_simple(&main, "unit", &["a"]);
    asked.finish(Ok(()));
    assert!(first.try_recv().unwrap().is_ok());
    assert!(second.try_recv().unwrap().is_ok(), "its symbol is there by now");
    let asked = requests.try_recv().unwrap().attach();
    assert_eq!(asked.symbols().iter().next().unwrap().0, &session.intern("c"));
    asked.finish(Ok(()));
    assert!(matches!(third.try_recv().unwrap(), Err(LookupError::NotFound { .. })));
}

#[test]
fn a_failing_generator_fails_the_lookup() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let answer = look_up_later(&session, request(&main, &["a"]));
    requests.try_recv().unwrap().attach().finish(Err(shared_error("the archive is truncated")));
    let error = answer.try_recv().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "definition generator `sends` of dylib `main` failed: the archive is truncated"
    );
}

#[test]
fn a_dropped_request_fails_its_lookup_and_serves_the_next() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let first = look_up_later(&session, request(&main, &["a"]));
    let second = look_up_later(&session, request(&main, &["a"]));
    drop(requests.try_recv().unwrap());
    assert!(matches!(first.try_recv().unwrap(), Err(LookupError::Generator { .. })));
    requests.try_recv().unwrap().attach().finish(Ok(()));
    assert!(matches!(second.try_recv().unwrap(), Err(LookupError::NotFound { .. })));
}

#[test]
fn a_panicking_generator_fails_the_lookup() {
    struct Panics;
    impl DefinitionGenerator for Panics {
        fn name(&self) -> &str {
            "panics"
        }
        fn generate(&self, _request: GenerateRequest) {
            panic!("on purpose");
        }
    }
    let (session, main) = session();
    main.add_generator(Arc::new(Panics));
    let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(matches!(error, LookupError::Generator { .. }));
}

#[test]
fn removing_a_generator_fails_its_queue_and_lets_its_lookup_finish() {
    let (session, main) = session();
    let (generator, requests) = sends();
    let id = main.add_generator(generator).unwrap();
    let first = look_up_later(&session, request(&main, &["a"]));
    let second = look_up_later(&session, request(&main, &["b"]));
    assert!(main.remove_generator(id));
    assert!(!main.remove_generator(id));
    assert!(matches!(second.try_recv().unwrap(), Err(LookupError::Generator { .. })));
    define_simple(&main, "unit", &["a"]);
    requests.try_recv().unwrap().attach().finish(Ok(()));
    assert!(first.try_recv().unwrap().is_ok());
}

#[test]
fn a_generator_is_not_asked_for_what_a_hidden_symbol_matched() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let hidden = [(session.intern("a"), SymbolFlags::empty())].into_iter().collect();
    main.define(TestUnit::new("unit", hidden, finish).boxed()).unwrap();
    let exported_only = [(main.clone(), JitDylibLookupFlags::MatchExportedSymbolsOnly)].into();
    let error = session.lookup_symbol(&exported_only, &session.intern("a")).unwrap_err();
    assert!(matches!(error, LookupError::NotFound { .. }));
    assert!(requests.try_recv().is_err());
}

#[test]
fn a_suspended_future_can_be_withdrawn() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    drop(session.lookup_future(request(&main, &["a"])));
    let next = look_up_later(&session, request(&main, &["b"]));
    requests.try_recv().unwrap().attach().finish(Ok(()));
    requests.try_recv().unwrap().attach().finish(Ok(()));
    assert!(matches!(next.try_recv().unwrap(), Err(LookupError::NotFound { .. })));
}

/// The query was taken out when the generator had finished and lodged under a new id, which the future did not know:
/// dropping it withdrew nothing, and a unit that nobody wanted any more stayed wanted.
#[test]
fn a_lookup_can_be_withdrawn_after_its_generator_has_finished() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let future = session.lookup_future(request(&main, &["a"]));
    let parked = define_parked(&main, "unit", &["a"]);
    requests.try_recv().unwrap().attach().finish(Ok(()));
    let responsibility = parked.try_recv().unwrap().attach();
    assert_eq!(responsibility.requested_symbols(), [session.intern("a")]);
    drop(future);
    assert!(responsibility.requested_symbols().is_empty(), "nobody waits any more");
}

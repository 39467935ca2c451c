//! A responsibility that another thread takes over while the one that had it is blocked: it lay in a thread-local, and a task
//! that the blocked thread runs meanwhile has detached it.

use std::cell::RefCell;
use std::sync::{Arc, mpsc};

use protocol_tests::deadlock::{
    finish_or_fail, look_up, look_up_as, the_cycle, until_blocked_for, while_blocked,
};
use protocol_tests::units::Parked;
use protocol_tests::*;
use uruk_core::{
    DefinitionGenerator, DetachedRequest, GenerateRequest, JitDylib, LookupError,
    MaterializationResponsibility,
};

thread_local! {
    static PARKED: RefCell<Option<MaterializationResponsibility>> = const { RefCell::new(None) };
    static REQUEST: RefCell<Option<GenerateRequest>> = const { RefCell::new(None) };
}

/// Defines the unit A of `a`, which blocks in a lookup of `b`, meanwhile passes its responsibility on, and at last does `then`.
fn define_a(main: &JitDylib, then: impl FnOnce() + Send + 'static) -> Parked {
    let (detached, is_detached) = mpsc::channel();
    let unit = TestUnit::new("A", exported(main.session(), &["a"]), move |responsibility| {
        let main = responsibility.dylib().clone();
        PARKED.set(Some(responsibility));
        while_blocked(main.session(), move || detached.send(PARKED.take().unwrap().detach()).unwrap());
        look_up(&main, &["b"]).unwrap();
        then();
    });
    main.define(unit.boxed()).unwrap();
    is_detached
}

#[test]
fn who_took_over_from_a_blocked_thread_is_waited_for_when_that_goes_on() {
    within_reason(|| {
        let (session, main) = session();
        let (teller, told) = mpsc::channel();
        let parked = ["b", "d"].map(|name| define_parked(&main, name, &[name]));
        let _wanted = look_up_later(&session, request(&main, &["b", "d"]));
        let [b, d] = parked.map(|parked| parked.recv().unwrap());
        let (went_on, goes_on) = mpsc::channel();
        let is_detached = define_a(&main, move || went_on.send(()).unwrap());
        std::thread::scope(|scope| {
            let client = scope.spawn(|| look_up(&main, &["a"]));
            let a = is_detached.recv().unwrap();
            let of_a = teller.clone();
            let main = &main;
            scope.spawn(move || {
                let a = a.attach();
                let outcome = look_up_as("A", main, &["d"], &of_a);
                finish_or_fail(a, outcome);
            });
            until_blocked_for(main, "a", "d");
            finish(b.attach());
            goes_on.recv().unwrap();
            let d = d.attach();
            let outcome = look_up_as("D", main, &["a"], &teller);
            finish_or_fail(d, outcome);
            client.join().unwrap().unwrap_err();
        });
        drop(teller);
        assert_eq!(the_cycle(&told), ("D".into(), vec!["a".into(), "d".into()]));
    });
}

/// ```text
///   A: had a, and passed it on ─ lookup ─▶ b ◀─ held by the test ─ lookup ─▶ a
/// ```
#[test]
fn nobody_is_told_of_what_a_blocked_thread_has_passed_on() {
    within_reason(|| {
        let (session, main) = session();
        let parked = define_parked(&main, "B", &["b"]);
        let _wanted = look_up_later(&session, request(&main, &["b"]));
        let b = parked.recv().unwrap();
        let is_detached = define_a(&main, || ());
        std::thread::scope(|scope| {
            let client = scope.spawn(|| look_up(&main, &["a"]));
            let a = is_detached.recv().unwrap();
            let main = &main;
            scope.spawn(move || {
                until_blocked_for(main, "b", "a");
                finish(a.attach());
            });
            let b = b.attach();
            look_up(main, &["a"]).unwrap();
            finish(b);
            client.join().unwrap().unwrap();
        });
    });
}

/// The same of a request that a generator detaches while it is blocked.
#[test]
fn nobody_is_told_of_a_request_that_a_blocked_generator_has_passed_on() {
    struct PassesOn(mpsc::Sender<DetachedRequest>);
    impl DefinitionGenerator for PassesOn {
        fn name(&self) -> &str {
            "passes on"
        }
        fn generate(&self, request: GenerateRequest) {
            if request.symbols().iter().all(|(name, _)| name.as_str() != "missing") {
                return request.finish(Ok(()));
            }
            let (main, send) = (request.dylib().clone(), self.0.clone());
            REQUEST.set(Some(request));
            while_blocked(main.session(), move || send.send(REQUEST.take().unwrap().detach()).unwrap());
            look_up(&main, &["b"]).unwrap();
        }
    }
    within_reason(|| {
        let (session, main) = session();
        let parked = define_parked(&main, "B", &["b"]);
        let _wanted = look_up_later(&session, request(&main, &["b"]));
        let b = parked.recv().unwrap();
        let (send, is_detached) = mpsc::channel();
        main.add_generator(Arc::new(PassesOn(send))).unwrap();
        std::thread::scope(|scope| {
            let client = scope.spawn(|| look_up(&main, &["missing"]));
            let request = is_detached.recv().unwrap();
            let main = &main;
            scope.spawn(move || {
                until_blocked_for(main, "b", "missing too");
                request.attach().finish(Ok(()));
            });
            let b = b.attach();
            let told = look_up(main, &["missing too"]);
            assert!(matches!(told, Err(LookupError::NotFound { .. })), "{told:?}");
            finish(b);
            client.join().unwrap().unwrap_err();
        });
    });
}

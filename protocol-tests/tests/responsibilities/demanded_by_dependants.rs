//! A dependence of an emitted symbol is demanded as if it were looked up: it starts, is requested, is not withdrawn.
//!
//! In each test `b` is never looked up; `a` is emitted as depending on it.

use std::sync::mpsc;

use protocol_tests::halt::while_nothing_else_runs;
use protocol_tests::on::On;
use protocol_tests::units::{parking_unit, telling_unit};
use protocol_tests::*;
use uruk_core::{
    DependenceGroup, Dependency, JitDylib, LookupError, LookupResult, MaterializationUnit, WhyState,
    shared_error,
};

on_every_dispatcher!(
    what_is_depended_on_is_requested_and_nothing_beside_it,
    a_replacement_of_what_is_depended_on_runs_at_once,
    a_future_that_comes_and_goes_leaves_what_is_depended_on_running,
);

type Answer = mpsc::Receiver<Result<LookupResult, LookupError>>;

/// Has a unit of `symbols`, among them `b`, begin, takes the token of `b`, and gives the symbols to `unit`, which no lookup
/// asks for.
fn token_of_what_nobody_wants(
    main: &JitDylib,
    symbols: &[&str],
    unit: Box<dyn MaterializationUnit>,
) -> Dependency {
    let session = main.session();
    let first = define_parked(main, "first unit of b", symbols);
    let asked = session.lookup_future(request(main, &["b"]));
    let responsibility = first.recv().unwrap().attach();
    drop(asked);
    let token = responsibility.dependency(&session.intern("b")).unwrap();
    responsibility.replace(unit).unwrap();
    let why = session.why(main, &session.intern("b"));
    assert!(matches!(why.state, WhyState::NeverSearched { .. } | WhyState::Returned { .. }), "{why}");
    token
}

/// Emits `a` as depending on `token`; a lookup waits for it.
fn emit_a_on(main: &JitDylib, token: Dependency) -> Answer {
    let session = main.session();
    let a = define_parked(main, "unit of a", &["a"]);
    let answer = look_up_later(session, request(main, &["a"]));
    let group = DependenceGroup { symbols: vec![session.intern("a")], dependencies: vec![token] };
    finish_with(a.recv().unwrap().attach(), vec![group]);
    answer
}

fn what_is_depended_on_is_requested_and_nothing_beside_it(on: On) {
    let (session, main) = on.session();
    let (unit, again) = parking_unit(&session, "second unit of b", &["b", "beside"]);
    let token = token_of_what_nobody_wants(&main, &["b", "beside"], unit.boxed());
    let answer = emit_a_on(&main, token);
    let responsibility = again.recv().unwrap().attach();
    assert_eq!(responsibility.requested_symbols(), [session.intern("b")]);
    assert_eq!(responsibility.symbols().len(), 2);
    assert!(answer.try_recv().is_err());
    finish(responsibility);
    assert!(answer.recv().unwrap().is_ok());
    session.close().unwrap();
}

fn a_replacement_of_what_is_depended_on_runs_at_once(on: On) {
    let (session, main) = on.session();
    let (unit, again) = parking_unit(&session, "second unit of b", &["b"]);
    let token = token_of_what_nobody_wants(&main, &["b"], unit.boxed());
    let answer = emit_a_on(&main, token);
    let (third, once_more) = parking_unit(&session, "third unit of b", &["b"]);
    again.recv().unwrap().attach().replace(third.boxed()).unwrap();
    finish(once_more.recv().unwrap().attach());
    assert!(answer.recv().unwrap().is_ok());
    session.close().unwrap();
}

fn a_future_that_comes_and_goes_leaves_what_is_depended_on_running(on: On) {
    let (session, main) = on.session();
    let (unit, again) = parking_unit(&session, "second unit of b", &["b"]);
    let token = token_of_what_nobody_wants(&main, &["b"], unit.boxed());
    let answer = emit_a_on(&main, token);
    let responsibility = again.recv().unwrap().attach();
    drop(session.lookup_future(request(&main, &["b"])));
    assert_eq!(responsibility.requested_symbols(), [session.intern("b")], "`a` depends on it still");
    finish(responsibility);
    assert!(answer.recv().unwrap().is_ok());
    session.close().unwrap();
}

/// ```text
///  the only thread:  emit a on b, which is queued ─ future of b comes and goes │ the unit of b
/// ```
#[test]
fn what_is_depended_on_and_queued_is_not_withdrawn_with_the_last_lookup_of_it() {
    for workers in [0, 1] {
        within_reason(move || {
            let (session, main) = session_of(workers);
            let unit = TestUnit::new("second unit of b", exported(&session, &["b"]), finish);
            let token = token_of_what_nobody_wants(&main, &["b"], unit.boxed());
            let a = define_parked(&main, "unit of a", &["a"]);
            let answer = look_up_later(&session, request(&main, &["a"]));
            let a = a.recv().unwrap();
            while_nothing_else_runs(&session, &main, move |session, main| {
                let group = DependenceGroup { symbols: vec![session.intern("a")], dependencies: vec![token] };
                finish_with(a.attach(), vec![group]);
                drop(session.lookup_future(request(main, &["b"])));
            });
            assert!(answer.recv().unwrap().is_ok());
            assert_eq!(session.metrics().withdrawn_units, 0);
            session.close().unwrap();
        });
    }
}

/// The other way round: what has lost its last dependant before it has started is given back, and can be had again.
#[test]
fn what_is_queued_is_withdrawn_with_its_last_dependant() {
    for workers in [0, 1] {
        within_reason(move || {
            let (session, main) = session_of(workers);
            let (unit, started) = telling_unit(&session, "second unit of b", &["b"]);
            let token = token_of_what_nobody_wants(&main, &["b"], unit.boxed());
            let a = define_parked(&main, "unit of a", &["a"]);
            let answer = look_up_later(&session, request(&main, &["a"]));
            let a = a.recv().unwrap();
            while_nothing_else_runs(&session, &main, move |session, main| {
                let symbol = session.intern("a");
                let group = DependenceGroup { symbols: vec![symbol.clone()], dependencies: vec![token] };
                finish_with(a.attach(), vec![group]);
                main.remove(&[symbol]).unwrap();
            });
            assert!(matches!(answer.recv().unwrap(), Err(LookupError::Failed(_))));
            while session.metrics().withdrawn_units == 0 {
                std::thread::yield_now();
            }
            assert!(started.try_recv().is_err());
            let why = session.why(&main, &session.intern("b"));
            assert!(matches!(why.state, WhyState::Returned { .. }), "{why}");
            session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
            started.try_recv().unwrap();
            session.close().unwrap();
        });
    }
}

/// It fails because of another dependence, and no lookup was waiting for it: no lookup ends by that.
#[test]
fn what_is_queued_is_withdrawn_when_its_last_dependant_fails() {
    for workers in [0, 1] {
        within_reason(move || {
            let (session, main) = session_of(workers);
            let (unit, started) = telling_unit(&session, "second unit of b", &["b"]);
            let token = token_of_what_nobody_wants(&main, &["b"], unit.boxed());
            let [a, fails] = ["a", "fails"].map(|name| {
                let parked = define_parked(&main, name, &[name]);
                let asked = session.lookup_future(request(&main, &[name]));
                let responsibility = parked.recv().unwrap();
                drop(asked);
                responsibility
            });
            while_nothing_else_runs(&session, &main, move |session, _| {
                let fails = fails.attach();
                let broken = fails.dependency(&session.intern("fails")).unwrap();
                let symbols = vec![session.intern("a")];
                finish_with(a.attach(), vec![DependenceGroup { symbols, dependencies: vec![token, broken] }]);
                fails.fail(shared_error("broken"));
            });
            while session.metrics().withdrawn_units == 0 {
                assert!(started.try_recv().is_err(), "what failed needs it no more");
                std::thread::yield_now();
            }
            session.close().unwrap();
            assert!(started.try_recv().is_err());
        });
    }
}

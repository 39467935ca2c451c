//! Failures: reach everything that waits, with the path to the cause.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::{
    DependenceGroup, Detached, EmitError, ExecutionSession, JitDylib, LookupError,
    MaterializationResponsibility, ResolvedResponsibility, SessionError, shared_error,
};

/// Looks `name` up until it is resolved, so that its unit parks, and gives the resolved responsibility.
fn resolve(main: &JitDylib, name: &str) -> Detached<ResolvedResponsibility> {
    let parked = define_parked(main, &format!("unit of {name}"), &[name]);
    let _answer = look_up_later(main.session(), request(main, &[name]));
    let responsibility = parked.recv().unwrap().attach();
    let definitions = addresses(responsibility.symbols());
    responsibility.notify_resolved(&definitions).unwrap().detach()
}

fn depending(
    name: &str,
    responsibility: &ResolvedResponsibility,
    on: &ResolvedResponsibility,
    source: &str,
) -> Vec<DependenceGroup> {
    let session = responsibility.session();
    let dependency = on.dependency(&session.intern(source)).unwrap();
    vec![DependenceGroup { symbols: vec![session.intern(name)], dependencies: vec![dependency] }]
}

#[test]
fn the_error_tells_the_path_to_the_cause() {
    let (session, main) = session();
    let [a, b, c] = ["a", "b", "c"].map(|name| resolve(&main, name).attach());
    let answer = look_up_later(&session, request(&main, &["a"]));
    let groups = depending("a", &a, &b, "b");
    a.notify_emitted(groups).unwrap();
    let groups = depending("b", &b, &c, "c");
    b.notify_emitted(groups).unwrap();
    c.fail(shared_error("out of memory"));
    let error = answer.try_recv().unwrap().unwrap_err();
    assert_eq!(
        error.in_full(),
        "`a` waits on `b` waits on `c` (dylib `main`, unit `unit of c`), which failed: out of memory"
    );
    let again = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert_eq!(again.in_full(), error.in_full(), "later lookups report the first cause");
}

#[test]
fn a_long_path_is_cut_and_counted() {
    let (session, main) = session();
    let names: Vec<String> = (0..100).map(|index| format!("s{index}")).collect();
    let chain: Vec<_> = names.iter().map(|name| resolve(&main, name).attach()).collect();
    let answer = look_up_later(&session, request(&main, &["s0"]));
    let mut groups = vec![Vec::new()];
    for (pair, names) in chain.windows(2).zip(names.windows(2)).rev() {
        groups.push(depending(&names[0], &pair[0], &pair[1], &names[1]));
    }
    let mut chain = chain.into_iter().zip(groups.into_iter().rev()).collect::<Vec<_>>();
    let (last, _) = chain.pop().unwrap();
    for (responsibility, groups) in chain {
        responsibility.notify_emitted(groups).unwrap();
    }
    last.fail(shared_error("out of memory"));
    let error = answer.try_recv().unwrap().unwrap_err().in_full();
    assert!(error.starts_with("`s0` waits on `s1` waits on"), "{error}");
    assert!(error.contains("`s30` waits on (68 more, not listed) which wait on `s99` ("), "{error}");
}

#[test]
fn a_panic_fails_the_units_symbols_with_its_message() {
    let (session, main) = session();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), |_responsibility| panic!("number {}", 7));
    main.define(unit.boxed()).unwrap();
    let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(error.in_full().ends_with("failed: the unit panicked: number 7"), "{error}");
    define_simple(&main, "other", &["b"]);
    session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
}

#[test]
fn a_dropped_responsibility_fails_its_symbols() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let answer = look_up_later(&session, request(&main, &["a"]));
    drop(parked.try_recv().unwrap());
    let Err(LookupError::Failed(failure)) = answer.try_recv().unwrap() else { panic!("nobody emitted it") };
    assert_eq!(failure.symbol().as_str(), "a");
}

#[test]
fn a_failed_dependency_refuses_the_emission_and_leaves_it_usable() {
    let (session, main) = session();
    let [a, b] = ["a", "b"].map(|name| resolve(&main, name).attach());
    let groups = depending("a", &a, &b, "b");
    b.fail(shared_error("no"));
    let refused = a.notify_emitted(groups).unwrap_err();
    assert!(matches!(refused.error, EmitError::DependencyFailed { .. }));
    refused.responsibility.notify_emitted(Vec::new()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
}

/// `a` and `b`, which need each other, and `c`, which `b` needs. Gives what emits the two and fails that.
fn cycle_that_waits(main: &JitDylib) -> impl FnOnce() {
    let [a, b, c] = ["a", "b", "c"].map(|name| resolve(main, name).attach());
    let on_b = depending("a", &a, &b, "b");
    let mut on_a = depending("b", &b, &a, "a");
    on_a[0].dependencies.push(c.dependency(&main.session().intern("c")).unwrap());
    move || {
        a.notify_emitted(on_b).unwrap();
        b.notify_emitted(on_a).unwrap();
        c.fail(shared_error("no"));
    }
}

#[test]
fn failure_inside_a_cycle_reaches_all_of_it() {
    let (session, main) = session();
    let emit_and_fail = cycle_that_waits(&main);
    let answers = ["a", "b"].map(|name| look_up_later(&session, request(&main, &[name])));
    emit_and_fail();
    for answer in answers {
        assert!(answer.try_recv().unwrap().is_err());
    }
}

#[test]
fn a_cycle_becomes_ready_together() {
    let (session, main) = session();
    let [a, b] = ["a", "b"].map(|name| resolve(&main, name).attach());
    let answers = ["a", "b"].map(|name| look_up_later(&session, request(&main, &[name])));
    let (on_b, on_a) = (depending("a", &a, &b, "b"), depending("b", &b, &a, "a"));
    a.notify_emitted(on_b).unwrap();
    assert!(answers.iter().all(|answer| answer.try_recv().is_err()));
    b.notify_emitted(on_a).unwrap();
    for answer in answers {
        assert!(answer.try_recv().unwrap().is_ok());
    }
}

#[test]
fn a_handler_that_panics_is_reported_and_harms_nobody() {
    let (send, reports) = std::sync::mpsc::channel();
    let reporter =
        std::sync::Arc::new(move |error: &uruk_core::SessionError| send.send(error.in_full()).unwrap());
    let session = uruk_core::ExecutionSession::builder().error_reporter(reporter).build();
    let main = session.create_jit_dylib("main").unwrap();
    define_simple(&main, "unit", &["a"]);
    session.lookup_async(request(&main, &["a"]), |_| panic!("in the handler"));
    assert_eq!(reports.try_recv().unwrap(), "a lookup's handler panicked: in the handler");
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
}

/// A panic that came too late to fail a symbol was not reported.
#[test]
fn a_unit_that_panics_after_it_has_finished_is_reported() {
    let (told, reports) = mpsc::channel();
    let reporter = Arc::new(move |error: &SessionError| told.send(error.in_full()).unwrap());
    let session = ExecutionSession::builder().error_reporter(reporter).build();
    let main = session.create_jit_dylib("main").unwrap();
    let unit = |panics_first: bool| {
        move |responsibility: MaterializationResponsibility| {
            if panics_first {
                panic!("in time");
            }
            finish(responsibility);
            panic!("too late");
        }
    };
    main.define(TestUnit::new("unit", exported(&session, &["a"]), unit(false)).boxed()).unwrap();
    main.define(TestUnit::new("unit", exported(&session, &["b"]), unit(true)).boxed()).unwrap();
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_ok());
    assert!(session.lookup_symbol(&order(&main), &session.intern("b")).is_err());
    assert_eq!(reports.try_iter().collect::<Vec<_>>(), ["a unit panicked: too late"]);
}

/// The error of a lookup of `a` by a destructor, on a thread that unwinds from a panic.
fn look_up_while_unwinding(session: ExecutionSession, main: JitDylib) -> String {
    struct LooksUpWhenDropped(ExecutionSession, JitDylib, mpsc::Sender<String>);
    impl Drop for LooksUpWhenDropped {
        fn drop(&mut self) {
            let Self(session, main, told) = self;
            let error = session.lookup_symbol(&order(main), &session.intern("a")).unwrap_err();
            told.send(error.in_full()).unwrap();
        }
    }
    let (told, errors) = mpsc::channel();
    let looks = LooksUpWhenDropped(session, main, told);
    let unwinds = std::panic::AssertUnwindSafe(move || {
        let _looks = looks;
        panic!("something else");
    });
    assert!(std::panic::catch_unwind(unwinds).is_err());
    errors.recv().unwrap()
}

/// A responsibility dropped by code that ran while its thread unwound was said to have panicked.
#[test]
fn a_responsibility_dropped_while_its_thread_unwinds_for_another_reason_did_not_panic() {
    let (session, main) = session();
    main.define(TestUnit::new("unit", exported(&session, &["a"]), drop).boxed()).unwrap();
    let error = look_up_while_unwinding(session, main);
    assert!(error.ends_with("failed: its responsibility was dropped before it was emitted"), "{error}");
}

/// A unit that panics is told from the panic that its thread was unwinding from already.
#[test]
fn a_panic_inside_an_unwinding_thread_keeps_its_own_message() {
    let (session, main) = session();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), |_responsibility| panic!("its own"));
    main.define(unit.boxed()).unwrap();
    let error = look_up_while_unwinding(session, main);
    assert!(error.ends_with("failed: the unit panicked: its own"), "{error}");
}

/// One event, one call: all dependants of the failed symbol hear of it before the call returns, each with its own path.
#[test]
fn a_failure_reaches_every_query_that_depends_on_it_at_once() {
    let (session, main) = session();
    let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|name| resolve(&main, name).attach());
    let mut on_both = depending("a", &a, &b, "b");
    on_both[0].dependencies.push(d.dependency(&session.intern("d")).unwrap());
    let (b_on_c, d_on_c) = (depending("b", &b, &c, "c"), depending("d", &d, &c, "c"));
    a.notify_emitted(on_both).unwrap();
    b.notify_emitted(b_on_c).unwrap();
    d.notify_emitted(d_on_c).unwrap();
    let asked = [&["a"][..], &["b"], &["c"], &["d"], &["e", "a"], &["b", "d"]];
    let answers = asked.map(|names| look_up_later(&session, request(&main, names)));
    let unconcerned = look_up_later(&session, request(&main, &["e"]));
    c.fail(shared_error("out of memory"));
    let errors = answers.map(|answer| answer.try_recv().unwrap().unwrap_err().in_full());
    let end = "`c` (dylib `main`, unit `unit of c`), which failed: out of memory";
    assert_eq!(errors[1], format!("`b` waits on {end}"));
    assert_eq!(errors[2], "`c` (dylib `main`, unit `unit of c`) failed: out of memory");
    assert_eq!(errors[3], format!("`d` waits on {end}"));
    for error in [&errors[0], &errors[4]] {
        assert!(error.starts_with("`a` waits on `") && error.ends_with(end), "{error}");
    }
    assert!(errors[5].ends_with(end), "{}", errors[5]);
    assert!(unconcerned.try_recv().is_err(), "it still waits");
    e.notify_emitted(Vec::new()).unwrap();
    assert!(unconcerned.try_recv().unwrap().is_ok());
}

#[test]
fn what_fails_later_does_not_change_what_failed_first() {
    let (session, main) = session();
    let [a, b, c] = ["a", "b", "c"].map(|name| resolve(&main, name).attach());
    let mut on_both = depending("a", &a, &b, "b");
    on_both[0].dependencies.push(c.dependency(&session.intern("c")).unwrap());
    a.notify_emitted(on_both).unwrap();
    b.fail(shared_error("the first"));
    c.fail(shared_error("the second"));
    for _ in 0..2 {
        let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err().in_full();
        assert!(error.starts_with("`a` waits on `b` (") && error.ends_with("the first"), "{error}");
    }
}

/// The failure of a symbol that a cycle waits for fails all of the cycle, each symbol along an existing edge.
#[test]
fn a_failure_tells_its_path_through_a_cycle() {
    let (session, main) = session();
    cycle_that_waits(&main)();
    let error =
        |name: &str| session.lookup_symbol(&order(&main), &session.intern(name)).unwrap_err().in_full();
    assert!(error("a").starts_with("`a` waits on `b` waits on `c` ("), "{}", error("a"));
    assert!(error("b").starts_with("`b` waits on `c` ("), "{}", error("b"));
}

/// A failure that no lookup has heard of is reported when its symbols go.
#[test]
fn the_reporter_hears_of_failures_that_nobody_else_has() {
    let (told, reports) = mpsc::channel();
    let reporter = Arc::new(move |error: &SessionError| told.send(error.in_full()).unwrap());
    let session = ExecutionSession::builder().error_reporter(reporter).build();
    let main = session.create_jit_dylib("main").unwrap();
    let [a, b] = ["a", "b"].map(|name| {
        let parked = define_parked(&main, &format!("unit of {name}"), &[name]);
        let answer = look_up_later(&session, request(&main, &[name]).until_resolved());
        let responsibility = parked.recv().unwrap().attach();
        let definitions = addresses(responsibility.symbols());
        let resolved = responsibility.notify_resolved(&definitions).unwrap();
        assert!(answer.try_recv().unwrap().is_ok());
        resolved
    });
    a.fail(shared_error("unheard"));
    b.fail(shared_error("heard"));
    assert!(session.lookup_symbol(&order(&main), &session.intern("b")).is_err());
    assert_eq!(reports.try_iter().count(), 0, "somebody may still ask");
    session.close().unwrap();
    assert_eq!(
        reports.try_iter().collect::<Vec<_>>(),
        ["nobody asked for what failed: `a` (dylib `main`, unit `unit of a`) failed: unheard"]
    );
}

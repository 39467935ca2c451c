//! A member of a cycle of emitted symbols falls while the cycle waits: the rest of it fails, along edges that are there.
//!
//! ```text
//!  a ──▶ b ──▶ d ──▶ a       b ──▶ c, which is not emitted
//! ```

use std::sync::mpsc;

use protocol_tests::on::On;
use protocol_tests::*;
use uruk_core::{
    DependenceGroup, Detached, ExecutionSession, FailureCause, JitDylib, LookupError, LookupRequest,
    LookupResult, ResolvedResponsibility, ResourceTracker, WhyState,
};

on_every_dispatcher!(
    a_member_removed_by_name_fails_the_rest_of_its_cycle,
    a_member_removed_with_its_tracker_fails_the_rest_of_its_cycle,
    all_members_removed_at_once_leave_nothing_behind,
);

type Answer = mpsc::Receiver<Result<LookupResult, LookupError>>;

/// A cycle that waits for `c`, and the lookups that wait for the cycle.
struct Cycle {
    session: ExecutionSession,
    main: JitDylib,
    /// The tracker of `d`.
    tracker: ResourceTracker,
    c: Detached<ResolvedResponsibility>,
    answers: [(&'static str, Answer); 3],
    c_ready: Answer,
}

impl Cycle {
    fn new(on: On) -> Self {
        let (session, main) = on.session();
        let tracker = main.create_tracker();
        let parked = ["a", "b", "c", "d"].map(|name| {
            let (send, parked) = mpsc::channel();
            let unit = TestUnit::new(&format!("unit of {name}"), exported(&session, &[name]), move |of| {
                // The test may have ended; then the symbol fails, which is as good.
                let _ = send.send(resolve(of).detach());
            });
            match name {
                "d" => main.define_with_tracker(unit.boxed(), &tracker).unwrap(),
                _ => main.define(unit.boxed()).unwrap(),
            }
            parked
        });
        let look_up = |name: &str| look_up_later(&session, request(&main, &[name]));
        let answers = ["a", "b", "d"].map(|name| (name, look_up(name)));
        let c_ready = look_up("c");
        let [a, b, c, d] = parked.map(|parked| parked.recv().unwrap().attach());
        let on = |of: &ResolvedResponsibility, name: &str| of.dependency(&session.intern(name)).unwrap();
        let (on_a, on_b, on_c, on_d) = (on(&a, "a"), on(&b, "b"), on(&c, "c"), on(&d, "d"));
        for (emits, name, dependencies) in
            [(a, "a", vec![on_b]), (b, "b", vec![on_c, on_d]), (d, "d", vec![on_a])]
        {
            let group = DependenceGroup { symbols: vec![session.intern(name)], dependencies };
            emits.notify_emitted(vec![group]).unwrap();
        }
        let c = c.detach();
        assert!(answers.iter().all(|(_, answer)| answer.try_recv().is_err()), "the cycle waits for c");
        Self { session, main, tracker, c, answers, c_ready }
    }

    /// `d` is gone: who waited for the cycle is told along its edges, now and later.
    fn breaks(self) {
        let Self { session, main, c, answers, c_ready, tracker: _tracker } = self;
        let paths = [("a", vec!["a", "b", "d"]), ("b", vec!["b", "d"]), ("d", vec!["d"])];
        for ((name, answer), (_, path)) in answers.iter().zip(&paths) {
            let error = answer.recv().unwrap().unwrap_err();
            fell_along(&error, path);
            if *name == "d" {
                continue;
            }
            fell_along(&session.lookup_symbol(&order(&main), &session.intern(name)).unwrap_err(), path);
        }
        let gone = session.lookup_symbol(&order(&main), &session.intern("d"));
        assert!(matches!(gone, Err(LookupError::NotFound { .. })));
        // The symbol that the cycle waited for is not affected.
        assert!(c_ready.try_recv().is_err());
        let why = session.why(&main, &session.intern("c"));
        assert!(matches!(why.state, WhyState::Resolved { .. }), "{why}");
        assert!(why.demand.symbols.is_empty(), "nothing depends on it any more: {why}");
        c.attach().notify_emitted(Vec::new()).unwrap();
        assert!(c_ready.recv().unwrap().is_ok());
        // A new `d` heals nothing that has failed, and is a definition like any other.
        define_simple(&main, "new unit of d", &["d"]);
        session.lookup_symbol(&order(&main), &session.intern("d")).unwrap();
        let (name, path) = &paths[0];
        fell_along(&session.lookup_symbol(&order(&main), &session.intern(name)).unwrap_err(), path);
        session.close().unwrap();
    }
}

/// The error is a removal, told along `path`.
fn fell_along(error: &LookupError, path: &[&str]) {
    let LookupError::Failed(failure) = error else { panic!("{error}") };
    assert!(matches!(failure.cause, FailureCause::Removed), "{error}");
    let told: Vec<_> = failure.path.iter().map(|name| name.as_str()).collect();
    assert_eq!(told, path, "{error}");
}

fn a_member_removed_by_name_fails_the_rest_of_its_cycle(on: On) {
    let cycle = Cycle::new(on);
    cycle.main.remove(&[cycle.session.intern("d")]).unwrap();
    cycle.breaks();
}

fn a_member_removed_with_its_tracker_fails_the_rest_of_its_cycle(on: On) {
    let cycle = Cycle::new(on);
    cycle.tracker.remove().unwrap();
    cycle.breaks();
}

fn all_members_removed_at_once_leave_nothing_behind(on: On) {
    let Cycle { session, main, tracker, c, answers, c_ready } = Cycle::new(on);
    main.remove(&["b", "d", "a"].map(|name| session.intern(name))).unwrap();
    for (_, answer) in answers {
        let error = answer.recv().unwrap().unwrap_err();
        let LookupError::Failed(failure) = &error else { panic!("{error}") };
        assert!(matches!(failure.cause, FailureCause::Removed), "{error}");
    }
    c.attach().notify_emitted(Vec::new()).unwrap();
    assert!(c_ready.recv().unwrap().is_ok());
    tracker.remove().unwrap();
    define_simple(&main, "new", &["a", "b", "d"]);
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b", "c", "d"]))).unwrap();
    session.close().unwrap();
}

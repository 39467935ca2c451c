//! Removal and trackers: by name and together, before, during and after materializing.

use std::sync::Arc;
use std::sync::mpsc;

use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{
    DefineError, DelegateError, DependenceGroup, Detached, EmitError, JitDylib, LookupError,
    MaterializationResponsibility, RemoveError, ResolveError, Resource, ResourceTracker, TrackerError,
    absolute_symbols,
};

/// Says when it is removed, or that it was merely dropped.
struct Noted {
    name: &'static str,
    log: Arc<Mutex<Vec<String>>>,
    fails: bool,
    removed: bool,
}

impl Resource for Noted {
    fn remove(mut self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.removed = true;
        self.log.lock().push(self.name.into());
        if self.fails { Err(format!("{} sticks", self.name).into()) } else { Ok(()) }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if !self.removed {
            self.log.lock().push(format!("{} dropped", self.name));
        }
    }
}

type Log = Arc<Mutex<Vec<String>>>;

fn noted(name: &'static str, log: &Log) -> Box<dyn Resource> {
    Box::new(Noted { name, log: log.clone(), fails: false, removed: false })
}

fn absolute(dylib: &JitDylib, name: &str, address: u64) -> Box<dyn uruk_core::MaterializationUnit> {
    absolute_symbols([(dylib.session().intern(name), at(address))].into_iter().collect())
}

#[test]
fn removal_by_name_is_all_or_nothing() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a", "b"]);
    let names = ["a", "b", "c"].map(|name| session.intern(name));
    let error = main.remove(&names).unwrap_err();
    assert_eq!(error.to_string(), "cannot remove symbols that dylib `main` does not define: `c`");
    session.lookup_symbol(&order(&main), &names[0]).unwrap();
    main.remove(&names[..2]).unwrap();
    assert!(session.lookup_symbol(&order(&main), &names[0]).is_err());
    define_simple(&main, "again", &["a", "b"]);
    session.lookup(&order(&main), set(&session, &["a", "b"])).unwrap();
}

#[test]
fn a_materializing_symbol_cannot_be_removed_by_name() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let error = main.remove(&[session.intern("a")]).unwrap_err();
    assert!(matches!(error, RemoveError::InUse { .. }));
    finish(parked.recv().unwrap().attach());
    assert!(answer.recv().unwrap().is_ok());
    main.remove(&[session.intern("a")]).unwrap();
}

#[test]
fn a_trackers_symbols_and_resources_go_together_newest_first() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let log = Log::default();
    let resources = log.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        responsibility.add_resource(noted("first", &resources)).unwrap();
        responsibility.add_resource(noted("second", &resources)).unwrap();
        finish(responsibility);
    });
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    tracker.remove().unwrap();
    assert_eq!(*log.lock(), ["second", "first"]);
    assert!(tracker.is_defunct());
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
    tracker.remove().unwrap();
}

#[test]
fn removal_goes_on_past_errors_and_joins_them() {
    let (_session, main) = session();
    let tracker = main.create_tracker();
    let log = Log::default();
    for name in ["one", "two", "three"] {
        let fails = name != "two";
        tracker.add_resource(Box::new(Noted { name, log: log.clone(), fails, removed: false })).unwrap();
    }
    let error = tracker.remove().unwrap_err();
    assert_eq!(error.to_string(), "resources of dylib `main` could not be removed: three sticks; one sticks");
    assert_eq!(*log.lock(), ["three", "two", "one"]);
}

#[test]
fn a_resource_that_comes_too_late_is_refused_and_dropped() {
    let (_session, main) = session();
    let tracker = main.create_tracker();
    tracker.remove().unwrap();
    let log = Log::default();
    let refused = tracker.add_resource(noted("late", &log));
    assert!(matches!(refused, Err(TrackerError::Defunct { .. })));
    assert_eq!(*log.lock(), ["late dropped"]);
}

#[test]
fn removing_a_tracker_before_materializing_drops_the_unit() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let (send, alive) = mpsc::channel::<()>();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        drop(send);
        finish(responsibility);
    });
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    tracker.remove().unwrap();
    assert_eq!(alive.recv(), Err(mpsc::RecvError), "the unit is gone");
}

#[test]
fn removing_a_tracker_during_materializing_fails_its_queries() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    tracker.remove().unwrap();
    let error = answer.recv().unwrap().unwrap_err();
    assert!(error.to_string().contains("`a` (dylib `main`, unit `unit`) failed: it was removed"), "{error}");
    let responsibility = parked.recv().unwrap().attach();
    let log = Log::default();
    assert!(responsibility.add_resource(noted("late", &log)).is_err());
    let definitions = addresses(responsibility.symbols());
    let refused = responsibility.notify_resolved(&definitions).unwrap_err();
    assert!(matches!(refused.error, ResolveError::TrackerDefunct { .. }));
    // The name is free again, and the old responsibility does not touch the new definition.
    main.define(absolute(&main, "a", 9)).unwrap();
    drop(refused);
    assert_eq!(session.lookup_symbol(&order(&main), &session.intern("a")).unwrap(), at(9));
}

#[test]
fn removing_an_emitted_symbol_fails_its_dependants() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let (send, parked) = mpsc::channel();
    let keep = send.clone();
    let a = TestUnit::new("unit of a", exported(&session, &["a"]), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    let b = TestUnit::new("unit of b", exported(&session, &["b"]), move |responsibility| {
        keep.send(responsibility.detach()).unwrap();
    });
    main.define(a.boxed()).unwrap();
    main.define_with_tracker(b.boxed(), &tracker).unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    let _b = look_up_later(&session, request(&main, &["b"]));
    let a = parked.recv().unwrap().attach();
    let b = parked.recv().unwrap().attach();
    let dependency = b.dependency(&session.intern("b")).unwrap();
    let symbols = vec![session.intern("a")];
    finish_with(a, vec![DependenceGroup { symbols, dependencies: vec![dependency] }]);
    tracker.remove().unwrap();
    let error = answer.recv().unwrap().unwrap_err();
    assert!(error.to_string().starts_with("`a` waits on `b`; `b`"), "{error}");
}

#[test]
fn a_dependency_that_was_removed_refuses_the_emission() {
    let (session, main) = session();
    define_simple(&main, "unit of b", &["b"]);
    let parked = define_parked(&main, "unit of a", &["a"]);
    let answer = look_up_later(&session, request(&main, &["b"])).recv().unwrap().unwrap();
    let dependency = answer.dependency(&session.intern("b")).unwrap();
    let _a = look_up_later(&session, request(&main, &["a"]));
    main.remove(&[session.intern("b")]).unwrap();
    define_simple(&main, "another b", &["b"]);
    let responsibility = parked.recv().unwrap().attach();
    let definitions = addresses(responsibility.symbols());
    let resolved = responsibility.notify_resolved(&definitions).unwrap();
    let group = DependenceGroup { symbols: vec![session.intern("a")], dependencies: vec![dependency] };
    let refused = resolved.notify_emitted(vec![group]).unwrap_err();
    assert!(
        matches!(refused.error, EmitError::DependencyRemoved { .. }),
        "a token is a definition, not a name"
    );
    refused.responsibility.notify_emitted(Vec::new()).unwrap();
}

#[test]
fn transfer_moves_symbols_and_resources() {
    let (session, main) = session();
    let (one, two) = (main.create_tracker(), main.create_tracker());
    let log = Log::default();
    one.add_resource(noted("of one", &log)).unwrap();
    two.add_resource(noted("of two", &log)).unwrap();
    main.define_with_tracker(absolute(&main, "a", 1), &one).unwrap();
    one.transfer_to(&two).unwrap();
    assert!(one.is_defunct());
    let late = main.define_with_tracker(absolute(&main, "late", 1), &one);
    assert!(matches!(late, Err(DefineError::TrackerDefunct { .. })));
    one.remove().unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    two.remove().unwrap();
    assert_eq!(*log.lock(), ["of one", "of two"]);
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
}

#[test]
fn a_transfer_during_materializing_takes_the_claim_along() {
    let (session, main) = session();
    let (one, two) = (main.create_tracker(), main.create_tracker());
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    main.define_with_tracker(unit.boxed(), &one).unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    one.transfer_to(&two).unwrap();
    let log = Log::default();
    let responsibility = parked.recv().unwrap().attach();
    responsibility.add_resource(noted("code", &log)).unwrap();
    finish(responsibility);
    assert!(answer.recv().unwrap().is_ok());
    two.remove().unwrap();
    assert_eq!(*log.lock(), ["code"]);
}

#[test]
fn a_dropped_tracker_transfers_to_the_default_one() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    main.define_with_tracker(absolute(&main, "a", 1), &tracker).unwrap();
    drop(tracker);
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    main.default_tracker().remove().unwrap();
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
    main.define(absolute(&main, "a", 2)).unwrap();
    assert_eq!(session.lookup_symbol(&order(&main), &session.intern("a")).unwrap(), at(2));
}

#[test]
fn clearing_a_dylib_leaves_it_usable() {
    let (session, main) = session();
    let log = Log::default();
    main.default_tracker().add_resource(noted("default", &log)).unwrap();
    let tracker = main.create_tracker();
    tracker.add_resource(noted("newest", &log)).unwrap();
    define_simple(&main, "unit", &["a"]);
    main.clear().unwrap();
    assert_eq!(*log.lock(), ["newest", "default"]);
    assert!(tracker.is_defunct());
    define_simple(&main, "unit", &["a"]);
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
}

#[test]
fn a_removed_dylib_is_gone_from_link_orders_and_refused_in_search_orders() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    main.add_to_link_order(&other, Default::default()).unwrap();
    assert_eq!(main.link_order().len(), 2);
    session.remove_jit_dylib(&other).unwrap();
    assert_eq!(main.link_order().len(), 1);
    let error = session.lookup_symbol(&order(&other), &session.intern("a")).unwrap_err();
    assert!(matches!(error, LookupError::DylibRemoved { .. }));
    session.create_jit_dylib("other").unwrap();
}

#[test]
fn ten_thousand_trackers_come_and_go() {
    let (session, main) = session();
    for round in 0..10 {
        let trackers: Vec<_> = (0..1000)
            .map(|index| {
                let tracker = main.create_tracker();
                main.define_with_tracker(absolute(&main, &format!("r{round}_{index}"), 1), &tracker).unwrap();
                tracker
            })
            .collect();
        session.lookup_symbol(&order(&main), &session.intern(&format!("r{round}_7"))).unwrap();
        for tracker in trackers {
            tracker.remove().unwrap();
        }
    }
}

/// Ids of two sessions may coincide, and then the wrong dylib went.
#[test]
fn a_dylib_of_another_session_removes_nothing_here() {
    let (ours, main) = session();
    let (_theirs, foreign) = session();
    define_simple(&main, "unit", &["a"]);
    main.remove_from_link_order(&foreign);
    assert_eq!(main.link_order().len(), 1);
    assert!(ours.remove_jit_dylib(&foreign).is_err());
    assert!(ours.lookup_symbol(&order(&main), &ours.intern("a")).is_ok());
}

#[test]
fn symbols_are_removed_by_name_in_every_state_but_materializing() {
    let (session, main) = session();
    let names = ["never searched", "ready", "failed", "address"];
    define_simple(&main, "one", &names[..1]);
    define_simple(&main, "two", &names[1..2]);
    main.define(TestUnit::new("three", exported(&session, &names[2..3]), drop).boxed()).unwrap();
    main.define(absolute(&main, "address", 1)).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("ready")).unwrap();
    assert!(session.lookup_symbol(&order(&main), &session.intern("failed")).is_err());
    main.remove(&names.map(|name| session.intern(name))).unwrap();
    for name in names {
        let gone = session.lookup_symbol(&order(&main), &session.intern(name));
        assert!(matches!(gone, Err(LookupError::NotFound { .. })));
        main.define(absolute(&main, name, 2)).unwrap();
    }
    assert_eq!(session.lookup(&order(&main), set(&session, &names)).unwrap().len(), 4);
}

#[test]
fn removing_an_emitted_symbol_by_name_fails_its_dependants() {
    let (session, main) = session();
    let [a, b, c] = ["a", "b", "c"].map(|name| define_parked(&main, name, &[name]));
    let [a_ready, b_ready, _c] = ["a", "b", "c"].map(|name| look_up_later(&session, request(&main, &[name])));
    let [a, b, c] = [a, b, c].map(|parked| parked.recv().unwrap().attach());
    let group = |name: &str, token| {
        vec![DependenceGroup { symbols: vec![session.intern(name)], dependencies: vec![token] }]
    };
    let on_b = group("a", b.dependency(&session.intern("b")).unwrap());
    let on_c = group("b", c.dependency(&session.intern("c")).unwrap());
    finish_with(a, on_b);
    finish_with(b, on_c);
    // `b` is emitted and waits for `c`; `a` waits for `b`.
    main.remove(&[session.intern("b")]).unwrap();
    for answer in [a_ready, b_ready] {
        let error = answer.try_recv().unwrap().unwrap_err();
        assert!(error.to_string().contains("failed: it was removed"), "{error}");
    }
    finish(c);
    session.lookup_symbol(&order(&main), &session.intern("c")).unwrap();
}

#[test]
fn what_depends_on_a_removed_ready_symbol_stays() {
    let (session, main) = session();
    define_simple(&main, "unit of b", &["b"]);
    let token = look_up_later(&session, request(&main, &["b"])).recv().unwrap().unwrap();
    let token = token.dependency(&session.intern("b")).unwrap();
    let unit = TestUnit::new("unit of a", exported(&session, &["a"]), move |responsibility| {
        let symbols = responsibility.symbols().keys().cloned().collect();
        finish_with(responsibility, vec![DependenceGroup { symbols, dependencies: vec![token] }]);
    });
    main.define(unit.boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    main.remove(&[session.intern("b")]).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
}

/// A tracker whose one symbol `a` materializes in the test's hands.
fn parked_under_a_tracker(
    main: &JitDylib,
) -> (ResourceTracker, mpsc::Receiver<Detached<MaterializationResponsibility>>) {
    let tracker = main.create_tracker();
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("unit", exported(main.session(), &["a"]), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    (tracker, parked)
}

#[test]
fn removing_a_tracker_between_resolution_and_emission_refuses_the_emission() {
    let (session, main) = session();
    let (tracker, parked) = parked_under_a_tracker(&main);
    let ready = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.recv().unwrap().attach();
    let log = Log::default();
    responsibility.add_resource(noted("code", &log)).unwrap();
    let definitions = addresses(responsibility.symbols());
    let resolved = responsibility.notify_resolved(&definitions).unwrap();
    tracker.remove().unwrap();
    assert_eq!(*log.lock(), ["code"]);
    assert!(matches!(ready.try_recv().unwrap(), Err(LookupError::Failed(_))));
    let refused = resolved.notify_emitted(Vec::new()).unwrap_err();
    assert!(matches!(refused.error, EmitError::TrackerDefunct { .. }));
}

#[test]
fn a_defunct_tracker_refuses_define_replace_delegate_and_further_symbols() {
    let (session, main) = session();
    let (tracker, parked) = parked_under_a_tracker(&main);
    let _answer = look_up_later(&session, request(&main, &["a"]));
    let mut responsibility = parked.recv().unwrap().attach();
    tracker.remove().unwrap();
    let unit = || TestUnit::new("late", exported(&session, &["a"]), finish).boxed();
    let defined = main.define_with_tracker(unit(), &tracker);
    assert!(matches!(defined, Err(DefineError::TrackerDefunct { .. })));
    let more = responsibility.define_materializing(exported(&session, &["more"]));
    assert!(matches!(more, Err(DefineError::TrackerDefunct { .. })));
    let delegated = responsibility.delegate([session.intern("a")]);
    assert!(matches!(delegated, Err(DelegateError::TrackerDefunct { .. })));
    let refused = responsibility.replace(unit()).unwrap_err();
    assert!(matches!(refused.error, DefineError::TrackerDefunct { .. }));
    drop(refused);
    let gone = session.lookup_symbol(&order(&main), &session.intern("a"));
    assert!(matches!(gone, Err(LookupError::NotFound { .. })));
}

#[test]
fn a_transfer_before_materializing_takes_the_unit_along() {
    let (session, main) = session();
    let (one, parked) = parked_under_a_tracker(&main);
    let two = main.create_tracker();
    one.transfer_to(&two).unwrap();
    one.remove().unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    let log = Log::default();
    let responsibility = parked.recv().unwrap().attach();
    responsibility.add_resource(noted("code", &log)).unwrap();
    finish(responsibility);
    assert!(answer.try_recv().unwrap().is_ok());
    two.remove().unwrap();
    assert_eq!(*log.lock(), ["code"]);
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
}

#[test]
fn a_transfer_after_materializing_takes_symbols_and_resources_along() {
    let (session, main) = session();
    let (one, parked) = parked_under_a_tracker(&main);
    let two = main.create_tracker();
    let log = Log::default();
    let answer = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.recv().unwrap().attach();
    responsibility.add_resource(noted("code", &log)).unwrap();
    let definitions = addresses(responsibility.symbols());
    let resolved = responsibility.notify_resolved(&definitions).unwrap();
    // Once while it is resolved, once when it is Ready.
    one.transfer_to(&two).unwrap();
    resolved.notify_emitted(Vec::new()).unwrap();
    assert!(answer.try_recv().unwrap().is_ok());
    let three = main.create_tracker();
    two.transfer_to(&three).unwrap();
    two.remove().unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    assert!(log.lock().is_empty());
    three.remove().unwrap();
    assert_eq!(*log.lock(), ["code"]);
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
}

#[test]
fn trackers_of_two_dylibs_do_not_mix() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let (ours, theirs) = (main.create_tracker(), other.create_tracker());
    assert!(matches!(ours.transfer_to(&theirs), Err(TrackerError::Foreign { .. })));
    let foreign = main.define_with_tracker(absolute(&main, "a", 1), &theirs);
    assert!(matches!(foreign, Err(DefineError::ForeignTracker { .. })));
    assert!(!ours.is_defunct() && !theirs.is_defunct());
}

#[test]
fn removing_a_whole_dylib_ends_everything_in_it() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let log = Log::default();
    let (tracker, parked) = parked_under_a_tracker(&main);
    tracker
        .add_resource(Box::new(Noted { name: "stuck", log: log.clone(), fails: true, removed: false }))
        .unwrap();
    main.default_tracker().add_resource(noted("oldest", &log)).unwrap();
    let waits = look_up_later(&session, request(&main, &["a"]));
    let depends = define_parked(&other, "dependant", &["d"]);
    let ready = look_up_later(&session, request(&other, &["d"]));
    let responsibility = parked.recv().unwrap().attach();
    let dependencies = vec![responsibility.dependency(&session.intern("a")).unwrap()];
    let group = DependenceGroup { symbols: vec![session.intern("d")], dependencies };
    finish_with(depends.recv().unwrap().attach(), vec![group]);
    let error = session.remove_jit_dylib(&main).unwrap_err();
    assert_eq!(error.to_string(), "resources of dylib `main` could not be removed: stuck sticks");
    assert_eq!(*log.lock(), ["stuck", "oldest"]);
    assert!(matches!(waits.try_recv().unwrap(), Err(LookupError::Failed(_))));
    assert!(matches!(ready.try_recv().unwrap(), Err(LookupError::Failed(_))), "in the other dylib");
    assert!(tracker.is_defunct());
    let defined = main.define(absolute(&main, "a", 1));
    assert!(matches!(defined, Err(DefineError::DylibRemoved { .. })));
    assert!(matches!(main.remove(&[session.intern("a")]), Err(RemoveError::DylibRemoved { .. })));
    assert!(session.jit_dylib("main").is_none());
    drop(responsibility);
    session.remove_jit_dylib(&main).unwrap();
}

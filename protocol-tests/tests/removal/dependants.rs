//! Those who need the symbols of a tracker that is removed.
//!
//! The story: a query was compiled against a helper that was Ready, the helper's tracker was removed, and nothing said a word. The
//! query called unmapped memory.

use protocol_tests::tracked::{Log, noted};
use protocol_tests::*;
use uruk_core::sync::{Arc, Mutex};
use uruk_core::{
    AliasTarget, DependenceGroup, ExecutionSession, JitDylib, JitDylibLookupFlags, LookupError,
    LookupRequest, OwnedTracker, RemovalPolicy, RemoveError, ResourceTracker, SessionError, symbol_aliases,
};

/// A session whose dylib keeps dependants.
fn keeping() -> (ExecutionSession, JitDylib) {
    let session = ExecutionSession::new();
    let main = session.create_jit_dylib_keeping_dependants("main").unwrap();
    (session, main)
}

/// Defines one symbol in a tracker of its own that needs these, and makes it Ready. It has a resource of its name.
fn linked(dylib: &JitDylib, name: &'static str, needs: &[&'static str], log: &Log) -> ResourceTracker {
    let tracker = dylib.create_tracker();
    let needs = LookupRequest::new(dylib.link_order(), set(dylib.session(), needs));
    let log = log.clone();
    let unit = TestUnit::new(name, exported(dylib.session(), &[name]), move |responsibility| {
        responsibility.add_resource(noted(name, &log)).unwrap();
        emit_depending_on(resolve(responsibility), needs);
    });
    dylib.define_with_tracker(unit.boxed(), &tracker).unwrap();
    assert!(is_there(dylib, name));
    tracker
}

fn is_there(dylib: &JitDylib, name: &str) -> bool {
    let session = dylib.session();
    match session.lookup_symbol(&order(dylib), &session.intern(name)) {
        Ok(_) => true,
        Err(LookupError::NotFound { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_needed_is_not_removed_and_the_error_says_by_whom() {
    let (_session, main) = keeping();
    let log = Log::default();
    let helper = linked(&main, "helper", &[], &log);
    let query = linked(&main, "query", &["helper"], &log);
    let error = helper.remove().unwrap_err();
    assert_eq!(
        error.in_full(),
        "cannot remove symbols of dylib `main` that others need, such as `helper`; needed by `query`: remove those first, or all \
         together with `RemovalPolicy::Cascade`"
    );
    assert!(helper.remove_with(RemovalPolicy::Refuse).is_err());
    assert!(is_there(&main, "helper") && is_there(&main, "query") && !helper.is_defunct());
    assert!(log.lock().is_empty());
    query.remove().unwrap();
    helper.remove().unwrap();
    assert_eq!(*log.lock(), ["query", "helper"]);
}

#[test]
fn dependants_go_before_what_they_need() {
    let (_session, main) = keeping();
    let log = Log::default();
    let below = linked(&main, "below", &[], &log);
    let _middle = linked(&main, "middle", &["below"], &log);
    let _both = linked(&main, "both", &["below", "middle"], &log);
    let _top = linked(&main, "top", &["both"], &log);
    let _aside = linked(&main, "aside", &[], &log);
    below.remove_with(RemovalPolicy::Cascade).unwrap();
    assert_eq!(*log.lock(), ["top", "both", "middle", "below"]);
    assert!(["below", "middle", "both", "top"].iter().all(|name| !is_there(&main, name)));
    assert!(is_there(&main, "aside"));
}

/// They were added with it: its own removal was refused once it had two symbols of which one needs the other.
#[test]
fn a_tracker_may_need_its_own() {
    let (_session, main) = keeping();
    let log = Log::default();
    let tracker = linked(&main, "helper", &[], &log);
    linked(&main, "query", &["helper"], &log).transfer_to(&tracker).unwrap();
    tracker.remove().unwrap();
    assert_eq!(*log.lock(), ["query", "helper"]);
}

#[test]
fn what_was_emitted_together_goes_together() {
    let (session, main) = keeping();
    let log = Log::default();
    let helper = linked(&main, "helper", &[], &log);
    let names = ["needs", "beside"];
    let resources = log.clone();
    let needs = request(&main, &["helper"]);
    let unit = TestUnit::new("unit", exported(&session, &names), move |responsibility| {
        responsibility.add_resource(noted("unit", &resources)).unwrap();
        let found =
            responsibility.session().lookup(LookupRequest::new(&needs.order, needs.symbols.clone())).unwrap();
        let symbols = vec![responsibility.session().intern("needs")];
        let group = DependenceGroup { symbols, dependencies: found.dependencies() };
        resolve(responsibility).notify_emitted(vec![group]).unwrap();
    });
    main.define(unit.boxed()).unwrap();
    assert!(is_there(&main, "needs"));
    let Err(RemoveError::Needed { dependants, count: 1, .. }) = helper.remove() else {
        panic!("it is needed")
    };
    assert_eq!(dependants, [session.intern("needs")], "only one of them needs it");
    helper.remove_with(RemovalPolicy::Cascade).unwrap();
    assert_eq!(*log.lock(), ["unit", "helper"]);
    assert!(!is_there(&main, "beside"));
}

/// One need was Ready when the dependant was emitted, the other was not: the forest knows only of the latter.
#[test]
fn who_still_waits_for_others_counts() {
    let (session, main) = keeping();
    let log = Log::default();
    let helper = linked(&main, "helper", &[], &log);
    let parked = define_parked(&main, "late", &["late"]);
    let needs = request(&main, &["helper", "late"]);
    let unit = TestUnit::new("query", exported(&session, &["query"]), move |responsibility| {
        emit_depending_on(resolve(responsibility), needs);
    });
    main.define(unit.boxed()).unwrap();
    let answer = look_up_later(&session, request(&main, &["query"]));
    let late = resolve(parked.recv().unwrap().attach());
    assert!(matches!(helper.remove(), Err(RemoveError::Needed { .. })));
    late.notify_emitted(Vec::new()).unwrap();
    answer.recv().unwrap().unwrap();
    assert!(matches!(helper.remove(), Err(RemoveError::Needed { .. })));
}

#[test]
fn an_alias_needs_what_it_names() {
    let (session, main) = keeping();
    let log = Log::default();
    let helper = linked(&main, "helper", &[], &log);
    let target = AliasTarget { source: session.intern("helper"), flags: at(1).flags };
    main.define(symbol_aliases([(session.intern("alias"), target)].into_iter().collect())).unwrap();
    helper.remove_with(RemovalPolicy::Refuse).expect("nobody has looked for the alias");
    let helper = linked(&main, "helper", &[], &log);
    assert!(is_there(&main, "alias"));
    let Err(RemoveError::Needed { dependants, .. }) = helper.remove() else { panic!("it is needed") };
    assert_eq!(dependants, [session.intern("alias")]);
}

#[test]
fn dependants_are_of_any_dylib_and_kept_where_they_lead() {
    let (session, library) = keeping();
    let plugin = session.create_jit_dylib("plugin").unwrap();
    plugin.add_to_link_order(&library, JitDylibLookupFlags::MatchAllSymbols).unwrap();
    let log = Log::default();
    let helper = linked(&library, "helper", &[], &log);
    let plug = linked(&plugin, "plug", &["helper"], &log);
    linked(&plugin, "above", &["plug"], &log);
    assert!(matches!(helper.remove(), Err(RemoveError::Needed { .. })));
    let unknown = plug.remove_with(RemovalPolicy::Refuse).unwrap_err();
    assert_eq!(
        unknown.in_full(),
        "dylib `plugin` does not keep what depends on its symbols, so a removal cannot ask: create it with \
         `create_jit_dylib_keeping_dependants`"
    );
    // The dependants of `plug` are not kept: the chain ends there.
    helper.remove_with(RemovalPolicy::Cascade).unwrap();
    assert_eq!(*log.lock(), ["plug", "helper"]);
    assert!(is_there(&plugin, "above"));
}

#[test]
fn whoever_leaves_dependants_removes_as_always() {
    let (_session, main) = keeping();
    let log = Log::default();
    let helper = linked(&main, "helper", &[], &log);
    let query = linked(&main, "query", &["helper"], &log);
    helper.remove_leaving_dependants_by(|resource| resource.remove()).unwrap();
    assert!(is_there(&main, "query") && !is_there(&main, "helper"));
    // A new symbol of the name has no dependants.
    linked(&main, "helper", &[], &log).remove().unwrap();
    query.remove().unwrap();
    assert_eq!(*log.lock(), ["helper", "helper", "query"]);
}

#[test]
fn who_comes_to_need_what_is_gone_fails() {
    let (session, main) = keeping();
    let log = Log::default();
    let helper = linked(&main, "helper", &[], &log);
    let found = session.lookup(LookupRequest::new(order(&main), set(&session, &["helper"]))).unwrap();
    let parked = define_parked(&main, "query", &["query"]);
    let answer = look_up_later(&session, request(&main, &["query"]));
    let query = resolve(parked.recv().unwrap().attach());
    helper.remove().expect("it is not emitted yet");
    let symbols = vec![session.intern("query")];
    let group = DependenceGroup { symbols, dependencies: found.dependencies() };
    let refused = query.notify_emitted(vec![group]).expect_err("it needs what is gone");
    refused.fail();
    assert!(matches!(answer.recv().unwrap(), Err(LookupError::Failed(_))));
}

#[test]
fn an_error_names_the_first_of_many() {
    let (session, main) = keeping();
    let log = Log::default();
    let helper = linked(&main, "helper", &[], &log);
    for number in 0..1_000 {
        let (name, needs) = (format!("query{number}"), request(&main, &["helper"]));
        let unit = TestUnit::new(&name, exported(&session, &[&name]), move |responsibility| {
            emit_depending_on(resolve(responsibility), needs);
        });
        main.define(unit.boxed()).unwrap();
        assert!(is_there(&main, &name));
    }
    let error = helper.remove().unwrap_err();
    let Err(RemoveError::Needed { dependants, count, .. }) = helper.remove() else { panic!("{error}") };
    assert_eq!((dependants.len(), count), (16, 1_000));
    assert!(error.to_string().contains(" and 984 more:"), "{error}");
    assert!(error.to_string().len() < 512);
}

/// A caller that asked for its removal, and was refused, had lost the tracker: its symbols belonged to the dylib for ever.
#[test]
fn an_owned_tracker_that_is_needed_comes_back() {
    let session = ExecutionSession::new();
    let main = session.create_jit_dylib_keeping_dependants("main").unwrap();
    let log = Log::default();
    let helper = OwnedTracker::new(linked(&main, "helper", &[], &log));
    let query = OwnedTracker::new(linked(&main, "query", &["helper"], &log));
    let refused = helper.remove().unwrap_err();
    assert!(matches!(refused.error, RemoveError::Needed { .. }), "{refused}");
    query.remove().unwrap();
    refused.tracker.expect("it is as it was").remove().unwrap();
    assert!(!is_there(&main, "helper"));
    assert_eq!(*log.lock(), ["query", "helper"]);
}

#[test]
fn an_owned_tracker_that_is_needed_leaves_its_symbols_to_the_dylib() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let reports = told.clone();
    let reporter = move |error: &SessionError| reports.lock().push(error.in_full());
    let session = ExecutionSession::builder().error_reporter(Arc::new(reporter)).build();
    let main = session.create_jit_dylib_keeping_dependants("main").unwrap();
    let log = Log::default();
    let helper = OwnedTracker::new(linked(&main, "helper", &[], &log));
    let query = OwnedTracker::new(linked(&main, "query", &["helper"], &log));
    assert!(helper.remove_with(RemovalPolicy::Refuse).is_err(), "it is still there to ask again");
    drop(helper);
    assert!(matches!(&told.lock()[..], [only] if only.contains("needed by `query`")), "{told:?}");
    assert!(is_there(&main, "helper"));
    drop(query);
    main.default_tracker().remove().unwrap();
    assert_eq!(*log.lock(), ["query", "helper"]);
}

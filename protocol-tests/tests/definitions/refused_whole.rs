//! Operations on several symbols, one of which speaks against them: none of the others has changed then.

use std::sync::mpsc;

use protocol_tests::*;
use uruk_core::{
    DependenceGroup, EmitError, EventKind, ExecutionSession, RemoveError, ResolveError, SymbolFlags,
    SymbolName,
};

/// `busy` is being materialized, `ready` is Ready, and the weak symbol was never searched.
#[test]
fn a_refused_removal_by_name_leaves_those_that_could_be_removed() {
    let (send, events) = mpsc::channel();
    let observer = move |event: &uruk_core::SessionEvent| send.send(event.kind.clone()).unwrap();
    let session = ExecutionSession::builder().observer(std::sync::Arc::new(observer)).build();
    let main = session.create_jit_dylib("main").unwrap();
    let [ready, busy, weak] = ["ready", "busy", "weak"].map(|name| session.intern(name));
    define_simple(&main, "unit of ready", &["ready"]);
    session.lookup_symbol(&order(&main), &ready).unwrap();
    let parked = define_parked(&main, "unit of busy", &["busy"]);
    let answer = look_up_later(&session, request(&main, &["busy"]));
    let (discards, told) = mpsc::channel();
    let flags = [(weak.clone(), EXPORTED | SymbolFlags::WEAK)].into_iter().collect();
    let unit = TestUnit::new("unit of weak", flags, finish);
    main.define(unit.on_discard(move |symbol| discards.send(symbol.to_string()).unwrap()).boxed()).unwrap();
    let names = [ready.clone(), busy.clone(), weak.clone()];
    let refused = |symbol: &SymbolName| {
        let Err(RemoveError::InUse { symbols, .. }) = main.remove(&names) else {
            panic!("it was not refused")
        };
        assert_eq!(symbols, std::slice::from_ref(symbol));
    };
    refused(&busy);
    // Nor while it has an address and is not emitted.
    let resolved = resolve(parked.recv().unwrap().attach());
    refused(&busy);
    assert!(told.try_recv().is_err(), "nothing was discarded");
    assert!(!events.try_iter().any(|kind| matches!(kind, EventKind::Removed { .. })));
    assert!(session.lookup_symbol(&order(&main), &ready).is_ok());
    // It is weak as before, and was never searched.
    define_absolute(&main, "weak", 7);
    assert_eq!(told.try_recv().unwrap(), "weak");
    resolved.notify_emitted(Vec::new()).unwrap();
    assert!(answer.try_recv().unwrap().is_ok());
    main.remove(&names).unwrap();
    assert!(main.flags(names).is_empty());
}

#[test]
fn what_was_given_back_may_be_removed_by_name() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let future = session.lookup_future(request(&main, &["a"]));
    let responsibility = parked.recv().unwrap().attach();
    drop(future);
    let a = session.intern("a");
    assert!(matches!(main.remove(std::slice::from_ref(&a)), Err(RemoveError::InUse { .. })));
    // No lookup waits for the symbol, so its new unit waits for a search.
    let again = TestUnit::new("again", exported(&session, &["a"]), |_| panic!("nobody asked"));
    responsibility.replace(again.boxed()).map_err(|refused| refused.error).unwrap();
    main.remove(std::slice::from_ref(&a)).unwrap();
    assert!(main.flags([a.clone()]).is_empty());
    define_absolute(&main, "a", 7);
    assert_eq!(session.lookup_symbol(&order(&main), &a).unwrap(), at(7));
}

#[test]
fn of_several_groups_that_are_refused_none_is_emitted() {
    let (session, main) = session();
    let broken = define_parked(&main, "unit of x", &["x"]);
    let _x = look_up_later(&session, request(&main, &["x"]));
    let broken = broken.recv().unwrap().attach();
    let x = broken.dependency(&session.intern("x")).unwrap();
    drop(broken);
    let parked = define_parked(&main, "unit", &["a", "b"]);
    let [ready_a, ready_b] = ["a", "b"].map(|name| look_up_later(&session, request(&main, &[name])));
    let resolved = resolve(parked.recv().unwrap().attach());
    let group = |name: &str, dependencies| {
        let symbols = vec![session.intern(name)];
        DependenceGroup { symbols, dependencies }
    };
    let groups = vec![group("a", Vec::new()), group("b", vec![x])];
    let refused = resolved.notify_emitted(groups).unwrap_err();
    assert!(matches!(refused.error, EmitError::DependencyFailed { .. }), "{}", refused.error);
    assert!(ready_a.try_recv().is_err() && ready_b.try_recv().is_err(), "neither is Ready");
    let known = look_up_later(&session, request(&main, &["a", "b"]).until_resolved());
    assert!(known.try_recv().unwrap().is_ok(), "and both still have their addresses");
    let groups = vec![group("a", Vec::new()), group("b", Vec::new())];
    refused.responsibility.notify_emitted(groups).unwrap();
    assert!(ready_a.try_recv().unwrap().is_ok() && ready_b.try_recv().unwrap().is_ok());
}

#[test]
fn an_address_for_what_exists_for_its_side_effects_is_refused_and_gives_none_to_the_others() {
    let (session, main) = session();
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    let init = session.intern("init");
    main.define(unit.with_initializer(init.clone()).boxed()).unwrap();
    let known = look_up_later(&session, request(&main, &["a"]).until_resolved());
    let responsibility = parked.recv().unwrap().attach();
    let mut given = addresses(responsibility.symbols());
    given.insert(init.clone(), at(0x2000));
    let refused = responsibility.notify_resolved(&given).unwrap_err();
    let ResolveError::Unexpected { ref symbols, .. } = refused.error else { panic!("{}", refused.error) };
    assert_eq!(*symbols, [init]);
    assert!(known.try_recv().is_err(), "none has an address");
    finish(refused.responsibility);
    assert!(known.try_recv().unwrap().is_ok());
}

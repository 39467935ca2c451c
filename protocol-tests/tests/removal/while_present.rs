//! The code at a symbol's address is held while the symbol, or the source of its alias, may be removed.
//!
//! A handle of a function looked its symbol up twice, before and after it took hold of the code, and no test failed without the
//! second look. A handle of an alias whose source had been removed held nothing, or other code placed there since: a safe call
//! ran that.
//!
//! ```text
//!  lookup ─ hold: [ remove ─ define anew ─ look at the address ] ─ is it there? no ─ lookup ─ hold ─ is it there? yes
//! ```

use protocol_tests::*;
use uruk_core::{
    AliasMap, AliasTarget, Dependency, ExecutionSession, JitDylib, JitDylibLookupFlags, LookupError,
    LookupRequest, MaterializationUnit, reexports, symbol_aliases,
};

fn aliases(session: &ExecutionSession, pairs: &[(&str, &str)]) -> AliasMap {
    let target = |source: &str| AliasTarget { source: session.intern(source), flags: EXPORTED };
    pairs.iter().map(|(alias, source)| (session.intern(alias), target(source))).collect()
}

fn simple(session: &ExecutionSession, names: &[&str]) -> Box<dyn MaterializationUnit> {
    Box::new(TestUnit::new("unit", exported(session, names), finish))
}

fn find(dylib: &JitDylib, symbol: &str) -> Dependency {
    let session = dylib.session();
    let found =
        session.lookup(LookupRequest::new(order(dylib), set(session, &[symbol]))).expect("it is defined");
    found.dependency(&session.intern(symbol)).expect("it was found")
}

fn refused(dylib: &JitDylib, symbol: &str) -> String {
    let session = dylib.session();
    let (order, name) = (order(dylib), session.intern(symbol));
    assert_eq!(session.ready_symbol(&order, &name), None);
    let told = |answer: Result<(), LookupError>| match answer {
        Err(LookupError::AliasOfRemoved { alias }) => alias.as_str().to_owned(),
        other => panic!("{symbol}: {other:?}"),
    };
    let one = told(session.lookup_symbol(&order, &name).map(drop));
    assert_eq!(
        told(session.lookup(LookupRequest::new(&order, set(session, &[symbol])).until_resolved()).map(drop)),
        one
    );
    one
}

#[test]
fn what_is_held_while_its_symbol_is_redefined_is_not_given() {
    let (session, main) = session();
    let add = || {
        let tracker = main.create_tracker();
        main.define_with_tracker(simple(&session, &["a"]), &tracker).expect("the name is free");
        tracker
    };
    let first = add();
    let mut second = None;
    let held = session.while_present(find(&main, "a"), || {
        first.remove().expect("there is no resource");
        second = Some(add());
        find(&main, "a");
        "of the second"
    });
    assert!(matches!(held, Ok(None)), "{held:?}");
    let held = session.while_present(find(&main, "a"), || "of the second");
    assert!(matches!(held, Ok(Some("of the second"))), "{held:?}");
}

#[test]
fn what_is_seen_while_something_is_removed_is_not_given() {
    let (session, main) = session();
    let [first, second] = ["a", "b"].map(|name| {
        let tracker = main.create_tracker();
        main.define_with_tracker(simple(&session, &[name]), &tracker).expect("the name is free");
        tracker
    });
    find(&main, "a");
    // A symbol that becomes Ready removes nothing.
    assert!(session.while_unchanged(|| find(&main, "b")).is_some());
    assert!(session.while_unchanged(|| first.remove().is_ok()).is_none());
    assert_eq!(session.while_unchanged(|| 42), Some(42));
    assert!(session.while_unchanged(|| second.remove().is_ok()).is_none());
    session.close().expect("no resource complains");
    assert_eq!(session.while_unchanged(|| 42), None);
}

#[test]
fn an_alias_is_there_as_long_as_its_source_is() {
    let (session, main) = session();
    let library = session.create_jit_dylib("library").expect("a new name");
    let tracker = library.create_tracker();
    library.define_with_tracker(simple(&session, &["a"]), &tracker).expect("the name is free");
    library.define(symbol_aliases(aliases(&session, &[("b", "a"), ("c", "b")]))).expect("new names");
    let exported = reexports(
        library.clone(),
        JitDylibLookupFlags::MatchExportedSymbolsOnly,
        aliases(&session, &[("d", "c")]),
    );
    main.define(exported).expect("a new name");
    let held = session.while_present(find(&main, "d"), || ());
    assert!(matches!(held, Ok(Some(()))), "{held:?}");

    let found_before = find(&main, "d");
    tracker.remove().expect("there is no resource");
    let held = session.while_present(found_before, || ());
    assert!(matches!(held, Err(LookupError::AliasOfRemoved { .. })), "{held:?}");
    assert_eq!(
        (refused(&library, "b"), refused(&library, "c"), refused(&main, "d")),
        ("b".into(), "b".into(), "b".into())
    );
    // Another symbol of the name is not what they stand for.
    library.define(simple(&session, &["a"])).expect("the name is free");
    assert!(matches!(session.while_present(find(&library, "a"), || ()), Ok(Some(()))));
    assert_eq!(refused(&main, "d"), "b");

    library.remove(&["b", "c"].map(|name| session.intern(name))).expect("they are there");
    library.define(symbol_aliases(aliases(&session, &[("c", "a")]))).expect("a new name");
    assert!(matches!(session.while_present(find(&library, "c"), || ()), Ok(Some(()))));
    assert_eq!(refused(&main, "d"), "d", "it stood for the other one");
}

/// Between two slices of a removal its rows are still in the state.
#[test]
fn a_symbol_that_is_being_removed_is_not_there() {
    let (session, main) = session();
    let (other_session, other) = self::session();
    define_simple(&other, "unit", &["a"]);
    let foreign = session.while_present(find(&other, "a"), || ());
    assert!(matches!(foreign, Ok(None)), "{foreign:?}");
    drop(other_session);

    let names: Vec<String> = (0..100).map(|number| format!("a{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tracker = main.create_tracker();
    main.define_with_tracker(simple(&session, &names), &tracker).expect("new names");
    main.define(symbol_aliases(aliases(&session, &[("last", "a99")]))).expect("a new name");
    let (symbol, alias) = (find(&main, "a99"), find(&main, "last"));
    tracker.remove().expect("there is no resource");
    assert!(matches!(session.while_present(symbol, || ()), Ok(None)));
    assert!(matches!(session.while_present(alias, || ()), Err(LookupError::AliasOfRemoved { .. })));
    assert_eq!(refused(&main, "last"), "last");
}

/// A lookup of an alias whose source was removed gave its address, where something else may lie.
#[test]
fn an_alias_of_what_was_removed_hides_others_and_is_not_found() {
    let (session, main) = session();
    let library = session.create_jit_dylib("library").expect("a new name");
    let tracker = main.create_tracker();
    main.define_with_tracker(simple(&session, &["source"]), &tracker).expect("new names");
    main.define(symbol_aliases(aliases(&session, &[("a", "source")]))).expect("a new name");
    define_simple(&library, "library", &["a"]);
    let both: uruk_core::SearchOrder = [&main, &library]
        .map(|dylib| (dylib.clone(), JitDylibLookupFlags::MatchAllSymbols))
        .into_iter()
        .collect();
    let name = session.intern("a");
    let ours = session.lookup_symbol(&both, &name).expect("it is defined");
    find(&library, "a");
    assert_eq!(session.ready_symbol(&both, &name), Some(ours));
    tracker.remove().expect("there is no resource");
    let refused = session.lookup_symbol(&both, &name);
    assert!(matches!(refused, Err(LookupError::AliasOfRemoved { .. })), "{refused:?}");
    let flags =
        session.lookup_flags(LookupRequest::new(&both, set(&session, &["a"]))).expect("it is defined");
    assert_eq!(flags.get(&name).copied(), Some(EXPORTED));
    main.remove(std::slice::from_ref(&name)).expect("it is there");
    assert!(session.lookup_symbol(&both, &name).is_ok(), "the other one");
}

//! Symbols at known addresses, in every role that a definition can have.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::{
    DefineError, EventKind, ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError,
    LookupRequest, LookupSet, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    SymbolFlags, SymbolMap, SymbolName, absolute_symbols,
};

const WEAK: SymbolFlags = EXPORTED.union(SymbolFlags::WEAK);

/// Symbols of these names at 0x100, 0x200 and on.
fn numbers(session: &ExecutionSession, names: &[&str], flags: SymbolFlags) -> SymbolMap {
    let definition = |index: u64| ExecutorSymbolDef::new(ExecutorAddr::new(0x100 * (index + 1)), flags);
    names.iter().zip(0..).map(|(name, index)| (session.intern(name), definition(index))).collect()
}

fn define(main: &JitDylib, names: &[&str], flags: SymbolFlags) -> Result<(), DefineError> {
    main.define(absolute_symbols(numbers(main.session(), names, flags)))
}

fn address(main: &JitDylib, name: &str) -> u64 {
    let name = main.session().intern(name);
    main.session().lookup_symbol(&order(main), &name).unwrap().address.value()
}

#[test]
fn a_unit_of_several_symbols_is_there_whole() {
    let (session, main) = session();
    define(&main, &["a", "b", "c"], EXPORTED).unwrap();
    let found = session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b", "c"]))).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!([address(&main, "a"), address(&main, "b"), address(&main, "c")], [0x100, 0x200, 0x300]);
}

#[test]
fn a_weak_one_that_nobody_searched_is_overridden() {
    let (_session, main) = session();
    define(&main, &["other", "a", "b"], WEAK).unwrap();
    define(&main, &["a"], EXPORTED).unwrap();
    define_simple(&main, "unit", &["b"]);
    assert_eq!([address(&main, "a"), address(&main, "b"), address(&main, "other")], [0x100, 0x1000, 0x100]);
}

#[test]
fn a_weak_one_that_was_searched_stays_bound_and_its_neighbours_do_not() {
    let (session, main) = session();
    define(&main, &["a", "b"], WEAK).unwrap();
    address(&main, "a");
    let (a, b) = (session.intern("a"), session.intern("b"));
    assert_eq!(
        main.flags([a.clone(), b.clone()]),
        [(a, WEAK), (b, WEAK)],
        "bound, one still says that it is weak"
    );
    let error = define(&main, &["a"], EXPORTED).unwrap_err();
    assert_eq!(
        error.in_full(),
        "`a` of unit `<absolute symbols>` is already defined in dylib `main` by unit `<absolute symbols>`"
    );
    define_simple(&main, "unit", &["b"]);
    assert_eq!([address(&main, "a"), address(&main, "b")], [0x100, 0x1000]);
}

#[test]
fn a_new_weak_one_yields_and_the_rest_of_its_unit_is_defined() {
    let (_session, main) = session();
    define_simple(&main, "unit", &["a"]);
    define(&main, &["a", "b"], WEAK).unwrap();
    define(&main, &["a"], WEAK).unwrap();
    assert_eq!([address(&main, "a"), address(&main, "b")], [0x1000, 0x200]);
}

#[test]
fn a_duplicate_defines_nothing_and_names_both_units() {
    let (session, main) = session();
    define_simple(&main, "unit", &["b"]);
    let error = define(&main, &["a", "b"], EXPORTED).unwrap_err();
    assert_eq!(
        error.in_full(),
        "`b` of unit `<absolute symbols>` is already defined in dylib `main` by unit `unit`"
    );
    let missing = session.lookup_symbol(&order(&main), &session.intern("a"));
    assert!(matches!(missing, Err(LookupError::NotFound { .. })));
    let unit = TestUnit::new("late", exported(&session, &["c"]), finish);
    define(&main, &["c"], EXPORTED).unwrap();
    let error = main.define(unit.boxed()).unwrap_err();
    assert_eq!(
        error.in_full(),
        "`c` of unit `late` is already defined in dylib `main` by unit `<absolute symbols>`"
    );
}

#[test]
fn hidden_ones_are_found_by_those_who_may_see_them() {
    let (session, main) = session();
    define(&main, &["a"], SymbolFlags::CALLABLE).unwrap();
    let other = session.create_jit_dylib("other").unwrap();
    other.add_to_link_order(&main, uruk_core::JitDylibLookupFlags::MatchExportedSymbolsOnly).unwrap();
    let a = session.intern("a");
    assert!(session.lookup_symbol(&other.link_order(), &a).is_err());
    assert_eq!(session.lookup_symbol(&main.link_order(), &a).unwrap().address.value(), 0x100);
}

#[test]
fn they_go_with_their_tracker_searched_or_not() {
    let (session, main) = session();
    let (first, second) = (main.create_tracker(), main.create_tracker());
    main.define_with_tracker(absolute_symbols(numbers(&session, &["a", "b"], EXPORTED)), &first).unwrap();
    address(&main, "a");
    first.transfer_to(&second).unwrap();
    let refused = main.define_with_tracker(absolute_symbols(SymbolMap::default()), &first);
    assert!(matches!(refused, Err(DefineError::TrackerDefunct { .. })));
    second.remove().unwrap();
    for name in ["a", "b"] {
        assert!(session.lookup_symbol(&order(&main), &session.intern(name)).is_err());
    }
    define(&main, &["b", "a"], EXPORTED).unwrap();
    assert_eq!([address(&main, "b"), address(&main, "a")], [0x100, 0x200]);
}

#[test]
fn they_are_removed_by_name_searched_or_not() {
    let (session, main) = session();
    define(&main, &["a", "b", "c"], EXPORTED).unwrap();
    address(&main, "a");
    main.remove(&[session.intern("a"), session.intern("b")]).unwrap();
    assert_eq!(main.flags(["a", "b", "c"].map(|name| session.intern(name))).len(), 1);
    assert_eq!(address(&main, "c"), 0x300);
}

#[test]
fn a_foreign_tracker_is_refused_by_the_name_of_the_unit() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let unit = absolute_symbols(numbers(&session, &["a"], EXPORTED));
    let error = main.define_with_tracker(unit, &other.create_tracker()).unwrap_err();
    assert_eq!(
        error.in_full(),
        "unit `<absolute symbols>` was defined in dylib `main` with a resource tracker of another dylib"
    );
}

#[test]
fn a_closed_session_and_a_removed_dylib_refuse_them() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    session.remove_jit_dylib(&other).unwrap();
    assert!(matches!(define(&other, &["a"], EXPORTED), Err(DefineError::DylibRemoved { .. })));
    session.close().unwrap();
    assert!(matches!(define(&main, &["a"], EXPORTED), Err(DefineError::Closed { .. })));
}

#[test]
fn nothing_is_claimed_and_no_task_runs() {
    let (send, events) = mpsc::channel();
    let observer = Arc::new(move |event: &uruk_core::SessionEvent| send.send(event.kind.clone()).unwrap());
    let session = ExecutionSession::builder().observer(observer).build();
    let main = session.create_jit_dylib("main").unwrap();
    define(&main, &["a", "b"], EXPORTED).unwrap();
    address(&main, "a");
    main.remove(&[session.intern("a")]).unwrap();
    let told: Vec<_> = events
        .try_iter()
        .map(|kind| match kind {
            EventKind::Defined { unit, symbols, .. } => format!("{unit} defined {}", symbols.len()),
            EventKind::Ready { symbol, .. } => format!("ready {symbol}"),
            EventKind::Completed { symbols } => format!("completed {symbols}"),
            EventKind::Removed { symbol, .. } => format!("removed {symbol}"),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(told, ["<absolute symbols> defined 2", "ready a", "completed 1", "removed a"]);
}

#[test]
fn what_exists_for_its_side_effects_has_no_address_though_one_is_given() {
    let (session, main) = session();
    let flags = EXPORTED | SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY;
    define(&main, &["init"], flags).unwrap();
    let init = session.intern("init");
    let required = session.lookup_symbol(&order(&main), &init);
    assert!(matches!(required, Err(LookupError::NotFound { .. })));
    let found =
        session.lookup(LookupRequest::new(order(&main), LookupSet::weakly_referenced([init]))).unwrap();
    assert!(found.is_empty());
}

#[test]
fn in_a_transaction_it_has_none_either() {
    let (session, main) = session();
    let flags = EXPORTED | SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY;
    let unit = absolute_symbols(numbers(&session, &["init"], flags));
    session.transaction().define(&main, unit).commit().unwrap();
    let init = session.intern("init");
    assert!(
        session
            .lookup(LookupRequest::new(order(&main), LookupSet::weakly_referenced([init])))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_unit_may_be_replaced_by_known_addresses() {
    let (session, main) = session();
    let symbols = exported(&session, &["a"]);
    let known = numbers(&session, &["a"], EXPORTED);
    let unit = TestUnit::new("unit", symbols, move |responsibility: MaterializationResponsibility| {
        responsibility.replace(absolute_symbols(known)).map_err(|refused| refused.error).unwrap();
    });
    main.define(unit.boxed()).unwrap();
    assert_eq!(address(&main, "a"), 0x100);
}

#[test]
fn any_unit_may_give_its_addresses_away_under_its_own_name() {
    /// Neither described nor materialized once it has answered.
    struct Table(SymbolMap);

    impl MaterializationUnit for Table {
        fn name(&self) -> &str {
            "table of the runtime"
        }

        fn known_addresses(&mut self) -> Option<SymbolMap> {
            Some(std::mem::take(&mut self.0))
        }

        fn interface(&self) -> MaterializationInterface {
            panic!("not asked")
        }

        fn materialize(self: Box<Self>, _: MaterializationResponsibility) {
            panic!("not run")
        }

        fn discard(&mut self, _: &JitDylib, _: &SymbolName) {
            panic!("not told")
        }
    }

    let (session, main) = session();
    main.define(Box::new(Table(numbers(&session, &["a"], WEAK)))).unwrap();
    define_simple(&main, "unit", &["a"]);
    main.define(Box::new(Table(numbers(&session, &["b"], EXPORTED)))).unwrap();
    assert_eq!([address(&main, "a"), address(&main, "b")], [0x1000, 0x100]);
    let error = define(&main, &["b"], EXPORTED).unwrap_err();
    assert_eq!(
        error.in_full(),
        "`b` of unit `<absolute symbols>` is already defined in dylib `main` by unit `table of the runtime`"
    );
}

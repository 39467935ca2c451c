//! Link orders: the dylib itself first, others added once, replaced in their places, removed; alone and by transactions.

use protocol_tests::*;
use uruk_core::{DylibError, ExecutionSession, JitDylib, JitDylibLookupFlags, SearchOrder, TransactionError};

const EXPORTED_ONLY: JitDylibLookupFlags = JitDylibLookupFlags::MatchExportedSymbolsOnly;
const ALL: JitDylibLookupFlags = JitDylibLookupFlags::MatchAllSymbols;

fn dylibs<const N: usize>(session: &ExecutionSession, names: [&str; N]) -> [JitDylib; N] {
    names.map(|name| session.create_jit_dylib(name).unwrap())
}

/// An order of exported symbols.
fn exporting(dylibs: &[&JitDylib]) -> SearchOrder {
    dylibs.iter().map(|&dylib| (dylib.clone(), EXPORTED_ONLY)).collect()
}

fn names(order: &SearchOrder) -> Vec<&str> {
    order.iter().map(|(dylib, _)| dylib.name()).collect()
}

#[test]
fn a_link_order_is_set_as_it_is_given() {
    let (session, main) = session();
    let [one] = dylibs(&session, ["one"]);
    main.set_link_order(exporting(&[&one])).unwrap();
    assert_eq!(main.link_order(), exporting(&[&one]), "without the dylib itself");
    let twice = SearchOrder::from([(one.clone(), EXPORTED_ONLY), (main.clone(), ALL), (one, ALL)]);
    main.set_link_order(twice.clone()).unwrap();
    assert_eq!(main.link_order(), twice, "and with what is named twice");
}

#[test]
fn an_order_behind_a_dylib_begins_with_it() {
    let (session, main) = session();
    let [one] = dylibs(&session, ["one"]);
    define_absolute(&one, "a", 1);
    define_absolute(&main, "a", 0);
    let a = session.intern("a");
    main.set_link_order(exporting(&[&one])).unwrap();
    assert_eq!(session.lookup_symbol(&main.link_order(), &a).unwrap(), at(1));
    main.set_link_order(exporting(&[&one]).behind(&main)).unwrap();
    assert_eq!(session.lookup_symbol(&main.link_order(), &a).unwrap(), at(0));
    assert_eq!(main.link_order().as_slice().first(), Some(&(main.clone(), ALL)), "with hidden symbols");
    assert_eq!(SearchOrder::new().behind(&main), SearchOrder::of(&main));
    let begins = exporting(&[&main, &one]);
    assert_eq!(begins.clone().behind(&main), begins, "what begins with it stays as it is");
    assert_eq!(names(&exporting(&[&one, &main]).behind(&main)), ["main", "one", "main"]);
}

#[test]
fn an_order_is_begun_with_a_dylib_once() {
    let (session, main) = session();
    let [one, two] = dylibs(&session, ["one", "two"]);
    main.set_link_order(exporting(&[&one, &two, &main])).unwrap();
    main.begin_link_order(&two, ALL).unwrap();
    let order = main.link_order();
    assert_eq!((names(&order), order.as_slice()[0].1), (vec!["two", "one", "main"], ALL));
    let changes = session.link_order_changes();
    main.begin_link_order(&two, EXPORTED_ONLY).unwrap();
    assert_eq!((main.link_order(), session.link_order_changes()), (order, changes));
    session.remove_jit_dylib(&one).unwrap();
    let refused = main.begin_link_order(&one, ALL);
    assert!(matches!(refused, Err(DylibError::Removed { name }) if &*name == "one"));
    let foreign = ExecutionSession::new().create_jit_dylib("other").unwrap();
    let refused = main.begin_link_order(&foreign, ALL);
    assert!(matches!(refused, Err(DylibError::Foreign { name }) if &*name == "other"));
}

#[test]
fn one_dylib_takes_the_place_of_another() {
    let (session, main) = session();
    let [one, two, three, new] = dylibs(&session, ["one", "two", "three", "new"]);
    for (dylib, address) in [(&two, 2), (&three, 3), (&new, 4)] {
        define_absolute(dylib, "a", address);
    }
    main.set_link_order(exporting(&[&one, &two, &three])).unwrap();
    assert!(main.replace_in_link_order(&two, &new, ALL).unwrap());
    let order = main.link_order();
    assert_eq!(names(&order), ["one", "new", "three"]);
    assert_eq!(order.as_slice()[1].1, ALL);
    assert_eq!(session.lookup_symbol(&order, &session.intern("a")).unwrap(), at(4));
    assert!(!main.replace_in_link_order(&two, &one, ALL).unwrap(), "it is there no more");
    assert_eq!(main.link_order(), order);
}

#[test]
fn a_replacement_names_neither_dylib_twice() {
    let (session, main) = session();
    let [old, new, other] = dylibs(&session, ["old", "new", "other"]);
    for order in [[&new, &old, &other, &old], [&old, &other, &new, &old], [&old, &new, &new, &other]] {
        main.set_link_order(exporting(&order)).unwrap();
        assert!(main.replace_in_link_order(&old, &new, EXPORTED_ONLY).unwrap());
        assert_eq!(main.link_order(), exporting(&[&new, &other]), "{order:?}");
    }
    // The same one: its flags change.
    assert!(main.replace_in_link_order(&new, &new, ALL).unwrap());
    assert_eq!(main.link_order(), [(new, ALL), (other, EXPORTED_ONLY)].into());
}

#[test]
fn a_dylib_is_removed_from_every_place() {
    let (session, main) = session();
    let [one, two] = dylibs(&session, ["one", "two"]);
    main.set_link_order(exporting(&[&one, &two, &one])).unwrap();
    main.remove_from_link_order(&one);
    assert_eq!(main.link_order(), exporting(&[&two]));
}

#[test]
fn a_replacement_with_what_is_not_there_is_refused() {
    let ((session, main), (_elsewhere, foreign)) = (session(), session());
    let [one, gone] = dylibs(&session, ["one", "gone"]);
    main.set_link_order(exporting(&[&one])).unwrap();
    session.remove_jit_dylib(&gone).unwrap();
    for (old, new) in [(&foreign, &one), (&one, &foreign)] {
        let refused = main.replace_in_link_order(old, new, ALL);
        assert!(matches!(refused, Err(DylibError::Foreign { name }) if &*name == "main"));
    }
    let refused = main.replace_in_link_order(&one, &gone, ALL);
    assert!(matches!(refused, Err(DylibError::Removed { name }) if &*name == "gone"));
    assert!(
        !main.replace_in_link_order(&gone, &one, ALL).unwrap(),
        "it went out of all orders when it was removed"
    );
    let refused = gone.replace_in_link_order(&one, &one, ALL);
    assert!(matches!(refused, Err(DylibError::Removed { name }) if &*name == "gone"));
    assert_eq!(main.link_order(), exporting(&[&one]));
}

#[test]
fn a_replacement_in_a_transaction_happens_with_the_rest_or_not_at_all() {
    let ((session, main), (_elsewhere, foreign)) = (session(), session());
    let [one, two, gone] = dylibs(&session, ["one", "two", "gone"]);
    session.remove_jit_dylib(&gone).unwrap();
    main.set_link_order(exporting(&[&one])).unwrap();
    let replaces = |new: &JitDylib| {
        let transaction = session.transaction().define(&two, absolute(&two, "a", 2));
        transaction.replace_in_link_order(&main, &one, new, EXPORTED_ONLY)
    };
    let error = replaces(&gone).commit().unwrap_err().error;
    let TransactionError::LinkOrder { step: 1, source: DylibError::Removed { name } } = error else {
        panic!("{error}")
    };
    assert_eq!(&*name, "gone");
    let error = replaces(&foreign).commit().unwrap_err().error;
    assert!(matches!(error, TransactionError::Foreign { step: 1, .. }), "{error}");
    assert_eq!(main.link_order(), exporting(&[&one]));
    assert!(two.flags([session.intern("a")]).is_empty());
    replaces(&two).commit().unwrap();
    assert_eq!(main.link_order(), exporting(&[&two]));
    assert_eq!(session.lookup_symbol(&main.link_order(), &session.intern("a")).unwrap(), at(2));
    // Each step sees the effects of those before it.
    let twice = session.transaction().replace_in_link_order(&main, &two, &one, ALL);
    twice.replace_in_link_order(&main, &two, &main, ALL).commit().unwrap();
    assert_eq!(main.link_order(), [(one, ALL)].into());
}

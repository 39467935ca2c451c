//! Removal by name took the symbols and kept what they were made of: five hundred rounds of define, look up and remove by name left
//! the code of five hundred units. Resources go with the last symbol that their responsibility was for.

use std::sync::mpsc;

use protocol_tests::tracked::{Log, noted, sticking};
use protocol_tests::*;
use uruk_core::{
    JitDylib, LookupRequest, LookupSet, MaterializationResponsibility, RemoveError, SymbolFlagsMap,
};

/// Resources have names for as long as a test runs.
fn name_of(number: usize) -> &'static str {
    const NAMES: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
    NAMES[number % NAMES.len()]
}

/// A unit that registers a resource of this name, and finishes.
fn unit_with(main: &JitDylib, symbols: &[&str], resource: &'static str, log: &Log) -> TestUnit {
    let log = log.clone();
    TestUnit::new(resource, exported(main.session(), symbols), move |responsibility| {
        responsibility.add_resource(noted(resource, &log)).unwrap();
        finish(responsibility);
    })
}

fn define_with(main: &JitDylib, symbols: &[&str], resource: &'static str, log: &Log) {
    main.define(unit_with(main, symbols, resource, log).boxed()).unwrap();
    look_up(main, symbols);
}

fn look_up(main: &JitDylib, symbols: &[&str]) {
    main.session().lookup(LookupRequest::new(order(main), set(main.session(), symbols))).unwrap();
}

fn remove(main: &JitDylib, symbols: &[&str]) -> Result<(), RemoveError> {
    let names: Vec<_> = symbols.iter().map(|name| main.session().intern(name)).collect();
    main.remove(&names)
}

/// Splits a symbol off.
fn delegate(from: &mut MaterializationResponsibility, symbol: &str) -> MaterializationResponsibility {
    let symbol = from.session().intern(symbol);
    from.delegate([symbol]).unwrap()
}

fn is_defined(main: &JitDylib, symbol: &str) -> bool {
    !main.flags([main.session().intern(symbol)]).is_empty()
}

#[test]
fn resources_go_with_the_last_symbol_of_their_unit() {
    let (_session, main) = session();
    let log = Log::default();
    main.default_tracker().add_resource(noted("the tracker's", &log)).unwrap();
    define_with(&main, &["a", "b", "c"], "abc", &log);
    define_with(&main, &["d"], "d", &log);
    remove(&main, &["a"]).unwrap();
    remove(&main, &["c"]).unwrap();
    assert!(log.lock().is_empty(), "`b` is left");
    remove(&main, &["b", "d"]).unwrap();
    assert_eq!(*log.lock(), ["d", "abc"], "newest first");
    main.clear().unwrap();
    assert_eq!(*log.lock(), ["d", "abc", "the tracker's"]);
}

#[test]
fn resources_of_one_unit_go_newest_first_and_past_errors() {
    let (session, main) = session();
    let log = Log::default();
    let resources = [noted("first", &log), sticking("second", &log), noted("third", &log)];
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        resources.into_iter().for_each(|resource| responsibility.add_resource(resource).unwrap());
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    look_up(&main, &["a"]);
    let error = remove(&main, &["a"]).unwrap_err();
    assert_eq!(error.in_full(), "resources of dylib `main` could not be removed: second sticks");
    assert_eq!(*log.lock(), ["third", "second", "first"]);
    assert!(!is_defined(&main, "a"));
}

#[test]
fn an_initializer_goes_with_the_last_of_the_other_symbols() {
    let (session, main) = session();
    let log = Log::default();
    let define = |initializer: &str| {
        let unit = unit_with(&main, &["a", "b"], "code", &log).with_initializer(session.intern(initializer));
        main.define(unit.boxed()).unwrap();
    };
    // Before the first lookup of the unit.
    define("<first>");
    remove(&main, &["a"]).unwrap();
    assert!(is_defined(&main, "<first>"));
    remove(&main, &["b"]).unwrap();
    assert!(!is_defined(&main, "<first>") && main.initializers().is_empty());
    // When it is Ready, in one removal and in two.
    for removals in [&[&["a", "b"][..]][..], &[&["b"], &["a"]]] {
        define("<second>");
        look_up(&main, &["a"]);
        assert!(is_defined(&main, "<second>"));
        removals.iter().for_each(|symbols| remove(&main, symbols).unwrap());
        assert!(!is_defined(&main, "<second>") && main.initializers().is_empty());
    }
    assert_eq!(*log.lock(), ["code", "code"]);
    // Alone it stays until it is removed itself.
    let alone =
        TestUnit::new("alone", SymbolFlagsMap::default(), finish).with_initializer(session.intern("<third>"));
    main.define(alone.boxed()).unwrap();
    define_simple(&main, "another", &["a"]);
    remove(&main, &["a"]).unwrap();
    assert!(is_defined(&main, "<third>"));
}

/// Its unit is at work on it.
#[test]
fn an_initializer_that_is_being_materialized_stays() {
    let (session, main) = session();
    let log = Log::default();
    let (send, parked) = mpsc::channel();
    let of_unit = log.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |mut responsibility| {
        responsibility.add_resource(noted("code", &of_unit)).unwrap();
        let rest = delegate(&mut responsibility, "a");
        finish(rest);
        send.send(responsibility.detach()).unwrap();
    });
    main.define(unit.with_initializer(session.intern("<init>")).boxed()).unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.recv().unwrap();
    answer.recv().unwrap().unwrap();
    remove(&main, &["a"]).unwrap();
    assert!(is_defined(&main, "<init>") && log.lock().is_empty());
    finish(responsibility.attach());
    remove(&main, &["<init>"]).unwrap();
    assert_eq!(*log.lock(), ["code"]);
}

#[test]
fn what_is_redefined_goes_when_the_transaction_has_changed_everything() {
    let (session, main) = session();
    let log = Log::default();
    let unit = |resource: &'static str, initializer: &str| {
        unit_with(&main, &["a", "b"], resource, &log).with_initializer(session.intern(initializer)).boxed()
    };
    main.define(unit("old", "<old>")).unwrap();
    look_up(&main, &["a", "b"]);
    session.transaction().redefine(&main, unit("new", "<new>")).commit().unwrap();
    assert_eq!(*log.lock(), ["old"]);
    assert!(!is_defined(&main, "<old>") && is_defined(&main, "<new>"));
    look_up(&main, &["a", "b"]);
    // Half of it, in a step, and the rest in another.
    let [a, b] = ["a", "b"].map(|name| session.intern(name));
    session.transaction().remove(&main, [a]).remove(&main, [b]).commit().unwrap();
    assert_eq!(*log.lock(), ["old", "new"]);
    assert!(main.initializers().is_empty());
}

#[test]
fn what_was_delegated_or_defined_later_keeps_the_resource_too() {
    let (session, main) = session();
    let log = Log::default();
    let of_unit = log.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a", "b"]), move |mut responsibility| {
        responsibility.add_resource(noted("of both", &of_unit)).unwrap();
        responsibility.define_materializing(exported(responsibility.session(), &["c"])).unwrap();
        let b = delegate(&mut responsibility, "b");
        b.add_resource(noted("of b", &of_unit)).unwrap();
        finish(b);
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    look_up(&main, &["a", "b"]);
    look_up(&main, &["c"]);
    remove(&main, &["a"]).unwrap();
    remove(&main, &["b"]).unwrap();
    assert!(log.lock().is_empty(), "nobody knows which of them `c` needs");
    remove(&main, &["c"]).unwrap();
    assert_eq!(*log.lock(), ["of b", "of both"]);
}

#[test]
fn symbols_delegated_before_have_resources_of_their_own() {
    let (session, main) = session();
    let log = Log::default();
    let of_unit = log.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a", "b"]), move |mut responsibility| {
        let b = delegate(&mut responsibility, "b");
        b.add_resource(noted("of b", &of_unit)).unwrap();
        responsibility.add_resource(noted("of a", &of_unit)).unwrap();
        finish(b);
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    look_up(&main, &["a", "b"]);
    remove(&main, &["a"]).unwrap();
    assert_eq!(*log.lock(), ["of a"]);
    remove(&main, &["b"]).unwrap();
    assert_eq!(*log.lock(), ["of a", "of b"]);
}

#[test]
fn who_takes_over_keeps_what_was_registered_before() {
    let (session, main) = session();
    let log = Log::default();
    let second = unit_with(&main, &["a"], "second", &log);
    let of_unit = log.clone();
    let first = TestUnit::new("first", exported(&session, &["a"]), move |responsibility| {
        responsibility.add_resource(noted("first", &of_unit)).unwrap();
        responsibility.replace(second.boxed()).unwrap();
    });
    main.define(first.boxed()).unwrap();
    look_up(&main, &["a"]);
    remove(&main, &["a"]).unwrap();
    assert_eq!(*log.lock(), ["second", "first"]);
}

#[test]
fn what_failed_keeps_its_resources_until_it_is_removed() {
    let (session, main) = session();
    let log = Log::default();
    let of_unit = log.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        responsibility.add_resource(noted("half", &of_unit)).unwrap();
    });
    main.define(unit.boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(log.lock().is_empty());
    remove(&main, &["a"]).unwrap();
    assert_eq!(*log.lock(), ["half"]);
}

/// Resources lie side by side in their tracker. Those that are left move together when many have gone, and when trackers are joined.
#[test]
fn each_symbol_finds_its_own_resources_wherever_they_have_moved() {
    let (_session, main) = session();
    let log = Log::default();
    let (here, there) = (main.create_tracker(), main.create_tracker());
    let symbol = |tracker: &str, number: usize| format!("{tracker} {number}");
    const COUNT: usize = 100;
    for (name, tracker) in [("here", &here), ("there", &there)] {
        for number in 0..COUNT {
            let symbol = symbol(name, number);
            let unit = unit_with(&main, &[&symbol], name_of(number), &log);
            main.define_with_tracker(unit.boxed(), tracker).unwrap();
            look_up(&main, &[&symbol]);
        }
    }
    let removes_its_own = |name: &str, number: usize| {
        remove(&main, &[&symbol(name, number)]).unwrap();
        assert_eq!(std::mem::take(&mut *log.lock()), [name_of(number)], "{name} {number}");
    };
    // Every third is left.
    let is_left = |number: &usize| number.is_multiple_of(3);
    for number in (0..COUNT).filter(|number| !is_left(number)) {
        removes_its_own("here", number);
    }
    here.transfer_to(&there).unwrap();
    drop(there);
    for number in (0..COUNT).filter(|number| !is_left(number)) {
        removes_its_own("there", number);
    }
    for number in (0..COUNT).rev().filter(is_left) {
        removes_its_own("here", number);
    }
    main.clear().unwrap();
    let rest: Vec<_> = (0..COUNT).rev().filter(is_left).map(name_of).collect();
    assert_eq!(*log.lock(), rest, "newest first");
}

#[test]
fn a_unit_with_nothing_but_an_initializer_goes_by_that_name() {
    let (session, main) = session();
    let log = Log::default();
    let init = session.intern("<init>");
    let unit = unit_with(&main, &[], "code", &log).with_initializer(init.clone());
    main.define(unit.boxed()).unwrap();
    session.lookup(LookupRequest::new(order(&main), LookupSet::weakly_referenced([init.clone()]))).unwrap();
    main.remove(&[init]).unwrap();
    assert_eq!(*log.lock(), ["code"]);
}

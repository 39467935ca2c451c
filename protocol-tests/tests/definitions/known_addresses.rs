//! Units that give their addresses away: the time of that question, and their behaviour without it.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::{
    AddedUnit, DefineError, ExecutionSession, JitDylib, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, Platform, SharedError, SymbolFlagsMap, SymbolMap,
    SymbolName, UnitNumber, shared_error,
};

/// Reports each question; gives its addresses to the first that asks.
struct Table {
    symbols: SymbolMap,
    asked: mpsc::Sender<&'static str>,
}

impl Table {
    fn of(dylib: &JitDylib, names: &[&str]) -> (Box<Self>, mpsc::Receiver<&'static str>) {
        let (asked, told) = mpsc::channel();
        let symbols =
            names.iter().zip(1..).map(|(name, address)| (dylib.session().intern(name), at(address)));
        (Box::new(Self { symbols: symbols.collect(), asked }), told)
    }
}

impl MaterializationUnit for Table {
    fn name(&self) -> &str {
        "table"
    }

    fn known_addresses(&mut self) -> Option<SymbolMap> {
        self.asked.send("known_addresses").unwrap();
        Some(std::mem::take(&mut self.symbols))
    }

    fn interface(&self) -> MaterializationInterface {
        self.asked.send("interface").unwrap();
        MaterializationInterface::new(
            self.symbols.iter().map(|(name, it)| (name.clone(), it.flags)).collect(),
        )
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.asked.send("materialize").unwrap();
        responsibility.notify_resolved(&self.symbols).unwrap().notify_emitted(Vec::new()).unwrap();
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {
        self.asked.send("discard").unwrap();
    }
}

/// Is told of units, and objects to those that define `bad`.
struct Clerk(mpsc::Sender<(String, SymbolFlagsMap, bool)>);

impl Platform for Clerk {
    fn unit_adding(&self, unit: &AddedUnit<'_>) -> Result<(), SharedError> {
        let told = (unit.name.to_string(), unit.symbols.clone(), unit.tracker.is_some());
        self.0.send(told).unwrap();
        match unit.symbols.keys().any(|name| name.as_str() == "bad") {
            true => Err(shared_error("not here")),
            false => Ok(()),
        }
    }

    fn unit_removed(&self, _: UnitNumber) {
        panic!("it has no initializer");
    }
}

fn found(dylib: &JitDylib, name: &str) -> u64 {
    let session = dylib.session();
    session.lookup_symbol(&order(dylib), &session.intern(name)).unwrap().address.value()
}

#[test]
fn a_unit_that_gives_its_addresses_away_is_asked_for_nothing_else() {
    let (_session, main) = session();
    let (unit, asked) = Table::of(&main, &["a", "b"]);
    main.define(unit).unwrap();
    assert_eq!([found(&main, "a"), found(&main, "b")], [1, 2]);
    assert_eq!(asked.iter().collect::<Vec<_>>(), ["known_addresses"], "and it is dropped");
}

#[test]
fn a_platform_is_told_of_it_and_it_is_asked_for_nothing_else() {
    let (send, told) = mpsc::channel();
    let session = ExecutionSession::builder().platform(Arc::new(Clerk(send))).build();
    let main = session.create_jit_dylib("main").unwrap();
    let (unit, asked) = Table::of(&main, &["a"]);
    main.define(unit).unwrap();
    assert_eq!(told.try_recv().unwrap(), ("table".to_owned(), exported(&session, &["a"]), false));
    assert_eq!(found(&main, "a"), 1);
    assert_eq!(asked.iter().collect::<Vec<_>>(), ["known_addresses"]);
    // With a tracker, and objected to.
    let (unit, asked) = Table::of(&main, &["bad"]);
    let refused = main.define_with_tracker(unit, &main.create_tracker()).unwrap_err();
    assert!(matches!(refused, DefineError::Platform { .. }), "{refused}");
    assert_eq!(told.try_recv().unwrap(), ("table".to_owned(), exported(&session, &["bad"]), true));
    assert!(main.flags([session.intern("bad")]).is_empty());
    assert_eq!(asked.iter().collect::<Vec<_>>(), ["known_addresses"]);
}

#[test]
fn in_a_transaction_it_is_a_unit_like_any_other_for_it_may_be_given_back() {
    let (session, main) = session();
    let (unit, asked) = Table::of(&main, &["a"]);
    let refused = session.transaction().define(&main, unit).remove(&main, [session.intern("x")]).commit();
    let unit = refused.unwrap_err().transaction.into_units().pop().unwrap();
    session.transaction().define(&main, unit).commit().unwrap();
    assert_eq!(found(&main, "a"), 1);
    assert_eq!(asked.iter().collect::<Vec<_>>(), ["interface", "interface", "materialize"]);
}

#[test]
fn in_the_place_of_another_it_is_a_unit_like_any_other() {
    let (session, main) = session();
    let (unit, asked) = Table::of(&main, &["a"]);
    let other = TestUnit::new("other", exported(&session, &["a"]), move |responsibility| {
        responsibility.replace(unit).map_err(|refused| refused.error).unwrap();
    });
    main.define(other.boxed()).unwrap();
    assert_eq!(found(&main, "a"), 1);
    assert_eq!(asked.iter().collect::<Vec<_>>(), ["interface", "materialize"]);
}

//! Platforms: dylibs are set up and torn down, units announced and taken back, initializers looked up in order.

use std::sync::{Arc, OnceLock, mpsc};

use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{
    AddedUnit, CloseError, DefineError, DylibError, ExecutionSession, JitDylib, JitDylibLookupFlags,
    LookupError, LookupRequest, LookupSet, Platform, RemoveError, SharedError, SymbolFlags, SymbolName,
    TransactionError, UnitNumber, absolute_symbols, shared_error,
};

/// Logs its calls, with the session in its hands, and objects to names with `bad`.
#[derive(Default)]
struct Scribe {
    log: Mutex<Vec<String>>,
    units: Mutex<Vec<(UnitNumber, String)>>,
    session: OnceLock<ExecutionSession>,
}

impl Scribe {
    fn session() -> (Arc<Self>, ExecutionSession) {
        let scribe = Arc::new(Self::default());
        let session = ExecutionSession::builder().platform(scribe.clone()).build();
        scribe.session.set(session.clone()).expect("set once");
        (scribe, session)
    }

    fn note(&self, what: String) -> Result<(), SharedError> {
        // Under the session's lock this would not end.
        let dylibs = self.session.get().expect("set at once").jit_dylib("main").is_some();
        let objects = what.contains("bad");
        assert!(!what.contains("panic"), "on purpose");
        self.log.lock().push(format!("{what}{}", if dylibs { "" } else { " without main" }));
        if objects { Err(shared_error("not here")) } else { Ok(()) }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock())
    }
}

impl Platform for Scribe {
    fn set_up(&self, dylib: &JitDylib) -> Result<(), SharedError> {
        self.note(format!("set up {}", dylib.name()))
    }

    fn tear_down(&self, dylib: &JitDylib) -> Result<(), SharedError> {
        self.note(format!("tear down {}", dylib.name()))
    }

    fn unit_adding(&self, unit: &AddedUnit<'_>) -> Result<(), SharedError> {
        let initializer = unit.initializer.map_or("nothing", |name| name.as_str());
        self.units.lock().push((unit.number, unit.name.as_str().into()));
        self.note(format!("adding {} with {initializer}", unit.name))
    }

    fn unit_removed(&self, unit: UnitNumber) {
        let units = self.units.lock();
        let (_, name) = units.iter().find(|(number, _)| *number == unit).expect("told of before");
        let name = name.clone();
        drop(units);
        self.note(format!("removed {name}")).expect("no objection");
    }
}

fn with_initializer(dylib: &JitDylib, unit: &str, flags: SymbolFlags, symbol: &str) -> TestUnit {
    let session = dylib.session();
    let symbols = [(session.intern(symbol), flags)].into_iter().collect();
    TestUnit::new(unit, symbols, finish).with_initializer(session.intern(&format!("init {unit}")))
}

#[test]
fn dylibs_are_set_up_and_torn_down() {
    let (scribe, session) = Scribe::session();
    let _main = session.create_jit_dylib("main").unwrap();
    let other = session.create_jit_dylib("other").unwrap();
    let bare = session.create_bare_jit_dylib("bare").unwrap();
    assert_eq!(scribe.take(), ["set up main", "set up other"]);
    session.remove_jit_dylib(&other).unwrap();
    session.remove_jit_dylib(&other).unwrap();
    session.remove_jit_dylib(&bare).unwrap();
    assert_eq!(scribe.take(), ["tear down other", "tear down bare"]);
    session.create_jit_dylib("last").unwrap();
    session.close().unwrap();
    assert_eq!(scribe.take(), ["set up last", "tear down last", "tear down main"]);
}

#[test]
fn a_platform_that_objects_to_a_dylib_leaves_none() {
    let (scribe, session) = Scribe::session();
    session.create_jit_dylib("main").unwrap();
    let error = session.create_jit_dylib("bad").unwrap_err();
    assert_eq!(error.in_full(), "the platform refused dylib `bad`: not here");
    assert!(session.jit_dylib("bad").is_none());
    let panicked = session.create_jit_dylib("panic").unwrap_err();
    assert!(matches!(panicked, DylibError::Platform { .. }), "{panicked}");
    let bare = session.create_bare_jit_dylib("bad").unwrap();
    scribe.take();
    let Err(RemoveError::Resources { sources, .. }) = session.remove_jit_dylib(&bare) else { panic!() };
    assert_eq!(sources.iter().map(ToString::to_string).collect::<Vec<_>>(), ["not here"]);
    session.create_bare_jit_dylib("bad").unwrap();
    let Err(CloseError::Resources { sources, .. }) = session.close() else { panic!() };
    assert_eq!(sources.len(), 1);
}

#[test]
fn a_platform_that_objects_to_a_unit_leaves_none() {
    let (scribe, session) = Scribe::session();
    let main = session.create_jit_dylib("main").unwrap();
    let error = main.define(with_initializer(&main, "bad", EXPORTED, "a").boxed()).unwrap_err();
    assert_eq!(error.in_full(), "the platform refused unit `bad` in dylib `main`: not here");
    assert!(main.flags([session.intern("a"), session.intern("init bad")]).is_empty());
    assert!(main.initializers().is_empty());
    assert_eq!(scribe.take(), ["set up main", "adding bad with init bad"], "nothing to take back");
}

#[test]
fn units_with_initializers_are_taken_back_once_whatever_becomes_of_them() {
    let (scribe, session) = Scribe::session();
    let main = session.create_jit_dylib("main").unwrap();
    let weak = EXPORTED | SymbolFlags::WEAK;
    let define = |unit: TestUnit| main.define(unit.boxed());
    main.define(absolute_symbols([(session.intern("taken"), at(1))].into_iter().collect())).unwrap();
    scribe.take();
    // Refused: the initializer goes with it.
    let refused = define(with_initializer(&main, "refused", EXPORTED, "taken"));
    assert!(matches!(refused, Err(DefineError::Duplicate { .. })));
    assert_eq!(scribe.take(), ["adding refused with init refused", "removed refused"]);
    // Removed by name, before anybody searched it and after.
    for searched in [false, true] {
        define(with_initializer(&main, "named", weak, "a")).unwrap();
        if searched {
            assert_eq!(look_up_initializers(&main).unwrap().len(), 1);
        }
        main.remove(&[session.intern("init named")]).unwrap();
        assert_eq!(scribe.take(), ["adding named with init named", "removed named"]);
        main.remove(&[session.intern("a")]).unwrap();
        assert!(scribe.take().is_empty(), "told once");
    }
    // Removed with its tracker.
    let tracker = main.create_tracker();
    main.define_with_tracker(with_initializer(&main, "tracked", EXPORTED, "b").boxed(), &tracker).unwrap();
    tracker.remove().unwrap();
    assert_eq!(scribe.take(), ["adding tracked with init tracked", "removed tracked"]);
    // Without an initializer there is nothing to take back.
    define(TestUnit::new("plain", exported(&session, &["c"]), finish)).unwrap();
    main.remove(&[session.intern("c")]).unwrap();
    assert_eq!(scribe.take(), ["adding plain with nothing"]);
    // Removed with everything.
    define(with_initializer(&main, "last", EXPORTED, "d")).unwrap();
    main.clear().unwrap();
    assert_eq!(scribe.take(), ["adding last with init last", "removed last"]);
}

#[test]
fn transactions_announce_their_units_and_take_refused_ones_back() {
    let (scribe, session) = Scribe::session();
    let main = session.create_jit_dylib("main").unwrap();
    scribe.take();
    let one = || with_initializer(&main, "one", EXPORTED, "a").boxed();
    let refused = session.transaction().define(&main, one()).remove(&main, [session.intern("x")]).commit();
    assert!(matches!(refused.unwrap_err().error, TransactionError::Remove { step: 1, .. }));
    assert_eq!(scribe.take(), ["adding one with init one", "removed one"]);
    let objected = session
        .transaction()
        .define(&main, one())
        .define(&main, TestUnit::new("bad", exported(&session, &["b"]), finish).boxed());
    let error = objected.commit().unwrap_err().error;
    assert!(matches!(error, TransactionError::Define { step: 1, source: DefineError::Platform { .. } }));
    assert_eq!(scribe.take(), ["adding one with init one", "adding bad with nothing", "removed one"]);
    session.transaction().define(&main, one()).commit().unwrap();
    assert_eq!(main.initializers(), [session.intern("init one")]);
    session.transaction().redefine(&main, one()).commit().unwrap();
    assert_eq!(main.initializers(), [session.intern("init one")]);
    assert_eq!(scribe.take(), ["adding one with init one", "adding one with init one", "removed one"]);
}

/// Looks up the initializers of `dylib` and of all that its link order leads to, as a platform does: dependencies first.
fn look_up_initializers(dylib: &JitDylib) -> Result<Vec<(JitDylib, Vec<SymbolName>)>, LookupError> {
    let session = dylib.session();
    let order = session.reverse_dfs_link_order(std::slice::from_ref(dylib));
    let order = order.map_err(|_| LookupError::DylibRemoved { dylib: dylib.name().into() })?;
    let all = order.into_iter().map(|dylib| (dylib.clone(), dylib.initializers()));
    let found: Vec<_> = all.filter(|(_, symbols)| !symbols.is_empty()).collect();
    // They have no addresses, so that none may be required.
    let weak = |symbols: &[SymbolName]| LookupSet::weakly_referenced(symbols.iter().cloned());
    session.lookup_init_symbols(found.iter().map(|(dylib, symbols)| (dylib.clone(), weak(symbols))))?;
    Ok(found)
}

#[test]
fn initializers_are_recorded_from_definition_to_removal_in_order() {
    let (session, main) = session();
    let parked = TestUnit::new("parked", exported(&session, &["p"]), |responsibility| {
        drop(responsibility.detach());
    });
    main.define(with_initializer(&main, "z", EXPORTED, "a").boxed()).unwrap();
    main.define(parked.with_initializer(session.intern("init parked")).boxed()).unwrap();
    main.define(with_initializer(&main, "a", EXPORTED, "b").boxed()).unwrap();
    let names = |names: &[&str]| names.iter().map(|name| session.intern(name)).collect::<Vec<_>>();
    assert_eq!(main.initializers(), names(&["init z", "init parked", "init a"]));
    let _ = session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b", "p"])));
    assert_eq!(main.initializers(), names(&["init z", "init parked", "init a"]), "in whatever state");
    main.remove(&names(&["init z"])).unwrap();
    assert_eq!(main.initializers(), names(&["init parked", "init a"]));
    session.remove_jit_dylib(&main).unwrap();
    assert!(main.initializers().is_empty());
}

/// ```text
///  main ─▶ left ─▶ base        and base ─▶ main
///      └─▶ right ─▶ base
/// ```
#[test]
fn initializers_are_looked_up_dependencies_first() {
    let (session, main) = session();
    let [left, right, base, apart] =
        ["left", "right", "base", "apart"].map(|name| session.create_jit_dylib(name).unwrap());
    let exported_only = JitDylibLookupFlags::MatchExportedSymbolsOnly;
    for (from, to) in [(&main, &left), (&main, &right), (&left, &base), (&right, &base), (&base, &main)] {
        from.add_to_link_order(to, exported_only).unwrap();
    }
    let (send, ran) = mpsc::channel();
    for dylib in [&main, &left, &base, &apart] {
        for part in 0..2 {
            let (send, name) = (send.clone(), format!("{} {part}", dylib.name()));
            let unit = TestUnit::new(&name, exported(&session, &[&name]), move |responsibility| {
                send.send(()).unwrap();
                finish(responsibility);
            });
            dylib.define(unit.with_initializer(session.intern(&format!("init {part}"))).boxed()).unwrap();
        }
    }
    let found = look_up_initializers(&main).unwrap();
    let inits = [session.intern("init 0"), session.intern("init 1")];
    let expected = [&base, &left, &main].map(|dylib| (dylib.clone(), inits.to_vec()));
    assert_eq!(found, expected);
    assert_eq!(ran.try_iter().count(), 6, "all that main leads to, and nothing apart from it");
    assert_eq!(look_up_initializers(&main).unwrap(), expected, "each runs once");
    assert_eq!(ran.try_iter().count(), 0);
    session.remove_jit_dylib(&main).unwrap();
    assert!(matches!(look_up_initializers(&main), Err(LookupError::DylibRemoved { .. })));
}

#[test]
fn a_failing_initializer_fails_their_lookup() {
    let (session, main) = session();
    let unit = TestUnit::new("broken", exported(&session, &["a"]), drop);
    main.define(unit.with_initializer(session.intern("init")).boxed()).unwrap();
    assert!(matches!(look_up_initializers(&main), Err(LookupError::Failed(_))));
}

#[test]
fn init_symbols_of_several_dylibs_are_looked_up_at_once() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    main.define(absolute_symbols([(session.intern("a"), at(1))].into_iter().collect())).unwrap();
    other.define(absolute_symbols([(session.intern("a"), at(2))].into_iter().collect())).unwrap();
    let a = session.intern("a");
    let wanted = [&other, &main].map(|dylib| (dylib.clone(), LookupSet::one(a.clone())));
    let found = session.lookup_init_symbols(wanted).unwrap();
    let found: Vec<_> = found.iter().map(|(dylib, found)| (dylib.name(), found.get(&a))).collect();
    assert_eq!(found, [("other", Some(at(2))), ("main", Some(at(1)))]);
    let missing = LookupSet::one(session.intern("missing"));
    let parked = define_parked(&main, "unit", &["parked"]);
    let wanted = [(other, missing), (main.clone(), set(&session, &["parked"]))];
    assert!(matches!(session.lookup_init_symbols(wanted), Err(LookupError::NotFound { .. })));
    let responsibility = parked.try_recv().expect("both were on their way").attach();
    assert!(responsibility.requested_symbols().is_empty(), "the other lookup was withdrawn");
    let flags = session.lookup_flags(LookupRequest::new(order(&main), set(&session, &["parked"])));
    assert_eq!(flags.unwrap().len(), 1);
}

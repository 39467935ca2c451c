//! Units that left a spare: their symbols are made once more after a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{
    ExecutionSession, FnRequest, FnUnit, GenerateRequest, JitDylib, JitDylibLookupFlags, LookupError,
    LookupRequest, MaterializationInterface, MaterializationResponsibility, MaterializationUnit, Remedy,
    RetryError, SharedError, SymbolFlagsMap, SymbolName, TrackerError, absolute_symbols, shared_error,
};

/// A unit whose symbols need others, as those of an object do.
#[derive(Clone)]
struct Needy {
    symbols: SymbolFlagsMap,
    needs: Vec<SymbolName>,
    /// So often it fails before it looks for what it needs.
    fails: Arc<AtomicUsize>,
    made: Arc<AtomicUsize>,
    /// Of which there are as many as there are units and spares.
    source: Arc<()>,
}

impl Needy {
    fn new(session: &ExecutionSession, symbols: &[&str], needs: &[&str]) -> Self {
        Self {
            symbols: exported(session, symbols),
            needs: needs.iter().map(|name| session.intern(name)).collect(),
            fails: Arc::default(),
            made: Arc::default(),
            source: Arc::default(),
        }
    }

    fn define(&self, dylib: &JitDylib) {
        dylib.define(Box::new(self.clone())).expect("the names are free");
    }

    /// How often a unit has begun.
    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }
}

impl MaterializationUnit for Needy {
    fn name(&self) -> &str {
        "needy"
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new(self.symbols.clone())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.made.fetch_add(1, Ordering::SeqCst);
        if self.fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return responsibility.fail(shared_error("no memory is left"));
        }
        let order = responsibility.dylib().link_order();
        let resolved = resolve(responsibility);
        emit_depending_on(resolved, LookupRequest::new(order, uruk_core::LookupSet::required(self.needs)));
    }

    fn spare(&self) -> Option<Box<dyn MaterializationUnit>> {
        Some(Box::new(self.clone()))
    }

    fn discard(&mut self, _: &JitDylib, symbol: &SymbolName) {
        self.symbols.remove(symbol);
    }
}

fn look_up(dylib: &JitDylib, name: &str) -> Result<(), LookupError> {
    let session = dylib.session();
    session.lookup_symbol(&dylib.link_order(), &session.intern(name)).map(drop)
}

fn remedy(outcome: Result<(), LookupError>) -> Option<Remedy> {
    match outcome {
        Err(LookupError::Failed(failure)) => failure.remedy(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_definition_of_what_is_missing_has_it_made_once_more() {
    let (session, main) = session();
    let (below, above) =
        (Needy::new(&session, &["a", "b"], &["c", "d"]), Needy::new(&session, &["e"], &["a"]));
    below.define(&main);
    above.define(&main);
    assert_eq!(remedy(look_up(&main, "e")), Some(Remedy::LookUpAgain));
    define_absolute(&main, "unrelated", 1);
    assert_eq!(remedy(look_up(&main, "e")), Some(Remedy::LookUpAgain));
    assert_eq!((below.made(), above.made()), (1, 1), "nothing has come");
    define_absolute(&main, "c", 1);
    look_up(&main, "a").unwrap_err();
    look_up(&main, "b").unwrap_err();
    assert_eq!((below.made(), above.made()), (2, 1), "one of two has come, once");
    define_absolute(&main, "d", 1);
    look_up(&main, "e").unwrap();
    look_up(&main, "b").unwrap();
    assert_eq!((below.made(), above.made()), (3, 2));
    assert_eq!(
        (Arc::strong_count(&below.source), Arc::strong_count(&above.source)),
        (1, 1),
        "no spare is left"
    );
}

#[test]
fn so_do_generators_and_link_orders() {
    let (session, main) = session();
    let library = session.create_jit_dylib("library").unwrap();
    let needy = Needy::new(&session, &["a"], &["b"]);
    needy.define(&main);
    look_up(&main, "a").unwrap_err();
    define_absolute(&library, "other", 1);
    main.add_to_link_order(&library, JitDylibLookupFlags::MatchAllSymbols).unwrap();
    look_up(&main, "a").unwrap_err();
    look_up(&main, "a").unwrap_err();
    assert_eq!(needy.made(), 2, "once for each change");

    struct OnDemand(Arc<AtomicUsize>);
    impl uruk_core::DefinitionGenerator for OnDemand {
        fn name(&self) -> &str {
            "on demand"
        }
        fn generate(&self, request: GenerateRequest) {
            let names: Vec<_> = request.symbols().iter().map(|(name, _)| name.clone()).collect();
            let mut outcome = Ok(());
            if self.0.load(Ordering::SeqCst) > 0 {
                let known = names.into_iter().map(|name| (name, at(1))).collect();
                let defined = request.dylib().define(absolute_symbols(known));
                outcome = defined.map_err(|error| Arc::new(error) as SharedError);
            }
            request.finish(outcome);
        }
    }
    let knows = Arc::new(AtomicUsize::new(0));
    library.add_generator(Arc::new(OnDemand(knows.clone()))).unwrap();
    look_up(&main, "a").unwrap_err();
    look_up(&main, "a").unwrap_err();
    assert_eq!(needy.made(), 3);
    knows.store(1, Ordering::SeqCst);
    look_up(&main, "a").unwrap_err();
    session.generators_changed();
    look_up(&main, "a").unwrap();
    assert_eq!(needy.made(), 4);
}

/// A failure that is for the want of nothing stays until it is retried, and so does all that failed through it.
#[test]
fn a_retry_makes_once_more_what_failed_and_what_it_failed_through() {
    let (session, main) = session();
    let below = Needy::new(&session, &["a"], &[]);
    let (middle, above) = (Needy::new(&session, &["b"], &["a"]), Needy::new(&session, &["c"], &["b"]));
    below.fails.store(1, Ordering::SeqCst);
    for unit in [&below, &middle, &above] {
        unit.define(&main);
    }
    look_up(&main, "a").unwrap_err();
    assert_eq!(remedy(look_up(&main, "c")), Some(Remedy::Retry));
    assert_eq!(remedy(look_up(&main, "c")), Some(Remedy::Retry));
    let c = session.intern("c");
    session.retry(&order(&main), &[c.clone(), session.intern("absent")]).unwrap();
    look_up(&main, "c").unwrap();
    assert_eq!((below.made(), middle.made(), above.made()), (2, 2, 2));
    session.retry(&order(&main), &[c]).unwrap();
    look_up(&main, "c").unwrap();
    assert_eq!(above.made(), 2, "it has not failed");
}

#[test]
fn a_unit_without_a_spare_has_to_be_defined_again() {
    let (session, main) = session();
    let fails = |_: &mut FnRequest<'_>| Err::<uruk_core::SymbolMap, _>("broken");
    main.define(Box::new(FnUnit::new([session.intern("a")], fails))).unwrap();
    let above = Needy::new(&session, &["b"], &["a"]);
    above.define(&main);
    assert_eq!(remedy(look_up(&main, "a")), None);
    look_up(&main, "b").unwrap_err();
    let refused = session.retry(&order(&main), &[session.intern("b")]);
    assert_eq!(refused, Err(RetryError::NoSpare { symbols: vec![session.intern("a")] }));
    look_up(&main, "b").unwrap_err();
    assert_eq!(above.made(), 2);
}

/// A definition that came since stays.
#[test]
fn a_spare_leaves_what_was_defined_again_alone() {
    let (session, main) = session();
    let needy = Needy::new(&session, &["a", "b"], &["c"]);
    needy.define(&main);
    look_up(&main, "a").unwrap_err();
    define_absolute(&main, "b", 7);
    define_absolute(&main, "c", 1);
    look_up(&main, "a").unwrap();
    let found = session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
    assert_eq!((found, needy.made()), (at(7), 2));
}

#[test]
fn a_spare_goes_with_its_tracker() {
    let (session, main) = session();
    let needy = Needy::new(&session, &["a"], &["b"]);
    let tracker = main.create_tracker();
    main.define_with_tracker(Box::new(needy.clone()), &tracker).unwrap();
    look_up(&main, "a").unwrap_err();
    assert_eq!(Arc::strong_count(&needy.source), 2);
    tracker.remove().unwrap();
    assert_eq!(Arc::strong_count(&needy.source), 1);
    define_absolute(&main, "b", 1);
    assert!(matches!(look_up(&main, "a"), Err(LookupError::NotFound { .. })));
    session.retry(&order(&main), &[session.intern("a")]).unwrap();
    assert!(matches!(look_up(&main, "a"), Err(LookupError::NotFound { .. })));
}

/// Resources of a unit go when its symbols are made once more. The new definition goes with the tracker of the old one.
#[test]
fn resources_of_the_first_attempt_go() {
    struct Held(Needy, Arc<()>);
    struct Resource(#[expect(dead_code, reason = "it is counted")] Arc<()>);
    impl uruk_core::Resource for Resource {
        fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            Ok(())
        }
    }
    impl MaterializationUnit for Held {
        fn name(&self) -> &str {
            "held"
        }
        fn interface(&self) -> MaterializationInterface {
            self.0.interface()
        }
        fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
            let added: Result<(), TrackerError> = responsibility.add_resource(Box::new(Resource(self.1)));
            added.unwrap();
            Box::new(self.0).materialize(responsibility);
        }
        fn spare(&self) -> Option<Box<dyn MaterializationUnit>> {
            Some(Box::new(Self(self.0.clone(), self.1.clone())))
        }
        fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
    }
    let (session, main) = session();
    let counted = Arc::new(());
    let tracker = main.create_tracker();
    let held = Held(Needy::new(&session, &["a"], &["b"]), counted.clone());
    main.define_with_tracker(Box::new(held), &tracker).unwrap();
    look_up(&main, "a").unwrap_err();
    define_absolute(&main, "b", 1);
    look_up(&main, "a").unwrap();
    assert_eq!(Arc::strong_count(&counted), 2, "that of the second attempt");
    tracker.remove().unwrap();
    assert_eq!(Arc::strong_count(&counted), 1);
    assert!(matches!(look_up(&main, "a"), Err(LookupError::NotFound { .. })));
}

#[test]
fn threads_that_ask_at_once_have_it_made_once() {
    const THREADS: usize = 4;
    for round in 0..50 {
        let (session, main) = session_of(2);
        let needy = Needy::new(&session, &["a", "b"], &["c"]);
        needy.define(&main);
        look_up(&main, "a").unwrap_err();
        define_absolute(&main, "c", 1);
        let start = Latch::new();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (start, session, main) = (&start, &session, &main);
                scope.spawn(move || {
                    start.wait();
                    if (round + thread) % 3 == 0 {
                        session.retry(&order(main), &[session.intern("b")]).unwrap();
                    }
                    look_up(main, if thread % 2 == 0 { "a" } else { "b" }).unwrap();
                });
            }
            start.open();
        });
        assert_eq!(needy.made(), 2);
        session.close().unwrap();
    }
}

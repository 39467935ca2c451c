//! Transactions: several changes that happen together or not at all.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Latch, Mutex, thread};
use uruk_core::{
    DefineError, DylibError, ExecutionSession, ExecutorAddr, JitDylib, JitDylibLookupFlags, LookupError,
    LookupRequest, LookupSet, MaterializationUnit, RemoveError, Resource, SearchOrder, SessionError,
    SymbolFlags, TransactionError, absolute_symbols,
};

fn absolute(session: &ExecutionSession, names: &[&str], address: u64) -> Box<dyn MaterializationUnit> {
    absolute_symbols(names.iter().map(|name| (session.intern(name), at(address))).collect())
}

fn found(dylib: &JitDylib, name: &str) -> Option<u64> {
    let session = dylib.session();
    match session.lookup_symbol(&order(dylib), &session.intern(name)) {
        Ok(definition) => Some(definition.address.value()),
        Err(LookupError::NotFound { .. }) => None,
        Err(error) => panic!("`{name}`: {error}"),
    }
}

#[test]
fn removing_and_defining_a_name_in_one_transaction_redefines_it() {
    let (session, main) = session();
    main.define(absolute(&session, &["a"], 1)).unwrap();
    assert_eq!(found(&main, "a"), Some(1));
    let names = [session.intern("a")];
    session.transaction().remove(&main, names).define(&main, absolute(&session, &["a"], 2)).commit().unwrap();
    assert_eq!(found(&main, "a"), Some(2));
}

#[test]
fn redefining_takes_the_place_of_whatever_there_is() {
    let (session, main) = session();
    let weak = [(session.intern("weak"), EXPORTED | SymbolFlags::WEAK)].into_iter().collect();
    main.define(TestUnit::new("weak", weak, finish).boxed()).unwrap();
    main.define(absolute(&session, &["ready", "never searched"], 1)).unwrap();
    assert_eq!(found(&main, "ready"), Some(1));
    found(&main, "weak").unwrap();
    let names = ["weak", "ready", "never searched", "undefined"];
    session.transaction().redefine(&main, absolute(&session, &names, 2)).commit().unwrap();
    assert_eq!(names.map(|name| found(&main, name)), [Some(2); 4]);
}

#[test]
fn each_step_sees_what_the_steps_before_it_do() {
    let (session, main) = session();
    let (a, tracker) = (session.intern("a"), main.create_tracker());
    session
        .transaction()
        .define(&main, absolute(&session, &["a"], 1))
        .remove(&main, [a.clone()])
        .define_with_tracker(absolute(&session, &["a"], 2), &tracker)
        .remove_tracker(&tracker)
        .define(&main, absolute(&session, &["a"], 3))
        .redefine(&main, absolute(&session, &["a"], 4))
        .commit()
        .unwrap();
    assert_eq!(found(&main, "a"), Some(4));
    assert!(tracker.is_defunct());
    let twice = session
        .transaction()
        .define(&main, absolute(&session, &["b"], 1))
        .define(&main, absolute(&session, &["b"], 2));
    let error = twice.commit().unwrap_err().error;
    assert_eq!(
        error.in_full(),
        "step 1 of the transaction was refused, and nothing was changed: `b` of unit `<absolute symbols>` is already \
         defined in dylib `main` by unit `<absolute symbols>`"
    );
    assert_eq!(found(&main, "b"), None);
    let removed_twice = session.transaction().remove(&main, [a.clone()]).remove(&main, [a]);
    let error = removed_twice.commit().unwrap_err().error;
    assert!(matches!(error, TransactionError::Remove { step: 1, source: RemoveError::NotFound { .. } }));
    assert_eq!(found(&main, "a"), Some(4));
}

#[test]
fn a_refused_step_leaves_everything_unchanged() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let tracker = main.create_tracker();
    let (discards, discarded) = mpsc::channel();
    let weak = [(session.intern("weak"), EXPORTED | SymbolFlags::WEAK)].into_iter().collect();
    let weak =
        TestUnit::new("weak", weak, finish).on_discard(move |name| discards.send(name.clone()).unwrap());
    main.define(weak.boxed()).unwrap();
    main.define_with_tracker(absolute(&session, &["tracked"], 1), &tracker).unwrap();
    main.define(absolute(&session, &["removed"], 1)).unwrap();
    let refused = session
        .transaction()
        .define(&main, absolute(&session, &["weak", "new"], 2))
        .remove(&main, [session.intern("removed")])
        .remove_tracker(&tracker)
        .add_to_link_order(&main, &other, JitDylibLookupFlags::MatchExportedSymbolsOnly)
        .set_link_order(&other, SearchOrder::new())
        .remove(&other, [session.intern("missing")])
        .commit()
        .unwrap_err();
    assert_eq!(
        refused.in_full(),
        "step 5 of the transaction was refused, and nothing was changed: cannot remove symbols that dylib `other` does \
         not define: `missing`"
    );
    assert!(!tracker.is_defunct());
    assert_eq!((main.link_order(), other.link_order()), (order(&main), order(&other)));
    assert_eq!(found(&main, "new"), None);
    assert_eq!(found(&main, "weak"), Some(0x1000), "the weak definition was not overridden");
    assert_eq!((found(&main, "removed"), found(&main, "tracked")), (Some(1), Some(1)));
    assert!(discarded.try_recv().is_err());
}

/// Says that it was dropped, and uses the session on the way, which would not end under its lock.
struct Noted {
    session: ExecutionSession,
    drops: Arc<AtomicUsize>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.session.jit_dylib("main").expect("the dylib lives");
        // Relaxed: read by the thread that drops.
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn noted(
    session: &ExecutionSession,
    names: &[&str],
    drops: &Arc<AtomicUsize>,
) -> Box<dyn MaterializationUnit> {
    let noted = Noted { session: session.clone(), drops: drops.clone() };
    let materialize = move |responsibility| {
        finish(responsibility);
        drop(noted);
    };
    TestUnit::new("noted", exported(session, names), materialize).boxed()
}

#[test]
fn a_refused_transaction_gives_its_units_back_and_can_be_committed_again() {
    let (session, main) = session();
    let drops = Arc::new(AtomicUsize::new(0));
    define_simple(&main, "in the way", &["b"]);
    let transaction = session
        .transaction()
        .define(&main, noted(&session, &["a"], &drops))
        .define(&main, noted(&session, &["b"], &drops));
    let refused = transaction.commit().unwrap_err();
    assert!(matches!(
        &refused.error,
        TransactionError::Define { step: 1, source: DefineError::Duplicate { .. } }
    ));
    assert_eq!((refused.transaction.len(), drops.load(Ordering::Relaxed)), (2, 0));
    main.remove(&[session.intern("b")]).unwrap();
    refused.transaction.commit().unwrap();
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"]))).unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

#[test]
fn refused_units_are_dropped_outside_the_lock() {
    within_reason(|| {
        let (session, main) = session();
        let drops = Arc::new(AtomicUsize::new(0));
        define_simple(&main, "in the way", &["a"]);
        let transaction = session.transaction().define(&main, noted(&session, &["a"], &drops));
        let refused = transaction.commit().unwrap_err();
        assert_eq!(drops.load(Ordering::Relaxed), 0, "the units are the caller's");
        let units = refused.transaction.into_units();
        assert_eq!((units.len(), units[0].name()), (1, "noted"));
        drop(units);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        // A unit that loses everything in a transaction goes the same way.
        main.define(noted(&session, &["b"], &drops)).unwrap();
        session.transaction().redefine(&main, absolute(&session, &["b"], 2)).commit().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn what_is_being_materialized_is_redefined_with_its_tracker_and_not_by_name() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("old", exported(&session, &["a"]), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    let waits = look_up_later(&session, request(&main, &["a"]));
    let by_name = session.transaction().redefine(&main, absolute(&session, &["a"], 2)).commit().unwrap_err();
    assert!(matches!(&by_name.error, TransactionError::Remove { source: RemoveError::InUse { .. }, .. }));
    assert!(waits.try_recv().is_err());
    let by_tracker = by_name.transaction.into_units().remove(0);
    session.transaction().remove_tracker(&tracker).define(&main, by_tracker).commit().unwrap();
    assert!(matches!(waits.try_recv().unwrap(), Err(LookupError::Failed(_))));
    assert_eq!(found(&main, "a"), Some(2));
    // The old responsibility has nothing to do with the new definition.
    drop(parked.recv().unwrap().attach());
    assert_eq!(found(&main, "a"), Some(2));
}

#[test]
fn a_tracker_removed_by_a_transaction_takes_no_definitions_in_it() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let transaction = session
        .transaction()
        .remove_tracker(&tracker)
        .define_with_tracker(absolute(&session, &["a"], 1), &tracker);
    let error = transaction.commit().unwrap_err().error;
    assert!(matches!(
        error,
        TransactionError::Define { step: 1, source: DefineError::TrackerDefunct { .. } }
    ));
    assert!(!tracker.is_defunct());
}

#[test]
fn resources_of_a_removed_tracker_go_when_all_is_changed() {
    struct Sees(JitDylib, Arc<Mutex<Vec<Option<u64>>>>);
    impl Resource for Sees {
        fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            self.1.lock().push(found(&self.0, "a"));
            Err("stuck".into())
        }
    }
    let (reports, reported) = mpsc::channel();
    let reporter = Arc::new(move |error: &SessionError| reports.send(error.in_full()).unwrap());
    let session = ExecutionSession::builder().error_reporter(reporter).build();
    let main = session.create_jit_dylib("main").unwrap();
    let tracker = main.create_tracker();
    let seen = Arc::default();
    tracker.add_resource(Box::new(Sees(main.clone(), Arc::clone(&seen)))).unwrap();
    main.define_with_tracker(absolute(&session, &["a"], 1), &tracker).unwrap();
    let unit = absolute(&session, &["a"], 2);
    session.transaction().remove_tracker(&tracker).define(&main, unit).commit().unwrap();
    assert_eq!(*seen.lock(), [Some(2)]);
    assert_eq!(reported.try_recv().unwrap(), "resources of dylib `main` could not be removed: stuck");
}

#[test]
fn link_orders_change_with_the_definitions() {
    let (session, main) = session();
    let [one, two] = ["one", "two"].map(|name| session.create_jit_dylib(name).unwrap());
    let exported_only = JitDylibLookupFlags::MatchExportedSymbolsOnly;
    session
        .transaction()
        .define(&one, absolute(&session, &["a"], 1))
        .set_link_order(&main, vec![(two.clone(), exported_only)].into())
        .add_to_link_order(&main, &one, exported_only)
        .add_to_link_order(&main, &one, exported_only)
        .remove_from_link_order(&main, &two)
        .commit()
        .unwrap();
    assert_eq!(main.link_order(), vec![(one.clone(), exported_only)].into());
    session.remove_jit_dylib(&two).unwrap();
    let gone = session
        .transaction()
        .define(&main, absolute(&session, &["b"], 1))
        .set_link_order(&main, vec![(one.clone(), exported_only), (two.clone(), exported_only)].into());
    let error = gone.commit().unwrap_err().error;
    let TransactionError::LinkOrder { step: 1, source: DylibError::Removed { name } } = error else {
        panic!("{error}")
    };
    assert_eq!(&*name, "two");
    assert_eq!(main.link_order(), vec![(one, exported_only)].into());
    let error = session.transaction().remove(&two, []).commit().unwrap_err().error;
    assert!(matches!(error, TransactionError::Remove { source: RemoveError::DylibRemoved { .. }, .. }));
}

#[test]
fn dylibs_of_other_sessions_are_refused() {
    let ((session, main), (_elsewhere, foreign)) = (session(), session());
    let flags = JitDylibLookupFlags::MatchAllSymbols;
    let transactions = [
        session.transaction().define(&foreign, absolute(&session, &["a"], 1)),
        session.transaction().remove(&foreign, []),
        session.transaction().add_to_link_order(&main, &foreign, flags),
        session.transaction().set_link_order(&main, vec![(foreign.clone(), flags)].into()),
        session.transaction().remove_from_link_order(&foreign, &main),
        session.transaction().remove_tracker(&foreign.create_tracker()),
    ];
    for transaction in transactions {
        let error = transaction.commit().unwrap_err().error;
        assert!(matches!(error, TransactionError::Foreign { step: 0, .. }), "{error}");
    }
    assert_eq!(main.link_order(), order(&main));
}

#[test]
fn a_closed_session_refuses_transactions() {
    let (session, main) = session();
    session.close().unwrap();
    let unit = absolute(&session, &["a"], 1);
    let error = session.transaction().define(&main, unit).commit().unwrap_err().error;
    assert!(matches!(error, TransactionError::Define { source: DefineError::Closed { .. }, .. }));
}

/// ```text
///  writer: { redefine a in one, b in two } × rounds       readers: look both up, with and without the lock
/// ```
#[test]
fn readers_never_see_half_a_transaction() {
    const ROUNDS: u64 = 2_000;
    within_reason(|| {
        let (session, one) = session();
        let two = session.create_jit_dylib("two").unwrap();
        let both: SearchOrder = [&one, &two]
            .map(|dylib| (dylib.clone(), JitDylibLookupFlags::MatchAllSymbols))
            .into_iter()
            .collect();
        let define = |round| {
            session
                .transaction()
                .redefine(&one, absolute(&session, &["a"], round))
                .redefine(&two, absolute(&session, &["b"], round))
        };
        define(0).commit().unwrap();
        let over = Arc::new(Latch::new());
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (session, both, over) = (session.clone(), both.clone(), over.clone());
                thread::spawn(move || {
                    let (mut last, mut seen) = (0, 0);
                    // The last look, when all is over, finds the last round.
                    loop {
                        let last_look = over.is_open();
                        let found =
                            session.lookup(LookupRequest::new(&both, set(&session, &["a", "b"]))).unwrap();
                        let [a, b] = ["a", "b"].map(|name| found[&session.intern(name)].address);
                        assert_eq!(a, b, "half a transaction");
                        assert!(a >= ExecutorAddr::new(last), "time runs backwards");
                        (last, seen) = (a.value(), seen + u64::from(a.value() != last));
                        if last_look {
                            return (last, seen);
                        }
                    }
                })
            })
            .collect();
        for round in 1..=ROUNDS {
            let mut transaction = define(round);
            // A symbol that a reader is materializing cannot be redefined by name; it is done soon.
            while let Err(refused) = transaction.commit() {
                assert!(matches!(
                    &refused.error,
                    TransactionError::Remove { source: RemoveError::InUse { .. }, .. }
                ));
                transaction = refused.transaction;
                thread::yield_now();
            }
        }
        over.open();
        for reader in readers {
            let (last, seen) = reader.join().unwrap();
            assert_eq!(last, ROUNDS);
            assert!(seen > 0, "a reader has seen time pass");
        }
    });
}

/// ```text
///  writer: { define x in the other library, remove it from this one, link main to the other } × rounds
///  reader: look x up along main's link order
/// ```
#[test]
fn a_link_order_and_what_it_leads_to_change_as_one() {
    const ROUNDS: u64 = 1_000;
    within_reason(|| {
        let (session, main) = session();
        let libraries = ["even", "odd"].map(|name| session.create_jit_dylib(name).unwrap());
        let exported_only = JitDylibLookupFlags::MatchExportedSymbolsOnly;
        let x = session.intern("x");
        let address = |round| [(session.intern("x"), at(round))].into_iter().collect();
        libraries[0].define(absolute_symbols(address(0))).unwrap();
        main.set_link_order([(libraries[0].clone(), exported_only)]).unwrap();
        let over = Arc::new(Latch::new());
        let reader = thread::spawn({
            let (main, x, over) = (main.clone(), x.clone(), over.clone());
            move || {
                let mut last = 0;
                while !over.is_open() {
                    let along = LookupRequest::along(&main, LookupSet::one(x.clone()));
                    let found = main.session().lookup(along).expect("defined at every moment");
                    assert!(found[&x].address.value() >= last, "time runs backwards");
                    last = found[&x].address.value();
                }
            }
        });
        for round in 1..=ROUNDS {
            let [old, new] = [&libraries[(round as usize + 1) % 2], &libraries[round as usize % 2]];
            let mut transaction = session
                .transaction()
                .define(new, absolute_symbols(address(round)))
                .remove(old, [x.clone()])
                .set_link_order(&main, [(new.clone(), exported_only)].into());
            // Refused while the reader's lookup materializes what shall go.
            while let Err(refused) = transaction.commit() {
                let source = match refused.error {
                    TransactionError::Remove { source, .. } => source,
                    other => panic!("{other}"),
                };
                assert!(matches!(source, RemoveError::InUse { .. }), "{source}");
                transaction = refused.transaction;
                thread::yield_now();
            }
        }
        over.open();
        reader.join().unwrap();
        assert_eq!(
            session.lookup(LookupRequest::along(&main, LookupSet::one(x.clone()))).unwrap()[&x],
            at(ROUNDS)
        );
    });
}

/// The plan made an entry for every row of the tracker, and looked at every entry for every tracker.
#[test]
fn a_removed_tracker_is_as_if_it_had_never_been() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    main.define_with_tracker(absolute(&session, &["a", "b", "c"], 1), &tracker).unwrap();
    main.define(absolute(&session, &["d"], 1)).unwrap();
    let other = main.create_tracker();
    session
        .transaction()
        .define_with_tracker(absolute(&session, &["e"], 2), &other)
        .remove(&main, [session.intern("a")])
        .remove_tracker(&tracker)
        .define(&main, absolute(&session, &["b"], 2))
        .remove_tracker(&other)
        .define(&main, absolute(&session, &["e"], 3))
        .remove_tracker(&main.default_tracker())
        .define(&main, absolute(&session, &["d"], 4))
        .commit()
        .unwrap();
    let all = ["a", "b", "c", "d", "e"].map(|name| found(&main, name));
    assert_eq!(all, [None, None, None, Some(4), None]);
    let gone =
        session.transaction().remove_tracker(&main.default_tracker()).remove(&main, [session.intern("d")]);
    assert!(matches!(gone.commit().unwrap_err().error, TransactionError::Remove { step: 1, .. }));
    assert_eq!(found(&main, "d"), Some(4), "nothing has changed");
}

//! Certain deadlocks: a cycle of waits is an error that names it, and nothing else is.
//!
//! Late edges are staged in place, where a task that a unit leaves behind runs while the unit is blocked above it.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::{
    DeadlockStep, DefinitionGenerator, DependenceGroup, Detached, ExecutionSession, GenerateRequest,
    JitDylib, LookupError, MaterializationResponsibility, SymbolFlags, SymbolName, Task, TaskPriority,
    symbol_aliases,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

type Told = mpsc::Receiver<(String, LookupError)>;
type Teller = mpsc::Sender<(String, LookupError)>;

/// A session on a pool of so many workers, or in place.
fn on(workers: Option<usize>) -> (ExecutionSession, JitDylib) {
    let Some(workers) = workers else { return session() };
    let pool = WorkStealingTaskDispatcher::builder().workers(workers).build().expect("a possible number");
    let session = ExecutionSession::builder().dispatcher(Arc::new(pool)).build();
    let main = session.create_jit_dylib("main").expect("the first dylib has a name of its own");
    (session, main)
}

const DISPATCHERS: [Option<usize>; 4] = [None, Some(1), Some(2), Some(4)];

/// Defines `symbol`, whose unit of the same name in capitals blocks in a lookup of `needs`.
fn define_blocking(main: &JitDylib, symbol: &str, needs: &[&str], told: &Teller) {
    let (told, name) = (told.clone(), symbol.to_uppercase());
    let needs: Vec<String> = needs.iter().map(|&name| name.to_owned()).collect();
    let unit = TestUnit::new(&name.clone(), exported(main.session(), &[symbol]), move |responsibility| {
        let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
        match look_up(responsibility.dylib(), &needs) {
            Ok(()) => finish(responsibility),
            Err(error) => {
                told.send((name, error.clone())).unwrap();
                responsibility.fail(Arc::new(error));
            }
        }
    });
    main.define(unit.boxed()).unwrap();
}

fn look_up(main: &JitDylib, names: &[&str]) -> Result<(), LookupError> {
    main.session().lookup(&order(main), set(main.session(), names)).map(drop)
}

/// The symbols of the cycle of the one lookup that was told of it, from the least on, and who that was.
fn the_cycle(told: &Told) -> (String, Vec<String>) {
    let errors: Vec<_> = told.try_iter().collect();
    let mut cycles = errors.iter().filter_map(|(unit, error)| match error {
        LookupError::WouldDeadlock { path } => Some((unit.clone(), names(path))),
        _ => None,
    });
    let (unit, mut cycle) = cycles.next().unwrap_or_else(|| panic!("no deadlock among {errors:?}"));
    assert!(cycles.next().is_none(), "more than one was told: {errors:?}");
    let least = cycle.iter().enumerate().min_by_key(|(_, name)| *name).map_or(0, |(index, _)| index);
    cycle.rotate_left(least);
    (unit, cycle)
}

fn names(path: &[DeadlockStep]) -> Vec<String> {
    let name = |step: &DeadlockStep| step.symbol().map_or("(generator)".to_owned(), SymbolName::to_string);
    path.iter().map(name).collect()
}

fn resolve(responsibility: MaterializationResponsibility) -> uruk_core::ResolvedResponsibility {
    let addresses = addresses(responsibility.symbols());
    responsibility.notify_resolved(&addresses).expect("addresses are as promised")
}

/// Leaves `run` behind for whoever runs this thread's tasks next: the lookup it blocks in.
fn while_blocked(session: &ExecutionSession, run: impl FnOnce() + Send + 'static) {
    session.dispatch(Task::new("late", TaskPriority::Demanded, run));
}

#[test]
fn two_units_that_look_each_other_up_are_told_on_every_dispatcher() {
    for workers in DISPATCHERS {
        within_reason(move || {
            let (session, main) = on(workers);
            let (teller, told) = mpsc::channel();
            define_blocking(&main, "a", &["b"], &teller);
            define_blocking(&main, "b", &["a"], &teller);
            let error = look_up(&main, &["a"]).unwrap_err();
            assert!(matches!(error, LookupError::Failed(_)), "{error}");
            let text = error.to_string();
            assert!(text.contains("would never end"), "{text}");
            assert_eq!(the_cycle(&told), ("B".into(), vec!["a".into(), "b".into()]));
            assert!(look_up(&main, &["b"]).is_err());
            session.close().unwrap();
        });
    }
}

#[test]
fn whoever_comes_last_is_told_and_only_once() {
    for workers in DISPATCHERS {
        for _ in 0..20 {
            within_reason(move || {
                let (_session, main) = on(workers);
                let (teller, told) = mpsc::channel();
                define_blocking(&main, "a", &["b"], &teller);
                define_blocking(&main, "b", &["a"], &teller);
                std::thread::scope(|scope| {
                    scope.spawn(|| look_up(&main, &["a"]).unwrap_err());
                    scope.spawn(|| look_up(&main, &["b"]).unwrap_err());
                });
                assert_eq!(the_cycle(&told).1, ["a", "b"]);
            });
        }
    }
}

#[test]
fn three_units_in_a_circle_are_told_with_the_whole_of_it() {
    for workers in DISPATCHERS {
        within_reason(move || {
            let (_session, main) = on(workers);
            let (teller, told) = mpsc::channel();
            for (symbol, needs) in [("a", "b"), ("b", "c"), ("c", "a"), ("outside", "a")] {
                define_blocking(&main, symbol, &[needs], &teller);
            }
            look_up(&main, &["outside"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("C".into(), vec!["a".into(), "b".into(), "c".into()]));
        });
    }
}

#[test]
fn a_unit_that_looks_itself_up_is_told() {
    for workers in DISPATCHERS {
        within_reason(move || {
            let (_session, main) = on(workers);
            let (teller, told) = mpsc::channel();
            define_blocking(&main, "a", &["a"], &teller);
            look_up(&main, &["a"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("A".into(), vec!["a".into()]));
        });
    }
}

#[test]
fn the_error_reads_from_symbol_to_symbol() {
    let (session, main) = session();
    let (teller, told) = mpsc::channel();
    define_blocking(&main, "a", &["b"], &teller);
    define_blocking(&main, "b", &["a"], &teller);
    look_up(&main, &["a"]).unwrap_err();
    let (_, error) = told.try_iter().find(|(unit, _)| unit == "B").unwrap();
    let text = error.to_string();
    let a_first = "`a` (dylib `main`, unit `A`) looks up `b` (dylib `main`, unit `B`), which looks up `a`";
    let b_first = "`b` (dylib `main`, unit `B`) looks up `a` (dylib `main`, unit `A`), which looks up `b`";
    assert!(text.contains(a_first) || text.contains(b_first), "{text}");
    drop(session);
}

#[test]
fn the_last_edge_may_be_an_emission() {
    within_reason(|| {
        let (session, main) = session();
        let parked = define_parked(&main, "X", &["x"]);
        let x_wanted = look_up_later(&session, request(&main, &["x"]));
        let (teller, told) = mpsc::channel();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let a = responsibility.dependency(&session.intern("a")).unwrap();
            let _held = resolve(responsibility);
            while_blocked(&session, move || {
                let x = resolve(parked.recv().unwrap().attach());
                let symbols = x.symbols().keys().cloned().collect();
                x.notify_emitted(vec![DependenceGroup { symbols, dependencies: vec![a] }]).unwrap();
            });
            teller.send(("A".to_owned(), look_up(&main, &["x"]).unwrap_err())).unwrap();
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap_err();
        let (_, error) = told.try_recv().unwrap();
        let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
        for step in path.iter() {
            match step {
                DeadlockStep::DependsOn { symbol, .. } => assert_eq!(symbol.as_str(), "x"),
                DeadlockStep::LooksUp { symbol, .. } => assert_eq!(symbol.as_str(), "a"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(path.len(), 2, "{error}");
        // Not told: it fails with what it depends on.
        assert!(matches!(x_wanted.recv().unwrap(), Err(LookupError::Failed(_))));
    });
}

#[test]
fn the_last_edge_may_be_the_second_dependency_of_a_chain_of_emissions() {
    within_reason(|| {
        let (session, main) = session();
        // x depends on y; y on p, which stays parked, and on a: the forest hangs y on p and never looks at a.
        let (x, y) = (define_parked(&main, "X", &["x"]), define_parked(&main, "Y", &["y"]));
        let p = define_parked(&main, "P", &["p"]);
        let wanted = look_up_later(&session, request(&main, &["x", "y", "p"]));
        let (x, y, p) = (x.recv().unwrap(), y.recv().unwrap(), p.recv().unwrap().attach());
        let (teller, told) = mpsc::channel();
        let token = |responsibility: &MaterializationResponsibility, name: &str| {
            responsibility.dependency(&responsibility.session().intern(name)).unwrap()
        };
        let on_p = token(&p, "p");
        let p = p.detach();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let on_a = token(&responsibility, "a");
            let _held = resolve(responsibility);
            while_blocked(&session, move || {
                let (x, y) = (x.attach(), y.attach());
                let on_y = token(&y, "y");
                for (responsibility, dependencies) in [(x, vec![on_y]), (y, vec![on_p, on_a])] {
                    let symbols = responsibility.symbols().keys().cloned().collect();
                    let group = DependenceGroup { symbols, dependencies };
                    resolve(responsibility).notify_emitted(vec![group]).unwrap();
                }
            });
            teller.send(("A".to_owned(), look_up(&main, &["x"]).unwrap_err())).unwrap();
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap_err();
        assert_eq!(the_cycle(&told).1, ["a", "x", "y"]);
        drop(p);
        assert!(wanted.recv().unwrap().is_err());
    });
}

#[test]
fn the_last_edge_may_be_an_alias() {
    for workers in DISPATCHERS {
        within_reason(move || {
            let (session, main) = on(workers);
            let (teller, told) = mpsc::channel();
            define_blocking(&main, "a", &["other"], &teller);
            let target = uruk_core::AliasTarget { source: session.intern("a"), flags: SymbolFlags::EXPORTED };
            main.define(symbol_aliases([(session.intern("other"), target)].into_iter().collect())).unwrap();
            look_up(&main, &["a"]).unwrap_err();
            let (_, error) = told.try_recv().unwrap();
            let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
            assert!(path.iter().any(|step| matches!(step, DeadlockStep::AliasOf { .. })), "{error}");
            assert_eq!(path.len(), 2, "{error}");
        });
    }
}

#[test]
fn the_last_edge_may_come_from_a_replacement() {
    within_reason(|| {
        let (session, main) = session();
        let (teller, told) = mpsc::channel();
        let parked = define_parked(&main, "X", &["x"]);
        let x_wanted = look_up_later(&session, request(&main, &["x"]));
        let errors = teller.clone();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let symbols = exported(&session, &["x"]);
            let replacement = TestUnit::new("X2", symbols, move |x| {
                errors.send(("X2".into(), look_up(x.dylib(), &["a"]).unwrap_err())).unwrap();
            });
            while_blocked(&session, move || {
                parked.recv().unwrap().attach().replace(replacement.boxed()).unwrap();
            });
            assert!(matches!(look_up(&main, &["x"]), Err(LookupError::Failed(_))));
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap_err();
        assert_eq!(the_cycle(&told), ("X2".into(), vec!["a".into(), "x".into()]));
        assert!(x_wanted.recv().unwrap().is_err());
    });
}

#[test]
fn the_last_edge_may_come_from_a_part_that_was_delegated() {
    within_reason(|| {
        let (session, main) = session();
        let (teller, told) = mpsc::channel();
        let parked = define_parked(&main, "X", &["x", "y"]);
        let wanted = look_up_later(&session, request(&main, &["x"]));
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            while_blocked(&session, move || {
                let mut whole = parked.recv().unwrap().attach();
                let part = whole.delegate([whole.session().intern("y")]).unwrap();
                finish(whole);
                teller.send(("Y".into(), look_up(part.dylib(), &["a"]).unwrap_err())).unwrap();
            });
            look_up(&main, &["y"]).unwrap_err();
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap_err();
        assert_eq!(the_cycle(&told), ("Y".into(), vec!["a".into(), "y".into()]));
        assert!(wanted.recv().unwrap().is_ok());
    });
}

/// Looks `needs` up, blocking, before it finishes; tells what came of it.
struct LooksUp {
    needs: &'static str,
    told: Teller,
}

impl DefinitionGenerator for LooksUp {
    fn name(&self) -> &str {
        "looks up"
    }

    fn generate(&self, request: GenerateRequest) {
        let outcome = look_up(request.dylib(), &[self.needs]);
        if let Err(error) = &outcome {
            self.told.send((self.name().into(), error.clone())).unwrap();
        }
        request.finish(outcome.map_err(|error| Arc::new(error) as _));
    }
}

#[test]
fn a_generator_that_waits_for_itself_is_told() {
    for workers in DISPATCHERS {
        within_reason(move || {
            let (_session, main) = on(workers);
            let (told_by, told) = mpsc::channel();
            main.add_generator(Arc::new(LooksUp { needs: "missing too", told: told_by }));
            look_up(&main, &["missing"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("looks up".into(), vec!["(generator)".into()]));
        });
    }
}

#[test]
fn a_generator_that_waits_for_a_unit_that_waits_for_it_is_told() {
    for workers in DISPATCHERS {
        within_reason(move || {
            let (_session, main) = on(workers);
            let (teller, told) = mpsc::channel();
            define_blocking(&main, "a", &["missing"], &teller);
            main.add_generator(Arc::new(LooksUp { needs: "a", told: teller }));
            look_up(&main, &["a"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("looks up".into(), vec!["(generator)".into(), "a".into()]));
        });
    }
}

#[test]
fn a_generator_whose_request_was_detached_is_waited_for() {
    struct Detaches(mpsc::Sender<uruk_core::DetachedRequest>);
    impl DefinitionGenerator for Detaches {
        fn name(&self) -> &str {
            "detaches"
        }
        fn generate(&self, request: GenerateRequest) {
            let main = request.dylib().clone();
            self.0.send(request.detach()).unwrap();
            // Queued behind itself, and served once another thread has finished.
            let _ = look_up(&main, &["missing too"]);
        }
    }
    within_reason(|| {
        let (_session, main) = on(Some(2));
        let (send, requests) = mpsc::channel();
        main.add_generator(Arc::new(Detaches(send)));
        std::thread::scope(|scope| {
            scope.spawn(|| look_up(&main, &["missing"]).unwrap_err());
            for name in ["missing", "missing too"] {
                let request = requests.recv().unwrap().attach();
                assert_eq!(request.symbols().iter().next().unwrap().0.as_str(), name);
                request.finish(Ok(()));
            }
        });
    });
}

#[test]
fn what_lies_beneath_on_the_same_stack_waits_too() {
    within_reason(|| {
        let (session, main) = session();
        let (teller, told) = mpsc::channel();
        // A is blocked for x, which somebody else may finish; the task above it waits for a.
        let parked = define_parked(&main, "X", &["x"]);
        let x_wanted = look_up_later(&session, request(&main, &["x"]));
        define_blocking(&main, "c", &["a"], &teller);
        let (c_told, c_wanted) = mpsc::channel();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let c_wanted = look_up_later(&session, request(&main, &["c"]));
            while_blocked(&session, move || finish(parked.recv().unwrap().attach()));
            look_up(&main, &["x"]).unwrap();
            finish(responsibility);
            c_told.send(c_wanted).unwrap();
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        assert!(c_wanted.recv().unwrap().recv().unwrap().is_err());
        let (unit, error) = told.try_recv().unwrap();
        let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
        assert!(matches!(&path[..], [DeadlockStep::Beneath { .. }]), "{unit}: {error}");
        assert!(x_wanted.recv().unwrap().is_ok());
    });
}

#[test]
fn a_foreign_thread_that_took_a_responsibility_up_is_part_of_the_circle() {
    for workers in DISPATCHERS {
        within_reason(move || {
            let (session, main) = on(workers);
            let (teller, told) = mpsc::channel();
            let parked = define_parked(&main, "A", &["a"]);
            define_blocking(&main, "b", &["a"], &teller);
            let wanted = look_up_later(&session, request(&main, &["a"]));
            std::thread::scope(|scope| {
                let (parked, main, teller) = (parked.recv().unwrap(), &main, &teller);
                let client = scope.spawn(move || {
                    let responsibility = parked.attach();
                    let outcome = look_up(main, &["b"]);
                    if let Err(error) = &outcome {
                        teller.send(("client".into(), error.clone())).unwrap();
                    }
                    finish(responsibility);
                    outcome
                });
                // Whoever is told: the client goes on and finishes.
                let _ = client.join().unwrap();
                let _ = look_up(main, &["b"]);
            });
            assert!(wanted.recv().unwrap().is_ok());
            assert_eq!(the_cycle(&told).1, ["a", "b"]);
        });
    }
}

#[test]
fn what_another_thread_will_finish_is_waited_for() {
    within_reason(|| {
        let (_session, main) = on(Some(2));
        let (teller, told) = mpsc::channel();
        let (send, parked) = mpsc::channel::<Detached<MaterializationResponsibility>>();
        let (blocked, b_asked) = mpsc::channel();
        // The circle of `two_units_that_look_each_other_up`, but for the detached responsibility.
        let unit = TestUnit::new("A", exported(main.session(), &["a"]), move |responsibility| {
            let main = responsibility.dylib().clone();
            send.send(responsibility.detach()).unwrap();
            blocked.send(look_up(&main, &["b"])).unwrap();
        });
        main.define(unit.boxed()).unwrap();
        define_blocking(&main, "b", &["a"], &teller);
        std::thread::scope(|scope| {
            scope.spawn(|| look_up(&main, &["a", "b"]).unwrap());
            finish(parked.recv().unwrap().attach());
        });
        b_asked.recv().unwrap().unwrap();
        assert!(told.try_recv().is_err());
    });
}

#[test]
fn a_cycle_of_emitted_symbols_is_no_deadlock() {
    within_reason(|| {
        let (session, main) = on(Some(2));
        let (teller, told) = mpsc::channel();
        for (symbol, needs) in [("r0", ["r1", "slow"]), ("r1", ["r0", "r0"])] {
            let unit = TestUnit::new("ring", exported(&session, &[symbol]), move |responsibility| {
                let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
                let resolved = resolve(responsibility).detach();
                session.lookup_async(request(&main, &needs).until_resolved(), move |found| {
                    let resolved = resolved.attach();
                    let symbols = resolved.symbols().keys().cloned().collect();
                    let dependencies = found.unwrap().dependencies();
                    resolved.notify_emitted(vec![DependenceGroup { symbols, dependencies }]).unwrap();
                });
            });
            main.define(unit.boxed()).unwrap();
        }
        let parked = define_parked(&main, "slow", &["slow"]);
        define_blocking(&main, "b", &["r0"], &teller);
        std::thread::scope(|scope| {
            scope.spawn(|| look_up(&main, &["b"]).unwrap());
            let slow = resolve(parked.recv().unwrap().attach());
            look_up_later(&session, request(&main, &["r0", "r1"]).until_resolved()).recv().unwrap().unwrap();
            slow.notify_emitted(Vec::new()).unwrap();
        });
        assert!(told.try_recv().is_err());
    });
}

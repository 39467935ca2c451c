//! Edges of the wait-for graph that are easily forgotten.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::{
    AliasTarget, DeadlockStep, DefinitionGenerator, DependenceGroup, ExecutionSession, GenerateRequest,
    JitDylib, LookupError, SerialQueue, SymbolFlags, Task, TaskPriority, Why, WhyState, symbol_aliases,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

fn look_up(main: &JitDylib, names: &[&str]) -> Result<(), LookupError> {
    main.session().lookup(&order(main), set(main.session(), names)).map(drop)
}

/// Looks `a` up, blocking, whatever it is asked for.
#[derive(Debug)]
struct LooksUpA(mpsc::Sender<LookupError>);

impl DefinitionGenerator for LooksUpA {
    fn name(&self) -> &str {
        "looks up a"
    }

    fn generate(&self, request: GenerateRequest) {
        let outcome = look_up(request.dylib(), &["a"]);
        if let Err(error) = &outcome {
            self.0.send(error.clone()).unwrap();
        }
        request.finish(outcome.map_err(|error| Arc::new(error) as _));
    }
}

#[test]
fn a_generator_that_waits_for_the_alias_it_is_asked_on_behalf_of_is_told() {
    within_reason(|| {
        let (session, main) = session();
        let (send, told) = mpsc::channel();
        let target = AliasTarget { source: session.intern("x"), flags: SymbolFlags::EXPORTED };
        main.define(symbol_aliases([(session.intern("a"), target)].into_iter().collect())).unwrap();
        main.add_generator(Arc::new(LooksUpA(send)));
        look_up(&main, &["a"]).unwrap_err();
        let error = told.try_recv().unwrap();
        let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
        let is_alias = |step: &DeadlockStep| matches!(step, DeadlockStep::AliasOf { .. });
        let is_generator = |step: &DeadlockStep| matches!(step, DeadlockStep::Generator { .. });
        assert!(path.len() == 2 && path.iter().any(is_alias) && path.iter().any(is_generator), "{error}");
    });
}

#[test]
fn what_a_bare_task_takes_up_above_a_blocked_unit_is_told() {
    within_reason(|| {
        let (session, main) = session();
        let (send, told) = mpsc::channel();
        let parked = define_parked(&main, "B", &["b"]);
        let wanted = look_up_later(&session, request(&main, &["b"]));
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let main = responsibility.dylib().clone();
            // No session knows of this task.
            let bare = Task::new("bare", TaskPriority::Demanded, {
                let main = main.clone();
                move || {
                    let b = parked.recv().unwrap().attach();
                    send.send(look_up(&main, &["a"]).unwrap_err()).unwrap();
                    finish(b);
                }
            });
            main.session().dispatcher().dispatch(bare).unwrap();
            look_up(&main, &["b"]).unwrap();
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        assert!(wanted.recv().unwrap().is_ok());
        let error = told.try_recv().unwrap();
        let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
        assert_eq!(path.len(), 2, "{error}");
        assert!(path.iter().all(|step| matches!(step, DeadlockStep::LooksUp { .. })), "{error}");
    });
}

#[test]
fn a_responsibility_whose_replacement_was_refused_is_held_again() {
    within_reason(|| {
        let (session, main) = session();
        let (send, told) = mpsc::channel();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let main = responsibility.dylib().clone();
            let other = TestUnit::new("other", exported(main.session(), &["other"]), finish);
            let refused = responsibility.replace(other.boxed()).unwrap_err();
            send.send(look_up(&main, &["a"]).unwrap_err()).unwrap();
            finish(refused.responsibility);
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        let error = told.try_recv().unwrap();
        assert!(matches!(error, LookupError::WouldDeadlock { .. }), "{error}");
    });
}

/// A session in place, or on a pool of so many workers.
fn on(workers: usize) -> (ExecutionSession, JitDylib) {
    if workers == 0 {
        return session();
    }
    let pool = WorkStealingTaskDispatcher::builder().workers(workers).build().expect("a possible number");
    let session = ExecutionSession::builder().dispatcher(Arc::new(pool)).build();
    let main = session.create_jit_dylib("main").expect("the first dylib has a name of its own");
    (session, main)
}

type Told = mpsc::Sender<(String, Result<(), LookupError>)>;

/// Defines `symbol`, whose unit, of `queue` if of any, blocks in a lookup of `needs` and tells what came of it.
fn define_blocking(main: &JitDylib, queue: Option<&SerialQueue>, symbol: &str, needs: &str, told: &Told) {
    let (told, name, needs) = (told.clone(), symbol.to_owned(), needs.to_owned());
    let unit =
        TestUnit::new(&symbol.to_uppercase(), exported(main.session(), &[symbol]), move |responsibility| {
            let outcome = look_up(responsibility.dylib(), &[&needs]);
            told.send((name, outcome.clone())).unwrap();
            match outcome {
                Ok(()) => finish(responsibility),
                Err(error) => responsibility.fail(Arc::new(error)),
            }
        });
    let unit = queue.into_iter().fold(unit, TestUnit::in_queue);
    main.define(unit.boxed()).unwrap();
}

fn define_in(queue: &SerialQueue, main: &JitDylib, symbol: &str) {
    let unit = TestUnit::new(&symbol.to_uppercase(), exported(main.session(), &[symbol]), finish);
    main.define(unit.in_queue(queue).boxed()).unwrap();
}

/// The steps of the one cycle that somebody was told of, without dylibs, from the least on.
fn the_cycle(told: &mpsc::Receiver<(String, Result<(), LookupError>)>) -> (String, Vec<String>) {
    let mut cycles = told.try_iter().filter_map(|(unit, outcome)| match outcome {
        Err(LookupError::WouldDeadlock { path }) => Some((unit, path)),
        _ => None,
    });
    let (unit, path) = cycles.next().expect("somebody is told");
    assert!(cycles.next().is_none(), "nobody else is told");
    let step = |step: &DeadlockStep| {
        let kind = match step {
            DeadlockStep::Queued { .. } => "queued",
            DeadlockStep::LooksUp { .. } => "looks up",
            DeadlockStep::DependsOn { .. } => "depends on",
            DeadlockStep::Beneath { .. } => "beneath",
            _ => "else",
        };
        format!("{} {kind}", step.symbol().expect("no generator has part in it"))
    };
    let mut steps: Vec<_> = path.iter().map(step).collect();
    let least =
        steps.iter().enumerate().min_by_key(|(_, step)| (*step).clone()).map_or(0, |(index, _)| index);
    steps.rotate_left(least);
    (unit, steps)
}

#[test]
fn a_unit_that_looks_up_what_waits_in_its_own_serial_queue_is_told() {
    for workers in [0, 1, 2, 4] {
        within_reason(move || {
            let ((session, main), queue, (tell, told)) = (on(workers), SerialQueue::new(), mpsc::channel());
            define_blocking(&main, Some(&queue), "a", "b", &tell);
            define_in(&queue, &main, "b");
            let error = look_up(&main, &["a"]).unwrap_err().to_string();
            assert!(error.contains("`b` (dylib `main`, unit `B`) waits in the serial queue"), "{error}");
            assert_eq!(the_cycle(&told), ("a".into(), vec!["b queued".into()]));
            look_up(&main, &["b"]).unwrap();
            session.close().unwrap();
        });
    }
}

#[test]
fn what_needs_something_that_waits_in_the_serial_queue_beneath_it_is_told() {
    for workers in [0, 1, 2, 4] {
        within_reason(move || {
            let ((session, main), queue, (tell, told)) = (on(workers), SerialQueue::new(), mpsc::channel());
            define_blocking(&main, Some(&queue), "a", "c", &tell);
            define_blocking(&main, None, "c", "b", &tell);
            define_in(&queue, &main, "b");
            look_up(&main, &["a"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("c".into(), vec!["b queued".into(), "c looks up".into()]));
            session.close().unwrap();
        });
    }
}

#[test]
fn units_that_wait_for_each_others_serial_queues_are_told() {
    for workers in [1, 2, 4] {
        within_reason(move || {
            let ((session, main), (tell, told)) = (on(workers), mpsc::channel());
            let (one, two) = (SerialQueue::new(), SerialQueue::new());
            let begun = [Arc::new(uruk_core::sync::Latch::new()), Arc::new(uruk_core::sync::Latch::new())];
            for (this, (queue, symbol, needs)) in [(&one, "a", "x"), (&two, "b", "y")].into_iter().enumerate()
            {
                let (begun, tell) = (begun.clone(), tell.clone());
                let unit = TestUnit::new(symbol, exported(&session, &[symbol]), move |responsibility| {
                    begun[this].open();
                    // Both have begun before either blocks, if need be on a thread more.
                    responsibility.session().blocking(|| begun[1 - this].wait()).unwrap();
                    let outcome = look_up(responsibility.dylib(), &[needs]);
                    tell.send((symbol.into(), outcome.clone())).unwrap();
                    match outcome {
                        Ok(()) => finish(responsibility),
                        Err(error) => responsibility.fail(Arc::new(error)),
                    }
                });
                main.define(unit.in_queue(queue).boxed()).unwrap();
            }
            define_in(&two, &main, "x");
            define_in(&one, &main, "y");
            let both = look_up_later(&session, request(&main, &["a", "b"]));
            both.recv().unwrap().unwrap_err();
            // The other one goes on once the first has ended.
            look_up(&main, &["x", "y"]).unwrap();
            session.close().unwrap();
            let (_, cycle) = the_cycle(&told);
            assert_eq!(cycle, ["x queued", "y queued"]);
        });
    }
}

#[test]
fn a_serial_queue_that_was_left_is_no_edge() {
    for workers in [0, 1, 2, 4] {
        within_reason(move || {
            let ((session, main), queue) = (on(workers), SerialQueue::new());
            let unit = TestUnit::new("A", exported(&session, &["a"]), {
                let queue = queue.clone();
                move |responsibility| {
                    assert!(queue.leave());
                    look_up(responsibility.dylib(), &["b"]).unwrap();
                    finish(responsibility);
                }
            });
            main.define(unit.in_queue(&queue).boxed()).unwrap();
            define_in(&queue, &main, "b");
            look_up(&main, &["a"]).unwrap();
            session.close().unwrap();
        });
    }
}

#[test]
fn a_unit_that_has_left_its_serial_queue_does_not_wait_there() {
    // B has begun, and left; A, of the same queue, may wait for it.
    for workers in [1, 2, 4] {
        within_reason(move || {
            let ((session, main), queue, (tell, told)) = (on(workers), SerialQueue::new(), mpsc::channel());
            let (begun, go_on) =
                (Arc::new(uruk_core::sync::Latch::new()), Arc::new(uruk_core::sync::Latch::new()));
            let unit = TestUnit::new("B", exported(&session, &["b"]), {
                let (queue, begun, go_on) = (queue.clone(), begun.clone(), go_on.clone());
                move |responsibility| {
                    queue.leave();
                    begun.open();
                    responsibility.session().blocking(|| go_on.wait()).unwrap();
                    finish(responsibility);
                }
            });
            main.define(unit.in_queue(&queue).boxed()).unwrap();
            define_blocking(&main, Some(&queue), "a", "b", &tell);
            let b = look_up_later(&session, request(&main, &["b"]));
            begun.wait();
            let a = look_up_later(&session, request(&main, &["a"]));
            // A is blocked then, and would have been told.
            let is_blocked =
                |why: Why| matches!(why.state, WhyState::Materializing(work) if work.blocked_in.is_some());
            while !is_blocked(session.why(&main, &session.intern("a"))) {
                std::thread::yield_now();
            }
            go_on.open();
            a.recv().unwrap().unwrap();
            b.recv().unwrap().unwrap();
            assert!(told.try_iter().all(|(_, outcome)| outcome.is_ok()));
            session.close().unwrap();
        });
    }
}

#[test]
fn the_last_edge_may_be_a_unit_that_takes_over_and_waits_in_the_serial_queue() {
    within_reason(|| {
        let ((session, main), queue, (tell, told)) = (session(), SerialQueue::new(), mpsc::channel());
        let parked = define_parked(&main, "X", &["x"]);
        let x_wanted = look_up_later(&session, request(&main, &["x"]));
        let unit = TestUnit::new("A", exported(&session, &["a"]), {
            let queue = queue.clone();
            move |responsibility| {
                let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
                let replacement = TestUnit::new("X2", exported(&session, &["x"]), finish).in_queue(&queue);
                // Run by the lookup in which this unit blocks.
                session.dispatch(Task::new("late", TaskPriority::Demanded, move || {
                    parked.recv().unwrap().attach().replace(replacement.boxed()).unwrap();
                }));
                tell.send(("a".into(), look_up(&main, &["x"]))).unwrap();
                finish(responsibility);
            }
        });
        main.define(unit.in_queue(&queue).boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        assert_eq!(the_cycle(&told), ("a".into(), vec!["x queued".into()]));
        assert!(x_wanted.recv().unwrap().is_ok(), "its turn came when A had ended");
    });
}

#[test]
fn the_last_edge_may_be_an_emission_that_needs_what_waits_in_the_serial_queue() {
    within_reason(|| {
        let ((session, main), queue, (tell, told)) = (session(), SerialQueue::new(), mpsc::channel());
        let parked = define_parked(&main, "X", &["x"]);
        let x_wanted = look_up_later(&session, request(&main, &["x"]));
        // S has begun once, so that there is a token of it, and is a unit of the queue again that nobody asks for.
        let s = define_parked(&main, "S", &["s"]);
        drop(session.lookup_future(request(&main, &["s"])));
        let s = s.recv().unwrap().attach();
        let on_s = s.dependency(&session.intern("s")).unwrap();
        let again = TestUnit::new("S2", exported(&session, &["s"]), finish).in_queue(&queue);
        s.replace(again.boxed()).unwrap();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let main = responsibility.dylib().clone();
            main.session().dispatch(Task::new("late", TaskPriority::Demanded, move || {
                let x = parked.recv().unwrap().attach();
                let symbols = x.symbols().keys().cloned().collect();
                finish_with(x, vec![DependenceGroup { symbols, dependencies: vec![on_s] }]);
            }));
            tell.send(("a".into(), look_up(&main, &["x"]))).unwrap();
            finish(responsibility);
        });
        main.define(unit.in_queue(&queue).boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        assert_eq!(the_cycle(&told), ("a".into(), vec!["s queued".into(), "x depends on".into()]));
        assert!(x_wanted.recv().unwrap().is_ok(), "its turn came when A had ended");
    });
}

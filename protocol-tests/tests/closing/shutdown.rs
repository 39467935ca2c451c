//! Shutdown: drains or cancels, from any thread and any task, with parked, blocked and shared work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use protocol_tests::halt::{Halt, occupy_a_worker};
use protocol_tests::kept::Drops;
use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{
    CloseError, Deadline, DylibError, ExecutionSession, JitDylib, LookupError, Shutdown, SymbolMap, Task,
    TaskDispatcher, TaskPriority, absolute_symbols,
};

/// Defines `name`, whose unit looks `source` up, reports the outcome, and finishes.
fn define_blocking(main: &JitDylib, name: &str, source: &str, told: mpsc::Sender<Result<(), LookupError>>) {
    let session = main.session().clone();
    let (dylib, source) = (main.clone(), session.intern(source));
    let unit = TestUnit::new(name, exported(&session, &[name]), move |responsibility| {
        let answer = dylib.session().lookup_symbol(&order(&dylib), &source);
        told.send(answer.map(drop)).unwrap();
        // The session may have gone on to its end meanwhile.
        drop(responsibility);
    });
    main.define(unit.boxed()).unwrap();
}

fn until_closing(session: &ExecutionSession) {
    while !matches!(session.create_jit_dylib("late"), Err(DylibError::Closed)) {
        std::thread::yield_now();
    }
}

/// The close waited for the unit, the unit for a symbol that would never be emitted.
#[test]
fn a_unit_that_waits_for_a_parked_responsibility_is_sent_on() {
    for workers in [2, 0] {
        within_reason(move || {
            let (session, main) = session_of(workers);
            let parked = define_parked(&main, "parked", &["parked"]);
            let (told, answers) = mpsc::channel();
            define_blocking(&main, "waits", "parked", told);
            let worker = std::thread::spawn({
                let (session, main) = (session.clone(), main.clone());
                move || session.lookup_symbol(&order(&main), &session.intern("waits"))
            });
            let responsibility = parked.recv().unwrap();
            session.close().unwrap();
            assert!(matches!(answers.recv().unwrap(), Err(LookupError::Closed)));
            assert!(worker.join().unwrap().is_err());
            drop(responsibility);
        });
    }
}

/// Each round sends the unit on to the next wait.
#[test]
fn a_unit_that_waits_again_and_again_is_sent_on_each_time() {
    within_reason(|| {
        let (session, main) = session_of(1);
        let parked = ["p", "q", "r"].map(|name| define_parked(&main, name, &[name]));
        let (looks, dylib) = (session.clone(), main.clone());
        let (told, answers) = mpsc::channel();
        let unit = TestUnit::new("unit", exported(&session, &["a"]), move |_responsibility| {
            for name in ["p", "q", "r"] {
                told.send(looks.lookup_symbol(&order(&dylib), &looks.intern(name)).map(drop)).unwrap();
            }
        });
        main.define(unit.boxed()).unwrap();
        let _answer = look_up_later(&session, request(&main, &["a"]));
        let first = parked[0].recv().unwrap();
        session.close().unwrap();
        assert_eq!(answers.iter().filter(|answer| matches!(answer, Err(LookupError::Closed))).count(), 3);
        drop(first);
    });
}

#[test]
fn what_the_units_in_progress_wait_for_is_still_made() {
    within_reason(|| {
        let (session, main) = session_of(1);
        let parked = define_parked(&main, "parked", &["parked"]);
        let (told, answers) = mpsc::channel();
        define_blocking(&main, "waits", "chained", told);
        let halt = Halt::default();
        let here = halt.clone();
        let unit = TestUnit::new("chained", exported(&session, &["chained"]), move |responsibility| {
            here.stop();
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
        let answer = look_up_later(&session, request(&main, &["waits"]));
        halt.reached();
        let closer = std::thread::spawn({
            let session = session.clone();
            move || session.close()
        });
        until_closing(&session);
        halt.let_go();
        closer.join().unwrap().unwrap();
        assert!(answers.recv().unwrap().is_ok(), "the unit it waited for was running");
        assert!(answer.recv().unwrap().is_err());
        drop(parked);
    });
}

/// The first close waited for the pool to end, the pool for the task, the task for the first close.
#[test]
fn a_second_close_from_a_task_of_another_session_on_a_shared_pool() {
    for _ in 0..20 {
        within_reason(|| {
            let dispatcher = pool(2);
            let ((one, _), (two, _)) = (session_on(dispatcher.clone()), session_on(dispatcher.clone()));
            let (started, closes) = (Arc::new(Latch::new()), one.clone());
            let start = started.clone();
            two.dispatch(Task::new("closes", TaskPriority::Demanded, move || {
                start.open();
                until_closing(&closes);
                closes.close().unwrap();
            }));
            started.wait();
            one.close().unwrap();
            two.close().unwrap();
        });
    }
}

#[test]
fn two_sessions_are_closed_by_each_others_tasks() {
    for _ in 0..20 {
        within_reason(|| {
            let dispatcher = pool(2);
            let ((one, _), (two, _)) = (session_on(dispatcher.clone()), session_on(dispatcher.clone()));
            let (here, there, ended) = (Arc::new(Latch::new()), Arc::new(Latch::new()), mpsc::channel());
            let pairs = [(one.clone(), two.clone(), here.clone(), there.clone()), (two, one, there, here)];
            for (of, closes, here, there) in pairs {
                let ended = ended.0.clone();
                of.dispatch(Task::new("closes", TaskPriority::Demanded, move || {
                    here.open();
                    there.wait();
                    closes.close().unwrap();
                    ended.send(()).unwrap();
                }));
            }
            ended.1.recv().unwrap();
            ended.1.recv().unwrap();
        });
    }
}

#[test]
fn close_from_a_handler_and_from_a_worker_at_once() {
    within_reason(|| {
        let (session, main) = session_of(2);
        define_simple(&main, "unit", &["a"]);
        let (told, ended) = mpsc::channel();
        let (closing, tell) = (session.clone(), told.clone());
        session.lookup_async(request(&main, &["a"]), move |_| tell.send(closing.close()).unwrap());
        let closing = session.clone();
        let task = Task::new("closes", TaskPriority::Demanded, move || told.send(closing.close()).unwrap());
        session.dispatch(task);
        assert!(ended.recv().unwrap().is_ok());
        session.close().unwrap();
    });
}

#[test]
fn cancelling_starts_nothing_and_fails_what_had_not_started() {
    within_reason(|| {
        let (session, main) = session_of(1);
        let occupied = occupy_a_worker(&session);
        let unit = TestUnit::new("late", exported(&session, &["late"]), |_| panic!("it starts"));
        main.define(unit.boxed()).unwrap();
        let answer = look_up_later(&session, request(&main, &["late"]));
        let closer = std::thread::spawn({
            let session = session.clone();
            move || session.close_with(Shutdown::Cancel)
        });
        until_closing(&session);
        occupied.let_go();
        closer.join().unwrap().unwrap();
        assert!(matches!(answer.recv().unwrap(), Err(LookupError::Closed)));
    });
}

#[test]
fn cancelling_refuses_lookups_of_running_units_and_waits_for_them() {
    within_reason(|| {
        let (session, main) = session_of(1);
        define_simple(&main, "inner", &["inner"]);
        let halt = Halt::default();
        let (here, looks, dylib) = (halt.clone(), session.clone(), main.clone());
        let (told, answers) = mpsc::channel();
        session.dispatch(Task::new("looks", TaskPriority::Demanded, move || {
            here.stop();
            told.send(looks.lookup_symbol(&order(&dylib), &looks.intern("inner"))).unwrap();
        }));
        halt.reached();
        let closer = std::thread::spawn({
            let session = session.clone();
            move || session.close_with(Shutdown::Cancel)
        });
        until_closing(&session);
        halt.let_go();
        closer.join().unwrap().unwrap();
        assert!(matches!(answers.try_recv().expect("the close waited"), Err(LookupError::Closed)));
    });
}

#[test]
fn cancelling_hurries_a_close_that_drains() {
    within_reason(|| {
        let (session, main) = session_of(2);
        let (told, answers) = mpsc::channel();
        let halt = Halt::default();
        let here = halt.clone();
        let slow = TestUnit::new("slow", exported(&session, &["slow"]), move |responsibility| {
            here.stop();
            drop(responsibility);
        });
        main.define(slow.boxed()).unwrap();
        define_blocking(&main, "waits", "slow", told);
        let _answer = look_up_later(&session, request(&main, &["waits"]));
        halt.reached();
        let close = |shutdown| {
            let session = session.clone();
            std::thread::spawn(move || session.close_with(shutdown))
        };
        let drains = close(Shutdown::Drain);
        until_closing(&session);
        let cancels = close(Shutdown::Cancel);
        let answer = answers.recv().unwrap();
        assert!(
            matches!(answer, Err(LookupError::Closed)),
            "its wait ends while what it waits for still runs"
        );
        halt.let_go();
        drains.join().unwrap().unwrap();
        cancels.join().unwrap().unwrap();
    });
}

/// The time of a close that drains is over while a unit runs and another is queued behind it.
#[test]
fn a_close_whose_time_is_over_starts_nothing_more_and_ends_behind_its_caller() {
    within_reason(|| {
        let (session, main) = session_of(1);
        let removed = Arc::new(AtomicUsize::new(0));
        main.default_tracker().add_resource(Box::new(Drops(removed.clone()))).unwrap();
        let occupied = occupy_a_worker(&session);
        let unit = TestUnit::new("late", exported(&session, &["late"]), |_| panic!("it starts"));
        main.define(unit.boxed()).unwrap();
        let answer = look_up_later(&session, request(&main, &["late"]));
        let over = || Deadline::after(Duration::ZERO);
        let closed = session.close_until(Shutdown::Drain, over());
        assert!(matches!(closed, Err(CloseError::TimedOut)), "{closed:?}");
        let again = session.close_until(Shutdown::Drain, over());
        assert!(matches!(again, Err(CloseError::TimedOut)), "the first goes on: {again:?}");
        assert_eq!(removed.load(Ordering::Relaxed), 0, "a task may still use it");
        occupied.let_go();
        session.close().unwrap();
        assert_eq!(removed.load(Ordering::Relaxed), 1);
        assert!(matches!(answer.recv().unwrap(), Err(LookupError::Closed)));
        session.close_until(Shutdown::Drain, over()).expect("it is closed");
    });
}

#[test]
fn a_close_that_drains_in_time_finishes_what_was_asked_for() {
    for workers in [1, 0] {
        within_reason(move || {
            let (session, main) = session_of(workers);
            define_simple(&main, "a", &["a"]);
            let answer = look_up_later(&session, request(&main, &["a"]));
            session.close_until(Shutdown::Drain, Deadline::after(Duration::MAX)).unwrap();
            assert!(answer.recv().unwrap().is_ok());
        });
    }
}

/// With any last handle, and with parked and waiting work: each thing is freed once, and each handler is called or dropped.
#[test]
fn handles_may_be_dropped_in_any_order() {
    for order_of_drops in 0..24 {
        within_reason(move || {
            let [units, resources, handlers, tasks] = [(); 4].map(|()| Arc::new(AtomicUsize::new(0)));
            let dispatcher = pool(1);
            let (session, main) = session_on(dispatcher.clone());
            let tracker = main.create_tracker();
            tracker.add_resource(Box::new(Drops(resources.clone()))).unwrap();
            main.default_tracker().add_resource(Box::new(Drops(resources.clone()))).unwrap();
            let symbols: SymbolMap = [(session.intern("a"), at(1))].into_iter().collect();
            main.define_with_tracker(absolute_symbols(symbols), &tracker).unwrap();
            session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
            let counts = Drops(units.clone());
            let idle = TestUnit::new("idle", exported(&session, &["idle"]), move |_| drop(counts));
            main.define_with_tracker(idle.boxed(), &tracker).unwrap();
            let parked = define_parked(&main, "parked", &["p"]);
            let future = session.lookup_future(request(&main, &["p"]));
            let handler = Drops(handlers.clone());
            let (tell, told) = mpsc::channel();
            session.lookup_async(request(&main, &["p"]), move |answer| {
                tell.send(answer.map(drop)).expect("the test listens");
                drop(handler);
            });
            let responsibility = parked.recv().unwrap();
            let counts = Drops(tasks.clone());
            session.dispatch(Task::new("counts", TaskPriority::Idle, move || drop(counts)));
            let mut left: Vec<Box<dyn std::any::Any>> = vec![
                Box::new((session, dispatcher.clone())),
                Box::new((main, tracker)),
                Box::new(future),
                Box::new(responsibility),
            ];
            let mut code = order_of_drops;
            for remaining in (1..=4).rev() {
                drop(left.remove(code % remaining));
                code /= remaining;
            }
            // A worker may still hold a handle, and be at the end of its task.
            dispatcher.shutdown();
            let gone = [units, resources, handlers, tasks].map(|count| count.load(Ordering::Relaxed));
            assert_eq!(gone, [1, 2, 1, 1], "units, resources, handlers, tasks");
            let told: Vec<_> = told.iter().collect();
            assert!(told.len() <= 1 && told.iter().all(Result::is_err), "{told:?}");
        });
    }
}

#[test]
fn resources_of_a_cancelled_session_are_removed_newest_dylib_first() {
    struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);
    impl uruk_core::Resource for Named {
        fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            self.1.lock().push(self.0);
            Ok(())
        }
    }
    let session = ExecutionSession::new();
    let removed = Arc::new(Mutex::new(Vec::new()));
    for name in ["first", "second", "third"] {
        let dylib = session.create_jit_dylib(name).unwrap();
        dylib.default_tracker().add_resource(Box::new(Named(name, removed.clone()))).unwrap();
    }
    session.close_with(Shutdown::Cancel).unwrap();
    assert_eq!(*removed.lock(), ["third", "second", "first"]);
}

/// The frame beneath kept the excuse of a round that was over: the close waited for it, and it for the close.
#[test]
fn a_unit_above_another_on_its_stack_that_waits_again_and_again_is_sent_on_each_time() {
    within_reason(|| {
        let (session, main) = session_of(0);
        let parked = ["p", "q", "r"].map(|name| define_parked(&main, name, &[name]));
        let (told, answers) = mpsc::channel();
        let inner = main.clone();
        let upper = TestUnit::new("upper", exported(&session, &["upper"]), move |_| {
            let session = inner.session();
            for name in ["p", "q", "r"] {
                let answer = session.lookup_symbol(&order(&inner), &session.intern(name)).map(drop);
                told.send(answer).unwrap();
            }
        });
        main.define(upper.boxed()).unwrap();
        let (ignored, _ignores) = mpsc::channel();
        define_blocking(&main, "lower", "upper", ignored);
        let client = std::thread::spawn({
            let (session, main) = (session.clone(), main.clone());
            move || session.lookup_symbol(&order(&main), &session.intern("lower")).map(drop)
        });
        let first = parked[0].recv().unwrap();
        session.close().unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Err(LookupError::Closed))));
        assert!(client.join().unwrap().is_err());
        drop(first);
    });
}

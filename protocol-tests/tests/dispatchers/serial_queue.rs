//! Serial queues: tasks of one run one after another, on no worker while they wait, and none is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use protocol_tests::halt::Halt;
use protocol_tests::kept::{Log, kept, task, urgent};
use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{InPlaceTaskDispatcher, LookupRequest, SerialQueue, TaskDispatcher, TaskPriority};

#[test]
fn tasks_of_a_queue_never_run_at_once_and_all_run() {
    within_reason(|| {
        let (session, _) = session_of(4);
        let queue = SerialQueue::new();
        let (inside, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..500 {
                        let (inside, ran) = (inside.clone(), ran.clone());
                        let priority = [TaskPriority::Demanded, TaskPriority::Speculative][number % 2];
                        let run = move || {
                            assert!(!inside.swap(true, Ordering::Relaxed), "two at once");
                            ran.fetch_add(1, Ordering::Relaxed);
                            assert!(inside.swap(false, Ordering::Relaxed), "two at once");
                        };
                        session.dispatch(urgent(priority, run).in_queue(&queue));
                    }
                });
            }
        });
        session.close().unwrap();
        assert_eq!((ran.load(Ordering::Relaxed), queue.waiting()), (2000, 0));
    });
}

#[test]
fn units_of_a_busy_queue_wait_on_no_worker() {
    within_reason(|| {
        let dispatcher = pool(2);
        let (session, main) = session_on(dispatcher.clone());
        let queue = SerialQueue::new();
        let halt = Halt::default();
        let (shared, own): (Vec<_>, Vec<_>) =
            (0..100).map(|number| (format!("shared{number}"), format!("own{number}"))).unzip();
        let ran = Arc::new(AtomicUsize::new(0));
        for name in &shared {
            let (here, ran) = (halt.clone(), ran.clone());
            let unit = TestUnit::new(name, exported(&session, &[name]), move |responsibility| {
                here.stop();
                ran.fetch_add(1, Ordering::Relaxed);
                finish(responsibility);
            });
            main.define(unit.in_queue(&queue).boxed()).unwrap();
        }
        own.iter().for_each(|name| define_simple(&main, name, &[name]));
        let names = |of: &[String]| set(&session, &of.iter().map(String::as_str).collect::<Vec<_>>());
        let answer = session.lookup_future(uruk_core::LookupRequest::new(order(&main), names(&shared)));
        halt.reached();
        // One unit of the queue holds one of two workers; the other 99 hold none.
        session.lookup(LookupRequest::new(order(&main), names(&own))).unwrap();
        assert_eq!((queue.waiting(), ran.load(Ordering::Relaxed)), (99, 0));
        assert_eq!(dispatcher.metrics().started_threads, 2, "nobody had to be replaced");
        halt.let_go();
        session.lookup(LookupRequest::new(order(&main), names(&shared))).unwrap();
        drop(answer);
        assert_eq!(ran.load(Ordering::Relaxed), 100);
        session.close().unwrap();
    });
}

#[test]
fn the_most_urgent_goes_first_and_the_first_of_its_kind() {
    let (session, _) = session();
    let (queue, log) = (SerialQueue::new(), Log::default());
    session.dispatch({
        let (session, same, log) = (session.clone(), queue.clone(), log.clone());
        let dispatch = move || {
            for (priority, what) in [
                (TaskPriority::Idle, "idle"),
                (TaskPriority::Speculative, "speculative 1"),
                (TaskPriority::Demanded, "demanded 1"),
                (TaskPriority::Lazy, "lazy"),
                (TaskPriority::Speculative, "speculative 2"),
                (TaskPriority::Demanded, "demanded 2"),
            ] {
                session.dispatch(urgent(priority, log.note(what)).in_queue(&same));
            }
        };
        task(dispatch).in_queue(&queue)
    });
    let urgency = ["demanded 1", "demanded 2", "lazy", "speculative 1", "speculative 2", "idle"];
    assert_eq!(log.taken(), urgency);
}

#[test]
fn a_more_urgent_task_takes_the_place_of_one_that_has_not_started() {
    let ((kept, dispatcher), queue, log) = (kept(), SerialQueue::new(), Log::default());
    for (priority, what) in [
        (TaskPriority::Speculative, "first"),
        (TaskPriority::Speculative, "second"),
        (TaskPriority::Demanded, "urgent"),
    ] {
        queue.dispatch(&dispatcher, urgent(priority, log.note(what))).unwrap();
    }
    let (overtaken, demanded) = (kept.next().unwrap(), kept.next().unwrap());
    assert_eq!(
        (overtaken.priority(), demanded.priority()),
        (TaskPriority::Speculative, TaskPriority::Demanded)
    );
    assert!(kept.next().is_none());
    overtaken.run();
    assert!(log.taken().is_empty(), "its ticket is void");
    demanded.run();
    kept.run_all();
    assert_eq!(log.taken(), ["urgent", "first", "second"]);
}

#[test]
fn a_task_that_turns_out_empty_is_passed_over() {
    // The raise of a unit's priority leaves two tasks for one piece of work.
    let ((kept, dispatcher), queue, log) = (kept(), SerialQueue::new(), Log::default());
    let cell = Arc::new(Mutex::new(Some(log.note("work"))));
    let ticket = |priority| {
        let cell = cell.clone();
        urgent(priority, move || {
            let work = cell.lock().take();
            work.into_iter().for_each(|work| work());
        })
    };
    queue.dispatch(&dispatcher, task(log.note("before"))).unwrap();
    queue.dispatch(&dispatcher, ticket(TaskPriority::Speculative)).unwrap();
    queue.dispatch(&dispatcher, urgent(TaskPriority::Speculative, log.note("after"))).unwrap();
    queue.dispatch(&dispatcher, urgent(TaskPriority::Lazy, log.note("lazy"))).unwrap();
    queue.dispatch(&dispatcher, ticket(TaskPriority::Demanded)).unwrap();
    kept.run_all();
    assert_eq!(log.taken(), ["before", "work", "lazy", "after"]);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn a_hundred_thousand_tasks_of_one_queue_grow_no_stack() {
    for dispatcher in [pool_or_place(1), pool_or_place(0)] {
        within_reason(move || {
            let (queue, ran) = (SerialQueue::new(), Arc::new(AtomicUsize::new(0)));
            let first = {
                let (dispatcher, queue, ran) = (dispatcher.clone(), queue.clone(), ran.clone());
                move || {
                    for _ in 0..100_000 {
                        let ran = ran.clone();
                        let counts = task(move || {
                            ran.fetch_add(1, Ordering::Relaxed);
                        });
                        queue.dispatch(&dispatcher, counts).unwrap();
                    }
                }
            };
            queue.dispatch(&dispatcher, task(first)).unwrap();
            dispatcher.run_ready();
            dispatcher.shutdown();
            assert_eq!((ran.load(Ordering::Relaxed), queue.waiting()), (100_000, 0));
        });
    }
}

#[test]
fn a_task_that_leaves_lets_the_next_one_start_beside_it() {
    within_reason(|| {
        let (session, _) = session_of(2);
        let queue = SerialQueue::new();
        let (next, done) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
        session.dispatch({
            let (queue, next, done) = (queue.clone(), next.clone(), done.clone());
            let leaves = {
                let queue = queue.clone();
                move || {
                    assert!(!SerialQueue::new().leave(), "another queue's strand");
                    assert!(queue.leave());
                    // The next task has to come before this one ends.
                    next.wait();
                    assert!(!queue.leave(), "there is nothing left to leave");
                    done.open();
                }
            };
            task(leaves).in_queue(&queue)
        });
        session.dispatch(task(move || next.open()).in_queue(&queue));
        done.wait();
        assert!(!queue.leave(), "no task runs here");
        session.close().unwrap();
    });
}

#[test]
fn a_task_above_another_on_its_stack_is_not_in_its_section() {
    let (session, main) = session();
    let queue = SerialQueue::new();
    let (send, left) = mpsc::channel();
    let inner = TestUnit::new("inner", exported(&session, &["inner"]), {
        let (queue, send) = (queue.clone(), send.clone());
        move |responsibility| {
            send.send(("inner", queue.leave())).unwrap();
            finish(responsibility);
        }
    });
    main.define(inner.boxed()).unwrap();
    let outer = TestUnit::new("outer", exported(&session, &["outer"]), {
        let queue = queue.clone();
        move |responsibility| {
            let session = responsibility.session();
            session
                .lookup(LookupRequest::new(order(responsibility.dylib()), set(session, &["inner"])))
                .unwrap();
            send.send(("outer", queue.leave())).unwrap();
            finish(responsibility);
        }
    });
    main.define(outer.in_queue(&queue).boxed()).unwrap();
    session.lookup(LookupRequest::new(order(&main), set(&session, &["outer"]))).unwrap();
    assert_eq!(left.try_iter().collect::<Vec<_>>(), [("inner", false), ("outer", true)]);
}

#[test]
fn a_queue_is_shared_by_sessions_and_each_task_runs_where_it_belongs() {
    within_reason(|| {
        let ((first, one), (second, two)) = (kept(), kept());
        let (queue, log) = (SerialQueue::new(), Log::default());
        queue.dispatch(&one, task(log.note("one"))).unwrap();
        queue.dispatch(&two, task(log.note("two"))).unwrap();
        queue.dispatch(&one, task(log.note("three"))).unwrap();
        assert!(second.next().is_none());
        first.run_all();
        assert_eq!(log.taken(), ["one"]);
        second.run_all();
        assert_eq!(log.taken(), ["two"]);
        first.run_all();
        assert_eq!(log.taken(), ["three"]);
    });
}

#[test]
fn a_task_whose_turn_comes_on_a_foreign_thread_is_run_by_its_own_dispatcher() {
    within_reason(|| {
        let ((kept, other), queue, log) = (kept(), SerialQueue::new(), Log::default());
        let in_place: Arc<dyn TaskDispatcher> = Arc::new(InPlaceTaskDispatcher::default());
        queue.dispatch(&other, task(log.note("kept"))).unwrap();
        queue.dispatch(&in_place, task(log.note("in place"))).unwrap();
        // The thread that runs tasks for the first dispatcher knows nothing of the second.
        kept.run_all();
        assert_eq!(log.taken(), ["kept", "in place"]);
    });
}

#[test]
fn a_unit_that_somebody_comes_to_wait_for_goes_before_those_that_came_earlier() {
    within_reason(|| {
        let (session, main) = session_of(1);
        let (queue, log) = (SerialQueue::new(), Log::default());
        let halt = Halt::default();
        let here = halt.clone();
        let first = TestUnit::new("first", exported(&session, &["first"]), move |responsibility| {
            here.stop();
            finish(responsibility);
        });
        main.define(first.in_queue(&queue).boxed()).unwrap();
        let mut answers = vec![look_up_later(&session, request(&main, &["first"]))];
        halt.reached();
        for name in ["one", "two", "three"] {
            let runs = log.note(name);
            let unit = TestUnit::new(name, exported(&session, &[name]), move |responsibility| {
                runs();
                finish(responsibility);
            });
            let unit = unit.in_queue(&queue).with_priority(TaskPriority::Speculative);
            main.define(unit.boxed()).unwrap();
            answers.push(look_up_later(&session, request(&main, &[name])));
        }
        assert_eq!(queue.waiting(), 3);
        let waits = std::thread::spawn({
            let (session, main) = (session.clone(), main.clone());
            move || session.lookup(LookupRequest::new(order(&main), set(&session, &["three"]))).map(drop)
        });
        // The raise is a second ticket for the same work.
        while queue.waiting() < 4 {
            std::thread::yield_now();
        }
        halt.let_go();
        waits.join().unwrap().unwrap();
        answers.into_iter().for_each(|answer| drop(answer.recv().unwrap().unwrap()));
        session.close().unwrap();
        assert_eq!(log.taken(), ["three", "one", "two"]);
        assert_eq!(queue.waiting(), 0);
    });
}

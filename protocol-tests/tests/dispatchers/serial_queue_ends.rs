//! Serial queues whose tasks panic, are dropped, or wait when dispatchers and sessions end: the next task has its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol_tests::halt::Halt;
use protocol_tests::kept::{Drops, Log, kept, task, urgent};
use protocol_tests::units::telling_unit;
use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{
    InPlaceTaskDispatcher, LookupError, LookupRequest, SerialQueue, Shutdown, Task, TaskDispatcher,
    TaskPriority, WaitError, Waiting, absolute_symbols,
};

#[test]
fn a_task_that_panics_hands_over() {
    within_reason(|| {
        let (queue, log) = (SerialQueue::new(), Log::default());
        let workers = pool(1);
        let dispatcher: Arc<dyn TaskDispatcher> = workers.clone();
        queue.dispatch(&dispatcher, task(|| panic!("on purpose"))).unwrap();
        queue.dispatch(&dispatcher, task(log.note("next"))).unwrap();
        workers.shutdown();
        assert_eq!(log.taken(), ["next"]);
        assert_eq!(workers.metrics().panicked, 1);
    });
}

#[test]
fn a_unit_that_panics_hands_over() {
    within_reason(|| {
        let (session, main) = session_of(1);
        let queue = SerialQueue::new();
        let bad = TestUnit::new("bad", exported(&session, &["bad"]), |_| panic!("on purpose"));
        main.define(bad.in_queue(&queue).boxed()).unwrap();
        let good = TestUnit::new("good", exported(&session, &["good"]), finish);
        main.define(good.in_queue(&queue).boxed()).unwrap();
        let bad = look_up_later(&session, request(&main, &["bad"]));
        session.lookup(LookupRequest::new(order(&main), set(&session, &["good"]))).unwrap();
        assert!(bad.recv().unwrap().unwrap_err().in_full().contains("on purpose"));
    });
}

#[test]
fn a_task_whose_dispatcher_drops_it_hands_over_without_recursion() {
    let ((kept, dispatcher), queue) = (kept(), SerialQueue::new());
    let (dropped, log) = (Arc::new(AtomicUsize::new(0)), Log::default());
    let drops = || {
        let drops = Drops(dropped.clone());
        task(move || drop(drops))
    };
    queue.dispatch(&dispatcher, drops()).unwrap();
    queue.dispatch(&dispatcher, task(log.note("next"))).unwrap();
    drop(kept.next());
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    kept.run_all();
    assert_eq!(log.taken(), ["next"]);
    // No dispatcher takes tasks any more: all that wait are dropped one after another.
    (0..100_000).for_each(|_| queue.dispatch(&dispatcher, drops()).unwrap());
    kept.shutdown();
    drop(kept.next());
    assert_eq!((dropped.load(Ordering::Relaxed), queue.waiting()), (100_001, 0));
    let refused = queue.dispatch(&dispatcher, drops()).unwrap_err();
    drop(refused);
    assert_eq!(dropped.load(Ordering::Relaxed), 100_002);
}

#[test]
fn what_waits_when_its_dispatcher_shuts_down_is_run_nevertheless() {
    within_reason(|| {
        let (queue, log) = (SerialQueue::new(), Log::default());
        let workers = pool(2);
        let dispatcher: Arc<dyn TaskDispatcher> = workers.clone();
        let halt = Halt::default();
        let here = halt.clone();
        queue.dispatch(&dispatcher, task(move || here.stop())).unwrap();
        halt.reached();
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..10_000 {
            let ran = ran.clone();
            let counts = task(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            queue.dispatch(&dispatcher, counts).unwrap();
        }
        queue.dispatch(&dispatcher, urgent(TaskPriority::Idle, log.note("idle"))).unwrap();
        std::thread::scope(|scope| {
            let closes = scope.spawn(|| workers.shutdown());
            // It is closed once it refuses.
            while dispatcher.dispatch(task(|| {})).is_ok() {
                std::thread::yield_now();
            }
            halt.let_go();
            closes.join().unwrap();
        });
        assert_eq!((ran.load(Ordering::Relaxed), queue.waiting()), (10_000, 0));
        assert_eq!(log.taken(), ["idle"]);
    });
}

#[test]
fn a_close_runs_what_waits_and_a_cancelling_one_fails_it() {
    for shutdown in [Shutdown::Drain, Shutdown::Cancel] {
        within_reason(move || {
            let (session, main) = session_of(1);
            let cancels = shutdown == Shutdown::Cancel;
            let queue = SerialQueue::new();
            let halt = Halt::default();
            let ran = Arc::new(AtomicUsize::new(0));
            let names: Vec<_> = (0..50)
                .map(|number| {
                    let (here, ran) = (halt.clone(), ran.clone());
                    let name = format!("s{number}");
                    let unit = TestUnit::new(&name, exported(&session, &[&name]), move |responsibility| {
                        here.stop();
                        ran.fetch_add(1, Ordering::Relaxed);
                        finish(responsibility);
                    });
                    main.define(unit.in_queue(&queue).boxed()).unwrap();
                    name
                })
                .collect();
            std::thread::scope(|scope| {
                // Lodged before its unit can stop.
                let blocked = scope
                    .spawn(|| session.lookup(LookupRequest::new(order(&main), set(&session, &[&names[0]]))));
                halt.reached();
                let answers: Vec<_> =
                    names.iter().map(|name| look_up_later(&session, request(&main, &[name]))).collect();
                let closes = scope.spawn(|| session.close_with(shutdown));
                // It has begun once it refuses definitions.
                let late = session.intern("late");
                let define = || main.define(absolute_symbols([(late.clone(), at(1))].into_iter().collect()));
                while define().is_ok() {
                    main.remove(std::slice::from_ref(&late)).unwrap();
                    std::thread::yield_now();
                }
                // Lookups end a moment after definitions are refused, all at once. Until then the unit could still emit.
                let blocked = if cancels {
                    let told = blocked.join().unwrap();
                    halt.let_go();
                    told
                } else {
                    halt.let_go();
                    blocked.join().unwrap()
                };
                closes.join().unwrap().unwrap();
                let mut ended: Vec<_> = answers.iter().map(|answer| answer.recv().unwrap()).collect();
                ended.push(blocked);
                let found = ended.iter().filter(|answer| answer.is_ok()).count();
                if cancels {
                    assert!(ended.iter().all(|answer| matches!(answer, Err(LookupError::Closed))));
                    assert_eq!(ran.load(Ordering::Relaxed), 1);
                } else {
                    assert_eq!((found, ran.load(Ordering::Relaxed)), (51, 50));
                }
                assert_eq!(queue.waiting(), 0);
            });
        });
    }
}

#[test]
fn a_close_ends_what_keeps_a_queue_busy_and_then_runs_what_waits() {
    for workers in [0, 1, 2] {
        within_reason(move || {
            let ((session, main), queue, log) = (session_of(workers), SerialQueue::new(), Log::default());
            // It is never finished.
            let never = define_parked(&main, "never", &["never"]);
            let started = Arc::new(Latch::new());
            let waits = {
                let (session, main, queue, next, started) =
                    (session.clone(), main.clone(), queue.clone(), log.note("next"), started.clone());
                let ended = log.note("ended");
                move || {
                    session.dispatch(task(next).in_queue(&queue));
                    started.open();
                    let found = session.lookup(LookupRequest::new(order(&main), set(&session, &["never"])));
                    assert!(matches!(found, Err(LookupError::Closed)), "{found:?}");
                    ended();
                }
            };
            let client = std::thread::spawn({
                let (session, queue) = (session.clone(), queue.clone());
                move || session.dispatch(task(waits).in_queue(&queue))
            });
            started.wait();
            session.close().unwrap();
            client.join().unwrap();
            assert_eq!(log.taken(), ["ended", "next"]);
            drop(never);
        });
    }
}

#[test]
fn a_task_that_closes_its_session_leaves_its_turn_to_those_who_wait_for_it() {
    for dispatcher in [pool_or_place(1), pool_or_place(0)] {
        within_reason(move || {
            let ((session, _), queue, log) = (session_on(dispatcher), SerialQueue::new(), Log::default());
            let closes = {
                let (session, queue, next, closed) =
                    (session.clone(), queue.clone(), log.note("next"), log.note("closed"));
                move || {
                    session.dispatch(task(next).in_queue(&queue));
                    session.close().unwrap();
                    closed();
                }
            };
            let done = Arc::new(Latch::new());
            let opens = done.clone();
            session.dispatch(
                task(move || {
                    closes();
                    opens.open();
                })
                .in_queue(&queue),
            );
            done.wait();
            assert_eq!(log.taken(), ["next", "closed"]);
        });
    }
}

/// Runs tasks in place, and panics whenever it is told that one waits no more.
#[derive(Debug, Default)]
struct Miscounts(InPlaceTaskDispatcher);

impl TaskDispatcher for Miscounts {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        self.0.dispatch(task)
    }

    fn run_ready(&self) {
        self.0.run_ready();
    }

    fn waits_no_more(&self, _: Waiting) {
        panic!("on purpose");
    }

    fn shutdown(&self) {
        self.0.shutdown();
    }
}

#[test]
fn a_dispatcher_that_panics_while_it_counts_stops_no_queue() {
    within_reason(|| {
        let dispatcher: Arc<dyn TaskDispatcher> = Arc::new(Miscounts::default());
        let (queue, ran) = (SerialQueue::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let ran = ran.clone();
            let run = move || {
                ran.fetch_add(1, Ordering::Relaxed);
            };
            queue.dispatch(&dispatcher, Task::new("test", TaskPriority::Idle, run)).unwrap();
        }
        dispatcher.run_ready();
        assert_eq!((ran.load(Ordering::Relaxed), queue.waiting()), (3, 0));
        dispatcher.shutdown();
    });
}

/// Lets a task go on when a thread waits for a latch that is not open.
#[derive(Debug)]
struct GoesOnWhenWaitedFor {
    inner: Arc<dyn TaskDispatcher>,
    halt: Halt,
}

impl TaskDispatcher for GoesOnWhenWaitedFor {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        self.inner.dispatch(task)
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        if !latch.is_open() {
            self.halt.let_go();
        }
        self.inner.wait(latch)
    }

    fn shutdown(&self) {
        self.inner.shutdown();
    }
}

/// All tasks of the session wait for a turn, so none of them moves, even if their lookups are ended.
///
/// ```text
///  queue:    task of the embedder's own, stopped ──────────────▶ goes on ─ ends │ the unit
///  session:                                       close: waits ───┘             │      └─▶ closed
/// ```
#[test]
fn a_close_waits_for_a_turn_that_is_not_its_sessions() {
    within_reason(|| {
        let (queue, halt, workers) = (SerialQueue::new(), Halt::default(), pool_or_place(1));
        let here = halt.clone();
        queue.dispatch(&workers, task(move || here.stop())).unwrap();
        halt.reached();
        let (session, main) =
            session_on(Arc::new(GoesOnWhenWaitedFor { inner: workers, halt: halt.clone() }));
        let (unit, begun) = telling_unit(&session, "unit", &["a"]);
        main.define(unit.in_queue(&queue).boxed()).unwrap();
        let answer = look_up_later(&session, request(&main, &["a"]));
        session.close().unwrap();
        let has_begun = begun.try_recv();
        // Should the close not have waited for it, it shall end nevertheless.
        halt.let_go();
        assert_eq!((has_begun, queue.waiting()), (Ok(()), 0));
        assert!(answer.recv().unwrap().is_ok());
    });
}

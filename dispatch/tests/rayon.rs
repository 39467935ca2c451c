//! Inside a rayon pool of the host: whatever its threads are blocked in, tasks run.
//!
//! ```text
//!  the helping hang:
//!
//!    host thread   ─ task A ─ join ─┬─ (dispatches B) ─ ticket of B, above A ─ turned away
//!                                   └────────────────────────────────────────────────────── A ends ─ opens
//!    spare                                              └─ B waits for A ................................. goes on
//! ```
#![cfg(all(feature = "rayon", not(any(uruk_loom, uruk_shuttle))))]

use std::sync::mpsc;
use std::time::Duration;

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex, thread};
use uruk_core::{Task, TaskDispatcher, TaskPriority, WaitError};
use uruk_dispatch::{BuildError, RayonTaskDispatcher};

type Dispatcher = Arc<RayonTaskDispatcher>;
type Pool = Arc<rayon_core::ThreadPool>;

fn host(threads: usize) -> Pool {
    Arc::new(rayon_core::ThreadPoolBuilder::new().num_threads(threads).build().unwrap())
}

fn inside(pool: &Pool) -> Dispatcher {
    // A chain of a thousand blocked tasks has a thousand stacks.
    Arc::new(RayonTaskDispatcher::in_pool(pool.clone()).stack_size_bytes(256 << 10).build().unwrap())
}

/// The same with limits, which delay what the random tasks are, and nothing for ever.
fn limited(pool: &Pool) -> Dispatcher {
    let builder = RayonTaskDispatcher::in_pool(pool.clone()).stack_size_bytes(256 << 10);
    Arc::new(builder.background_workers_max(1).memory_bytes_max(2048).build().unwrap())
}

fn demanded(run: impl FnOnce() + Send + 'static) -> Task {
    Task::new("test", TaskPriority::Demanded, run)
}

fn count_one(count: &AtomicUsize) {
    // Relaxed: read after the shutdown.
    count.fetch_add(1, Ordering::Relaxed);
}

fn is_spare() -> bool {
    thread::current().name().is_some_and(|name| name.starts_with("uruk-spare"))
}

/// Runs `scenario` on a thread of its own: one that hangs fails the test.
fn within_reason(scenario: impl FnOnce() + Send + 'static) {
    let (send, ended) = mpsc::channel();
    let runs = thread::spawn(move || {
        scenario();
        // The test may have given up.
        let _ = send.send(());
    });
    let patience = std::env::var("URUK_PATIENCE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    match ended.recv_timeout(Duration::from_secs(20 * patience)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the scenario does not end"),
        _ => runs.join().unwrap(),
    }
}

/// Occupies a thread of the host, without a word to the dispatcher, until the latch is opened.
fn occupy(pool: &Pool) -> Arc<Latch> {
    let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let (begins, waits) = (begun.clone(), go_on.clone());
    pool.spawn(move || {
        begins.open();
        waits.wait();
    });
    begun.wait();
    go_on
}

#[test]
fn tasks_run_on_the_hosts_threads() {
    let (pool, (send, ran)) = (host(2), mpsc::channel());
    let dispatcher = inside(&pool);
    for _ in 0..100 {
        let (send, pool) = (send.clone(), pool.clone());
        let (done, opens) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
        let told = done.clone();
        let task = demanded(move || {
            opens.open();
            send.send(pool.current_thread_index().is_some()).unwrap();
            told.open();
        });
        dispatcher.dispatch(task).unwrap();
        // Not in the dispatcher's own wait, which would lend this thread's place to a spare.
        done.wait();
    }
    drop(send);
    // A machine under load may keep the pool from coming for longer than patience lasts.
    let here = ran.iter().filter(|ran_in_pool| *ran_in_pool).count();
    let metrics = dispatcher.metrics();
    assert_eq!(here as u64 + metrics.started_by_spares, 100);
    assert!(here > 0);
}

#[test]
fn a_chain_of_a_thousand_tasks_that_wait_for_the_next_ends_in_a_pool_of_one() {
    within_reason(|| {
        fn dispatch_chain(dispatcher: &Dispatcher, length: usize, done: Arc<Latch>) {
            let inner = dispatcher.clone();
            let task = demanded(move || {
                if length > 1 {
                    let next = Arc::new(Latch::new());
                    dispatch_chain(&inner, length - 1, next.clone());
                    inner.wait(&next).unwrap();
                }
                done.open();
            });
            dispatcher.dispatch(task).unwrap();
        }
        let dispatcher = inside(&host(1));
        let done = Arc::new(Latch::new());
        dispatch_chain(&dispatcher, 1000, done.clone());
        done.wait();
        dispatcher.shutdown();
        let metrics = dispatcher.metrics();
        assert_eq!((metrics.finished, metrics.blocked, metrics.queued.total()), (1000, 0, 0));
        // The spares have been joined. Each wait was one for which a spare stepped in, besides the one that looks at the clock.
        assert_eq!(metrics.spares, 0);
        assert!(metrics.started_threads <= 1001, "{metrics:?}");
    });
}

#[test]
fn a_wait_on_a_host_thread_is_served_by_a_spare() {
    let pool = host(1);
    let dispatcher = inside(&pool);
    let (by_spare, inner) = (Arc::new(Mutex::new(None)), dispatcher.clone());
    let told = by_spare.clone();
    pool.install(move || {
        let done = Arc::new(Latch::new());
        let opens = done.clone();
        let task = demanded(move || {
            *told.lock() = Some(is_spare());
            opens.open();
        });
        inner.dispatch(task).unwrap();
        inner.wait(&done).unwrap();
    });
    assert_eq!(*by_spare.lock(), Some(true), "the only thread of the host waits");
    dispatcher.shutdown();
}

/// The wait of a host thread that nobody has declared.
#[test]
fn a_host_whose_threads_all_block_undeclared_stops_nothing() {
    within_reason(|| {
        let pool = host(2);
        let dispatcher = inside(&pool);
        let occupied = [occupy(&pool), occupy(&pool)];
        let (send, ran) = mpsc::channel();
        for index in 0..10 {
            let send = send.clone();
            dispatcher.dispatch(demanded(move || send.send((index, is_spare())).unwrap())).unwrap();
        }
        drop(send);
        assert_eq!(ran.iter().collect::<Vec<_>>(), (0..10).map(|index| (index, true)).collect::<Vec<_>>());
        occupied.iter().for_each(|latch| latch.open());
        dispatcher.shutdown();
        assert_eq!(dispatcher.metrics().started_by_spares, 10);
    });
}

/// A task that says when it begins, and ends when `waits_for` is open.
fn waiting_task(
    dispatcher: &Dispatcher,
    waits_for: &Arc<Latch>,
) -> (Task, mpsc::Receiver<bool>, Arc<Latch>, Arc<Latch>) {
    let (send, by_spare) = mpsc::channel();
    let (begun, done) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let task = {
        let (dispatcher, waits_for) = (dispatcher.clone(), waits_for.clone());
        let (begins, ends) = (begun.clone(), done.clone());
        demanded(move || {
            send.send(is_spare()).unwrap();
            begins.open();
            dispatcher.wait(&waits_for).unwrap();
            ends.open();
        })
    };
    (task, by_spare, begun, done)
}

/// Waits in rayon, where no other thread steals, until the task has begun: the ticket lands above the other half in the thread's own
/// queue, so `join` comes to it first.
fn join_until_it_begins(dispatcher: &Dispatcher, task: Task, begun: &Latch) {
    rayon_core::join(|| dispatcher.dispatch(task).unwrap(), || begun.wait());
}

/// See the drawing above. If the ticket ran B on A's stack, B would wait there for A for ever.
#[test]
fn a_ticket_above_a_task_is_turned_away() {
    within_reason(|| {
        // One of the two threads is busy, so that nobody steals the ticket.
        let pool = host(2);
        let occupied = occupy(&pool);
        let dispatcher = inside(&pool);
        let a_done = Arc::new(Latch::new());
        let (task_b, by_spare, b_begun, b_done) = waiting_task(&dispatcher, &a_done);
        let (inner, in_pool) = (dispatcher.clone(), Arc::new(Mutex::new(false)));
        let saw = in_pool.clone();
        let task_a = demanded(move || {
            *saw.lock() = rayon_core::current_thread_index().is_some();
            join_until_it_begins(&inner, task_b, &b_begun);
            a_done.open();
        });
        dispatcher.dispatch(task_a).unwrap();
        // Not in the dispatcher's own wait: then a spare might take A, above which no ticket lands.
        b_done.wait();
        dispatcher.shutdown();
        occupied.open();
        if *in_pool.lock() {
            assert!(by_spare.recv().unwrap());
            assert_eq!(dispatcher.metrics().turned_away, 1);
        }
    });
}

/// The same hang with a job of the host beneath, which has said that it waits.
#[test]
fn a_ticket_above_a_declared_wait_is_turned_away() {
    within_reason(|| {
        let pool = host(1);
        let dispatcher = inside(&pool);
        let host_done = Arc::new(Latch::new());
        let (task_b, by_spare, b_begun, b_done) = waiting_task(&dispatcher, &host_done);
        let inner = dispatcher.clone();
        pool.install(move || {
            let mut task_b = Some(task_b);
            inner.blocking(&mut || join_until_it_begins(&inner, task_b.take().unwrap(), &b_begun)).unwrap();
            host_done.open();
        });
        b_done.wait();
        dispatcher.shutdown();
        assert!(by_spare.recv().unwrap());
        assert_eq!(dispatcher.metrics().turned_away, 1);
    });
}

#[test]
fn turned_away_tickets_do_not_leave_tasks_behind() {
    within_reason(|| {
        let pool = host(1);
        let dispatcher = inside(&pool);
        let count = Arc::new(AtomicUsize::new(0));
        let (inner, counts) = (dispatcher.clone(), count.clone());
        let task = demanded(move || {
            let spawns = || {
                for _ in 0..100 {
                    let counts = counts.clone();
                    inner.dispatch(demanded(move || count_one(&counts))).unwrap();
                }
            };
            rayon_core::join(spawns, || ());
        });
        dispatcher.dispatch(task).unwrap();
        let until = Arc::new(Latch::new());
        let opens = until.clone();
        dispatcher.dispatch(Task::new("last", TaskPriority::Idle, move || opens.open())).unwrap();
        until.wait();
        dispatcher.shutdown();
        // Relaxed: the shutdown has waited for all of them.
        assert_eq!(count.load(Ordering::Relaxed), 100);
    });
}

#[test]
fn a_thousand_waits_from_scopes_and_parallel_iterators_end() {
    within_reason(|| {
        use rayon::prelude::*;
        let pool = host(2);
        let dispatcher = inside(&pool);
        let wait_for_one = |dispatcher: &Dispatcher| {
            let done = Arc::new(Latch::new());
            let opens = done.clone();
            dispatcher.dispatch(demanded(move || opens.open())).unwrap();
            dispatcher.wait(&done).unwrap();
        };
        pool.install(|| (0..1000).into_par_iter().for_each(|_| wait_for_one(&dispatcher)));
        pool.scope(|scope| {
            for _ in 0..1000 {
                scope.spawn(|_| wait_for_one(&dispatcher));
            }
        });
        dispatcher.shutdown();
        assert_eq!(dispatcher.metrics().finished, 2000);
        assert_eq!(dispatcher.metrics().spares, 0);
    });
}

#[test]
fn the_most_urgent_task_is_taken_first() {
    let pool = host(1);
    let dispatcher = inside(&pool);
    // Two undeclared waits: one holds the host's thread, the other the spare that steps in for it.
    let held = [(); 2].map(|()| (Arc::new(Latch::new()), Arc::new(Latch::new())));
    for (begun, go_on) in held.clone() {
        let task = demanded(move || {
            begun.open();
            go_on.wait();
        });
        dispatcher.dispatch(task).unwrap();
    }
    held.iter().for_each(|(begun, _)| begun.wait());
    let log = Arc::new(Mutex::new(Vec::new()));
    use TaskPriority::{Demanded, Idle, Lazy, Speculative};
    for priority in [Idle, Lazy, Demanded, Speculative, Lazy, Demanded, Idle] {
        let log = log.clone();
        let task = Task::new("ordered", priority, move || log.lock().push(priority));
        dispatcher.dispatch(task).unwrap();
    }
    let last = Arc::new(Latch::new());
    let opens = last.clone();
    dispatcher.dispatch(Task::new("last", Idle, move || opens.open())).unwrap();
    // One of the two goes on, and takes them all.
    held[0].1.open();
    last.wait();
    held[1].1.open();
    dispatcher.shutdown();
    assert_eq!(*log.lock(), [Demanded, Demanded, Lazy, Lazy, Speculative, Idle, Idle]);
}

#[test]
fn spares_retire_when_there_is_nothing_to_do() {
    let pool = host(1);
    let dispatcher = inside(&pool);
    let gate = Arc::new(Latch::new());
    for _ in 0..50 {
        let (inner, gate) = (dispatcher.clone(), gate.clone());
        dispatcher.dispatch(demanded(move || inner.wait(&gate).unwrap())).unwrap();
    }
    while dispatcher.metrics().blocked < 50 {
        thread::yield_now();
    }
    assert!(dispatcher.metrics().spares <= 51, "{:?}", dispatcher.metrics());
    gate.open();
    while dispatcher.metrics().spares > 0 {
        thread::yield_now();
    }
    // And come back.
    let done = Arc::new(Latch::new());
    let opens = done.clone();
    dispatcher.dispatch(demanded(move || opens.open())).unwrap();
    done.wait();
    dispatcher.shutdown();
}

#[test]
fn spares_that_cannot_be_started_are_errors_only_where_nobody_is_left() {
    let pool = host(1);
    // More address space than there is.
    let dispatcher =
        Arc::new(RayonTaskDispatcher::in_pool(pool.clone()).stack_size_bytes(1 << 50).build().unwrap());
    // The host's thread is there to run it.
    let ran = Arc::new(Latch::new());
    let opens = ran.clone();
    dispatcher.dispatch(demanded(move || opens.open())).unwrap();
    dispatcher.wait(&ran).unwrap();
    // It is about to wait for what nobody else would run.
    let done = Arc::new(Latch::new());
    let (inner, opens, waits) = (dispatcher.clone(), done.clone(), done.clone());
    let refused = pool.install(move || {
        inner.dispatch(demanded(move || opens.open())).unwrap();
        inner.wait(&waits)
    });
    assert_eq!(refused, Err(WaitError::NoThread { queued: 1 }));
    // It waits no longer, so it runs the task.
    done.wait();
    // Nothing is queued when it begins to wait, and no more is taken until it ends.
    let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let (inner, begins, waits) = (dispatcher.clone(), begun.clone(), go_on.clone());
    pool.spawn(move || {
        let wait = &mut || {
            begins.open();
            waits.wait();
        };
        inner.blocking(wait).unwrap();
    });
    begun.wait();
    let gave_back = dispatcher.dispatch(Task::new("refused", TaskPriority::Lazy, || ()));
    assert_eq!(gave_back.unwrap_err().label(), "refused");
    go_on.open();
    dispatcher.shutdown();
    let metrics = dispatcher.metrics();
    assert_eq!((metrics.finished, metrics.started_threads, metrics.queued.total()), (2, 0, 0));
    assert!(metrics.refused_threads > 0);
}

#[test]
fn a_shutdown_on_the_only_thread_of_the_host_runs_what_is_queued() {
    within_reason(|| {
        let pool = host(1);
        let dispatcher = inside(&pool);
        let inner = dispatcher.clone();
        let count = Arc::new(AtomicUsize::new(0));
        let counts = count.clone();
        pool.install(move || {
            for _ in 0..10 {
                let counts = counts.clone();
                inner.dispatch(demanded(move || count_one(&counts))).unwrap();
            }
            inner.shutdown();
            // Relaxed: the shutdown has waited for all of them.
            assert_eq!(counts.load(Ordering::Relaxed), 10);
            assert!(inner.dispatch(demanded(|| ())).is_err());
        });
        // Relaxed: as above.
        assert_eq!(count.load(Ordering::Relaxed), 10);
    });
}

/// A pool that is made of the thread which asks, and has no other.
#[test]
fn a_host_without_threads_of_its_own_is_one_whose_threads_never_come() {
    within_reason(|| {
        let host = rayon_core::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        let dispatcher = inside(&Arc::new(host.build().unwrap()));
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let counts = count.clone();
            dispatcher.dispatch(demanded(move || count_one(&counts))).unwrap();
        }
        dispatcher.shutdown();
        // Relaxed: the shutdown has waited for all of them.
        assert_eq!(count.load(Ordering::Relaxed), 10);
    });
}

#[test]
fn spares_that_nobody_could_name_are_refused() {
    let refused = RayonTaskDispatcher::in_pool(host(1)).thread_name_prefix("a\0b").build();
    assert!(matches!(refused, Err(BuildError::ThreadName { .. })), "{refused:?}");
}

#[test]
fn a_dispatcher_inside_the_global_pool_works() {
    let dispatcher = RayonTaskDispatcher::in_global_pool().build().unwrap();
    let done = Arc::new(Latch::new());
    let opens = done.clone();
    dispatcher.dispatch(demanded(move || opens.open())).unwrap();
    dispatcher.wait(&done).unwrap();
    drop(dispatcher);
}

/// Everything at once, in pools of one to three threads: tasks that dispatch and wait, join in rayon, panic, and waits of the
/// host's own jobs, scheduled by the machine.
#[test]
fn random_work_ends() {
    stress(Duration::from_millis(500));
}

#[test]
#[ignore = "hammers for as long as URUK_STRESS_SECONDS says"]
fn random_work_ends_under_stress() {
    let seconds = std::env::var("URUK_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    stress(Duration::from_secs(seconds));
}

fn stress(length: Duration) {
    let begun = std::time::Instant::now();
    let mut seed = 1;
    while begun.elapsed() < length {
        for threads in 1..=3 {
            seed += 1;
            let pool = host(threads);
            let dispatcher = if seed % 2 == 0 { inside(&pool) } else { limited(&pool) };
            let ended = Arc::new(AtomicUsize::new(0));
            let roots: Vec<_> = (0..8).map(|root| grow(&dispatcher, &ended, seed * 8 + root, 4)).collect();
            pool.scope(|scope| {
                for root in &roots[..4] {
                    scope.spawn(|_| dispatcher.wait(root).unwrap());
                }
            });
            roots[4..].iter().for_each(|root| dispatcher.wait(root).unwrap());
            dispatcher.shutdown();
            let metrics = dispatcher.metrics();
            // Relaxed: the shutdown has waited for all of them.
            assert_eq!(ended.load(Ordering::Relaxed) as u64, metrics.finished, "seed {seed}");
            assert_eq!((metrics.queued.total(), metrics.blocked, metrics.spares), (0, 0, 0), "seed {seed}");
        }
    }
}

/// Dispatches a task with up to `depth` generations below it; the latch opens when all of them have ended.
fn grow(dispatcher: &Dispatcher, ended: &Arc<AtomicUsize>, seed: u64, depth: u64) -> Arc<Latch> {
    struct Ends(Arc<AtomicUsize>, Arc<Latch>);
    impl Drop for Ends {
        fn drop(&mut self) {
            count_one(&self.0);
            self.1.open();
        }
    }
    let done = Arc::new(Latch::new());
    let ends = Ends(ended.clone(), done.clone());
    let (inner, ended) = (dispatcher.clone(), ended.clone());
    let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let priorities =
        [TaskPriority::Idle, TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded];
    let task = Task::new("random", priorities[(random >> 4) as usize % 4], move || {
        let ends = ends;
        let child = |index| grow(&inner, &ended, seed * 4 + index, depth - 1);
        if depth == 0 {
            assert!(!random.is_multiple_of(5), "panics now and then");
            return;
        }
        match random % 3 {
            0 => (0..3).map(child).for_each(|below| inner.wait(&below).unwrap()),
            1 => {
                let (left, right) = rayon_core::join(|| child(0), || child(1));
                inner.wait(&left).unwrap();
                inner.wait(&right).unwrap();
            }
            _ => {
                // An undeclared wait in the host's pool, by means of which this stack is offered to tickets.
                let below = rayon_core::scope(|_| child(2));
                inner.wait(&below).unwrap();
            }
        }
        drop(ends);
    });
    dispatcher.dispatch(task.holding_bytes(1024)).unwrap();
    done
}

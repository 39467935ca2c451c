//! Threads that cannot be had, in the midst of work: a wait is refused if no thread would be left to end it, and nothing queued
//! is forgotten.
#![cfg(not(any(uruk_loom, uruk_shuttle)))]

#[path = "support/patience.rs"]
pub mod patience;

use std::io;
use std::sync::{OnceLock, mpsc};

use patience::within_reason;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch};
use uruk_core::{Task, TaskDispatcher, TaskPriority, WaitError};
use uruk_dispatch::WorkStealingTaskDispatcher;

type Pool = Arc<WorkStealingTaskDispatcher>;

/// A pool that gets so many threads, and no more.
fn pool_of(workers: usize, threads: usize) -> Pool {
    let left = AtomicUsize::new(threads);
    pool_that_asks(workers, move || {
        // Relaxed, here and below: a count on its own, read where a latch or a shutdown orders it.
        let granted = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        granted.map(drop).map_err(|_| io::ErrorKind::WouldBlock.into())
    })
}

fn pool_that_asks(workers: usize, asked: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Pool {
    let builder = WorkStealingTaskDispatcher::builder().workers(workers).stack_size_bytes(256 << 10);
    Arc::new(builder.before_each_thread(Arc::new(asked)).build().unwrap())
}

fn latch() -> Arc<Latch> {
    Arc::new(Latch::new())
}

fn demanded(run: impl FnOnce() + Send + 'static) -> Task {
    Task::new("test", TaskPriority::Demanded, run)
}

fn opens(latch: &Arc<Latch>) -> Task {
    let latch = latch.clone();
    demanded(move || latch.open())
}

/// Runs `code` in a task of `pool`; gives what it answered.
fn in_a_task<R: Send + 'static>(
    pool: &Pool,
    code: impl FnOnce(&Pool) -> R + Send + 'static,
) -> mpsc::Receiver<R> {
    let ((send, receive), inner) = (mpsc::channel(), pool.clone());
    pool.dispatch(demanded(move || send.send(code(&inner)).unwrap())).unwrap();
    receive
}

/// Counts how often it is dropped.
struct Owned(Arc<AtomicUsize>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn owning(owned: Owned) -> Task {
    demanded(move || {
        let _owned = owned;
        unreachable!("nobody is left to run it");
    })
}

/// ```text
///  worker: task 1 ─ queues task 2 ─ would wait for it: no thread can be had ─ refused, goes on ─ ends ─ task 2
/// ```
#[test]
fn a_wait_for_what_nobody_else_would_run_is_refused_and_costs_the_thread_nothing() {
    within_reason(|| {
        let pool = pool_of(1, 1);
        let done = latch();
        let waits = in_a_task(&pool, {
            let done = done.clone();
            move |pool| {
                pool.dispatch(opens(&done)).unwrap();
                let refused = pool.wait(&done);
                (refused, done.is_open(), pool.metrics())
            }
        });
        let (refused, ran, metrics) = waits.recv().unwrap();
        assert_eq!((refused, ran), (Err(WaitError::NoThread { queued: 1 }), false));
        assert_eq!(
            (metrics.refused_threads, metrics.blocked, metrics.surplus, metrics.threads),
            (1, 0, 0, 1)
        );
        done.wait();
        pool.shutdown();
        let metrics = pool.metrics();
        assert_eq!((metrics.finished, metrics.started_threads, metrics.refused_threads), (2, 1, 1));
        assert_eq!((metrics.replaced.total(), metrics.threads), (0, 0));
    });
}

#[test]
fn a_worker_that_nobody_joined_is_refused_as_the_last_one_is() {
    within_reason(|| {
        let pool = pool_of(2, 1);
        let done = latch();
        let waits = in_a_task(&pool, {
            let done = done.clone();
            move |pool| {
                // For this one a second thread was wanted; the first is left to run it.
                pool.dispatch(opens(&done)).unwrap();
                pool.blocking(|| unreachable!("nobody would run what is queued"))
            }
        });
        assert_eq!(waits.recv().unwrap(), Err::<(), _>(WaitError::NoThread { queued: 1 }));
        done.wait();
        pool.shutdown();
        assert_eq!((pool.metrics().finished, pool.metrics().refused_threads), (2, 2));
    });
}

/// ```text
///  worker 1: at work ................................ ends ─ runs what the other waits for
///  worker 2: queues a task ─ waits for it: no thread ......................................... goes on
/// ```
#[test]
fn a_wait_beside_another_worker_is_served() {
    within_reason(|| {
        let pool = pool_of(2, 2);
        let [begun, end, done] = [latch(), latch(), latch()];
        let at_work = in_a_task(&pool, {
            let (begun, end) = (begun.clone(), end.clone());
            move |_| {
                begun.open();
                end.wait();
            }
        });
        begun.wait();
        let waits = in_a_task(&pool, {
            let done = done.clone();
            move |pool| {
                pool.dispatch(opens(&done)).unwrap();
                let wait = || {
                    end.open();
                    done.wait();
                };
                pool.blocking(wait)
            }
        });
        waits.recv().unwrap().unwrap();
        at_work.recv().unwrap();
        pool.shutdown();
        let metrics = pool.metrics();
        assert_eq!((metrics.finished, metrics.started_threads, metrics.refused_threads), (3, 2, 1));
    });
}

/// Nothing is queued, so the wait is served. A task that comes then has no thread, and comes back.
#[test]
fn a_task_that_comes_while_the_only_thread_waits_comes_back() {
    within_reason(|| {
        let pool = pool_of(1, 1);
        let [waiting, go_on] = [latch(), latch()];
        let waits = in_a_task(&pool, {
            let (waiting, go_on) = (waiting.clone(), go_on.clone());
            move |pool| {
                let wait = || {
                    waiting.open();
                    go_on.wait();
                };
                pool.blocking(wait)
            }
        });
        waiting.wait();
        let refused = pool.dispatch(Task::new("refused", TaskPriority::Lazy, || ())).unwrap_err();
        assert_eq!(refused.label(), "refused");
        assert_eq!((pool.metrics().queued.total(), pool.metrics().blocked), (0, 1));
        go_on.open();
        waits.recv().unwrap().unwrap();
        // The thread is back, and takes what comes.
        in_a_task(&pool, |_| ()).recv().unwrap();
        pool.shutdown();
        assert_eq!(pool.metrics().finished, 2);
    });
}

/// The limit for the background leaves room for one, and that is lifted by a thread without a slot.
///
/// ```text
///  thread 1: S begins ─ waits ...... goes on without a slot ─ queues T ......... would wait for it: refused ─ ends ─ T
///  thread 2:              D begins ─ answers ................................ waits: its slot is vacant
/// ```
#[test]
fn a_wait_that_would_leave_what_it_lets_start_to_nobody_is_refused() {
    within_reason(|| {
        let pool = pool_of(1, 2);
        let [answered, queued, waiting, end, done] = [(); 5].map(|()| latch());
        let (send, receive) = mpsc::channel();
        let ends = end.clone();
        let background = |run: Box<dyn FnOnce() + Send>| Task::new("test", TaskPriority::Speculative, run);
        let (inner, opens_done) = (pool.clone(), done.clone());
        let first = background(Box::new(move || {
            let (beside, answers, asked, waits) =
                (inner.clone(), answered.clone(), queued.clone(), waiting.clone());
            let second = demanded(move || {
                answers.open();
                asked.wait();
                let wait = || {
                    waits.open();
                    ends.wait();
                };
                beside.blocking(wait).unwrap();
            });
            inner.dispatch(second).unwrap();
            inner.wait(&answered).unwrap();
            let done = opens_done.clone();
            inner.dispatch(background(Box::new(move || opens_done.open()))).unwrap();
            queued.open();
            waiting.wait();
            send.send(inner.wait(&done)).unwrap();
        }));
        pool.dispatch(first).unwrap();
        assert_eq!(receive.recv().unwrap(), Err(WaitError::NoThread { queued: 1 }));
        done.wait();
        end.open();
        pool.shutdown();
        let metrics = pool.metrics();
        assert_eq!((metrics.finished, metrics.started_threads, metrics.refused_threads), (3, 2, 1));
    });
}

#[test]
fn a_task_that_shuts_down_gives_up_what_only_it_could_run() {
    within_reason(|| {
        let pool = pool_of(1, 1);
        let drops = Arc::new(AtomicUsize::new(0));
        let shuts_down = in_a_task(&pool, {
            let drops = drops.clone();
            move |pool| {
                for _ in 0..3 {
                    pool.dispatch(owning(Owned(drops.clone()))).unwrap();
                }
                pool.shutdown();
                drops.load(Ordering::Relaxed)
            }
        });
        assert_eq!(shuts_down.recv().unwrap(), 3);
        pool.shutdown();
        assert_eq!((pool.metrics().finished, pool.metrics().queued.total()), (1, 0));
    });
}

/// ```text
///  first dispatch:   push ─ is to start a thread ──────────── is refused one ─ gives a task back
///  second dispatch:           push ─ a thread is about to search: Ok
///  run_ready:                                                      no thread for what is left: given up
/// ```
#[test]
fn what_relied_on_a_thread_that_never_was_is_given_up() {
    within_reason(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let itself: Arc<OnceLock<std::sync::Weak<WorkStealingTaskDispatcher>>> = Arc::default();
        let asked = Arc::new(AtomicUsize::new(0));
        let pool = pool_that_asks(1, {
            let (itself, drops, asked) = (itself.clone(), drops.clone(), asked.clone());
            move || {
                if asked.fetch_add(1, Ordering::Relaxed) == 0 {
                    let pool = itself.get().unwrap().upgrade().unwrap();
                    pool.dispatch(owning(Owned(drops.clone()))).expect("a thread is about to come");
                }
                Err(io::ErrorKind::WouldBlock.into())
            }
        });
        itself.set(Arc::downgrade(&pool)).unwrap();
        drop(pool.dispatch(owning(Owned(drops.clone()))).expect_err("no thread came"));
        assert_eq!((drops.load(Ordering::Relaxed), pool.metrics().queued.total()), (1, 1));
        pool.run_ready();
        assert_eq!((drops.load(Ordering::Relaxed), pool.metrics().queued.total()), (2, 0));
        assert_eq!(pool.metrics().refused_threads, 2);
        pool.shutdown();
    });
}

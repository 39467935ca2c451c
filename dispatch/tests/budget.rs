//! Work in the background takes no more than its share of the workers' time, by a clock that says what it is told; what is wanted is not
//! concerned.
#![cfg(not(any(uruk_loom, uruk_shuttle)))]

use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex, thread};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

use TaskPriority::{Demanded, Idle, Lazy, Speculative};

struct Scene {
    pool: Arc<WorkStealingTaskDispatcher>,
    now: Arc<Mutex<Instant>>,
}

fn scene(workers: usize, percent: u32) -> Scene {
    let now = Arc::new(Mutex::new(Instant::now()));
    let clock = now.clone();
    let builder = WorkStealingTaskDispatcher::builder().workers(workers).stack_size_bytes(256 << 10);
    let builder = builder.background_workers_max(workers).background_percent_max(percent);
    let pool = Arc::new(builder.clock(Arc::new(move || *clock.lock())).build().unwrap());
    Scene { pool, now }
}

fn latch() -> Arc<Latch> {
    Arc::new(Latch::new())
}

impl Scene {
    fn dispatch(&self, priority: TaskPriority, run: impl FnOnce() + Send + 'static) {
        self.pool.dispatch(Task::new("test", priority, run)).unwrap();
    }

    /// A task that takes so long by the clock; the latch opens when it has.
    fn takes(&self, priority: TaskPriority, ms: u64) -> Arc<Latch> {
        let (now, done) = (self.now.clone(), latch());
        let opens = done.clone();
        self.dispatch(priority, move || {
            *now.lock() += Duration::from_millis(ms);
            opens.open();
        });
        done
    }

    fn passes(&self, ms: u64) {
        *self.now.lock() += Duration::from_millis(ms);
    }

    /// Lets time pass until the latch is open. How much that takes nobody can say: a thread that is interrupted before its task
    /// ends, or blocks, is at work meanwhile.
    fn passes_until(&self, latch: &Latch) {
        while !latch.is_open() {
            self.passes(1000);
            thread::yield_now();
        }
    }

    /// Runs some tasks to their end, so that whatever could start before it has, and workers have slept and woken.
    fn goes_on(&self) {
        for priority in [Demanded, Lazy, Demanded] {
            self.takes(priority, 0).wait();
        }
    }
}

#[test]
fn background_work_waits_until_its_share_is_there_and_nothing_else_does() {
    for workers in [1, 2] {
        let scene = scene(workers, 10);
        scene.takes(Speculative, 100).wait();
        // 90 ms too much, or 80 in a pool of two, which has to end first; the latch opens before the task does.
        scene.goes_on();
        let next = scene.takes(Idle, 0);
        scene.goes_on();
        assert!(!next.is_open(), "it has to be paid for");
        scene.takes(Demanded, 100).wait();
        scene.takes(Lazy, 100).wait();
        scene.goes_on();
        assert!(!next.is_open());
        scene.passes_until(&next);
        scene.pool.shutdown();
    }
}

/// Nobody but the clock calls them: all workers sleep.
#[test]
fn many_tasks_of_the_background_all_run_as_time_passes() {
    let scene = scene(3, 50);
    let ran = Arc::new(AtomicUsize::new(0));
    for index in 0..100 {
        let (now, ran) = (scene.now.clone(), ran.clone());
        scene.dispatch([Idle, Speculative][index % 2], move || {
            *now.lock() += Duration::from_micros(100);
            // Relaxed: nothing is read on the strength of the count.
            ran.fetch_add(1, Ordering::Relaxed);
        });
    }
    while ran.load(Ordering::Relaxed) < 100 {
        scene.passes(1);
        thread::yield_now();
    }
    scene.pool.shutdown();
}

/// Somebody looks at the clock for what time holds back; no task that comes meanwhile wakes another thread over it.
#[test]
fn what_time_holds_back_wakes_nobody_over_and_over() {
    const ROUNDS: u64 = 300;
    const WORKERS: usize = 4;
    let scene = scene(WORKERS, 1);
    scene.takes(Speculative, 60_000).wait();
    scene.goes_on();
    let (held, before, begun) = (scene.takes(Idle, 0), scene.pool.metrics().slept, Instant::now());
    for _ in 0..ROUNDS {
        scene.takes(Demanded, 0).wait();
        // The worker is on its way to sleep.
        while scene.pool.metrics().parked < scene.pool.metrics().threads {
            thread::yield_now();
        }
    }
    // One worker takes the task, and sleeps again. Each may look at the clock ten times a second besides.
    let looks = WORKERS as u64 * (1 + begun.elapsed().as_millis() as u64 / 100);
    let slept = scene.pool.metrics().slept - before;
    assert!(
        slept < ROUNDS * 3 / 2 + looks,
        "{slept} sleeps after {ROUNDS} single tasks: threads wake for nothing"
    );
    assert!(!held.is_open());
    scene.pool.shutdown();
}

/// The task that waits is of the background itself, and what it waits for has to be paid for.
#[test]
fn a_blocked_task_costs_nothing_and_what_it_waits_for_starts_in_time() {
    let scene = scene(1, 10);
    let (made, over, begun) = (latch(), latch(), latch());
    scene.dispatch(Speculative, {
        let (pool, made, over, begun) = (scene.pool.clone(), made.clone(), over.clone(), begun.clone());
        let now = scene.now.clone();
        move || {
            *now.lock() += Duration::from_millis(50);
            let opens = made.clone();
            pool.dispatch(Task::new("makes", Idle, move || opens.open())).unwrap();
            begun.open();
            pool.wait(&made).unwrap();
            over.open();
        }
    });
    begun.wait();
    scene.passes_until(&over);
    scene.pool.shutdown();
    assert_eq!(scene.pool.metrics().finished, 2);
}

/// How a task of the background ends, or nearly, whose thread then does not look for what time holds back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum GoesOn {
    WithItsOwn,
    WithWhatItFinds,
    Blocks,
}

/// ```text
///  spender:   a task of the background ............................. ends or blocks: spends no more ─ goes on with something else
///  searcher:  a task ......................... searches: is held in its look at the clock
///  sleeper:           sleeps: time holds a task back ............................................... has to be called
/// ```
///
/// Who is called is held as well, so that it is still awake when the one who called it looks.
#[test]
fn who_spends_less_calls_one_who_sleeps_even_beside_a_searcher() {
    for goes_on in [GoesOn::WithItsOwn, GoesOn::WithWhatItFinds, GoesOn::Blocks] {
        let now = Arc::new(Mutex::new(Instant::now()));
        let (hold, release, searches) = (latch(), latch(), latch());
        let (spender, searcher) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let clock = {
            let (now, hold, release, searches) =
                (now.clone(), hold.clone(), release.clone(), searches.clone());
            let (test, spender, searcher) = (current().id(), spender.clone(), searcher.clone());
            move || {
                let here = current().id();
                let is_free = here == test || *spender.lock() == Some(here);
                if hold.is_open() && !is_free {
                    if *searcher.lock() == Some(here) {
                        searches.open();
                    }
                    release.wait();
                }
                *now.lock()
            }
        };
        let builder = WorkStealingTaskDispatcher::builder().workers(3).stack_size_bytes(256 << 10);
        let builder = builder.background_workers_max(3).background_percent_max(10).clock(Arc::new(clock));
        let pool = Arc::new(builder.build().unwrap());
        let scene = Scene { pool, now };
        let (asleep, looked, ended) = (Arc::new(AtomicUsize::new(usize::MAX)), latch(), latch());
        let look = {
            let (pool, asleep, looked, ended) =
                (scene.pool.clone(), asleep.clone(), looked.clone(), ended.clone());
            move || {
                // Relaxed: the latch orders it.
                asleep.store(pool.metrics().parked, Ordering::Relaxed);
                looked.open();
                ended.wait();
            }
        };

        let (begun, go) = (latch(), latch());
        scene.dispatch(Speculative, {
            let (pool, now, spender) = (scene.pool.clone(), scene.now.clone(), spender.clone());
            let (begun, go, look) = (begun.clone(), go.clone(), look.clone());
            move || {
                *spender.lock() = Some(current().id());
                *now.lock() += Duration::from_millis(1);
                begun.open();
                go.wait();
                match goes_on {
                    GoesOn::WithItsOwn => pool.dispatch(Task::new("own", Demanded, look)).unwrap(),
                    GoesOn::WithWhatItFinds => {}
                    GoesOn::Blocks => pool.blocking(look).unwrap(),
                }
            }
        });
        begun.wait();
        let go_searching = note_thread(&scene, &searcher);
        let held = scene.takes(Idle, 0);
        while scene.pool.metrics().parked == 0 {
            thread::yield_now();
        }
        hold.open();
        go_searching.open();
        searches.wait();
        if goes_on == GoesOn::WithWhatItFinds {
            scene.dispatch(Demanded, look);
        }
        go.open();
        looked.wait();
        assert!(!held.is_open());
        assert_eq!(asleep.load(Ordering::Relaxed), 0, "{goes_on:?}");
        release.open();
        ended.open();
        scene.pool.shutdown();
    }
}

/// Begins a task that notes its thread, and ends when the latch is opened.
fn note_thread(scene: &Scene, into: &Arc<Mutex<Option<ThreadId>>>) -> Arc<Latch> {
    let (begun, go) = (latch(), latch());
    scene.dispatch(Demanded, {
        let (into, begun, go) = (into.clone(), begun.clone(), go.clone());
        move || {
            *into.lock() = Some(current().id());
            begun.open();
            go.wait();
        }
    });
    begun.wait();
    go
}

#[test]
fn a_shutdown_runs_what_only_time_holds_back() {
    let scene = scene(2, 1);
    scene.takes(Speculative, 60_000).wait();
    scene.goes_on();
    let held = [Idle, Speculative, Idle].map(|priority| scene.takes(priority, 0));
    scene.goes_on();
    assert!(held.iter().all(|held| !held.is_open()));
    scene.pool.shutdown();
    assert!(held.iter().all(|held| held.is_open()));
}

#[test]
fn a_whole_share_is_no_limit() {
    let scene = scene(1, 100);
    scene.takes(Speculative, 60_000).wait();
    scene.takes(Idle, 60_000).wait();
    scene.pool.shutdown();
}

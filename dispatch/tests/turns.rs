//! Turns of serial queues: the next one starts before what was queued earlier, and starves nothing.
//!
//! ```text
//!  queue:   t1 runs ─ ends: hands over ─┐  t2 runs ...            after a few turns in a row: one of the others
//!  pool:    others are queued .......... lane: t2 ─ before the others
//! ```
#![cfg(not(any(uruk_loom, uruk_shuttle)))]

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex, thread};
use uruk_core::{SerialQueue, Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

use TaskPriority::{Demanded, Lazy, Speculative};

/// A pool, a queue, and a log of the tasks run.
#[derive(Clone)]
struct Scene {
    pool: Arc<WorkStealingTaskDispatcher>,
    dispatcher: Arc<dyn TaskDispatcher>,
    queue: SerialQueue,
    log: Arc<Mutex<Vec<&'static str>>>,
}

impl Scene {
    fn new(workers: usize) -> Self {
        let pool = Arc::new(WorkStealingTaskDispatcher::builder().workers(workers).build().unwrap());
        Self { dispatcher: pool.clone(), pool, queue: SerialQueue::new(), log: Arc::default() }
    }

    /// Queues a task of the serial queue.
    fn turn(&self, priority: TaskPriority, run: impl FnOnce() + Send + 'static) {
        self.queue.dispatch(&self.dispatcher, Task::new("turn", priority, run)).unwrap();
    }

    /// Queues any other task.
    fn other(&self, priority: TaskPriority, run: impl FnOnce() + Send + 'static) {
        self.pool.dispatch(Task::new("other", priority, run)).unwrap();
    }

    /// The body of a task that only logs that it runs.
    fn says(&self, what: &'static str) -> impl FnOnce() + Send + 'static {
        let log = self.log.clone();
        move || log.lock().push(what)
    }

    /// Keeps a worker busy, in a way that the pool does not see, until the latch is opened.
    fn occupy(&self) -> Arc<Latch> {
        let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
        self.other(Demanded, {
            let (begun, go_on) = (begun.clone(), go_on.clone());
            move || {
                begun.open();
                go_on.wait();
            }
        });
        begun.wait();
        go_on
    }

    /// Waits until that many tasks have run, and says in which order. A turn would be refused by a pool that is closed.
    fn ends(self, tasks: u64) -> Vec<&'static str> {
        while self.pool.metrics().finished < tasks {
            thread::yield_now();
        }
        self.pool.shutdown();
        self.log.lock().clone()
    }
}

#[test]
fn the_next_turn_goes_before_what_came_from_outside_earlier() {
    let scene = Scene::new(1);
    let go_on = scene.occupy();
    scene.turn(Demanded, scene.says("t1"));
    scene.other(Demanded, scene.says("a"));
    scene.other(Demanded, scene.says("b"));
    scene.turn(Demanded, scene.says("t2"));
    scene.turn(Demanded, scene.says("t3"));
    assert_eq!((scene.queue.waiting(), scene.pool.metrics().queued[Demanded]), (2, 3));
    go_on.open();
    let pool = scene.pool.clone();
    assert_eq!(scene.ends(6), ["t1", "t2", "t3", "a", "b"]);
    let metrics = pool.metrics();
    assert_eq!((metrics.turns, metrics.finished, metrics.queued.total()), (2, 6, 0));
}

#[test]
fn the_next_turn_goes_before_what_a_task_of_the_worker_has_queued_earlier() {
    let scene = Scene::new(1);
    scene.turn(Demanded, {
        let scene = scene.clone();
        move || {
            scene.turn(Demanded, scene.says("t2"));
            scene.other(Demanded, scene.says("a"));
            scene.queue.leave();
            scene.other(Demanded, scene.says("b"));
            assert_eq!(scene.pool.metrics().queued[Demanded], 3, "the turn is one of them");
        }
    });
    assert_eq!(scene.ends(4), ["t2", "a", "b"]);
}

#[test]
fn a_turn_in_the_background_overtakes_nothing() {
    let scene = Scene::new(1);
    scene.turn(Speculative, {
        let scene = scene.clone();
        move || {
            scene.turn(Speculative, scene.says("t2"));
            scene.other(Speculative, scene.says("speculative"));
            scene.other(Lazy, scene.says("lazy"));
            scene.other(Demanded, scene.says("demanded"));
        }
    });
    assert_eq!(scene.ends(5), ["demanded", "lazy", "speculative", "t2"]);
}

#[test]
fn a_turn_that_is_handed_over_wakes_another_worker() {
    let scene = Scene::new(2);
    let ended = Arc::new(Latch::new());
    scene.turn(Demanded, {
        let (scene, ended) = (scene.clone(), ended.clone());
        move || {
            let opens = ended.clone();
            scene.turn(Demanded, move || opens.open());
            scene.queue.leave();
            // Not declared: the thread keeps its slot.
            ended.wait();
        }
    });
    ended.wait();
    scene.ends(2);
}

/// A turn that queues the next one for as long as the others have not run: only a bound lets them.
fn feeds_itself(scene: &Scene, others_left: Arc<AtomicUsize>, turns: Arc<AtomicUsize>) {
    // Relaxed, here and below: nothing is read on the strength of the counts.
    turns.fetch_add(1, Ordering::Relaxed);
    if others_left.load(Ordering::Relaxed) > 0 {
        let inner = scene.clone();
        scene.turn(Demanded, move || feeds_itself(&inner, others_left, turns));
    }
}

/// One of the others.
fn counts_down(others_left: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
    let others_left = others_left.clone();
    move || {
        others_left.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_queue_that_is_fed_for_ever_starves_nobody() {
    const OTHERS: usize = 100;
    let scene = Scene::new(1);
    let (others_left, turns) = (Arc::new(AtomicUsize::new(OTHERS)), Arc::new(AtomicUsize::new(0)));
    let go_on = scene.occupy();
    scene.turn(Demanded, {
        let (scene, others_left, turns) = (scene.clone(), others_left.clone(), turns.clone());
        move || feeds_itself(&scene, others_left, turns)
    });
    for _ in 0..OTHERS {
        scene.other(Demanded, counts_down(&others_left));
    }
    go_on.open();
    while others_left.load(Ordering::Relaxed) > 0 || scene.queue.waiting() > 0 {
        thread::yield_now();
    }
    scene.ends(0);
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns > 2 * OTHERS && turns <= 10 * OTHERS, "{turns} turns beside {OTHERS} others");
}

/// ```text
///  worker 1:  queues the others in its own deque ─ waits for them, undeclared
///  worker 2:  turns, one after another ─ now and then one of worker 1's
/// ```
#[test]
fn a_queue_that_is_fed_for_ever_does_not_keep_a_worker_from_stealing() {
    let scene = Scene::new(2);
    let (others_left, turns) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    scene.other(Demanded, {
        let scene = scene.clone();
        move || {
            // From here on turns follow each other until the others have run.
            others_left.store(3, Ordering::Relaxed);
            scene.turn(Demanded, {
                let (scene, others_left) = (scene.clone(), others_left.clone());
                move || feeds_itself(&scene, others_left, turns)
            });
            let ran = Arc::new(Latch::new());
            scene.other(Demanded, counts_down(&others_left));
            scene.other(Demanded, counts_down(&others_left));
            scene.other(Demanded, {
                let (ran, counts_down) = (ran.clone(), counts_down(&others_left));
                move || {
                    counts_down();
                    ran.open();
                }
            });
            ran.wait();
        }
    });
    let metrics = loop {
        let metrics = scene.pool.metrics();
        if metrics.finished > 4 && metrics.queued.total() + metrics.running.total() == 0 {
            break metrics;
        }
        thread::yield_now();
    };
    assert!(metrics.stolen >= 3, "{metrics:?}");
    scene.ends(0);
}

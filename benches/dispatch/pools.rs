//! Tasks that do nothing, on our pool and on rayon's in turn.

use std::time::{Duration, Instant};

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex, hint};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

use crate::Case;
use crate::measure::{Measured, Scale, Taken, processor_time};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for threads in [1, 2] {
        let both = |name, operation, small: usize, full: usize, ours: Run<Ours>, theirs: Run<Rayon>| Case {
            name,
            threads,
            operation,
            run: Box::new(move |scale| vec![in_turn(scale, threads, scale.pick(small, full), ours, theirs)]),
        };
        cases.push(both(
            "task_outside",
            "a task dispatched by a thread that is no worker",
            50_000,
            200_000,
            outside,
            outside,
        ));
        cases.push(both(
            "task_inside",
            "a task dispatched by a task; with two workers the other steals",
            50_000,
            200_000,
            inside,
            inside,
        ));
        cases.push(both(
            "answer",
            "from a dispatch to the task's answer on the thread that waits for it, again and again",
            1_000,
            5_000,
            answer,
            answer,
        ));
        cases.push(both(
            "wake",
            "the same, to workers that have slept for half a millisecond",
            100,
            500,
            wake,
            wake,
        ));
        if threads > 1 {
            cases.push(both(
                "steal",
                "from a busy worker's dispatch to the task's start on another worker",
                1_000,
                5_000,
                steal,
                steal,
            ));
            cases.push(both(
                "steal_many",
                "one of many tasks that lie on a busy worker's queue, run by the other",
                20_000,
                100_000,
                steal_many,
                steal_many,
            ));
        }
        cases.push(Case {
            name: "blocked",
            threads,
            operation: "a task that waits for a task it dispatches: one replacement",
            run: Box::new(move |scale| {
                let (pool, rounds) = (Ours::new(threads), scale.pick(300, 1_000));
                blocked(&pool, rounds);
                vec![Measured::alone(scale, rounds, || Taken::by(|| blocked(&pool, rounds)))]
            }),
        });
    }
    cases
}

type Run<P> = fn(&P, usize) -> Taken;

fn in_turn(scale: Scale, threads: usize, operations: usize, ours: Run<Ours>, theirs: Run<Rayon>) -> Measured {
    let (our_pool, their_pool) = (Ours::new(threads), Rayon::new(threads));
    // Starts threads, touches stacks and queues.
    ours(&our_pool, operations);
    theirs(&their_pool, operations);
    Measured::beside(
        "rayon",
        scale,
        operations,
        || ours(&our_pool, operations),
        || theirs(&their_pool, operations),
    )
}

/// The common interface of the two pools.
trait Pool: Clone + Send + 'static {
    fn spawn(&self, task: impl FnOnce() + Send + 'static);
}

#[derive(Clone)]
struct Ours(Arc<WorkStealingTaskDispatcher>);

impl Ours {
    fn new(workers: usize) -> Self {
        let pool = WorkStealingTaskDispatcher::builder().workers(workers).build();
        Self(Arc::new(pool.expect("a small pool")))
    }
}

impl Pool for Ours {
    fn spawn(&self, task: impl FnOnce() + Send + 'static) {
        self.0.dispatch(Task::new("bench", TaskPriority::Demanded, task)).expect("the pool is open");
    }
}

#[derive(Clone)]
struct Rayon(Arc<rayon::ThreadPool>);

impl Rayon {
    fn new(workers: usize) -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        Self(Arc::new(pool.expect("a small pool")))
    }
}

impl Pool for Rayon {
    fn spawn(&self, task: impl FnOnce() + Send + 'static) {
        self.0.spawn(task);
    }
}

/// Opens a latch when as many tasks have ended.
struct Countdown {
    left: AtomicUsize,
    done: Latch,
}

impl Countdown {
    fn new(tasks: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(tasks), done: Latch::new() })
    }

    fn one_less(&self) {
        // Relaxed: the latch orders what follows.
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.done.open();
        }
    }
}

fn spawn_all(pool: &impl Pool, tasks: usize, countdown: &Arc<Countdown>) {
    for _ in 0..tasks {
        let countdown = countdown.clone();
        pool.spawn(move || countdown.one_less());
    }
}

fn outside<P: Pool>(pool: &P, tasks: usize) -> Taken {
    let countdown = Countdown::new(tasks);
    Taken::by(|| {
        spawn_all(pool, tasks, &countdown);
        countdown.done.wait();
    })
}

fn inside<P: Pool>(pool: &P, tasks: usize) -> Taken {
    let countdown = Countdown::new(tasks);
    Taken::by(|| {
        let (inner, of_inner) = (pool.clone(), countdown.clone());
        pool.spawn(move || spawn_all(&inner, tasks, &of_inner));
        countdown.done.wait();
    })
}

fn answer<P: Pool>(pool: &P, rounds: usize) -> Taken {
    Taken::by(|| {
        for _ in 0..rounds {
            ask(pool);
        }
    })
}

fn wake<P: Pool>(pool: &P, rounds: usize) -> Taken {
    let never = Latch::new();
    let cpu = processor_time();
    let round = |_| {
        never.wait_timeout(Duration::from_micros(500));
        let begun = Instant::now();
        ask(pool);
        begun.elapsed()
    };
    let each = (0..rounds).map(round).collect();
    // With what the pauses cost: falling asleep is part of it.
    Taken::median(each, processor_time() - cpu)
}

/// Waits for the answer of a task.
fn ask(pool: &impl Pool) {
    let answer = Arc::new(Latch::new());
    let of_task = answer.clone();
    pool.spawn(move || of_task.open());
    answer.wait();
}

/// A worker that is busy watches how long it takes until another has started what it dispatched.
fn steal<P: Pool>(pool: &P, rounds: usize) -> Taken {
    let times = Arc::new(Mutex::new(Vec::with_capacity(rounds)));
    let done = Arc::new(Latch::new());
    let cpu = processor_time();
    let (inner, of_task, done_by_task) = (pool.clone(), times.clone(), done.clone());
    pool.spawn(move || {
        for _ in 0..rounds {
            let left = Arc::new(AtomicUsize::new(1));
            let of_stolen = left.clone();
            let begun = Instant::now();
            // Relaxed, here and below: the number is all that is passed on.
            inner.spawn(move || of_stolen.store(0, Ordering::Relaxed));
            spin_until_zero(&left);
            of_task.lock().push(begun.elapsed());
        }
        done_by_task.open();
    });
    done.wait();
    let each = std::mem::take(&mut *times.lock());
    Taken::median(each, processor_time() - cpu)
}

/// A worker that is busy leaves all of its tasks to the other.
fn steal_many<P: Pool>(pool: &P, tasks: usize) -> Taken {
    let done = Arc::new(Latch::new());
    Taken::by(|| {
        let (inner, of_task) = (pool.clone(), done.clone());
        pool.spawn(move || {
            let left = Arc::new(AtomicUsize::new(tasks));
            for _ in 0..tasks {
                let of_stolen = left.clone();
                // Relaxed: as in `steal`.
                inner.spawn(move || {
                    of_stolen.fetch_sub(1, Ordering::Relaxed);
                });
            }
            spin_until_zero(&left);
            of_task.open();
        });
        done.wait();
    })
}

fn spin_until_zero(left: &AtomicUsize) {
    // Relaxed: as in `steal`.
    while left.load(Ordering::Relaxed) != 0 {
        hint::spin_loop();
    }
}

fn blocked(pool: &Ours, rounds: usize) {
    let countdown = Countdown::new(rounds);
    for _ in 0..rounds {
        let (inner, of_task) = (pool.clone(), countdown.clone());
        pool.spawn(move || {
            let answer = Arc::new(Latch::new());
            let of_inner = answer.clone();
            inner.spawn(move || of_inner.open());
            inner.0.wait(&answer).expect("a thread can be had");
            of_task.one_less();
        });
    }
    countdown.done.wait();
}

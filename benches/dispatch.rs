//! The work-stealing pool alone: what a task costs, how fast a sleeper wakes, what a blocked worker and an idle pool cost.
//!
//! Prints one JSON object a line: the median of several repetitions, in nanoseconds an operation.
//!
//! | case | operation |
//! |---|---|
//! | `dispatch_outside` | a task that does nothing, dispatched by a thread that is no worker |
//! | `dispatch_inside` | the same, dispatched by a task; with two workers half of them are stolen |
//! | `wake` | from a dispatch to an idle pool, to the task's answer on another thread |
//! | `blocked` | a task that waits for a task that it dispatches: one replacement each |
//! | `idle` | processor time of an idle pool in one second, in nanoseconds |

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use std::time::{Duration, Instant};

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

type Pool = Arc<WorkStealingTaskDispatcher>;

const REPETITIONS: usize = 9;

fn main() {
    for workers in [1, 2] {
        report("dispatch_outside", workers, 100_000, dispatch_outside);
        report("dispatch_inside", workers, 100_000, dispatch_inside);
        report("wake", workers, 2_000, wake);
        report("blocked", workers, 500, blocked);
    }
    idle();
}

fn report(case: &str, workers: usize, operations: usize, run: fn(&Pool, usize)) {
    let pool =
        Arc::new(WorkStealingTaskDispatcher::builder().workers(workers).build().expect("a small pool"));
    run(&pool, operations); // starts threads, touches stacks and queues
    let mut nanos: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let begun = Instant::now();
            run(&pool, operations);
            begun.elapsed().as_nanos() as f64 / operations as f64
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    let metrics = pool.metrics();
    println!(
        "{{\"case\":\"{case}\",\"threads\":{workers},\"n\":{operations},\"reps\":{REPETITIONS},\"ns_per_op\":{:.1},\"ns_per_op_min\":{:.1},\"stolen\":{},\"slept\":{},\"started_threads\":{}}}",
        nanos[REPETITIONS / 2],
        nanos[0],
        metrics.stolen,
        metrics.slept,
        metrics.started_threads,
    );
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

fn demanded(run: impl FnOnce() + Send + 'static) -> Task {
    // Two words of label that all tasks share, as units share theirs.
    Task::new(LABEL.with(Arc::clone), TaskPriority::Demanded, run)
}

thread_local! {
    static LABEL: Arc<str> = "bench".into();
}

fn dispatch_outside(pool: &Pool, tasks: usize) {
    let countdown = Countdown::new(tasks);
    dispatch_all(pool, tasks, &countdown);
    countdown.done.wait();
}

fn dispatch_inside(pool: &Pool, tasks: usize) {
    let countdown = Countdown::new(tasks);
    let parent = {
        let (pool, countdown) = (pool.clone(), countdown.clone());
        demanded(move || dispatch_all(&pool, tasks, &countdown))
    };
    pool.dispatch(parent).expect("the pool is open");
    countdown.done.wait();
}

fn dispatch_all(pool: &Pool, tasks: usize, countdown: &Arc<Countdown>) {
    for _ in 0..tasks {
        let countdown = countdown.clone();
        pool.dispatch(demanded(move || countdown.one_less())).expect("the pool is open");
    }
}

fn wake(pool: &Pool, rounds: usize) {
    for _ in 0..rounds {
        let answer = Arc::new(Latch::new());
        let task = {
            let answer = answer.clone();
            demanded(move || answer.open())
        };
        pool.dispatch(task).expect("the pool is open");
        answer.wait();
    }
}

fn blocked(pool: &Pool, rounds: usize) {
    let countdown = Countdown::new(rounds);
    for _ in 0..rounds {
        let (inner_pool, countdown) = (pool.clone(), countdown.clone());
        let task = demanded(move || {
            let answer = Arc::new(Latch::new());
            let inner = {
                let answer = answer.clone();
                demanded(move || answer.open())
            };
            inner_pool.dispatch(inner).expect("the pool is open");
            inner_pool.wait(&answer).expect("a thread can be had");
            countdown.one_less();
        });
        pool.dispatch(task).expect("the pool is open");
    }
    countdown.done.wait();
}

fn idle() {
    let pool = Arc::new(WorkStealingTaskDispatcher::builder().workers(2).build().expect("a small pool"));
    dispatch_outside(&pool, 1000);
    let never = Latch::new();
    // First the workers go to sleep, then a second is measured.
    never.wait_timeout(Duration::from_millis(100));
    let before = processor_nanos();
    never.wait_timeout(Duration::from_secs(1));
    let nanos = processor_nanos() - before;
    println!("{{\"case\":\"idle\",\"threads\":2,\"cpu_ns_per_second\":{nanos}}}");
}

/// What all threads of this process have run so far.
fn processor_nanos() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
    let nanos_of = |path: std::path::PathBuf| -> Option<u64> {
        // A worker's alone: the thread that measures is at work.
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let schedule = std::fs::read_to_string(path.join("schedstat")).ok()?;
        name.starts_with("uruk-worker").then(|| schedule.split(' ').next()?.parse().ok())?
    };
    threads.filter_map(|thread| nanos_of(thread.ok()?.path())).sum()
}

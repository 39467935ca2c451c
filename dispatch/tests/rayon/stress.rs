//! Everything at once.

use std::time::Duration;

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::RayonTaskDispatcher;

use super::{Dispatcher, Pool, count_one, host, inside};
use crate::hammer::{hammer, stress_length};

/// Everything at once, in pools of one to three threads: tasks that dispatch and wait, join in rayon, panic, and waits of the
/// host's own jobs, scheduled by the machine.
///
/// But not joins and such waits in one pool: a join offers its stack to every job of the pool. If such a job of the host waits
/// for the task beneath it, neither ever ends.
#[test]
fn random_work_ends() {
    stress(Duration::from_millis(500));
}

#[test]
#[ignore = "as long as URUK_STRESS_SECONDS says; run by `make stress`"]
fn random_work_ends_under_stress() {
    stress(stress_length());
}

/// Inside a pool with limits, which delay what the random tasks are, and nothing for ever.
fn limited(pool: &Pool) -> Dispatcher {
    let builder = RayonTaskDispatcher::in_pool(pool.clone()).stack_size_bytes(256 << 10);
    Arc::new(builder.background_workers_max(1).build().unwrap())
}

fn stress(length: Duration) {
    hammer(length, |seed| {
        for threads in 1..=3 {
            let seed = 3 * seed + threads as u64;
            let pool = host(threads);
            let dispatcher = if seed.is_multiple_of(2) { inside(&pool) } else { limited(&pool) };
            let ends = Ends { ended: Arc::default(), joins: (seed / 2).is_multiple_of(2) };
            let roots: Vec<_> = (0..8).map(|root| grow(&dispatcher, &ends, seed * 8 + root, 4)).collect();
            let waited_in_jobs = if ends.joins { 0 } else { 4 };
            pool.scope(|scope| {
                for root in &roots[..waited_in_jobs] {
                    scope.spawn(|_| dispatcher.wait(root).unwrap());
                }
            });
            roots[waited_in_jobs..].iter().for_each(|root| dispatcher.wait(root).unwrap());
            dispatcher.shutdown();
            let Ends { ended, .. } = ends;
            let metrics = dispatcher.metrics();
            // Relaxed: the shutdown has waited for all of them.
            assert_eq!(ended.load(Ordering::Relaxed) as u64, metrics.finished, "{threads} threads");
            assert_eq!(
                (metrics.queued.total(), metrics.blocked, metrics.spares),
                (0, 0, 0),
                "{threads} threads"
            );
        }
    });
}

/// The state that all tasks of a round share.
#[derive(Clone)]
struct Ends {
    /// How many have ended.
    ended: Arc<AtomicUsize>,
    /// Whether they wait in rayon.
    joins: bool,
}

/// Counts a task that has ended, and says so.
struct OnEnd(Arc<AtomicUsize>, Arc<Latch>);

impl Drop for OnEnd {
    fn drop(&mut self) {
        count_one(&self.0);
        self.1.open();
    }
}

/// Dispatches a task with up to `depth` generations below it; the latch opens when all of them have ended.
fn grow(dispatcher: &Dispatcher, ends: &Ends, seed: u64, depth: u64) -> Arc<Latch> {
    let done = Arc::new(Latch::new());
    let end = OnEnd(ends.ended.clone(), done.clone());
    let (inner, ends) = (dispatcher.clone(), ends.clone());
    let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let priorities =
        [TaskPriority::Idle, TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded];
    let task = Task::new("random", priorities[(random >> 4) as usize % 4], move || {
        let end = end;
        let child = |index| grow(&inner, &ends, seed * 4 + index, depth - 1);
        if depth == 0 {
            assert!(!random.is_multiple_of(5), "panics now and then");
            return;
        }
        match random % 3 {
            1 if ends.joins => {
                let (left, right) = rayon_core::join(|| child(0), || child(1));
                inner.wait(&left).unwrap();
                inner.wait(&right).unwrap();
            }
            2 => {
                // An undeclared wait in the host's pool, by means of which this stack is offered to tickets.
                let below = rayon_core::scope(|_| child(2));
                inner.wait(&below).unwrap();
            }
            _ => (0..3).map(child).for_each(|below| inner.wait(&below).unwrap()),
        }
        drop(end);
    });
    dispatcher.dispatch(task).unwrap();
    done
}

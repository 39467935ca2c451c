//! Forks wait until a pool rests, so that its session can go on in the child.

use std::thread;
use std::time::{Duration, Instant};

use uruk_core::sync::Arc;
use uruk_core::thread_is_engaged;
use uruk_dispatch::WorkStealingTaskDispatcher;
use uruk_pipeline::runtime::background::call_before_forks;

/// So long does a fork wait for tasks of a pool.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Has forks wait until the pool has no task, for a while.
pub(super) fn rest_before_forks(pool: &Arc<WorkStealingTaskDispatcher>) {
    let pool = Arc::downgrade(pool);
    let is_there = move || pool.upgrade().is_some_and(|pool| wait_for_rest(&pool));
    // Where the system has no room for the handler, a child of a fork that came amidst a task refuses.
    let _ = call_before_forks(is_there);
}

/// A thread inside a task or a unit would wait for itself.
fn wait_for_rest(pool: &WorkStealingTaskDispatcher) -> bool {
    let until = Instant::now() + WAIT_MAX;
    while !thread_is_engaged() && !pool.is_idle() && Instant::now() < until {
        thread::yield_now();
    }
    true
}

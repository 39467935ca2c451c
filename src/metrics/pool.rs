//! The dispatcher: threads, tasks, and how long tasks wait.

use std::any::Any;
use std::fmt;

use uruk_core::TaskPriority;
use uruk_dispatch::{Metrics, WaitHistogram, WorkStealingTaskDispatcher};

use super::families::{ALONE, Families, Times, by_priority};
use crate::engine::Engine;

/// A dispatcher of the host's own has figures that are not known here.
pub(super) fn write(engine: &Engine, families: &mut Families<'_>) -> fmt::Result {
    let mut written = Ok(());
    engine.session.dispatcher().inspect(&mut |dispatcher: &dyn Any| {
        if let Some(pool) = dispatcher.downcast_ref::<WorkStealingTaskDispatcher>() {
            written = write_pool(&pool.metrics(), families);
        }
        #[cfg(feature = "rayon")]
        if let Some(pool) = dispatcher.downcast_ref::<uruk_dispatch::RayonTaskDispatcher>() {
            let metrics = pool.metrics();
            written = write_tasks(
                [("queued", &|p| metrics.queued[p]), ("running", &|p| metrics.running[p])],
                [metrics.finished, metrics.panicked],
                families,
            );
        }
    });
    written
}

fn write_pool(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let gauge = |name| (name, None);
    families.gauges(
        gauge("uruk_pool_workers"),
        "How many tasks may run at once",
        [(ALONE, metrics.workers)],
    )?;
    let active = metrics.threads.saturating_sub(metrics.blocked + metrics.parked);
    let threads = [("active", active), ("blocked", metrics.blocked), ("parked", metrics.parked)];
    families.gauges(
        gauge("uruk_pool_threads"),
        "Threads by state: active, blocked in a wait inside a task, parked for want of work",
        threads.map(|(state, count)| ([("state", state)], count)),
    )?;
    families.gauges(
        gauge("uruk_pool_surplus_threads"),
        "Threads that go on after a wait while others have taken all slots",
        [(ALONE, metrics.surplus)],
    )?;
    write_tasks(
        [("queued", &|p| metrics.queued[p]), ("running", &|p| metrics.running[p])],
        [metrics.finished, metrics.panicked],
        families,
    )?;
    let totals = [
        ("uruk_pool_turns", "Turns of serial queues that went before all others", metrics.turns),
        ("uruk_pool_stolen_tasks", "Tasks taken from another worker's queue", metrics.stolen),
        ("uruk_pool_sleeps", "Times that a thread went to sleep for want of work", metrics.slept),
        ("uruk_pool_yields", "Times that a thread yielded its processor", metrics.yielded),
        ("uruk_pool_started_threads", "Threads started", metrics.started_threads),
        ("uruk_pool_refused_threads", "Threads that the system refused to start", metrics.refused_threads),
    ];
    for (name, help, total) in totals {
        families.counters((name, None), help, [(ALONE, total)])?;
    }
    families.counters(
        ("uruk_pool_replaced_workers", None),
        "Times that another thread took the slot of a blocked one, by the priority of the blocked task",
        by_priority(|priority| metrics.replaced[priority]),
    )?;
    families.histograms(
        "uruk_pool_wait",
        "Times between the dispatch of tasks and their start, if the pool measures them",
        by_priority(|priority| times(&metrics.waits[priority])),
    )
}

/// Tasks now, by state, and those that have ended: all, and in a panic.
fn write_tasks(
    states: [(&'static str, &dyn Fn(TaskPriority) -> usize); 2],
    [finished, panicked]: [u64; 2],
    families: &mut Families<'_>,
) -> fmt::Result {
    families.gauges(
        ("uruk_pool_tasks", None),
        "Tasks by state and priority",
        states.into_iter().flat_map(|(state, count)| {
            by_priority(count).map(move |([priority], count)| ([("state", state), priority], count))
        }),
    )?;
    families.counters(
        ("uruk_pool_finished_tasks", None),
        "Tasks that ended, those that panicked included",
        [(ALONE, finished)],
    )?;
    families.counters(("uruk_pool_panicked_tasks", None), "Tasks that ended in a panic", [(ALONE, panicked)])
}

/// Every second bucket of the pool's, from 1 µs to a minute: powers of four.
fn times(waits: &WaitHistogram) -> Times {
    const BUCKETS: usize = 14;
    let pairs = waits.buckets().chunks(2).map(|pair| pair.iter().sum::<u64>());
    let mut counts: Vec<u64> = pairs.collect();
    let beyond = counts.split_off(BUCKETS).into_iter().sum();
    // Bucket i of the pool ends at 2^i µs; so the last of pair i ends at 2^(2i+1).
    let ends = (0..BUCKETS).map(|pair| f64::from(2_u32 << (2 * pair)) * 1e-6);
    let buckets = ends.zip(counts).chain([(f64::INFINITY, beyond)]).collect();
    Times { total: waits.total_us() as f64 * 1e-6, buckets }
}

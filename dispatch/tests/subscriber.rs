//! A tracing subscriber that panics while a task runs costs that task and no other. In a binary of its own: the subscriber is the
//! whole process's.
#![cfg(not(any(uruk_loom, uruk_shuttle)))]

use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

#[path = "support/patience.rs"]
pub mod patience;

use patience::within_reason;

const TASKS: usize = 300;

/// Panics over each third span and each event, which tells of a panic.
#[derive(Default)]
struct Panics {
    spans: AtomicUsize,
}

impl tracing::Subscriber for Panics {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        // Relaxed: only the number counts.
        let number = self.spans.fetch_add(1, Ordering::Relaxed);
        assert!(!number.is_multiple_of(3), "a subscriber's own affair");
        tracing::span::Id::from_u64(number as u64)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("a subscriber's own affair")
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, span: &tracing::span::Id) {
        assert!(span.into_u64() % 3 != 1, "a subscriber's own affair");
    }
}

/// What became of tasks.
#[derive(Default)]
struct Fates {
    ran: AtomicUsize,
    dropped: AtomicUsize,
}

struct Owned(Arc<Fates>);

impl Drop for Owned {
    fn drop(&mut self) {
        // Relaxed: read after a shutdown.
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Dispatches tasks, shuts down, and says how many have ended and how many of them in a panic, according to `metrics`.
fn none_is_stranded(dispatcher: &dyn TaskDispatcher, metrics: impl Fn() -> (u64, u64)) {
    let fates = Arc::new(Fates::default());
    for _ in 0..TASKS {
        let owned = Owned(fates.clone());
        let run = move || {
            // Relaxed: read after the shutdown.
            owned.0.ran.fetch_add(1, Ordering::Relaxed);
        };
        dispatcher.dispatch(Task::new("test", TaskPriority::Demanded, run)).expect("it is open");
    }
    dispatcher.shutdown();
    // Relaxed, both: after the shutdown.
    let (ran, dropped) = (fates.ran.load(Ordering::Relaxed), fates.dropped.load(Ordering::Relaxed));
    assert_eq!(dropped, TASKS, "what a task owns goes with it");
    // A third does not begin, a third panics when it has run.
    assert_eq!((ran, metrics()), (TASKS / 3 * 2, (TASKS as u64, TASKS as u64 / 3 * 2)));
}

/// One test, so that the spans of one dispatcher come after those of another.
#[test]
fn a_subscriber_that_panics_strands_no_task() {
    tracing::subscriber::set_global_default(Panics::default()).expect("the first of this process");
    within_reason(|| {
        for workers in [1, 2] {
            let pool = WorkStealingTaskDispatcher::builder().workers(workers).build().expect("a small pool");
            none_is_stranded(&pool, || (pool.metrics().finished, pool.metrics().panicked));
        }
        #[cfg(feature = "rayon")]
        for threads in [1, 2] {
            let host =
                rayon_core::ThreadPoolBuilder::new().num_threads(threads).build().expect("a small pool");
            let inside = uruk_dispatch::RayonTaskDispatcher::in_pool(Arc::new(host));
            let inside = inside.build().expect("the host has threads");
            none_is_stranded(&inside, || (inside.metrics().finished, inside.metrics().panicked));
        }
    });
}

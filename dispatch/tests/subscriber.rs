//! A tracing subscriber that panics while a task runs costs that task and no other. In a binary of its own: the subscriber is the
//! whole process's.
#![cfg(not(any(uruk_loom, uruk_shuttle)))]

use uruk_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, thread};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

#[path = "support/patience.rs"]
pub mod patience;

use patience::within_reason;

const TASKS: usize = 300;

/// Panics over each third span, and over each event; or when it is asked whether it wants them.
#[derive(Default)]
struct Panics {
    spans: AtomicUsize,
}

/// Whether it panics when it is asked, and not later.
static WHEN_ASKED: AtomicBool = AtomicBool::new(false);

impl Panics {
    /// The number of a span, which is none of those over which it panics.
    fn number(&self) -> usize {
        // Relaxed: only the number counts.
        let number = self.spans.fetch_add(1, Ordering::Relaxed);
        assert!(!number.is_multiple_of(3), "a subscriber's own affair");
        number
    }
}

impl tracing::Subscriber for Panics {
    /// It is to be asked each time.
    fn register_callsite(&self, _: &tracing::Metadata<'_>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }

    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        // Relaxed: set between the dispatchers, whose threads have ended or not begun.
        if !WHEN_ASKED.load(Ordering::Relaxed) {
            return true;
        }
        assert!(!of.is_event(), "a subscriber's own affair");
        if of.name() == "dispatch.run" {
            self.number();
        }
        false
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(self.number() as u64)
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

    /// Over the same once more, on the way of its own panic.
    fn try_close(&self, span: tracing::span::Id) -> bool {
        assert!(span.into_u64() % 3 != 1, "a subscriber's own affair");
        true
    }
}

/// The fates of tasks.
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
    // A third does not begin, a third panics when it has run, if its span has an end.
    let thirds = if WHEN_ASKED.load(Ordering::Relaxed) { 1 } else { 2 };
    assert_eq!((ran, metrics()), (TASKS / 3 * 2, (TASKS as u64, TASKS as u64 / 3 * thirds)));
}

/// Each task blocks or panics over its span. A worker that blocks is replaced, and the replacement reports that while it holds
/// the slot.
fn each_is_replaced(pool: &Arc<WorkStealingTaskDispatcher>) {
    let go_on = Arc::new(Latch::new());
    for _ in 0..TASKS / 10 {
        let (inner, go_on) = (pool.clone(), go_on.clone());
        let waits = move || inner.wait(&go_on).expect("a thread can be had");
        pool.dispatch(Task::new("waits", TaskPriority::Demanded, waits)).expect("it is open");
    }
    while pool.metrics().queued.total() > 0 {
        thread::yield_now();
    }
    go_on.open();
    pool.shutdown();
    let metrics = pool.metrics();
    assert!(metrics.replaced.total() > 0);
    assert_eq!((metrics.finished, metrics.running.total()), (TASKS as u64 / 10, 0));
}

/// One test, so that the spans of one dispatcher come after those of another.
#[test]
fn a_subscriber_that_panics_strands_no_task() {
    tracing::subscriber::set_global_default(Panics::default()).expect("the first of this process");
    for when_asked in [false, true] {
        // Relaxed: see where it is read.
        WHEN_ASKED.store(when_asked, Ordering::Relaxed);
        within_reason(strands_no_task);
    }
}

fn strands_no_task() {
    let pool = |workers| {
        let builder = WorkStealingTaskDispatcher::builder().workers(workers).stack_size_bytes(256 << 10);
        Arc::new(builder.build().expect("a small pool"))
    };
    for workers in [1, 2] {
        let pools = [pool(workers), pool(workers)];
        none_is_stranded(&*pools[0], || (pools[0].metrics().finished, pools[0].metrics().panicked));
        each_is_replaced(&pools[1]);
    }
    #[cfg(feature = "rayon")]
    for threads in [1, 2] {
        let host = rayon_core::ThreadPoolBuilder::new().num_threads(threads).build().expect("a small pool");
        let inside = uruk_dispatch::RayonTaskDispatcher::in_pool(Arc::new(host));
        let inside = inside.build().expect("the host has threads");
        none_is_stranded(&inside, || (inside.metrics().finished, inside.metrics().panicked));
    }
}

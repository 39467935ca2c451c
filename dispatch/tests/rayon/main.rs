//! Inside a rayon pool of the host: tasks run even if all its threads are blocked.
#![cfg(all(feature = "rayon", not(any(uruk_loom, uruk_shuttle))))]

mod spares;
mod stress;
mod tasks;
mod tickets;

#[path = "../support/hammer.rs"]
pub mod hammer;
#[path = "../support/patience.rs"]
pub mod patience;

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, thread};
use uruk_core::{Task, TaskPriority};
use uruk_dispatch::RayonTaskDispatcher;

type Dispatcher = Arc<RayonTaskDispatcher>;
type Pool = Arc<rayon_core::ThreadPool>;

fn host(threads: usize) -> Pool {
    Arc::new(rayon_core::ThreadPoolBuilder::new().num_threads(threads).build().unwrap())
}

fn inside(pool: &Pool) -> Dispatcher {
    // A chain of a thousand blocked tasks has a thousand stacks.
    Arc::new(RayonTaskDispatcher::in_pool(pool.clone()).stack_size_bytes(256 << 10).build().unwrap())
}

fn demanded(run: impl FnOnce() + Send + 'static) -> Task {
    Task::new("test", TaskPriority::Demanded, run)
}

fn count_one(count: &AtomicUsize) {
    // Relaxed: read after the shutdown.
    count.fetch_add(1, Ordering::Relaxed);
}

fn is_spare() -> bool {
    thread::current().name().is_some_and(|name| name.starts_with("uruk-spare"))
}

/// Occupies a thread of the host, without a word to the dispatcher, until the latch is opened.
fn occupy(pool: &Pool) -> Arc<Latch> {
    let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let (begins, waits) = (begun.clone(), go_on.clone());
    pool.spawn(move || {
        begins.open();
        waits.wait();
    });
    begun.wait();
    go_on
}

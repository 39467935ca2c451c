//! A leaf that shuts its dispatcher down does not wait, and queued tasks run all the same.
#![cfg(not(any(uruk_loom, uruk_shuttle)))]

#[path = "support/patience.rs"]
pub mod patience;

use patience::within_reason;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch};
use uruk_core::{InPlaceTaskDispatcher, Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

fn demanded(run: impl FnOnce() + Send + 'static) -> Task {
    Task::new("test", TaskPriority::Demanded, run)
}

/// The other task ends only after the leaf has gone on.
fn a_leaf_shuts_down(dispatcher: &Arc<dyn TaskDispatcher>) {
    let [begun, gone_on] = [(); 2].map(|()| Arc::new(Latch::new()));
    let ran = Arc::new(AtomicUsize::new(0));
    let other = demanded({
        let (begun, gone_on, ran) = (begun.clone(), gone_on.clone(), ran.clone());
        move || {
            begun.open();
            gone_on.wait();
            // Relaxed: read after the shutdown.
            ran.fetch_add(1, Ordering::Relaxed);
        }
    });
    dispatcher.dispatch(other).unwrap();
    begun.wait();
    let leaf = demanded({
        let (dispatcher, gone_on, ran) = (dispatcher.clone(), gone_on.clone(), ran.clone());
        move || {
            let queued = demanded({
                let ran = ran.clone();
                move || {
                    // Relaxed: as above.
                    ran.fetch_add(1, Ordering::Relaxed);
                }
            });
            dispatcher.dispatch(queued).unwrap();
            dispatcher.shutdown();
            assert!(dispatcher.dispatch(demanded(|| ())).is_err(), "it is closed");
            gone_on.open();
        }
    });
    dispatcher.dispatch(leaf.leaf()).unwrap();
    gone_on.wait();
    dispatcher.shutdown();
    assert_eq!(ran.load(Ordering::Relaxed), 2);
}

#[test]
fn a_leaf_that_shuts_its_pool_down_waits_for_nobody() {
    within_reason(|| {
        let pool: Arc<dyn TaskDispatcher> =
            Arc::new(WorkStealingTaskDispatcher::builder().workers(2).build().unwrap());
        a_leaf_shuts_down(&pool);
    });
}

#[cfg(feature = "rayon")]
#[test]
fn a_leaf_that_shuts_down_inside_a_pool_of_the_host_waits_for_nobody() {
    within_reason(|| {
        let host = Arc::new(rayon_core::ThreadPoolBuilder::new().num_threads(2).build().unwrap());
        let dispatcher = uruk_dispatch::RayonTaskDispatcher::in_pool(host.clone()).build().unwrap();
        let dispatcher: Arc<dyn TaskDispatcher> = Arc::new(dispatcher);
        a_leaf_shuts_down(&dispatcher);
        drop(dispatcher);
    });
}

/// Nothing of the queue comes to lie on the leaf's stack.
#[test]
fn a_leaf_that_shuts_down_in_place_runs_nothing_above_itself() {
    let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
    let inside = Arc::new(AtomicUsize::new(0));
    let [ran_inside, ran_after] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let leaf = demanded({
        let (dispatcher, inside) = (dispatcher.clone(), inside.clone());
        let (ran_inside, ran_after) = (ran_inside.clone(), ran_after.clone());
        move || {
            // Relaxed, here and below: all of it is one thread.
            inside.store(1, Ordering::Relaxed);
            let queued = demanded({
                let inside = inside.clone();
                move || {
                    let ran = if inside.load(Ordering::Relaxed) == 1 { ran_inside } else { ran_after };
                    ran.fetch_add(1, Ordering::Relaxed);
                }
            });
            dispatcher.dispatch(queued).unwrap();
            dispatcher.shutdown();
            inside.store(0, Ordering::Relaxed);
        }
    });
    dispatcher.dispatch(leaf.leaf()).unwrap();
    dispatcher.run_ready();
    dispatcher.shutdown();
    let ran = [&ran_inside, &ran_after].map(|ran| ran.load(Ordering::Relaxed));
    assert_eq!(ran, [0, 1]);
}

/// The leaf's shutdown counted as one that waits, so another shutdown believed that only waiting tasks were left.
#[test]
fn a_leaf_that_has_shut_down_in_place_is_waited_for_by_other_shutdowns() {
    within_reason(|| {
        let dispatcher = Arc::new(InPlaceTaskDispatcher::default());
        let [begun, closed, about_to_wait] = [(); 3].map(|()| Arc::new(Latch::new()));
        let [ended, ended_before] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let task = demanded({
            let (dispatcher, ended, ended_before) = (dispatcher.clone(), ended.clone(), ended_before.clone());
            let (begun, closed, about_to_wait) = (begun.clone(), closed.clone(), about_to_wait.clone());
            move || {
                begun.open();
                closed.wait();
                about_to_wait.open();
                dispatcher.shutdown();
                // Relaxed: the shutdown has waited for it.
                ended_before.store(ended.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        });
        let (other, inner) = (dispatcher.clone(), dispatcher.clone());
        let leaf = demanded(move || {
            inner.shutdown();
            closed.open();
            about_to_wait.wait();
            // Time for the other to return, if it does not wait.
            (0..1_000).for_each(|_| std::thread::yield_now());
            ended.store(1, Ordering::Relaxed);
        });
        let beside = std::thread::spawn(move || {
            other.dispatch(task).unwrap();
            other.run_ready();
        });
        begun.wait();
        dispatcher.dispatch(leaf.leaf()).unwrap();
        dispatcher.run_ready();
        beside.join().unwrap();
        assert_eq!(ended_before.load(Ordering::Relaxed), 1, "the leaf still ran");
    });
}

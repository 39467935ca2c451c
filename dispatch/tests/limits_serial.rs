//! Tasks in serial queues count as queued, once; tasks behind a blocked turn hold no producer back.
#![cfg(not(any(uruk_loom, uruk_shuttle)))]

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, thread};
use uruk_core::{LimitReached, SerialQueue, Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::{WorkStealingTaskDispatcher, WorkStealingTaskDispatcherBuilder};

use TaskPriority::{Demanded, Idle, Lazy, Speculative};

struct Scene {
    pool: Arc<WorkStealingTaskDispatcher>,
    dispatcher: Arc<dyn TaskDispatcher>,
    queue: SerialQueue,
    /// How many of [`Scene::queue_some`] have run.
    ran: Arc<AtomicUsize>,
}

/// A task that says when it begins, and ends when it is told to.
struct Held {
    begun: Arc<Latch>,
    end: Arc<Latch>,
}

fn latch() -> Arc<Latch> {
    Arc::new(Latch::new())
}

fn scene(
    workers: usize,
    limit: impl FnOnce(WorkStealingTaskDispatcherBuilder) -> WorkStealingTaskDispatcherBuilder,
) -> Scene {
    let builder = WorkStealingTaskDispatcher::builder().workers(workers).stack_size_bytes(256 << 10);
    let pool = Arc::new(limit(builder).build().unwrap());
    Scene { dispatcher: pool.clone(), pool, queue: SerialQueue::new(), ran: Arc::default() }
}

fn held(priority: TaskPriority) -> (Held, Task) {
    let [begun, end] = [latch(), latch()];
    let task = Task::new("held", priority, {
        let [begun, end] = [begun.clone(), end.clone()];
        move || {
            begun.open();
            end.wait();
        }
    });
    (Held { begun, end }, task)
}

impl Scene {
    /// A task of the serial queue.
    fn queue(&self, task: Task) {
        self.queue.dispatch(&self.dispatcher, task).unwrap();
    }

    fn queue_some(&self, count: usize, priority: TaskPriority) {
        for _ in 0..count {
            let ran = self.ran.clone();
            // Relaxed: read after the shutdown.
            let task = Task::new("some", priority, move || {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            self.queue(task);
        }
    }

    /// Takes the queue's turn.
    fn hold_turn(&self, priority: TaskPriority) -> Held {
        let (held, task) = held(priority);
        self.queue(task);
        held.begun.wait();
        held
    }

    /// Takes a worker.
    fn occupy(&self, priority: TaskPriority) -> Held {
        let (held, task) = held(priority);
        self.pool.dispatch(task).unwrap();
        held.begun.wait();
        held
    }

    fn level(&self, priority: TaskPriority) -> Option<usize> {
        self.pool.admits(priority, usize::MAX).err().map(|reached| reached.waiting)
    }

    fn reached(&self, priority: TaskPriority) -> LimitReached {
        self.pool.admits(priority, 1).unwrap_err()
    }

    fn ends(self, ran: usize) {
        self.pool.shutdown();
        assert_eq!(self.ran.load(Ordering::Relaxed), ran);
    }
}

#[test]
fn what_waits_in_a_serial_queue_counts_as_queued() {
    let scene = scene(1, |builder| builder.speculative_queue_max(3));
    let turn = scene.hold_turn(Demanded);
    scene.queue_some(2, Speculative);
    assert_eq!((scene.level(Speculative), scene.level(Idle)), (Some(2), None));
    scene.pool.dispatch(Task::new("not serial", Speculative, || ())).unwrap();
    let reached = scene.reached(Speculative);
    assert_eq!((reached.priority, reached.waiting, reached.bound), (Speculative, 3, 3));
    assert!(scene.pool.admits(Lazy, 9).is_ok() && scene.pool.admits(Demanded, 9).is_ok());
    let producer = thread::spawn({
        let pool = scene.pool.clone();
        move || pool.wait_for_room(Speculative, 1).unwrap()
    });
    turn.end.open();
    producer.join().unwrap();
    scene.ends(2);
}

#[test]
fn a_task_that_is_overtaken_counts_once() {
    let scene = scene(1, |builder| builder.speculative_queue_max(9));
    let occupied = scene.occupy(Demanded);
    // Chosen, overtaken by a lazy one, and that by a demanded one: three turns are queued in the pool, of which one means something.
    scene.queue_some(1, Speculative);
    assert_eq!(scene.level(Speculative), Some(1));
    scene.queue_some(1, Lazy);
    let (last, task) = held(Demanded);
    scene.queue(task);
    assert_eq!(scene.level(Speculative), Some(1));
    occupied.end.open();
    last.begun.wait();
    assert_eq!(scene.level(Speculative), Some(1));
    last.end.open();
    // The last in the order of its queue.
    let done = latch();
    let opens = done.clone();
    scene.queue(Task::new("last", Idle, move || opens.open()));
    done.wait();
    let turn = scene.hold_turn(Demanded);
    scene.queue_some(1, Speculative);
    assert_eq!(scene.level(Speculative), Some(1), "nothing was counted out twice");
    turn.end.open();
    scene.ends(3);
}

/// The producer has the turn for which the tasks wait that fill the queue.
#[test]
fn a_producer_does_not_wait_for_what_waits_for_it() {
    for workers in [1, 2] {
        let scene = scene(workers, |builder| builder.speculative_queue_max(1));
        let done = latch();
        let [filled, opens] = [latch(), done.clone()];
        let producer = Task::new("producer", Speculative, {
            let (pool, filled) = (scene.pool.clone(), filled.clone());
            move || {
                filled.wait();
                assert!(
                    pool.admits(Speculative, 1).is_err(),
                    "as long as this turn goes on, others wait for it"
                );
                pool.wait_for_room(Speculative, 1).unwrap();
                opens.open();
            }
        });
        scene.queue(producer);
        scene.queue_some(3, Speculative);
        filled.open();
        done.wait();
        scene.ends(3);
    }
}

/// The turn waits for the producer, and the producer for the tasks behind the turn.
#[test]
fn a_turn_that_blocks_lets_producers_go_on() {
    let scene = scene(2, |builder| builder.speculative_queue_max(1));
    let [produced, begun] = [latch(), latch()];
    let blocks = Task::new("blocks", Demanded, {
        let (pool, produced, begun) = (scene.pool.clone(), produced.clone(), begun.clone());
        move || {
            begun.open();
            pool.wait(&produced).unwrap();
        }
    });
    scene.queue(blocks);
    begun.wait();
    scene.queue_some(2, Speculative);
    let producer = thread::spawn({
        let pool = scene.pool.clone();
        move || {
            pool.wait_for_room(Speculative, 1).unwrap();
            produced.open();
        }
    });
    producer.join().unwrap();
    scene.ends(2);
}

/// A queue of two dispatchers. The turn that the tasks wait for may block elsewhere, and this dispatcher would not hear of it.
#[test]
fn what_waits_behind_a_turn_elsewhere_holds_nobody_back() {
    let scene = scene(1, |builder| builder.speculative_queue_max(1));
    let elsewhere: Arc<dyn TaskDispatcher> =
        Arc::new(WorkStealingTaskDispatcher::builder().workers(1).build().unwrap());
    let (turn, task) = held(Demanded);
    scene.queue.dispatch(&elsewhere, task).unwrap();
    turn.begun.wait();
    scene.queue_some(3, Speculative);
    assert_eq!(scene.level(Speculative), None);
    scene.pool.wait_for_room(Speculative, 1).unwrap();
    // Once the turn is here it does.
    let (here, task) = held(Demanded);
    scene.queue(task);
    turn.end.open();
    here.begun.wait();
    assert_eq!(scene.level(Speculative), Some(3));
    here.end.open();
    elsewhere.shutdown();
    scene.ends(3);
}

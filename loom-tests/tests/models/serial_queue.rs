//! Serial queue: one task ends, or leaves, while another arrives; tickets are overtaken and refused.
//!
//! ```text
//!  thread 1                               thread 2
//!  dispatch a: chosen, ticket of a        dispatch b: a is chosen, or runs: wait
//!  ticket of a: run a                              or: nothing runs: chosen, ticket of b
//!  a ends: b waits? ticket of b, else idle
//! ```
//!
//! Proven, in every order with at most three preemptions: of the tasks of a queue no two run at once, and each is run once, or
//! dropped once where its dispatcher refuses it; also when a task leaves its strand before it ends, when a more urgent
//! one arrives while the ticket of another starts, and when the dispatcher closes at any moment. A session closes although a task
//! waits for its turn behind one that is blocked in a lookup which nothing but the close ends.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `serial_queue::looks_before_it_ends`: whether something waits is asked in another hold of the lock than the end | `core/src/task/serial_queue.rs` | `what_arrives_while_a_task_ends_is_run` |
//! | `serial_queue::forgets_that_it_was_left`: a task that has left hands over again when it ends | `core/src/task/serial_queue/strand.rs` | `what_arrives_while_a_task_leaves_is_run_once` |
//! | `serial_queue::dropped_ticket_hands_nothing_over`: the drop of a ticket does not choose the next task | `core/src/task/serial_queue.rs` | `what_arrives_while_a_ticket_is_refused_is_given_back` |
//! | `serial_queue::close_takes_who_waits_for_a_turn_to_move`: a close waits for tasks that wait for their turns | `core/src/session/drain.rs` | `a_session_closes_while_a_task_waits_behind_a_blocked_one` |
//! | `serial_queue::looks_before_it_ends`: the same, where a more urgent task arrives | `core/src/task/serial_queue.rs` | `a_more_urgent_task_arrives_while_a_ticket_starts` |
#![cfg(uruk_loom)]

use loom_tests::queue::Queue;
use loom_tests::stage::{Stage, model_within};
use uruk_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{InPlaceTaskDispatcher, LookupError, SerialQueue, Task, TaskDispatcher, TaskPriority};

loom_tests::catches_its_weakenings!();

/// A queue, and the reports of its tasks.
#[derive(Clone, Default)]
struct Scene {
    queue: SerialQueue,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    /// A task is in its strand.
    inside: AtomicBool,
    ran: AtomicUsize,
    dropped: AtomicUsize,
}

/// Counts a task that goes without having run.
struct Unrun(Scene, bool);

impl Unrun {
    fn run(mut self, leaves: bool) {
        let Scene { queue, told } = &self.0;
        // Relaxed, here and below: the queue orders its tasks, and threads are joined before the counts are read.
        assert!(!told.inside.swap(true, Ordering::Relaxed), "two at once");
        assert!(told.inside.swap(false, Ordering::Relaxed), "two at once");
        told.ran.fetch_add(1, Ordering::Relaxed);
        if leaves {
            queue.leave();
        }
        self.1 = true;
    }
}

impl Drop for Unrun {
    fn drop(&mut self) {
        if !self.1 {
            self.0.told.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Scene {
    /// Gives a task to the dispatcher, and drops what that gives back.
    fn dispatch(&self, dispatcher: &Arc<dyn TaskDispatcher>, priority: TaskPriority, leaves: bool) {
        let unrun = Unrun(self.clone(), false);
        let task = Task::new("model", priority, move || unrun.run(leaves));
        drop(self.queue.dispatch(dispatcher, task));
        dispatcher.run_ready();
    }

    /// How many tasks have run, and how many are gone without.
    fn ended(&self) -> (usize, usize) {
        (self.told.ran.load(Ordering::Relaxed), self.told.dropped.load(Ordering::Relaxed))
    }
}

#[test]
fn what_arrives_while_a_task_ends_is_run() {
    model_within(3, || {
        let scene = Scene::default();
        let dispatcher: Arc<dyn TaskDispatcher> = Arc::new(InPlaceTaskDispatcher::default());
        let other = thread::spawn({
            let (scene, dispatcher) = (scene.clone(), dispatcher.clone());
            move || scene.dispatch(&dispatcher, TaskPriority::Demanded, false)
        });
        scene.dispatch(&dispatcher, TaskPriority::Demanded, false);
        other.join().expect("no panic");
        assert_eq!(scene.ended(), (2, 0));
    });
}

#[test]
fn what_arrives_while_a_task_leaves_is_run_once() {
    model_within(3, || {
        let scene = Scene::default();
        let dispatcher: Arc<dyn TaskDispatcher> = Arc::new(InPlaceTaskDispatcher::default());
        let other = thread::spawn({
            let (scene, dispatcher) = (scene.clone(), dispatcher.clone());
            move || {
                scene.dispatch(&dispatcher, TaskPriority::Demanded, false);
                scene.dispatch(&dispatcher, TaskPriority::Demanded, false);
            }
        });
        scene.dispatch(&dispatcher, TaskPriority::Demanded, true);
        other.join().expect("no panic");
        assert_eq!(scene.ended(), (3, 0));
    });
}

/// ```text
///  thread 1: ticket of the speculative task      thread 2: the demanded one takes its place, or waits
/// ```
#[test]
fn a_more_urgent_task_arrives_while_a_ticket_starts() {
    model_within(3, || {
        let scene = Scene::default();
        let tasks = Arc::new(Queue::default());
        let dispatcher: Arc<dyn TaskDispatcher> = tasks.clone();
        scene.dispatch(&dispatcher, TaskPriority::Speculative, false);
        let worker = thread::spawn({
            let tasks = tasks.clone();
            move || tasks.next().expect("a ticket is queued").run()
        });
        scene.dispatch(&dispatcher, TaskPriority::Demanded, false);
        worker.join().expect("no panic");
        tasks.shutdown();
        // Queued tasks still run; a task whose handover met the closed dispatcher is dropped or run here.
        tasks.work();
        let (ran, dropped) = scene.ended();
        assert_eq!((ran + dropped, scene.queue.waiting()), (2, 0));
        assert!(ran > 0, "the demanded task is run");
    });
}

/// ```text
///  thread 1: dispatch a      thread 2: dispatch b      thread 3: close the dispatcher, run what it has
/// ```
#[test]
fn what_arrives_while_a_ticket_is_refused_is_given_back() {
    model_within(3, || {
        let scene = Scene::default();
        let tasks = Arc::new(Queue::default());
        let dispatcher: Arc<dyn TaskDispatcher> = tasks.clone();
        let others = [TaskPriority::Demanded, TaskPriority::Speculative].map(|priority| {
            let (scene, dispatcher) = (scene.clone(), dispatcher.clone());
            thread::spawn(move || scene.dispatch(&dispatcher, priority, false))
        });
        tasks.shutdown();
        tasks.work();
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        // The tasks that were accepted meanwhile.
        tasks.work();
        let (ran, dropped) = scene.ended();
        assert_eq!((ran + dropped, scene.queue.waiting()), (2, 0));
    });
}

/// ```text
///  thread 1: task a: dispatch b, which waits ─ look p up: blocked ─ Closed ─ end        b
///  thread 2: close: only waiters are left ─ end their queries ─ wait for the rest
/// ```
#[test]
fn a_session_closes_while_a_task_waits_behind_a_blocked_one() {
    model_within(2, || {
        let (stage, queue) = (Stage::new(), SerialQueue::new());
        let p = stage.session.intern("p");
        let parked = stage.parked(&[&p]);
        let ran = Arc::new(AtomicUsize::new(0));
        let other = thread::spawn({
            let (stage, queue, ran) = (stage.clone(), queue.clone(), ran.clone());
            move || {
                let session = stage.session.clone();
                let a = {
                    let (queue, ran) = (queue.clone(), ran.clone());
                    move || {
                        let b = Task::new("b", TaskPriority::Demanded, move || {
                            ran.fetch_add(1, Ordering::Relaxed);
                        });
                        stage.session.dispatch(b.in_queue(&queue));
                        let found = stage.lookup(&p);
                        assert!(matches!(found, Err(LookupError::Closed)), "nobody finishes it");
                    }
                };
                session.dispatch(Task::new("a", TaskPriority::Demanded, a).in_queue(&queue));
            }
        });
        stage.session.close().expect("there are no resources");
        other.join().expect("no panic");
        assert!(ran.load(Ordering::Relaxed) <= 1, "b is run, or was refused by a session that had closed");
        assert_eq!(queue.waiting(), 0);
        drop(parked);
    });
}

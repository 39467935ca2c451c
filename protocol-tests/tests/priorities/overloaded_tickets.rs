//! A unit that becomes more urgent has tickets in several queues; when one of them has taken it, the others hold no producer back.

use std::sync::Arc;

use protocol_tests::halt::Halt;
use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{ExecutionSession, JitDylib, SerialQueue, SymbolName, Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

use TaskPriority::{Demanded, Idle, Speculative};

struct Scene {
    pool: Arc<WorkStealingTaskDispatcher>,
    session: ExecutionSession,
    main: JitDylib,
}

fn scene() -> Scene {
    let builder = WorkStealingTaskDispatcher::builder().workers(1);
    let pool = Arc::new(builder.speculative_queue_max(9).idle_queue_max(9).build().unwrap());
    let session = ExecutionSession::builder().dispatcher(pool.clone()).build();
    let main = session.create_jit_dylib("main").unwrap();
    Scene { pool, session, main }
}

impl Scene {
    /// Occupies the worker with a demanded task, from when the first latch opens until the second does.
    fn occupy(&self) -> [Arc<Latch>; 2] {
        let [begun, end] = [(); 2].map(|()| Arc::new(Latch::new()));
        self.session.dispatch(Task::new("occupies the worker", Demanded, {
            let [begun, end] = [begun.clone(), end.clone()];
            move || {
                begun.open();
                end.wait();
            }
        }));
        [begun, end]
    }

    /// How many tasks of that priority count as waiting.
    fn level(&self, priority: TaskPriority) -> usize {
        self.pool.admits(priority, usize::MAX).err().map_or(0, |reached| reached.waiting)
    }

    fn define(&self, name: &str, queue: Option<&SerialQueue>) -> SymbolName {
        let unit = TestUnit::new(name, exported(&self.session, &[name]), finish);
        let unit = queue.into_iter().fold(unit, TestUnit::in_queue);
        self.main.define(unit.boxed()).unwrap();
        self.session.intern(name)
    }
}

#[test]
fn a_ticket_whose_unit_was_taken_counts_no_more() {
    let scene = scene();
    scene.define("a", None);
    let [begun, end] = scene.occupy();
    begun.wait();
    let answers = [Idle, Speculative, Demanded]
        .map(|priority| look_up_later(&scene.session, request(&scene.main, &["a"]).at(priority)));
    assert_eq!((scene.level(Idle), scene.level(Speculative)), (1, 1));
    // Behind the demanded ticket, before the others.
    let [begun, end_next] = scene.occupy();
    end.open();
    begun.wait();
    assert_eq!((scene.level(Idle), scene.level(Speculative)), (0, 0), "the unit has begun");
    // As many count as there are, from here on as well.
    scene.define("b", None);
    let other = look_up_later(&scene.session, request(&scene.main, &["b"]).at(Speculative));
    assert_eq!(scene.level(Speculative), 1);
    end_next.open();
    answers.iter().chain([&other]).for_each(|answer| drop(answer.recv().unwrap().unwrap()));
    let [begun, end] = scene.occupy();
    begun.wait();
    // The remaining tickets of the first unit lie behind demanded tasks, and have been counted out once.
    scene.define("c", None);
    let last = look_up_later(&scene.session, request(&scene.main, &["c"]).at(Idle));
    assert_eq!((scene.level(Idle), scene.level(Speculative)), (1, 0));
    end.open();
    last.recv().unwrap().unwrap();
    scene.session.close().unwrap();
}

#[test]
fn a_ticket_that_waits_in_a_serial_queue_counts_no_more_either() {
    let scene = scene();
    let queue = SerialQueue::new();
    scene.define("a", Some(&queue));
    let [begun, end] = scene.occupy();
    begun.wait();
    let answers = [Speculative, Demanded]
        .map(|priority| look_up_later(&scene.session, request(&scene.main, &["a"]).at(priority)));
    assert_eq!(scene.level(Speculative), 1);
    let [begun, end_next] = scene.occupy();
    end.open();
    begun.wait();
    assert_eq!(scene.level(Speculative), 0, "the unit has begun");
    end_next.open();
    answers.iter().for_each(|answer| drop(answer.recv().unwrap().unwrap()));
    scene.session.close().unwrap();
}

/// The ticket of a priority that was given up takes the unit all the same.
#[test]
fn the_ticket_of_a_lookup_that_was_given_up_counts_until_the_unit_begins() {
    let scene = scene();
    scene.define("a", None);
    let [begun, end] = scene.occupy();
    begun.wait();
    let first = look_up_later(&scene.session, request(&scene.main, &["a"]).at(Idle));
    let future = scene.session.lookup_future(request(&scene.main, &["a"]).at(Speculative));
    let mut future = Box::pin(future);
    let waker = waker();
    assert!(future.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    assert_eq!((scene.level(Idle), scene.level(Speculative)), (1, 1));
    drop(future);
    let [begun, end_next] = scene.occupy();
    end.open();
    begun.wait();
    assert_eq!((scene.level(Idle), scene.level(Speculative)), (1, 1), "neither has been looked at");
    end_next.open();
    first.recv().unwrap().unwrap();
    let [begun, end] = scene.occupy();
    begun.wait();
    scene.define("b", None);
    scene.define("c", None);
    let others = [("b", Idle), ("c", Speculative)]
        .map(|(name, priority)| look_up_later(&scene.session, request(&scene.main, &[name]).at(priority)));
    assert_eq!((scene.level(Idle), scene.level(Speculative)), (1, 1));
    end.open();
    others.iter().for_each(|answer| drop(answer.recv().unwrap().unwrap()));
    scene.session.close().unwrap();
}

/// ```text
///  worker:  occupied ─ a (demanded) ─ the other ticket of a, void ─ b, which stops │
///  queued:                                                                 c       │ counts still
/// ```
#[test]
fn a_void_ticket_that_leaves_its_queue_takes_nobody_elses_place() {
    let scene = scene();
    scene.define("a", None);
    let halt = Halt::default();
    let here = halt.clone();
    let stops = TestUnit::new("b", exported(&scene.session, &["b"]), move |responsibility| {
        here.stop();
        finish(responsibility);
    });
    scene.main.define(stops.boxed()).unwrap();
    scene.define("c", None);
    let [begun, end] = scene.occupy();
    begun.wait();
    let look_up = |name, priority| look_up_later(&scene.session, request(&scene.main, &[name]).at(priority));
    let answers = [("a", Idle), ("a", Demanded), ("b", Idle), ("c", Idle)]
        .map(|(name, priority)| look_up(name, priority));
    assert_eq!(scene.level(Idle), 3);
    end.open();
    halt.reached();
    assert_eq!(scene.level(Idle), 1, "one is queued, and has not begun");
    halt.let_go();
    answers.iter().for_each(|answer| drop(answer.recv().unwrap().unwrap()));
    scene.session.close().unwrap();
}

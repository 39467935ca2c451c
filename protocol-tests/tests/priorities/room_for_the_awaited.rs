//! Back-pressure delays nothing that is in flight: a thread on which others may wait does not wait for room.
//!
//! ```text
//!  worker 1: the one place in the background, taken until the end; one more speculative task is queued: no room
//!  worker 2: a producer, awaited by others, asks for room
//! ```

use std::sync::Arc;
use std::thread;

use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{ExecutionSession, JitDylib, SerialQueue, Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

use TaskPriority::{Demanded, Speculative};

struct Scene {
    pool: Arc<WorkStealingTaskDispatcher>,
    session: ExecutionSession,
    main: JitDylib,
    end: Arc<Latch>,
}

fn latch() -> Arc<Latch> {
    Arc::new(Latch::new())
}

/// No room for speculative work before `end` opens.
fn crowded() -> Scene {
    let builder = WorkStealingTaskDispatcher::builder().workers(2);
    let pool = Arc::new(builder.speculative_queue_max(1).build().unwrap());
    let session = ExecutionSession::builder().dispatcher(pool.clone()).build();
    let main = session.create_jit_dylib("main").unwrap();
    let [begun, end] = [latch(), latch()];
    session.dispatch(Task::new("takes the place", Speculative, {
        let (begun, end) = (begun.clone(), end.clone());
        move || {
            begun.open();
            end.wait();
        }
    }));
    begun.wait();
    session.dispatch(Task::new("is queued", Speculative, || ()));
    assert!(pool.admits(Speculative, 1).is_err());
    Scene { pool, session, main, end }
}

impl Scene {
    /// The symbol is found before there is room.
    fn finds(self, name: &str) {
        self.session.lookup_symbol(&order(&self.main), &self.session.intern(name)).unwrap();
        self.ends();
    }

    fn ends(self) {
        self.end.open();
        self.session.close().unwrap();
    }
}

#[test]
fn a_unit_does_not_wait_for_room_with_its_responsibility_in_hand() {
    within_reason(|| {
        let scene = crowded();
        let unit = TestUnit::new("produces", exported(&scene.session, &["a"]), |responsibility| {
            responsibility.session().wait_for_room(Speculative, 1).unwrap();
            finish(responsibility);
        });
        scene.main.define(unit.boxed()).unwrap();
        scene.finds("a");
    });
}

#[test]
fn an_answer_on_behalf_of_a_unit_does_not_wait_for_room() {
    within_reason(|| {
        let scene = crowded();
        define_simple(&scene.main, "needed", &["b"]);
        let unit = TestUnit::new("produces", exported(&scene.session, &["a"]), |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let responsibility = responsibility.detach();
            session.clone().lookup_async(request(&main, &["b"]), move |answer| {
                answer.unwrap();
                session.wait_for_room(Speculative, 1).unwrap();
                finish(responsibility.attach());
            });
        });
        scene.main.define(unit.boxed()).unwrap();
        scene.finds("a");
    });
}

/// A demanded unit waits for the turn. The turn's owner asks for background work then and is not refused: it would ask again
/// and again.
#[test]
fn who_has_the_turn_of_a_serial_queue_does_not_wait_for_room() {
    within_reason(|| {
        let scene = crowded();
        let queue = SerialQueue::new();
        define_simple(&scene.main, "more", &["m"]);
        let (tell, asked) = std::sync::mpsc::channel();
        let [begun, queued] = [latch(), latch()];
        let producer = Task::new("produces", Demanded, {
            let (session, main) = (scene.session.clone(), scene.main.clone());
            let (begun, queued) = (begun.clone(), queued.clone());
            move || {
                begun.open();
                queued.wait();
                session.wait_for_room(Speculative, 1).unwrap();
                tell.send(look_up_later(&session, request(&main, &["m"]).at(Speculative))).unwrap();
            }
        });
        scene.session.dispatch(producer.in_queue(&queue));
        begun.wait();
        let unit = TestUnit::new("behind", exported(&scene.session, &["a"]), finish).in_queue(&queue);
        scene.main.define(unit.boxed()).unwrap();
        let found = look_up_later(&scene.session, request(&scene.main, &["a"]));
        queued.open();
        found.recv().unwrap().unwrap();
        scene.end.open();
        asked.recv().unwrap().recv().unwrap().unwrap();
        scene.ends();
    });
}

/// A task for which no other can be waiting has to wait, as any other producer.
#[test]
fn a_task_that_holds_nothing_waits_for_room() {
    within_reason(|| {
        let scene = crowded();
        let (send, receive) = std::sync::mpsc::channel();
        scene.session.dispatch(Task::new("produces", Demanded, {
            let (session, end) = (scene.session.clone(), scene.end.clone());
            move || {
                session.wait_for_room(Speculative, 1).unwrap();
                send.send(end.is_open()).unwrap();
            }
        }));
        while scene.pool.metrics().blocked == 0 {
            thread::yield_now();
        }
        scene.end.open();
        assert!(receive.recv().unwrap());
        scene.ends();
    });
}

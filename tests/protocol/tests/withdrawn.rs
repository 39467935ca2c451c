//! Work that everybody has withdrawn from before it starts does not start, and is counted.

use std::sync::Arc;

use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{ExecutionSession, Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

#[test]
fn units_withdrawn_while_they_are_queued_are_given_back_and_counted() {
    let pool = Arc::new(WorkStealingTaskDispatcher::builder().workers(1).build().unwrap());
    let session = ExecutionSession::builder().dispatcher(pool.clone()).build();
    let main = session.create_jit_dylib("main").unwrap();
    let [begun, go_on] = [(); 2].map(|()| Arc::new(Latch::new()));
    session.dispatch(Task::new("occupies the worker", TaskPriority::Demanded, {
        let (begun, go_on) = (begun.clone(), go_on.clone());
        move || {
            begun.open();
            go_on.wait();
        }
    }));
    begun.wait();
    for name in ["a", "b", "c"] {
        define_simple(&main, name, &[name]);
    }
    let wanted = session.lookup_future(request(&main, &["c"]));
    drop(session.lookup_future(request(&main, &["a", "b", "c"])));
    assert_eq!(session.metrics().withdrawn_units, 0, "nothing has had its turn");
    go_on.open();
    while pool.metrics().finished < 4 {
        std::thread::yield_now();
    }
    assert_eq!(session.metrics().withdrawn_units, 2);
    drop(wanted);
    // What was given back can be claimed again.
    session.lookup(&order(&main), set(&session, &["a", "b", "c"])).unwrap();
    pool.run_ready();
    session.close().unwrap();
    assert_eq!(session.metrics().withdrawn_units, 2);
}

//! Closing: the work in progress drains, what is left fails, nothing waits for ever.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{
    DefineError, DefinitionGenerator, DylibError, ExecutionSession, GenerateRequest, LookupError, Resource,
    SessionError, Task, TaskPriority,
};

#[test]
fn a_closed_session_refuses_everything() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    session.close().unwrap();
    session.close().unwrap();
    let lookup = session.lookup_symbol(&order(&main), &session.intern("a"));
    assert!(matches!(lookup, Err(LookupError::Closed)));
    let unit = TestUnit::new("late", exported(&session, &["b"]), finish);
    assert!(matches!(main.define(unit.boxed()), Err(DefineError::Closed { .. })));
    assert!(matches!(session.create_jit_dylib("other"), Err(DylibError::Closed)));
    let answer = look_up_later(&session, request(&main, &["a"]));
    assert!(matches!(answer.try_recv().unwrap(), Err(LookupError::Closed)));
}

#[test]
fn queries_on_parked_work_end_when_the_session_closes() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.recv().unwrap();
    session.close().unwrap();
    assert!(matches!(answer.try_recv().unwrap(), Err(LookupError::Closed)));
    let definitions = addresses(&exported(&session, &["a"]));
    assert!(responsibility.attach().notify_resolved(&definitions).is_err());
}

#[test]
fn work_in_progress_may_look_up_while_the_session_closes() {
    let (session, main) = session();
    let (started, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    define_simple(&main, "inner", &["inner"]);
    let (looking, dylib) = (session.clone(), main.clone());
    let (start, wait) = (started.clone(), go_on.clone());
    let outer = TestUnit::new("outer", exported(&session, &["outer"]), move |responsibility| {
        start.open();
        wait.wait();
        looking.lookup_symbol(&order(&dylib), &looking.intern("inner")).unwrap();
        finish(responsibility);
    });
    main.define(outer.boxed()).unwrap();
    let worker = std::thread::spawn({
        let (session, main) = (session.clone(), main.clone());
        move || session.lookup_symbol(&order(&main), &session.intern("outer"))
    });
    started.wait();
    let closer = std::thread::spawn({
        let session = session.clone();
        move || session.close()
    });
    // The close has begun once it refuses others.
    while !matches!(session.create_jit_dylib("late"), Err(DylibError::Closed)) {
        std::thread::yield_now();
    }
    go_on.open();
    assert!(worker.join().unwrap().is_ok());
    closer.join().unwrap().unwrap();
}

#[test]
fn a_session_can_be_closed_from_its_own_unit() {
    let (session, main) = session();
    let closing = session.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        closing.close().unwrap();
        drop(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(matches!(error, LookupError::Closed));
}

#[test]
fn dylibs_close_in_reverse_order_and_errors_are_joined() {
    struct Named(&'static str, mpsc::Sender<&'static str>);
    impl Resource for Named {
        fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            self.1.send(self.0).unwrap();
            Err(self.0.into())
        }
    }
    let session = ExecutionSession::new();
    let (send, removed) = mpsc::channel();
    for name in ["first", "second"] {
        let dylib = session.create_jit_dylib(name).unwrap();
        dylib.default_tracker().add_resource(Box::new(Named(name, send.clone()))).unwrap();
    }
    let error = session.close().unwrap_err();
    assert_eq!(error.in_full(), "resources could not be removed: second; first");
    assert_eq!(removed.try_iter().collect::<Vec<_>>(), ["second", "first"]);
}

#[test]
fn a_session_that_is_dropped_open_frees_everything() {
    struct Dropped(Arc<Latch>);
    impl Resource for Dropped {
        fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            Ok(())
        }
    }
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.open();
        }
    }
    let (session, main) = session();
    let latch = Arc::new(Latch::new());
    main.default_tracker().add_resource(Box::new(Dropped(latch.clone()))).unwrap();
    drop((session, main));
    assert!(latch.is_open());
}

#[test]
fn closing_on_one_thread_while_others_look_up() {
    for round in 0..20 {
        let (session, main) = session();
        for index in 0..50 {
            define_simple(&main, "unit", &[&format!("s{index}")]);
        }
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (session, main) = (&session, &main);
                scope.spawn(move || {
                    for index in 0..50 {
                        let name = session.intern(&format!("s{}", (index * 7 + thread + round) % 50));
                        let answer = session.lookup_symbol(&order(main), &name);
                        assert!(matches!(answer, Ok(_) | Err(LookupError::Closed)));
                    }
                });
            }
            scope.spawn(|| session.close().unwrap());
        });
    }
}

/// The reporter ran inside a task but in none of its frames, so that a close waited for the task it came from.
#[test]
fn the_error_reporter_may_close_the_session() {
    within_reason(|| {
        let slot: Arc<Mutex<Option<ExecutionSession>>> = Arc::default();
        let closing = slot.clone();
        let reporter = Arc::new(move |_: &SessionError| {
            let session = closing.lock().take();
            if let Some(session) = session {
                session.close().unwrap();
            }
        });
        let session = ExecutionSession::builder().error_reporter(reporter).build();
        *slot.lock() = Some(session.clone());
        let task = Task::new("panics", TaskPriority::Demanded, || panic!("on purpose"));
        session.dispatch(task);
        assert!(matches!(session.create_jit_dylib("late"), Err(DylibError::Closed)));
    });
}

/// A resource that closes the session while the session closes waited for itself.
#[test]
fn a_resource_may_close_the_session_that_removes_it() {
    struct Closes(ExecutionSession);
    impl Resource for Closes {
        fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            Ok(self.0.close()?)
        }
    }
    within_reason(|| {
        let (session, main) = session();
        main.default_tracker().add_resource(Box::new(Closes(session.clone()))).unwrap();
        session.close().unwrap();
    });
}

/// A closed session never gave back a generator or resource that it took: one that holds the session kept both alive.
#[test]
fn a_closed_session_takes_no_generators_and_no_resources() {
    struct Holds(#[expect(dead_code, reason = "held")] Arc<()>);
    impl Resource for Holds {
        fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            Ok(())
        }
    }
    impl DefinitionGenerator for Holds {
        fn name(&self) -> &str {
            "holds"
        }
        fn generate(&self, request: GenerateRequest) {
            request.finish(Ok(()));
        }
    }
    let (session, main) = session();
    session.close().unwrap();
    let held = Arc::new(());
    assert!(main.default_tracker().add_resource(Box::new(Holds(held.clone()))).is_err());
    assert!(main.add_generator(Arc::new(Holds(held.clone()))).is_none());
    assert_eq!(Arc::strong_count(&held), 1, "both have been dropped");
}

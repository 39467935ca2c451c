//! Blocked lookups and code of the embedder between their steps: an answer is neither lost nor left lying.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{
    Detached, ExecutionSession, MaterializationResponsibility, ResolvedResponsibility, Task, TaskDispatcher,
    WaitError,
};

/// Waits itself, once, as soon as a lookup is about to wait: in place that runs the units that the lookup waits for.
struct WaitsToo {
    session: ExecutionSession,
    has_waited: AtomicBool,
    spans: AtomicU64,
    waits: Mutex<Vec<u64>>,
}

impl tracing::Subscriber for WaitsToo {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let id = self.spans.fetch_add(1, Ordering::Relaxed) + 1;
        if span.metadata().name() == "lookup.wait" {
            self.waits.lock().push(id);
        }
        tracing::span::Id::from_u64(id)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, id: &tracing::span::Id) {
        let is_wait = self.waits.lock().contains(&id.into_u64());
        if is_wait && !self.has_waited.swap(true, Ordering::Relaxed) {
            self.session.blocking(|| ()).unwrap();
        }
    }

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn an_answer_that_comes_while_a_wait_is_announced_is_heard() {
    // It would sleep for ever.
    within_reason(|| {
        let (session, main) = session();
        define_simple(&main, "inner", &["inner"]);
        let blocks = {
            let main = main.clone();
            move |responsibility: MaterializationResponsibility| {
                let inner = main.session().intern("inner");
                main.session().lookup_symbol(&order(&main), &inner).unwrap();
                finish(responsibility);
            }
        };
        main.define(TestUnit::new("outer", exported(&session, &["outer"]), blocks).boxed()).unwrap();
        let (has_waited, spans, waits) = Default::default();
        let watcher = WaitsToo { session: session.clone(), has_waited, spans, waits };
        tracing::subscriber::with_default(watcher, || {
            session.lookup_symbol(&order(&main), &session.intern("outer")).unwrap();
        });
    });
}

/// Keeps its tasks, and panics when it is to wait for one.
#[derive(Debug, Default)]
struct PanicsInWait(Mutex<Vec<Task>>);

impl PanicsInWait {
    fn next(&self) -> Option<Task> {
        self.0.lock().pop()
    }

    fn run_all(&self) {
        std::iter::from_fn(|| self.next()).for_each(Task::run);
    }
}

impl TaskDispatcher for PanicsInWait {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        self.0.lock().push(task);
        Ok(())
    }

    fn wait(&self, _: &Latch) -> Result<(), WaitError> {
        panic!("a wait that fails")
    }

    fn shutdown(&self) {}
}

#[test]
fn a_wait_that_unwinds_leaves_no_answer_behind() {
    let dispatcher = Arc::new(PanicsInWait::default());
    let (session, main) = session_on(dispatcher.clone());
    let held = Arc::new(());
    let fails = {
        let held = held.clone();
        move |responsibility: MaterializationResponsibility| {
            responsibility.fail(Arc::new(Holds(held.clone())))
        }
    };
    main.define(TestUnit::new("unit", exported(&session, &["a"]), fails).boxed()).unwrap();
    let a = session.intern("a");
    catch_unwind(AssertUnwindSafe(|| session.lookup_symbol(&order(&main), &a))).unwrap_err();
    dispatcher.run_all();
    main.remove(&[a]).unwrap();
    dispatcher.run_all();
    assert_eq!(Arc::strong_count(&held), 1, "nobody has the unit, or its error");
}

#[derive(Debug)]
struct Holds(#[expect(dead_code, reason = "held for its count")] Arc<()>);

impl std::fmt::Display for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an error that holds something")
    }
}

impl std::error::Error for Holds {}

/// Generators and tables of the embedder may hold these.
#[test]
fn a_detached_responsibility_may_be_shared() {
    fn may_be_shared<T: Send + Sync>() {}
    may_be_shared::<Detached<MaterializationResponsibility>>();
    may_be_shared::<Detached<ResolvedResponsibility>>();
}

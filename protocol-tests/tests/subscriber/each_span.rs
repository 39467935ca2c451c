//! All that has a span, and a subscriber that panics over one of these spans, or over all of them.
//!
//! ```text
//!  a unit:     blocks, looks up, commits, emits ─▶ panics ─▶ what it owns is dropped: blocks, looks up, commits, emits
//!  subscriber:                     over one of these spans, or over all of them
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use protocol_tests::on::{On, failure_of};
use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::sync::atomic::Ordering;
use uruk_core::{
    ExecutionSession, JitDylib, LookupError, LookupResult, MaterializationResponsibility, Task,
    TaskDispatcher, WaitError,
};

use crate::*;

#[test]
fn a_subscriber_that_panics_over_the_end_of_a_span_ends_no_process() {
    let _alone = watched();
    for on in [On::Place, On::Stealing(1), On::Stealing(2), On::Rayon(2)] {
        for (over, when) in (0..=ALL).flat_map(|over| ENDS.map(|when| (over, when))) {
            // Relaxed, all: see where they are read.
            WHEN.store(when, Ordering::Relaxed);
            let before = PANICKED.load(Ordering::Relaxed);
            let name = format!("{on:?}, over {:?}, at {when}", SPANS.get(over));
            within(&name, std::time::Duration::from_secs(20), move || {
                panics_once(on, over);
                panics_on_the_way_of_a_panic(on, over);
                panics_around_waits_that_panic(on, over);
            });
            let panicked = PANICKED.load(Ordering::Relaxed) > before;
            assert!(panicked || !is_seen(on, over), "{name}: it never did");
        }
    }
}

/// Whether it surely gets to see the span. The span of a task ends after a thread that waits for the task's answer goes on.
fn is_seen(on: On, over: usize) -> bool {
    match SPANS.get(over) {
        Some(&"dispatch.run") => false,
        Some(&"dispatch.block") => matches!(on, On::Stealing(_)),
        _ => true,
    }
}
/// All that has a span, but for the responsibility's part: a declared wait, a lookup that waits, a transaction.
fn does_everything(main: &JitDylib, other: &str) {
    let session = main.session();
    session.blocking(|| ()).expect("it may wait");
    let found = session.lookup_symbol(&order(main), &session.intern(other));
    // Its unit has a subscriber as well.
    assert!(found.is_ok() || says(&failure_of(found), SUBSCRIBER_SAYS));
    session.transaction().define(main, absolute(main, &format!("{other}'s"), 1)).commit().expect("it is new");
}
/// A panic of the subscriber alone comes out at the end of the span, and is a panic of the code around.
fn panics_once(on: On, over: usize) {
    let (session, main) = on.session();
    define_simple(&main, "other", &["other"]);
    let unit = {
        let main = main.clone();
        TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
            does_everything(&main, "other");
            finish(responsibility);
        })
    };
    main.define(unit.boxed()).expect("it is new");
    panic_over(over);
    let found = catch_unwind(AssertUnwindSafe(|| session.lookup_symbol(&order(&main), &session.intern("a"))));
    panic_over(NONE);
    match found {
        Ok(Ok(_)) => {}
        Ok(failed) => assert!(says(&failure_of(failed), SUBSCRIBER_SAYS)),
        Err(payload) => {
            assert_eq!(message_of(&*payload), Some(SUBSCRIBER_SAYS));
        }
    }
    // After the panic nothing hangs, and later lookups work.
    define_simple(&main, "after", &["after"]);
    session.lookup_symbol(&order(&main), &session.intern("after")).expect("it works as ever");
    session.close().expect("it ends");
}

/// Looks it up, and survives that the subscriber panics over that: in place the unit runs inside the span of this lookup.
fn looked_up_beside(main: &JitDylib, name: &str) -> mpsc::Receiver<Result<LookupResult, LookupError>> {
    let (send, answer) = mpsc::channel();
    let tell = move |answer| send.send(answer).expect("the test listens");
    let look_up = || main.session().lookup_async(request(main, &[name]), tell);
    let _told_by_the_hook = catch_unwind(AssertUnwindSafe(look_up));
    answer
}

/// Does everything when it is dropped.
struct WhenDropped {
    main: JitDylib,
    responsibility: Option<MaterializationResponsibility>,
}

impl Drop for WhenDropped {
    fn drop(&mut self) {
        assert!(std::thread::panicking());
        does_everything(&self.main, "other");
        self.responsibility.take().into_iter().for_each(finish);
    }
}

/// A panic of the subscriber while another panic unwinds stays there: the unwinding does all its work, and the first panic is
/// the unit's.
fn panics_on_the_way_of_a_panic(on: On, over: usize) {
    let (session, main) = on.session();
    define_simple(&main, "other", &["other"]);
    let (send, answer_of_b) = mpsc::channel();
    let unit = {
        let main = main.clone();
        TestUnit::new("unit", exported(&session, &["a", "b"]), move |mut responsibility| {
            let b = main.session().intern("b");
            let of_b = responsibility.delegate([b]).expect("it is covered");
            let looked_up = look_up_later(main.session(), request(&main, &["b"]));
            send.send(looked_up).expect("the test listens");
            let _when_dropped = WhenDropped { main, responsibility: Some(of_b) };
            panic_over(over);
            panic!("{UNIT_SAYS}");
        })
    };
    main.define(unit.boxed()).expect("it is new");
    let a = looked_up_beside(&main, "a");
    let cause = failure_of(a.recv().expect("the handler is told"));
    assert!(says(&cause, UNIT_SAYS), "{cause}");
    let b = answer_of_b.recv().expect("the unit has run").recv().expect("the handler is told");
    b.expect("it was emitted");
    panic_over(NONE);
    session.close().expect("it ends");
}

/// So do waits that panic, declared or in a lookup.
fn panics_around_waits_that_panic(on: On, over: usize) {
    let (session, main) = session_on(Arc::new(PanicsInLookups(on.dispatcher())));
    let parked = define_parked(&main, "parked", &["parked"]);
    let blocks = |session: &ExecutionSession, _: &JitDylib| {
        session.blocking(|| panic!("{UNIT_SAYS}")).expect("it may")
    };
    let waits = |session: &ExecutionSession, main: &JitDylib| {
        session.lookup_symbol(&order(main), &session.intern("parked")).map(drop).expect("it panics");
    };
    let waits: [fn(&ExecutionSession, &JitDylib); 2] = [blocks, waits];
    // In place no other thread would finish the parked unit.
    for wait in waits.into_iter().take(if on == On::Place { 1 } else { 2 }) {
        let unit = {
            let main = main.clone();
            TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
                panic_over(over);
                wait(main.session(), &main);
                finish(responsibility);
            })
        };
        let tracker = main.create_tracker();
        main.define_with_tracker(unit.boxed(), &tracker).expect("it is new");
        let answer = looked_up_beside(&main, "a");
        let cause = failure_of(answer.recv().expect("the handler is told"));
        // A lookup is lodged before it waits.
        let is_first = over == ALL || SPANS[over] == "lookup.lodge";
        assert!(says(&cause, UNIT_SAYS) || is_first && says(&cause, SUBSCRIBER_SAYS), "{cause}");
        panic_over(NONE);
        tracker.remove().expect("nothing objects");
    }
    drop(parked);
    session.close().expect("it ends");
}

/// Panics when a task waits in a lookup.
#[derive(Debug)]
struct PanicsInLookups(Arc<dyn TaskDispatcher>);

impl TaskDispatcher for PanicsInLookups {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        self.0.dispatch(task)
    }

    fn run_ready(&self) {
        self.0.run_ready();
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        assert!(!uruk_core::thread_is_engaged(), "{UNIT_SAYS}");
        self.0.wait(latch)
    }

    fn blocking(&self, block: &mut dyn FnMut()) -> Result<(), WaitError> {
        self.0.blocking(block)
    }

    fn shutdown(&self) {
        self.0.shutdown();
    }
}

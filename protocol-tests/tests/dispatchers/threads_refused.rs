//! A unit blocks in a lookup, and the pool cannot have a thread that would go on in its place: the lookup is refused, and everybody is
//! told what became of it.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::{LookupError, WaitError};
use uruk_dispatch::WorkStealingTaskDispatcher;

/// ```text
///  only thread: unit a ─ looks b up: its unit is queued ─ would block: no thread ─ fails ─ unit b, if anybody still asks
/// ```
#[test]
fn a_unit_that_cannot_be_replaced_is_refused_its_lookup_and_fails_with_that() {
    within_reason(|| {
        for (workers, threads) in [(1, 1), (2, 1)] {
            let left = AtomicUsize::new(threads);
            let pool = WorkStealingTaskDispatcher::builder().workers(workers).before_each_thread(Arc::new(
                move || {
                    // Relaxed: a count on its own.
                    let granted =
                        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                    granted.map(drop).map_err(|_| io::ErrorKind::WouldBlock.into())
                },
            ));
            let pool = Arc::new(pool.build().unwrap());
            let (session, main) = session_on(pool.clone());
            let (send, told) = mpsc::channel();
            let unit = TestUnit::new("a's", exported(&session, &["a"]), move |responsibility| {
                let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
                match session.lookup_symbol(&order(&main), &session.intern("b")) {
                    Ok(_) => finish(responsibility),
                    Err(error) => {
                        send.send(error.clone()).unwrap();
                        responsibility.fail(Arc::new(error));
                    }
                }
            });
            main.define(unit.boxed()).unwrap();
            define_simple(&main, "b's", &["b"]);
            let failed = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
            let LookupError::Failed(failure) = &failed else { panic!("{failed:?}") };
            assert!(failure.in_full().contains("the operating system refused a thread"), "{failure}");
            let refused = told.recv().unwrap();
            assert!(matches!(refused, LookupError::Wait(WaitError::NoThread { .. })), "{refused:?}");
            // Its thread goes on, and the symbol that it had asked for can be had as before.
            session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
            session.close().unwrap();
            let metrics = pool.metrics();
            assert_eq!((metrics.blocked, metrics.queued.total(), metrics.started_threads), (0, 0, 1));
        }
    });
}

//! Observers on a pool: news comes while the workers are busy.
//!
//! With one worker all news came after the last compile: a progress line said "40 of 0 units ready". News is told by a thread of its
//! own, which an observer may block.

use std::sync::{Arc, OnceLock, mpsc};

use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{EventKind, ExecutionSession, JitDylib, LookupRequest, LookupSet, SessionEvent};
use uruk_dispatch::WorkStealingTaskDispatcher;

fn observed(observer: impl Fn(&SessionEvent) + Send + Sync + 'static) -> (ExecutionSession, JitDylib) {
    let pool = WorkStealingTaskDispatcher::builder().workers(1).build().expect("a pool of one");
    let session = ExecutionSession::builder().dispatcher(Arc::new(pool)).observer(Arc::new(observer)).build();
    let main = session.create_jit_dylib("main").expect("a new session has no dylibs");
    (session, main)
}

fn is_claim(event: &SessionEvent, name: &str) -> bool {
    matches!(&event.kind, EventKind::Claimed { unit, .. } if unit.as_str() == name)
}

/// ```text
///  worker:    unit 0 begins ─ waits for the news of 300 claims ....... ends
///  observer:                  300 claims
/// ```
#[test]
fn all_claims_are_told_while_the_only_worker_runs_the_first_unit() {
    const UNITS: usize = 300;
    let (tell, told) = mpsc::channel();
    let (session, main) = observed(move |event| {
        if matches!(event.kind, EventKind::Claimed { .. }) {
            // The test may have failed already.
            let _ = tell.send(event.sequence);
        }
    });
    let (told, first) = (Arc::new(Mutex::new(told)), Arc::new(OnceLock::new()));
    let names: Vec<String> = (0..UNITS).map(|index| format!("s{index}")).collect();
    for name in &names {
        let (told, first) = (told.clone(), first.clone());
        let unit = TestUnit::new(name, exported(&session, &[name]), move |responsibility| {
            first.get_or_init(|| {
                let claims: Vec<u64> = told.lock().iter().take(UNITS).collect();
                assert!(claims.is_sorted(), "news is told in the order in which it happened");
                claims.len()
            });
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
    }
    let wanted = LookupSet::required(names.iter().map(|name| session.intern(name)));
    within_reason(move || session.lookup(LookupRequest::new(order(&main), wanted)).map(drop)).unwrap();
    assert_eq!(first.get(), Some(&UNITS));
}

/// ```text
///  observer:  `a` is claimed: looks up `b`, not asked for before ─ goes on when it is ready
/// ```
#[test]
fn an_observer_may_wait_for_a_unit() {
    let (send, answer) = mpsc::channel();
    let looked_up = OnceLock::new();
    let of: Arc<OnceLock<(ExecutionSession, JitDylib)>> = Arc::default();
    let (session, main) = observed({
        let of = of.clone();
        move |event| {
            if is_claim(event, "a") {
                let (session, main) = of.get().expect("it is set before anything is looked up");
                let found = session.lookup_symbol(&order(main), &session.intern("b"));
                looked_up.set(()).expect("`a` is claimed once");
                let _ = send.send(found.is_ok());
            }
        }
    });
    of.set((session.clone(), main.clone())).expect("set once");
    define_finishing(&main, "a");
    define_finishing(&main, "b");
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    assert_eq!(within_reason(move || answer.recv()), Ok(true));
    // The observer holds the session, which holds the observer.
    session.close().unwrap();
}

/// The wait inside ended the outer one too, for the pool: later news was queued behind the observer, which waited for it.
///
/// ```text
///  observer:  `a` is claimed: declares a wait ─ looks up `b` ─ waits for the news that `c` is claimed ...... goes on
///  test:                                                      ─ looks up `c`
///  worker:                                                                    tells it
/// ```
#[test]
fn an_observer_may_wait_for_later_news_behind_a_lookup() {
    let (send, answer) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let (told, found) = (Mutex::new(told), Arc::new(Latch::new()));
    let of: Arc<OnceLock<(ExecutionSession, JitDylib)>> = Arc::default();
    let (session, main) = observed({
        let (of, found) = (of.clone(), found.clone());
        move |event| {
            if is_claim(event, "a") {
                let (session, main) = of.get().expect("it is set before anything is looked up");
                let waited = session.blocking(|| {
                    let b = session.lookup_symbol(&order(main), &session.intern("b"));
                    found.open();
                    b.is_ok() && told.lock().recv().is_ok()
                });
                let _ = send.send(waited);
            }
            if is_claim(event, "c") {
                let _ = tell.send(());
            }
        }
    });
    of.set((session.clone(), main.clone())).expect("set once");
    ["a", "b", "c"].iter().for_each(|name| define_finishing(&main, name));
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    within_reason(move || found.wait());
    session.lookup_symbol(&order(&main), &session.intern("c")).unwrap();
    assert!(matches!(within_reason(move || answer.recv()), Ok(Ok(true))));
    // The observer holds the session, which holds the observer.
    session.close().unwrap();
}

/// The news behind that which the observer is at goes to the worker; a close that waited for it would wait for ever.
#[test]
fn an_observer_may_close_the_session() {
    let (send, closed) = mpsc::channel();
    let of: Arc<Mutex<Option<ExecutionSession>>> = Arc::default();
    let (session, main) = observed({
        let of = of.clone();
        move |event| {
            if is_claim(event, "s0") {
                // Taken: the session holds the observer, which must not hold the session for ever.
                let session = of.lock().take().expect("`s0` is claimed once");
                let _ = send.send(session.close().is_ok());
            }
        }
    });
    *of.lock() = Some(session.clone());
    for index in 0..100 {
        define_finishing(&main, &format!("s{index}"));
    }
    let wanted = LookupSet::required((0..100).map(|index| session.intern(&format!("s{index}"))));
    // Answered or closed, as it comes.
    within_reason(move || drop(session.lookup(LookupRequest::new(order(&main), wanted))));
    assert_eq!(within_reason(move || closed.recv()), Ok(true));
}

fn define_finishing(main: &JitDylib, name: &str) {
    main.define(TestUnit::new(name, exported(main.session(), &[name]), finish).boxed()).unwrap();
}

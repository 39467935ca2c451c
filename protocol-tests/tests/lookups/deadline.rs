//! Deadlines, by a clock that the test turns; and waits that are declared.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{
    Deadline, DefinitionGenerator, ExecutionSession, GenerateRequest, JitDylib, LookupError, LookupRequest,
    SymbolFlags, WaitError, WhyState,
};

const HOUR: Duration = Duration::from_secs(3600);

/// A session in place whose clock stands until it is turned.
fn turned() -> (ExecutionSession, JitDylib, Arc<Mutex<Instant>>, Deadline) {
    let now = Instant::now();
    let hand = Arc::new(Mutex::new(now));
    let clock = hand.clone();
    let session = ExecutionSession::builder().clock(Arc::new(move || *clock.lock())).build();
    let main = session.create_jit_dylib("main").unwrap();
    (session, main, hand, Deadline::at(now + HOUR))
}

fn exceeded(error: &LookupError) -> &[uruk_core::Why] {
    match error {
        LookupError::DeadlineExceeded { waiting } => waiting,
        other => panic!("not a deadline: {other}"),
    }
}

#[test]
fn a_lookup_whose_time_is_over_starts_nothing() {
    let (session, main, hand, deadline) = turned();
    define_simple(&main, "unit", &["a"]);
    *hand.lock() += HOUR;
    let error =
        session.lookup(LookupRequest::new(order(&main), set(&session, &["a"])).until(deadline)).unwrap_err();
    assert!(matches!(exceeded(&error)[0].state, WhyState::NeverSearched { .. }), "{error}");
    let why = session.why(&main, &session.intern("a"));
    assert!(matches!(why.state, WhyState::NeverSearched { .. }), "{why}");
    // A lookup of a Ready symbol is answered even after its deadline.
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a"]))).unwrap();
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a"])).until(deadline)).unwrap();
}

/// Counts how often it is asked.
struct Counting(Arc<Mutex<usize>>);

impl DefinitionGenerator for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn generate(&self, request: GenerateRequest) {
        *self.0.lock() += 1;
        request.finish(Ok(()));
    }
}

#[test]
fn a_lookup_whose_time_is_over_asks_no_generator_and_binds_nothing() {
    let (session, main, hand, deadline) = turned();
    let asked = Arc::new(Mutex::new(0));
    let weak = [(session.intern("a"), EXPORTED | SymbolFlags::WEAK)].into_iter().collect();
    main.define(TestUnit::new("weak", weak, finish).boxed()).unwrap();
    *hand.lock() += HOUR;
    let late = |name| {
        session.lookup(LookupRequest::new(order(&main), set(&session, &[name])).until(deadline)).unwrap_err()
    };
    assert!(matches!(exceeded(&late("a"))[0].state, WhyState::NeverSearched { .. }));
    main.add_generator(Arc::new(Counting(asked.clone()))).unwrap();
    let error = late("missing");
    let WhyState::Undefined { generators } = &exceeded(&error)[0].state else { panic!("{error}") };
    assert_eq!((generators.len(), *asked.lock()), (1, 0));
    let (told, tells) = mpsc::channel();
    let request = request(&main, &["missing", "a"]).until(deadline);
    session.lookup_async(request, move |answer| told.send(answer.unwrap_err()).unwrap());
    assert_eq!((exceeded(&tells.recv().unwrap()).len(), *asked.lock()), (2, 0));
    // The weak symbol was never searched.
    define_simple(&main, "strong", &["a"]);
}

#[test]
fn in_place_the_deadline_is_looked_at_between_tasks() {
    let (session, main, hand, deadline) = turned();
    let unit = TestUnit::new("slow", exported(&session, &["a"]), move |responsibility| {
        *hand.lock() += HOUR;
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    define_simple(&main, "never begins", &["b"]);
    let error = session
        .lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"])).until(deadline))
        .unwrap_err();
    let waiting = exceeded(&error);
    assert_eq!(waiting.len(), 1, "{error}");
    let begun = session.why(&main, &session.intern("a"));
    let put_back = session.why(&main, &session.intern("b"));
    // One of them ran, and turned the clock.
    let ready = |why: &uruk_core::Why| matches!(why.state, WhyState::Ready { .. });
    assert!(ready(&begun) && !ready(&put_back) || !ready(&begun), "{begun}\n{put_back}");
    assert!(matches!(waiting[0].state, WhyState::Materializing(_)), "{error}");
    assert!(error.in_full().contains("waits for a worker"), "{error}");
}

#[test]
fn a_pool_gives_up_what_is_parked() {
    within_reason(|| {
        let (session, main) = session_of(1);
        let parked = define_parked(&main, "unit", &["a"]);
        let first = look_up_later(&session, request(&main, &["a"]));
        let parked = parked.recv().unwrap();
        let soon = Deadline::after(Duration::from_millis(1));
        let error =
            session.lookup(LookupRequest::new(order(&main), set(&session, &["a"])).until(soon)).unwrap_err();
        assert!(matches!(exceeded(&error)[0].state, WhyState::Materializing(_)), "{error}");
        // The others go on waiting.
        finish(parked.attach());
        assert!(first.recv().unwrap().is_ok());
    });
}

#[test]
fn a_unit_may_give_up_a_wait_for_itself() {
    // With a deadline nothing but its own end breaks the circle: it is told at once.
    let (session, main, _hand, deadline) = turned();
    let (send, told) = mpsc::channel();
    let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
        let main = responsibility.dylib().clone();
        let names = set(main.session(), &["a"]);
        send.send(
            main.session().lookup(LookupRequest::new(order(&main), names).until(deadline)).unwrap_err(),
        )
        .unwrap();
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a"]))).unwrap();
    assert!(matches!(told.recv().unwrap(), LookupError::WouldDeadlock { .. }));
}

#[test]
fn who_gives_up_later_is_waited_for() {
    // A waits for b without end, B for a until its deadline: B may go on, so A is told nothing.
    let (session, main, hand, deadline) = turned();
    let (send, told) = mpsc::channel();
    let b = TestUnit::new("B", exported(&session, &["b"]), move |responsibility| {
        let main = responsibility.dylib().clone();
        *hand.lock() += HOUR;
        let names = set(main.session(), &["a"]);
        send.send(
            main.session().lookup(LookupRequest::new(order(&main), names).until(deadline)).unwrap_err(),
        )
        .unwrap();
        finish(responsibility);
    });
    let a = TestUnit::new("A", exported(&session, &["a"]), |responsibility| {
        let main = responsibility.dylib().clone();
        main.session().lookup(LookupRequest::new(order(&main), set(main.session(), &["b"]))).unwrap();
        finish(responsibility);
    });
    main.define(a.boxed()).unwrap();
    main.define(b.boxed()).unwrap();
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a"]))).unwrap();
    exceeded(&told.recv().unwrap());
}

#[test]
fn a_handler_is_told_of_a_late_answer() {
    let (session, main, hand, deadline) = turned();
    let parked = define_parked(&main, "unit", &["a"]);
    let late = look_up_later(&session, request(&main, &["a"]).until(deadline));
    let patient = look_up_later(&session, request(&main, &["a"]));
    *hand.lock() += HOUR;
    finish(parked.recv().unwrap().attach());
    assert!(exceeded(&late.recv().unwrap().unwrap_err()).is_empty());
    assert!(patient.recv().unwrap().is_ok());
    define_simple(&main, "other", &["b"]);
    let too_late = look_up_later(&session, request(&main, &["b"]).until(deadline));
    assert_eq!(exceeded(&too_late.recv().unwrap().unwrap_err()).len(), 1);
}

#[test]
fn a_future_gives_up_when_it_is_polled_too_late() {
    let (session, main, hand, deadline) = turned();
    let parked = define_parked(&main, "unit", &["a"]);
    let mut future = pin!(session.lookup_future(request(&main, &["a"]).until(deadline)));
    let waker = waker();
    let mut context = Context::from_waker(&waker);
    assert!(future.as_mut().poll(&mut context).is_pending());
    *hand.lock() += HOUR;
    let Poll::Ready(Err(error)) = future.as_mut().poll(&mut context) else { panic!("its time is over") };
    assert!(matches!(exceeded(&error)[0].state, WhyState::Materializing(_)), "{error}");
    assert!(session.why(&main, &session.intern("a")).demand.is_empty(), "it has been withdrawn");
    drop(parked);
}

#[test]
fn a_declared_wait_costs_the_pool_no_worker() {
    within_reason(|| {
        let (session, main) = session_of(1);
        define_simple(&main, "B", &["b"]);
        let unit = TestUnit::new("A", exported(&session, &["a"]), |responsibility| {
            let main = responsibility.dylib().clone();
            let session = main.session().clone();
            let foreign = std::thread::spawn({
                let (session, main) = (session.clone(), main.clone());
                move || session.lookup_symbol(&order(&main), &session.intern("b"))
            });
            // The only worker joins a thread that waits for the only worker.
            session.blocking(|| foreign.join()).unwrap().unwrap().unwrap();
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
        session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    });
}

#[test]
fn a_declared_wait_in_place_lets_the_threads_own_tasks_run_first() {
    let (session, main) = session();
    define_simple(&main, "B", &["b"]);
    let unit = TestUnit::new("A", exported(&session, &["a"]), |responsibility| {
        let main = responsibility.dylib().clone();
        let session = main.session().clone();
        let (send, answer) = mpsc::channel();
        session.lookup_async(request(&main, &["b"]), move |found| send.send(found.map(drop)).unwrap());
        session.blocking(|| answer.recv().unwrap()).unwrap().unwrap();
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
}

#[test]
fn a_declared_wait_is_refused_where_a_lookup_is() {
    let session = ExecutionSession::builder().refuse_waits_while(|| Some("a lock".into())).build();
    let refused = session.blocking(|| unreachable!("it is refused"));
    assert_eq!(refused, Err::<(), _>(WaitError::Holding { held: "a lock".into() }));
}

//! Future: it is polled while its lookup is answered.
//!
//! ```text
//!  poll                                     emission, on another thread
//!  lock: the answer? take it                lock: store the answer, take the waker
//!        none ─ leave the waker             unlock
//!  unlock                                   wake, if there was one
//! ```
//!
//! Proven, in every order with at most four preemptions: a future that was told to wait is woken once the answer is there; the
//! answer is taken once; a future that is dropped meanwhile is neither answered nor missed.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `future::looks_before_it_leaves_its_waker`: the lock is free between a poll's look and the leaving of its waker | `core/src/session/query.rs` | `a_future_told_to_wait_is_woken` |
//! | `future::takes_the_waker_before_it_answers`: the lock is free between the taking of the waker and the storing of the answer | `core/src/session/query.rs` | `a_future_told_to_wait_is_woken` |
//! | `future::takes_the_waker_before_it_answers`: the same, where another future is dropped beside the answer | `core/src/session/query.rs` | `a_future_dropped_while_it_is_answered_disturbs_nobody` |
#![cfg(uruk_loom)]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use loom_tests::stage::{Stage, definition, emit_beside, model};
use uruk_core::sync::{Arc, Latch, Mutex, thread};

#[test]
fn a_future_told_to_wait_is_woken() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let parked = stage.parked(&[&name]);
        let emitter = emit_beside(parked);
        let found = block_on(stage.session.lookup_future(stage.request(&name))).expect("found");
        assert_eq!(found.get(&name), Some(definition()));
        emitter.join().expect("no panic");
    });
}

/// ```text
///  main: polls once ─ drops             emitter: resolve ─ emit             another: polls to the end
/// ```
#[test]
fn a_future_dropped_while_it_is_answered_disturbs_nobody() {
    model(|| {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let parked = stage.parked(&[&name]);
        let emitter = emit_beside(parked);
        let other = thread::spawn({
            let (stage, name) = (stage.clone(), name.clone());
            move || block_on(stage.session.lookup_future(stage.request(&name)))
        });
        {
            let mut dropped = pin!(stage.session.lookup_future(stage.request(&name)));
            let poll = dropped.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(poll.is_pending() || matches!(poll, Poll::Ready(Ok(_))));
        }
        let found = other.join().expect("no panic").expect("found");
        assert_eq!(found.get(&name), Some(definition()));
        emitter.join().expect("no panic");
    });
}

/// Polls until the answer is there, and sleeps until woken in between.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        // A waker of its own for each sleep: an earlier one's call must not end a later sleep.
        let sleep = Arc::new(Sleep::default());
        let waker = Waker::from(sleep.clone());
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        sleep.woken.wait();
    }
}

#[derive(Default)]
struct Sleep {
    woken: Latch,
    times: Mutex<usize>,
}

impl Wake for Sleep {
    fn wake(self: Arc<Self>) {
        *self.times.lock() += 1;
        self.woken.open();
    }
}

loom_tests::catches_its_weakenings!();

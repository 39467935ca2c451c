//! Deadline against answer: a lookup gives up while another thread is about to tell it.
//!
//! ```text
//!  asker                                    emitter
//!  lookup until: lodge                      emit: the query ends, its answer leaves with the effects
//!  time is over: expire                      ⋮
//!    the query lives ─ DeadlineExceeded     store the answer, open the latch
//!    it has ended ─ wait for the answer
//! ```
//!
//! Proven, in every order with at most four preemptions: the asker is told that its time is over, or finds the symbol; nothing
//! else, at any step of the emitter.
//!
//! **Fails if** this step is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `deadline::takes_what_is_not_there_yet`: a lookup whose query has ended does not wait for its answer | `core/src/session/blocked.rs` | `who_gives_up_late_is_answered` |
#![cfg(uruk_loom)]

use std::time::{Duration, Instant};

use loom_tests::stage::{Stage, definition, model, resolve};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::thread;
use uruk_core::{Deadline, ExecutionSession, LookupError, LookupRequest, LookupSet};

loom_tests::catches_its_weakenings!();

/// ```text
///  asker: lookup until, whose time is over when it waits      emitter: resolve ─ emit
/// ```
#[test]
fn who_gives_up_late_is_answered() {
    model(|| {
        let (begin, limit) = (Instant::now(), Duration::from_secs(1));
        let looks = AtomicUsize::new(0);
        // Relaxed: the asker alone looks at the clock.
        let clock = move || match looks.fetch_add(1, Ordering::Relaxed) {
            0 => begin,
            _ => begin + limit,
        };
        let stage = Stage::of(ExecutionSession::builder().clock(std::sync::Arc::new(clock)).build());
        let name = stage.session.intern("name");
        let parked = stage.parked(&[&name]);
        let emitter = thread::spawn(move || {
            resolve(parked.attach()).notify_emitted(Vec::new()).expect("nothing can refuse it");
        });
        let until = Deadline::at(begin + limit);
        match stage
            .session
            .lookup(LookupRequest::new(stage.order(), LookupSet::one(name.clone())).until(until))
        {
            Ok(found) => assert_eq!(found.get(&name), Some(definition())),
            Err(LookupError::DeadlineExceeded { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        emitter.join().expect("no panic");
    });
}

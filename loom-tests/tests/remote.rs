//! An executor: one thread publishes code and adds requests to run some, the first thread takes them.
//!
//! ```text
//!  takes messages                       the first thread
//!    publish: the code is known           lock: take a request, or wait for one
//!    lock: add the request ─ wake         the code is there: run it
//! ```
//!
//! The model runs the pipeline's own file, with flags for code.
//!
//! Proven, in every order with at most three preemptions: code that was published before a request is seen by the thread that runs the request;
//! requests run in their order, each once; none waits for ever.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `remote::adds_in_silence`: a request is added, and the thread that waits is not woken | `pipeline/src/remote/jobs.rs` | `code_is_published_before_a_request_runs_it` |
//!
//! `requests_run_in_their_order` is in no row: the queue has no step for it that could be left out.
#![cfg(uruk_loom)]

#[path = "../../pipeline/src/remote/jobs.rs"]
mod jobs;

use jobs::JobQueue;
use loom_tests::stage::model_within;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};

const PREEMPTIONS: usize = 3;

/// ```text
///  messages: publish 1, call 1, publish 2, call 2          main: take, take
/// ```
#[test]
fn code_is_published_before_a_request_runs_it() {
    model_within(PREEMPTIONS, || {
        let (jobs, published) = (Arc::new(JobQueue::new()), Arc::new(AtomicUsize::new(0)));
        let messages = {
            let (jobs, published) = (jobs.clone(), published.clone());
            thread::spawn(move || {
                for code in 1..=2 {
                    // Relaxed: the queue's lock alone is to order it.
                    published.store(code, Ordering::Relaxed);
                    jobs.add(code);
                }
            })
        };
        for _ in 0..2 {
            let code = jobs.take();
            assert!(published.load(Ordering::Relaxed) >= code, "code {code} is not there");
        }
        messages.join().expect("no panic");
    });
}

/// ```text
///  messages: call 1, call 2          main: take, take
/// ```
#[test]
fn requests_run_in_their_order() {
    model_within(PREEMPTIONS, || {
        let jobs = Arc::new(JobQueue::new());
        let adds = jobs.clone();
        let messages = thread::spawn(move || [1, 2].into_iter().for_each(|job| adds.add(job)));
        assert_eq!([jobs.take(), jobs.take()], [1, 2]);
        messages.join().expect("no panic");
    });
}

loom_tests::catches_its_weakenings!();

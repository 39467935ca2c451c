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
//! A first call asks the host, which may compile for it:
//!
//! ```text
//!  a thread there                takes messages there              takes messages here         answers here
//!    open the question             publish, lead: done              lock: add the call,          lock: take the call
//!    send it                       lock: hand out the answer          perhaps a new thread       compile, publish
//!    lock: wait for its answer       ─ wake                                                      answer
//! ```
//!
//! Proven, with at most two preemptions: a first call goes on when the code is published that was published before its answer; each caller gets
//! its own answer, also if the answer is there before the caller waits; a call is answered though earlier ones wait for it; threads end with the
//! executor, and the host can wait for that.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `remote::adds_in_silence`: a request is added, and the thread that waits is not woken | `pipeline/src/remote/jobs.rs` | `code_is_published_before_a_request_runs_it` |
//!
//! | `remote::asks_before_it_opens`: a question is sent before its place for the answer is there | `pipeline/src/remote/answers.rs` | `a_first_call_goes_on_when_its_code_is_published` |
//! | `remote::answers_in_silence`: the threads that wait for answers are not woken | `pipeline/src/remote/answers.rs` | `a_first_call_goes_on_when_its_code_is_published` |
//! | `remote::counts_on_a_busy_thread`: a call relies on a thread that another call was given to already | `pipeline/src/remote/calls.rs` | `a_call_is_answered_though_an_earlier_one_waits_for_it` |
//! | `remote::closes_in_silence`: threads that wait for calls are not woken at the end | `pipeline/src/remote/calls.rs` | `threads_end_with_the_executor` |
//!
//! `requests_run_in_their_order` is in no row: the queue has no step for it that could be left out.
#![cfg(uruk_loom)]

#[path = "../../pipeline/src/remote/answers.rs"]
mod answers;
#[path = "../../pipeline/src/remote/calls.rs"]
#[expect(dead_code, reason = "the model's threads are not refused")]
mod calls;
#[path = "../../pipeline/src/remote/jobs.rs"]
mod jobs;

use answers::AnswerTable;
use calls::CallQueue;
use jobs::JobQueue;
use loom_tests::stage::model_within;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};

const PREEMPTIONS: usize = 3;
const PREEMPTIONS_OF_CALLS: usize = 2;

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

/// Questions are jobs of the channel: the thread that takes messages publishes the code of each, and answers.
///
/// ```text
///  a thread: ask 1          another: ask 2          messages: publish, answer, publish, answer
/// ```
#[test]
fn a_first_call_goes_on_when_its_code_is_published() {
    model_within(PREEMPTIONS_OF_CALLS, || {
        let (answers, channel) = (Arc::new(AnswerTable::new()), Arc::new(JobQueue::new()));
        let published = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let ask = |caller: usize| {
            let (answers, channel, published) = (answers.clone(), channel.clone(), published.clone());
            move || {
                let answer = answers.ask(|number| channel.add((number, caller)));
                assert_eq!(answer, caller, "the answer is another caller's");
                // Relaxed: the table's lock alone is to order it.
                assert_eq!(published[caller].load(Ordering::Relaxed), 1, "the code is not there");
            }
        };
        let other = thread::spawn(ask(1));
        let messages = {
            let (answers, channel, published) = (answers.clone(), channel.clone(), published.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let (number, caller) = channel.take();
                    published[caller].store(1, Ordering::Relaxed); // as above
                    assert!(answers.answer(number, caller), "there is no such question");
                }
            })
        };
        ask(0)();
        other.join().expect("no panic");
        messages.join().expect("no panic");
        assert!(!answers.answer(1, 0), "it was answered");
    });
}

/// ```text
///  takes messages: add 1, add 2          one thread: take 1, wait for 2          a second one, if it is asked for: take 2
/// ```
#[test]
fn a_call_is_answered_though_an_earlier_one_waits_for_it() {
    model_within(PREEMPTIONS_OF_CALLS, || {
        let (calls, second) = (Arc::new(CallQueue::new()), Arc::new(JobQueue::new()));
        let first = Arc::new(JobQueue::new());
        let answers = || {
            let (calls, second, first) = (calls.clone(), second.clone(), first.clone());
            thread::spawn(move || {
                while let Some(call) = calls.take() {
                    match call {
                        0 => {}
                        1 => {
                            second.take();
                            first.add(());
                        }
                        _ => second.add(()),
                    }
                }
            })
        };
        let mut threads = Vec::new();
        for call in 0..3 {
            if calls.add(call) {
                threads.push(answers());
            }
        }
        first.take();
        calls.close();
        calls.wait_for_rest();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

/// ```text
///  takes messages: add, close, wait for rest          a thread: take, take
/// ```
#[test]
fn threads_end_with_the_executor() {
    model_within(PREEMPTIONS, || {
        let calls = Arc::new(CallQueue::new());
        assert!(calls.add(1), "there is no thread yet");
        let thread = {
            let calls = calls.clone();
            thread::spawn(move || while calls.take().is_some() {})
        };
        calls.close();
        calls.wait_for_rest();
        assert!(!calls.add(2), "nothing is answered any more");
        thread.join().expect("no panic");
    });
}

loom_tests::catches_its_weakenings!();

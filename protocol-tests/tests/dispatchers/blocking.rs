//! Units, handlers, futures and foreign threads that block in lookups: a pool of few workers serves them all, and lets the
//! threads go that it needed for it.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake};
use std::thread;

use protocol_tests::*;
use uruk_core::{ExecutionSession, JitDylib, LookupError, LookupRequest, LookupResult, Task, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

type Pool = Arc<WorkStealingTaskDispatcher>;

fn pooled(workers: usize) -> (Pool, ExecutionSession, JitDylib) {
    let builder = WorkStealingTaskDispatcher::builder().workers(workers).stack_size_bytes(512 << 10);
    let pool = Arc::new(builder.build().unwrap());
    let (session, main) = session_on(pool.clone());
    (pool, session, main)
}

/// Waits until the threads that stood in for blocked ones are gone.
fn spares_retire(pool: &Pool) {
    while pool.metrics().threads > pool.metrics().workers {
        thread::yield_now();
    }
}

/// Seconds where each transaction is checked, because a thousand threads that wait for each other are checked as a whole.
#[test]
fn one_worker_completes_a_chain_of_a_thousand_units_that_block_on_the_next() {
    const LENGTH: usize = 1_000;
    let (pool, session, main) = pooled(1);
    for index in 0..LENGTH {
        let symbols = exported(&session, &[&format!("s{index}")]);
        let unit = TestUnit::new("link", symbols, move |responsibility| {
            if index + 1 < LENGTH {
                let session = responsibility.session();
                let next = session.intern(&format!("s{}", index + 1));
                session.lookup_symbol(&order(responsibility.dylib()), &next).unwrap();
            }
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
    }
    session.lookup_symbol(&order(&main), &session.intern("s0")).unwrap();
    assert_eq!(pool.metrics().replaced.total() as usize, LENGTH - 1);
    spares_retire(&pool);
    session.close().unwrap();
}

/// Waits for a future as an executor without a reactor does.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_thousand_lookups_blocked_at_once_from_everywhere_are_served() {
    const EACH: usize = 250;
    within_reason(|| {
        let (pool, session, main) = pooled(1);
        define_simple(&main, "ready", &["ready"]);
        let parked = define_parked(&main, "parked", &["a"]);
        let (send, answers) = mpsc::channel::<Result<LookupResult, LookupError>>();
        let ask = |main: &JitDylib| {
            main.session().lookup(LookupRequest::new(order(main), set(main.session(), &["a"])))
        };
        let mut foreign = Vec::new();
        for _ in 0..EACH {
            let (send, main) = (send.clone(), main.clone());
            // A handler that blocks.
            session.lookup_async(request(&main, &["ready"]), {
                let (send, main) = (send.clone(), main.clone());
                move |answer| {
                    answer.unwrap();
                    send.send(ask(&main)).unwrap();
                }
            });
            // A task that blocks on a future, which it has to declare.
            session.dispatch(Task::new("awaits", TaskPriority::Speculative, {
                let (send, main) = (send.clone(), main.clone());
                move || {
                    let future = main.session().lookup_future(request(&main, &["a"]));
                    send.send(main.session().blocking(|| block_on(future)).unwrap()).unwrap();
                }
            }));
            // A foreign thread; and one that waits for a task that blocks.
            foreign.push(thread::spawn({
                let (send, main) = (send.clone(), main.clone());
                move || send.send(ask(&main)).unwrap()
            }));
            session.dispatch(Task::new("asks", TaskPriority::Idle, move || send.send(ask(&main)).unwrap()));
        }
        // All that block on the pool's threads are blocked at the same time.
        while pool.metrics().blocked < 3 * EACH {
            thread::yield_now();
        }
        // And so are the foreign threads: all thousand lookups wait for the symbol.
        while session.why(&main, &session.intern("a")).demand.lookups < 4 * EACH {
            thread::yield_now();
        }
        let metrics = pool.metrics();
        assert_eq!(metrics.blocked, 3 * EACH, "{metrics:?}");
        assert!(metrics.threads <= metrics.workers + 3 * EACH, "{metrics:?}");
        assert!(answers.try_recv().is_err());
        finish(parked.recv().unwrap().attach());
        (0..4 * EACH).for_each(|_| drop(answers.recv().unwrap().unwrap()));
        foreign.into_iter().for_each(|thread| thread.join().unwrap());
        spares_retire(&pool);
        session.close().unwrap();
        assert_eq!((pool.metrics().threads, pool.metrics().panicked), (0, 0));
    });
}

//! Threads of a runtime that call functions under guards.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use uruk::core::WaitError;
use uruk::core::sync::Latch;
use uruk::{GuardedFunction, Jit, PendingReclaim};

use crate::redefine::{Answer, body};
use crate::support::{c, engine};

fn get<'g>(jit: &Jit, guard: &'g uruk::Guard, function: &str) -> GuardedFunction<'g, Answer> {
    // SAFETY: all functions here have this signature, and refer to nothing that is removed.
    unsafe { jit.get_guarded(guard, function) }.unwrap_or_else(|error| panic!("{function}: {error}"))
}

#[test]
fn what_is_removed_stays_until_those_who_are_inside_have_passed() {
    let jit = engine(1);
    let tracker = jit.create_tracker();
    jit.in_tracker(&tracker)
        .add_object(c("answer.o", "int answer(void) { return 42; }"))
        .expect("a new name");
    let (is_inside, is_removed) = (Latch::new(), Latch::new());
    std::thread::scope(|scope| {
        let run = || {
            let mut guard = jit.enter();
            let answer = get(&jit, &guard, "answer");
            is_inside.open();
            is_removed.wait();
            assert_eq!(answer(), 42);
            guard.checkpoint();
            assert_eq!(jit.pending_reclaim(), PendingReclaim::default());
        };
        let runtime = std::thread::Builder::new().name("runtime".into());
        let runtime = runtime.spawn_scoped(scope, run).expect("a thread");
        is_inside.wait();
        let bytes = tracker.memory_usage().bytes;
        let removal = jit.remove_tracker(&tracker).expect("nothing of it objects");
        let found = (removal.is_done(), jit.pending_reclaim());
        is_removed.open();
        let pending = PendingReclaim { pieces: 1, bytes, held_back_by: vec!["runtime".into()] };
        assert_eq!(found, (false, pending));
        assert!(bytes > 0);
        removal.wait().expect("this thread is not inside");
        runtime.join().expect("no panic");
    });
    assert_eq!(jit.memory_usage().allocations, 0);
}

/// It would wait for itself.
#[test]
fn who_is_inside_may_not_wait_for_a_removal() {
    let jit = engine(1);
    let tracker = jit.create_tracker();
    jit.in_tracker(&tracker)
        .add_object(c("answer.o", "int answer(void) { return 42; }"))
        .expect("a new name");
    let guard = jit.enter();
    assert_eq!(get(&jit, &guard, "answer")(), 42);
    let removal = jit.remove_tracker(&tracker).expect("nothing of it objects");
    assert!(matches!(removal.wait(), Err(WaitError::Holding { .. })));
    drop(guard);
    removal.wait().expect("nobody is inside");
}

#[test]
#[should_panic(expected = "another engine's")]
fn a_guard_of_another_engine_is_refused() {
    let (jit, other) = (engine(1), engine(1));
    jit.add_object(c("answer.o", "int answer(void) { return 42; }")).expect("a new name");
    get(&jit, &other.enter(), "answer");
}

#[test]
fn an_engine_may_be_dropped_while_a_thread_is_inside() {
    let jit = engine(1);
    jit.add_object(c("answer.o", "int answer(void) { return 42; }")).expect("a new name");
    let guard = jit.enter();
    // SAFETY: it is called while the guard is there.
    let answer: Answer = unsafe { jit.function("answer") }.expect("it is there");
    drop(jit);
    assert_eq!(answer(), 42);
    drop(guard);
}

/// One stub that is called for ever, while its bodies come and go: as many are there as threads hold back.
#[test]
fn bodies_go_while_their_function_is_called_all_the_time() {
    const ROUNDS: i32 = 300;
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let (name, mut tracker) = body(&jit, &bodies, 1);
    jit.add_lazy(&bodies, [("answer", &*name)]).expect("a new name");
    let (defined, ends) = (AtomicI32::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let call = || {
            let mut guard = jit.enter();
            while !ends.load(Ordering::Acquire) {
                let at_least = defined.load(Ordering::Acquire);
                let answer = get(&jit, &guard, "answer");
                for _ in 0..100 {
                    let number = answer();
                    assert!(number >= at_least, "{number} after {at_least}");
                }
                guard.checkpoint();
            }
        };
        let callers: Vec<_> = (0..3).map(|_| scope.spawn(call)).collect();
        for number in 2..ROUNDS {
            let (next, of_next) = body(&jit, &bodies, number);
            jit.redefine(&bodies, [("answer", &*next)]).expect("its body is there");
            defined.store(number, Ordering::Release);
            tracker = of_next; // The old body goes when the callers have passed.
        }
        ends.store(true, Ordering::Release);
        for caller in callers {
            caller.join().expect("it never saw an older one");
        }
    });
    assert_eq!(jit.memory_usage().allocations, 2, "the stub and its last body");
    drop(tracker);
}

//! Functions that are compiled when they are first called.

use std::sync::atomic::{AtomicUsize, Ordering};

use uruk::core::ExecutorAddr;
use uruk::core::sync::{Arc, Latch, Mutex};
use uruk::{Function, FunctionPointer, Jit, JitError, OwnedTracker, Scope};

use crate::support::{alone, c, cpp, engine, is_alone};

type Answer = extern "C" fn() -> i32;

/// An engine whose dylib `bodies` has these objects, each under a tracker of its own.
fn with_bodies(jit: &Jit, sources: &[&str]) -> (Scope, Vec<OwnedTracker>) {
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let add = |source: &&str| {
        let tracker = bodies.create_tracker();
        jit.in_tracker(&tracker).add_object(c("body.o", source)).expect("the names are free");
        tracker
    };
    let trackers = sources.iter().map(add).collect();
    (bodies, trackers)
}

fn get<F: FunctionPointer>(jit: &Jit, symbol: &str) -> Function<F> {
    // SAFETY: the callers say what their sources define, and copy no pointer out of its handle.
    unsafe { jit.get(symbol) }.unwrap_or_else(|error| panic!("{symbol}: {error}"))
}

fn pieces(jit: &Jit) -> u64 {
    jit.memory_usage().allocations
}

#[test]
fn what_is_called_is_linked_and_nothing_else() {
    let jit = engine(1);
    let sources = [
        "int twice(int); int first(int x) { return x > 0 ? twice(x) + 1 : 0; }",
        "int twice(int x) { return 2 * x; }",
        "int never(void) { return 1; }",
    ];
    let (bodies, _trackers) = with_bodies(&jit, &sources);
    jit.add_lazy(&bodies, ["first", "twice", "never"]).expect("they are there");
    let first = get::<extern "C" fn(i32) -> i32>(&jit, "first");
    assert_eq!(pieces(&jit), 1, "the stubs");
    assert_eq!((first(0), pieces(&jit)), (0, 2));
    assert_eq!((first(20), pieces(&jit)), (41, 3));
    assert_eq!((first(4), pieces(&jit)), (9, 3));
}

/// Every register that may carry an argument or an answer, the stack, and answers in memory.
#[test]
fn arguments_and_answers_of_all_kinds_pass_a_first_call() {
    let jit = engine(1);
    let body = "
        #include <stdarg.h>
        typedef float wide __attribute__((vector_size(32)));
        struct large { long a[9]; };
        long many(long a, long b, long c, long d, long e, long f, long g, double h, double i, double j, double k,
                  double l, double m, double n, double o, double p) {
            return a + 2*b + 3*c + 4*d + 5*e + 6*f + 7*g + h + 2*i + 3*j + 4*k + 5*l + 6*m + 7*n + 8*o + 9*p;
        }
        long variadic(int count, ...) {
            va_list list; va_start(list, count); double sum = 0;
            for (int i = 0; i < count; i++) sum += i % 2 ? va_arg(list, double) : va_arg(list, int);
            va_end(list); return sum;
        }
        struct large large(long from) { struct large it; for (int i = 0; i < 9; i++) it.a[i] = from + i; return it; }
        long double extended(long double x) { return x * 2; }
        _Complex double pair(_Complex double x) { return x + 1; }
        wide vector(wide a, wide b) { return a + b; }";
    let caller = "
        typedef float wide __attribute__((vector_size(32)));
        struct large { long a[9]; };
        long many(long, long, long, long, long, long, long, double, double, double, double, double, double, double, double, double);
        long variadic(int, ...); struct large large(long); long double extended(long double); _Complex double pair(_Complex double);
        wide vector(wide, wide);
        int check(void) {
            if (many(1,2,3,4,5,6,7, 1,2,3,4,5,6,7,8,9) != 140 + 285) return 1;
            if (variadic(6, 1, 2.0, 3, 4.0, 5, 6.0) != 21) return 2;
            if (large(7).a[8] != 15) return 3;
            if (extended(1.25L) != 2.5L) return 4;
            if (__real__ pair(2) != 3) return 5;
            wide sum = vector((wide){1,2,3,4,5,6,7,8}, (wide){8,7,6,5,4,3,2,1});
            for (int i = 0; i < 8; i++) if (sum[i] != 9) return 6;
            return 0;
        }";
    let (bodies, _trackers) = with_bodies(&jit, &[body]);
    jit.add_lazy(&bodies, ["many", "variadic", "large", "extended", "pair", "vector"])
        .expect("they are there");
    jit.add_object(c("caller.o", caller)).expect("a new name");
    let check = get::<Answer>(&jit, "check");
    assert_eq!((check(), check()), (0, 0));
}

#[test]
fn a_function_has_one_address_before_and_after_its_call() {
    let jit = engine(1);
    let sources = [
        "int same(void) { return 0; }",
        "int same(void); int is_same(int (*it)(void)) { it(); return it == same; }",
        "int same(void); int is_same(int (*)(void)); int check(void) { return is_same(same); }",
    ];
    let (bodies, _trackers) = with_bodies(&jit, &sources);
    jit.add_lazy(&bodies, ["is_same", "check", "same"]).expect("they are there");
    let before = jit.lookup("same").expect("its stub").address;
    let check = get::<Answer>(&jit, "check");
    assert_eq!((check(), check()), (1, 1));
    assert_eq!(jit.lookup("same").expect("its stub").address, before);
}

#[test]
fn threads_that_call_at_once_have_it_linked_once() {
    let jit = engine(2);
    for round in 0..20 {
        let bodies = jit.create_dylib(&format!("bodies {round}")).expect("a new name");
        let name = format!("answer{round}");
        let source = format!("int {name}(void) {{ return {round}; }}");
        bodies.add_object(c("answer.o", &source)).expect("a new name");
        jit.add_lazy(&bodies, [&*name]).expect("it is there");
        let (answer, before) = (get::<Answer>(&jit, &name), pieces(&jit));
        let start = Latch::new();
        std::thread::scope(|scope| {
            let call = || {
                start.wait();
                answer()
            };
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(call)).collect();
            start.open();
            for thread in threads {
                assert_eq!(thread.join().expect("it returns"), round);
            }
        });
        assert_eq!(pieces(&jit), before + 1);
    }
}

#[test]
fn a_small_stack_is_enough_for_a_first_call() {
    let jit = engine(1);
    let (bodies, _trackers) = with_bodies(&jit, &["int answer(void) { return 42; }"]);
    jit.add_lazy(&bodies, ["answer"]).expect("it is there");
    // A coroutine: its stack is 16 KiB of this one's memory.
    let switch = "
        #include <ucontext.h>
        int answer(void); static ucontext_t here, there; static char stack[16384]; static int got;
        static void enter(void) { got = answer(); }
        int check(void) {
            getcontext(&there);
            there.uc_stack.ss_sp = stack; there.uc_stack.ss_size = sizeof stack; there.uc_link = &here;
            makecontext(&there, enter, 0); swapcontext(&here, &there); return got;
        }";
    jit.add_object(c("switch.o", switch)).expect("a new name");
    assert_eq!(get::<Answer>(&jit, "check")(), 42);
}

#[test]
fn exceptions_and_backtraces_pass_what_was_called_lazily() {
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let body = "extern \"C\" int thrown(int x) { throw x; }";
    bodies.add_object(cpp("thrown.o", body)).expect("a new name");
    jit.add_lazy(&bodies, ["thrown"]).expect("it is there");
    let caller = "extern \"C\" int thrown(int); extern \"C\" int check() { try { return thrown(41); } catch (int x) { return x + 1; } }";
    jit.add_object(cpp("caller.o", caller)).expect("a new name");
    let check = get::<Answer>(&jit, "check");
    assert_eq!((check(), check()), (42, 42));
}

#[test]
fn a_call_that_fails_goes_where_the_host_says_and_is_tried_again() {
    extern "C" fn instead() -> i32 {
        -1
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let builder = Jit::builder().threads(1).on_lazy_failure(move |failure| {
        tell.lock().push(failure.to_string());
        ExecutorAddr::from_ptr(instead as extern "C" fn() -> i32 as *const u8)
    });
    let jit = builder.build().expect("an engine for this machine");
    let (bodies, _trackers) =
        with_bodies(&jit, &["int missing(void); int answer(void) { return missing(); }"]);
    jit.add_lazy(&bodies, ["answer"]).expect("it is there");
    let answer = get::<Answer>(&jit, "answer");
    assert_eq!((answer(), answer()), (-1, -1));
    let told = told.lock();
    assert_eq!(told.len(), 2, "each call has tried: {told:?}");
    assert!(told[0].starts_with("cannot call `answer`: ") && told[0].contains("missing"), "{}", told[0]);
}

#[test]
fn a_call_that_is_tried_answers_its_failure_and_is_tried_again() {
    let jit = engine(1); // Without a handler a plain call would end the process.
    let sources = ["int missing(void); int answer(void) { return missing(); }"];
    let (bodies, _trackers) = with_bodies(&jit, &sources);
    jit.add_lazy(&bodies, ["answer"]).expect("it is there");
    jit.add_lazy(&jit, [("again", "answer")]).expect("it is there");
    for name in ["answer", "again"] {
        let answer = get::<Answer>(&jit, name);
        let failure = answer.try_call(|answer| answer()).expect_err("nothing defines `missing`");
        assert_eq!(failure.function.as_str(), "answer");
        assert!(failure.to_string().contains("missing"), "{failure}");
    }
    jit.add_object(c("missing.o", "int missing(void) { return 42; }")).expect("a new name");
    let again = get::<Answer>(&jit, "again");
    assert_eq!(again.try_call(|again| again()).expect("it is there now"), 42);
    // The stubs lead on now, and what is no stub is called as it is.
    let missing = get::<Answer>(&jit, "missing");
    assert_eq!((again(), missing.try_call(|missing| missing()).expect("it was compiled")), (42, 42));
}

/// The body that a tried call has found goes on while the function is led elsewhere and the tracker of the body is removed.
#[test]
fn a_tried_call_stays_in_its_body_while_the_function_is_redefined() {
    for kind in [Scope::add_lazy, Scope::add_lazy_group] {
        let jit = engine(1);
        let sources = ["int first(void) { return 1; }", "int second(void) { return 2; }"];
        let (bodies, mut trackers) = with_bodies(&jit, &sources);
        kind(&jit, &bodies, [("answer", "first")]).expect("it is there");
        let answer = get::<Answer>(&jit, "answer");
        let inside = |answer: Answer| {
            jit.redefine_lazily(&bodies, [("answer", "second")]).expect("it is lazy");
            trackers.remove(0).remove().expect("nothing of it objects");
            answer()
        };
        assert_eq!(answer.try_call(inside).expect("it compiles"), 1);
        assert_eq!(answer.try_call(|answer| answer()).expect("it compiles"), 2);
    }
}

#[test]
fn a_call_that_fails_without_a_handler_says_why_and_ends_the_process() {
    if is_alone() {
        let jit = engine(1);
        let (bodies, _trackers) =
            with_bodies(&jit, &["int missing(void); int answer(void) { return missing(); }"]);
        jit.add_lazy(&bodies, ["answer"]).expect("it is there");
        get::<Answer>(&jit, "answer")();
        return;
    }
    let output = alone("lazy::a_call_that_fails_without_a_handler_says_why_and_ends_the_process");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("uruk: cannot call `answer`: ") && said.contains("`missing`"), "{said}");
    assert!(!output.status.success());
}

/// The handle began before its function had a body.
#[test]
fn a_handle_keeps_the_bodies_that_are_called_later() {
    let jit = engine(1);
    let sources =
        ["int deep(void); int answer(void) { return deep() + 2; }", "int deep(void) { return 40; }"];
    let (bodies, trackers) = with_bodies(&jit, &sources);
    jit.add_lazy(&bodies, ["answer"]).expect("it is there");
    let answer = get::<Answer>(&jit, "answer");
    assert_eq!((answer(), pieces(&jit)), (42, 3));
    for tracker in trackers {
        tracker.remove().expect("nothing of it objects");
    }
    assert_eq!((answer(), pieces(&jit)), (42, 3));
    drop(jit);
    assert_eq!(answer(), 42);
}

#[test]
fn what_is_no_function_or_is_not_there_is_refused() {
    let jit = engine(1);
    let (bodies, _trackers) = with_bodies(&jit, &["int data = 1; int answer(void) { return data; }"]);
    assert!(matches!(jit.add_lazy(&bodies, ["data"]), Err(JitError::NotCallable { .. })));
    assert!(matches!(jit.add_lazy(&bodies, ["absent"]), Err(JitError::Lookup(_))));
    jit.add_lazy(&bodies, ["answer"]).expect("it is there");
    assert!(matches!(jit.add_lazy(&bodies, ["answer"]), Err(JitError::Define(_))));
    assert_eq!(get::<Answer>(&jit, "answer")(), 1);
}

/// A stub, its cell and its dylib know the session that they lie in.
#[test]
fn a_dropped_engine_leaves_nothing() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counts;
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counts = Counts;
    let builder = Jit::builder().threads(1).on_lazy_failure(move |_| {
        let _ = &counts;
        ExecutorAddr::new(0)
    });
    let jit = builder.build().expect("an engine for this machine");
    let (bodies, trackers) = with_bodies(&jit, &["int answer(void) { return answer == 0 ? 1 : 42; }"]);
    jit.add_lazy(&bodies, ["answer"]).expect("it is there");
    assert_eq!(get::<Answer>(&jit, "answer")(), 42);
    drop((trackers, bodies, jit));
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
}

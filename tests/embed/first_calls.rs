//! First calls of lazy functions from hard places: signal handlers, threads that end, a process that ends, children, a pool's worker.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use uruk::core::sync::{Arc, Latch, Mutex};
use uruk::core::{ExecutorAddr, FnUnit, LookupError, WaitError};
use uruk::pipeline::lazy::LazyCallError;
use uruk::pipeline::object::ObjectBuffer;
use uruk::{Function, FunctionPointer, Jit, Scope};

use crate::support::{alone, c, c_with, engine, is_alone};

type Answer = extern "C" fn() -> i32;

/// Functions of the main dylib, each in an object of its own, which are compiled when they are first called.
fn add_lazy(jit: &Jit, functions: &[(&str, &str)]) -> Scope {
    let bodies = jit.create_dylib("bodies").expect("a new name");
    for (name, source) in functions {
        bodies.add_object(c(name, source)).expect("the names are free");
    }
    jit.add_lazy(&bodies, functions.iter().map(|(name, _)| *name)).expect("they are there");
    bodies
}

/// `first` and `second`, which answer 41 and 42.
fn with_two(jit: &Jit) -> [Function<Answer>; 2] {
    add_lazy(
        jit,
        &[("first", "int first(void) { return 41; }"), ("second", "int second(void) { return 42; }")],
    );
    [get(jit, "first"), get(jit, "second")]
}

fn get<F: FunctionPointer>(jit: &Jit, symbol: &str) -> Function<F> {
    // SAFETY: the callers say what their sources define, and copy no pointer out of its handle.
    unsafe { jit.get(symbol) }.unwrap_or_else(|error| panic!("{symbol}: {error}"))
}

fn pieces(jit: &Jit) -> u64 {
    jit.memory_usage().allocations
}

/// A body that sees the arguments' upper halves, in registers and on the stack, and a mask that the caller keeps over the call.
#[test]
fn vectors_of_512_bits_and_masks_pass_a_first_call() {
    if !(is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")) {
        // The runner keeps what is printed by macros to itself.
        let _ = writeln!(std::io::stderr(), "skipped: this processor has no AVX-512");
        return;
    }
    let (head, flags) = ("#include <immintrin.h>\n", ["-mavx512f", "-mavx512bw"]);
    let wide =
        "__m512i a, __m512i b, __m512i c, __m512i d, __m512i e, __m512i f, __m512i g, __m512i h, __m512i i";
    let body = format!(
        "{head}__m512i sum({wide}) {{
            a = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
            e = _mm512_add_epi64(_mm512_add_epi64(e, f), _mm512_add_epi64(g, h));
            return _mm512_add_epi64(_mm512_add_epi64(a, e), i);
        }}
        unsigned long mask(void) {{ unsigned long it; __asm__ volatile(\"kmovq %%k5, %0\" : \"=r\"(it)); return it; }}"
    );
    let caller = format!(
        "{head}__m512i sum({wide}); unsigned long mask(void);
        static __m512i of(long x) {{ return _mm512_set_epi64(x + 7, x + 6, x + 5, x + 4, x + 3, x + 2, x + 1, x); }}
        int check(void) {{
            union {{ __m512i all; long each[8]; }} got = {{ sum(of(1), of(2), of(3), of(4), of(5), of(6), of(7), of(8), of(9)) }};
            for (int lane = 0; lane < 8; lane++) if (got.each[lane] != 45 + 9 * lane) return 1 + lane;
            unsigned long it = 0xfedcba9876543210, found;
            __asm__ volatile(\"kmovq %1, %%k5\\n\\tcall mask@PLT\" : \"=a\"(found) : \"r\"(it)
                : \"rcx\", \"rdx\", \"rsi\", \"rdi\", \"r8\", \"r9\", \"r10\", \"r11\", \"k5\", \"cc\", \"memory\");
            return found == it ? 0 : 9;
        }}"
    );
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let add = |name: &str, source: &str| c_with(name, source, &[flags[0], flags[1], "-mno-red-zone"]);
    bodies.add_object(add("body.o", &body)).expect("a new name");
    jit.add_lazy(&bodies, ["sum", "mask"]).expect("they are there");
    jit.add_object(add("caller.o", &caller)).expect("a new name");
    let check = get::<Answer>(&jit, "check");
    assert_eq!((check(), check()), (0, 0));
}

/// An object of one function, which answers its number: the compiler's first one with another name and another number in it.
fn numbered(object: &ObjectBuffer, number: usize) -> ObjectBuffer {
    let mut bytes = object.bytes().to_vec();
    let answer = (TEMPLATE_ANSWER + number as i32).to_le_bytes();
    for (from, to) in
        [(b"f000".as_slice(), format!("f{number:03}").as_bytes()), (&TEMPLATE_ANSWER.to_le_bytes(), &answer)]
    {
        let places: Vec<_> = (0..=bytes.len() - 4).filter(|&at| &bytes[at..at + 4] == from).collect();
        assert!(!places.is_empty(), "the compiler wrote it otherwise");
        places.into_iter().for_each(|at| bytes[at..at + 4].copy_from_slice(to));
    }
    ObjectBuffer::new(format!("f{number:03}.o"), bytes)
}

const TEMPLATE_ANSWER: i32 = 0x1234_5600;

/// Each thread calls what it has a handle of, lets most handles go, and takes over those that another has left.
#[test]
fn many_threads_call_many_functions_while_handles_go() {
    const THREADS: usize = 16;
    const FUNCTIONS: usize = 200;
    const CALLS: usize = 500;
    let first = c("f000.o", &format!("int f000(void) {{ return {TEMPLATE_ANSWER}; }}"));
    let jit = engine(2);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let names: Vec<_> = (0..FUNCTIONS).map(|number| format!("f{number:03}")).collect();
    let add = |number| {
        let tracker = bodies.create_tracker();
        jit.in_tracker(&tracker).add_object(numbered(&first, number)).expect("a new name");
        Some(tracker)
    };
    let trackers: Vec<_> = (0..FUNCTIONS).map(|number| Mutex::new(add(number))).collect();
    jit.add_lazy(&bodies, names.iter().map(String::as_str)).expect("they are there");
    // The stubs are linked together, so a handle of one keeps the bodies of all that were called.
    let stays = get::<Answer>(&jit, "f000");
    let left: Vec<_> = names.iter().map(|_| Mutex::new(None)).collect();
    let start = Latch::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (jit, names, left, trackers, start) = (&jit, &names, &left, &trackers, &start);
            scope.spawn(move || {
                start.wait();
                for call in 0..CALLS {
                    let number = (call * 7 + thread * 13) % FUNCTIONS;
                    let taken = left[number].lock().take();
                    let function = taken.unwrap_or_else(|| get::<Answer>(jit, &names[number]));
                    assert_eq!(function(), TEMPLATE_ANSWER + number as i32);
                    // Bound by now: its body may lose its tracker.
                    let tracker =
                        if number.is_multiple_of(3) { trackers[number].lock().take() } else { None };
                    tracker.into_iter().for_each(|tracker| tracker.remove().expect("nothing of it objects"));
                    let before =
                        if call.is_multiple_of(4) { left[number].lock().replace(function) } else { None };
                    drop(before);
                }
            });
        }
        start.open();
    });
    drop(left);
    assert_eq!(pieces(&jit), 1 + FUNCTIONS as u64, "each was linked once");
    drop(stays);
}

#[test]
fn a_thousand_threads_that_call_at_once_link_one_body() {
    let jit = engine(1);
    let [first, _] = with_two(&jit);
    let before = pieces(&jit);
    let (start, sum) = (Latch::new(), AtomicI32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..1_000 {
            let call = || {
                start.wait();
                sum.fetch_add(first(), Ordering::Relaxed); // Relaxed: read when all have been joined.
            };
            let builder = std::thread::Builder::new().stack_size(128 << 10);
            builder.spawn_scoped(scope, call).expect("the system grants it");
        }
        start.open();
    });
    assert_eq!((sum.into_inner(), pieces(&jit)), (41_000, before + 1));
}

/// The signal comes while the thread holds no lock: it sends it to itself.
#[test]
fn a_signal_handler_makes_a_first_call_on_a_small_stack_of_its_own() {
    let jit = engine(1);
    let [first, second] = with_two(&jit);
    let handler = "
        #include <signal.h>
        #include <unistd.h>
        int first(void); int second(void); static int got; static int other;
        static void handle(int signal) { got = first(); }
        static void on_small_stack(int signal) { other = second(); }
        int check(void) {
            static char stack[65536]; long least = sysconf(_SC_MINSIGSTKSZ);
            stack_t small = { .ss_sp = stack, .ss_size = (least < 2048 ? 2048 : least) + 8192 }, before;
            struct sigaction action = { .sa_handler = handle }, old;
            if (small.ss_size > sizeof stack || sigaltstack(&small, &before) != 0) return -1;
            sigaction(SIGUSR2, &action, &old); raise(SIGUSR2);
            action.sa_handler = on_small_stack; action.sa_flags = SA_ONSTACK;
            sigaction(SIGUSR2, &action, 0); raise(SIGUSR2);
            sigaction(SIGUSR2, &old, 0); sigaltstack(&before, 0);
            return got + other;
        }";
    jit.add_object(c("handler.o", handler)).expect("a new name");
    assert_eq!(get::<Answer>(&jit, "check")(), 83);
    assert_eq!((first(), second()), (41, 42));
}

/// Calls in a child, and says how that ended: the answer, or nothing if the child was killed.
fn in_a_child(call: impl FnOnce() -> i32) -> Option<c_int> {
    const CHILD_SECONDS_MAX: u32 = 60;
    // SAFETY: the child makes one call, and ends without the parent's handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: concerns the child alone.
        unsafe { libc::alarm(CHILD_SECONDS_MAX) };
        let answer = call();
        // SAFETY: ends the child.
        unsafe { libc::_exit(answer) };
    }
    let mut status = -1;
    // SAFETY: waits for the child that was just made.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

/// In place, and on a pool that has had nothing to do.
#[test]
fn a_child_makes_first_calls_and_so_does_its_parent() {
    if !is_alone() {
        let output = alone("first_calls::a_child_makes_first_calls_and_so_does_its_parent");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    for threads in [0, 1] {
        let jit = engine(threads);
        let bodies = jit.create_dylib("bodies").expect("a new name");
        let add = |text| bodies.add_object(c("body.o", text)).expect("a new name");
        add("int first(void) { return 41; }");
        add("int second(void) { return 42; }");
        jit.add_lazy(&bodies, ["first", "second"]).expect("they are there");
        if threads == 0 {
            let [first, second] = ["first", "second"].map(|name| get::<Answer>(&jit, name));
            assert_eq!(in_a_child(|| first() + second()), Some(83));
            assert_eq!(first(), 41);
            assert_eq!(in_a_child(|| first() + second()), Some(83));
            assert_eq!(second(), 42);
        } else {
            let call = || get::<Answer>(&jit, "first")() + get::<Answer>(&jit, "second")();
            assert_eq!(in_a_child(call), Some(83));
            assert_eq!(call(), 83);
        }
    }
}

/// The workers are not there, and what they were about to do is not known.
#[test]
fn a_child_of_a_pool_that_has_worked_is_refused_and_told() {
    extern "C" fn refused() -> i32 {
        7
    }
    extern "C" fn otherwise() -> i32 {
        8
    }
    if !is_alone() {
        let output = alone("first_calls::a_child_of_a_pool_that_has_worked_is_refused_and_told");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let builder = Jit::builder().threads(1).on_lazy_failure(|failure| {
        let is_refused = matches!(failure.error, LazyCallError::Lookup(LookupError::Wait(WaitError::Forked)));
        ExecutorAddr::from_ptr(if is_refused { refused as Answer } else { otherwise } as *const u8)
    });
    let jit = builder.build().expect("an engine for this machine");
    let [first, second] = with_two(&jit);
    assert_eq!(first(), 41);
    assert_eq!(in_a_child(|| first()), Some(41));
    assert_eq!(in_a_child(|| second()), Some(7));
    assert_eq!(second(), 42);
}

/// The record that the engine has of a thread is destroyed before this value is.
#[test]
fn a_destructor_of_a_thread_local_variable_makes_a_first_call() {
    struct Last(RefCell<Option<(Function<Answer>, Arc<AtomicI32>)>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let (second, answer) = self.0.take().expect("the thread has set it");
            answer.store(second(), Ordering::Relaxed); // Relaxed: read when the thread has been joined.
        }
    }
    thread_local! {
        static LAST: Last = const { Last(RefCell::new(None)) };
    }
    for threads in [0, 1] {
        let jit = engine(threads);
        let [first, second] = with_two(&jit);
        let answer = Arc::new(AtomicI32::new(0));
        let thread = {
            let answer = answer.clone();
            std::thread::spawn(move || {
                // Registered first, destroyed last.
                LAST.with(|last| *last.0.borrow_mut() = Some((second, answer)));
                first()
            })
        };
        assert_eq!(thread.join().expect("it returns"), 41);
        assert_eq!(answer.load(Ordering::Relaxed), 42);
    }
}

/// Both ways in which a program does something at its end: its object's destructor runs after what it has told `atexit`.
#[test]
fn what_runs_at_exit_makes_a_first_call() {
    static CALL: OnceLock<extern "C" fn() -> i32> = OnceLock::new();
    extern "C" fn at_exit() {
        let call = CALL.get().expect("it was set");
        // SAFETY: ends the process; what is left to run then is not tested here.
        unsafe { libc::_exit(call()) };
    }
    if !is_alone() {
        let output = alone("first_calls::what_runs_at_exit_makes_a_first_call");
        assert_eq!(output.status.code(), Some(41), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    // SAFETY: the handler takes no arguments.
    assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
    let jit = std::mem::ManuallyDrop::new(engine(1));
    let [first, second] = with_two(&jit).map(std::mem::ManuallyDrop::new);
    assert_eq!(second(), 42);
    CALL.set(**first).expect("set once");
    // SAFETY: ends this process, on a thread that has used the engine.
    unsafe { libc::exit(0) };
}

/// With one worker, no other thread is there to compile what it calls.
#[test]
fn a_unit_makes_a_first_call_on_the_pools_only_worker() {
    let jit = engine(1);
    let [first, _] = with_two(&jit);
    let place = jit.intern("place");
    let unit = FnUnit::new([place.clone()], move |request| {
        request.addresses([("place", ExecutorAddr::new(first() as u64))])
    });
    jit.main_dylib().define(Box::new(unit)).expect("a new name");
    assert_eq!(jit.lookup("place").expect("the unit makes it").address, ExecutorAddr::new(41));
}

#[test]
fn a_backtrace_of_a_first_call_in_progress_reaches_the_caller() {
    extern "C" fn instead() -> i32 {
        -1
    }
    unsafe extern "C-unwind" {
        fn _Unwind_Backtrace(
            each: extern "C-unwind" fn(*mut c_void, *mut c_void) -> c_int,
            data: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut c_void) -> usize;
    }
    extern "C-unwind" fn note(context: *mut c_void, data: *mut c_void) -> c_int {
        // SAFETY: the unwinder's own context, and the list that was handed over.
        unsafe { (*data.cast::<Vec<u64>>()).push(_Unwind_GetIP(context) as u64) };
        0
    }
    let frames = Arc::new(Mutex::new(Vec::new()));
    let told = frames.clone();
    let builder = Jit::builder().threads(1).on_lazy_failure(move |_| {
        let mut frames = Vec::<u64>::new();
        // SAFETY: the function gets what it expects.
        unsafe { _Unwind_Backtrace(note, (&raw mut frames).cast()) };
        *told.lock() = frames;
        ExecutorAddr::from_ptr(instead as Answer as *const u8)
    });
    let jit = builder.build().expect("an engine for this machine");
    add_lazy(&jit, &[("answer", "int missing(void); int answer(void) { return missing(); }")]);
    let caller =
        "int answer(void); int check(void) { return answer() + 10; } int check_end(void) { return 0; }";
    jit.add_object(c("caller.o", caller)).expect("a new name");
    let check = get::<Answer>(&jit, "check");
    assert_eq!(check(), 9);
    let [start, end] = ["check", "check_end"].map(|name| jit.lookup(name).expect("it is there").address);
    let frames = frames.lock();
    let caller = frames.iter().position(|frame| (start.value()..end.value()).contains(frame));
    assert!(caller.is_some_and(|caller| caller + 1 < frames.len()), "{start:?} {frames:x?}");
}

//! Handles that keep code alive: over removals, redefinitions and the end of the engine.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use uruk::core::sync::{Arc, Latch};
use uruk::core::{AliasTarget, LookupError, SymbolFlags, symbol_aliases};
use uruk::{Function, Jit, JitError, OwnedTracker};

use crate::support::{block_on, c, c_with, cpp, engine};

type Answer = extern "C" fn() -> i32;

/// Adds `source` under a tracker of its own.
fn add(jit: &Jit, source: &str) -> OwnedTracker {
    let tracker = jit.create_tracker();
    jit.in_tracker(&tracker).add_object(c("added.o", source)).expect("the names are free");
    tracker
}

fn get(jit: &Jit, symbol: &str) -> Function<Answer> {
    // SAFETY: the sources here define functions of this signature alone, and no test copies a pointer out of its handle.
    unsafe { jit.get(symbol) }.unwrap_or_else(|error| panic!("{symbol}: {error}"))
}

fn allocations(jit: &Jit) -> u64 {
    jit.memory_usage().allocations
}

/// A pointer out of `Jit::function` dangled as soon as anybody removed its tracker.
#[test]
fn a_function_is_called_after_its_tracker_was_removed_and_its_name_taken() {
    let jit = engine(1);
    let first = add(&jit, "static int calls; int answer(void) { return 40 + ++calls; }");
    let handle = get(&jit, "answer");
    assert_eq!(handle(), 41);
    first.remove().expect("nothing of it objects");
    assert!(jit.lookup("answer").is_err());
    assert_eq!((handle(), allocations(&jit)), (42, 1));

    let second = add(&jit, "int answer(void) { return 7; }");
    let (other, clone) = (get(&jit, "answer"), handle.clone());
    assert_eq!((other(), clone(), allocations(&jit)), (7, 43, 2));
    drop(handle);
    assert_eq!((clone(), allocations(&jit)), (44, 2));
    drop(clone);
    assert_eq!(allocations(&jit), 1);
    drop((second, other));
    assert_eq!(allocations(&jit), 0);
}

/// The callees of the function were no part of its handle.
#[test]
fn a_handle_keeps_what_its_function_refers_to_in_other_trackers_too() {
    let jit = engine(1);
    let library = jit.create_dylib("library").expect("a new name");
    library.add_object(c("deep.o", "int deep = 40;")).expect("a new name");
    jit.link_to(&library).expect("both are there");
    let helpers = add(&jit, "extern int deep; int helper(void) { return deep + 2; }");
    // They refer to each other.
    let even = add(&jit, "int odd(int); int even(int n) { return n ? odd(n - 1) : 1; }");
    let odd = add(&jit, "int even(int); int odd(int n) { return n ? even(n - 1) : 0; }");
    let caller = add(&jit, "int helper(void), even(int); int call(void) { return helper() + even(10); }");
    let unrelated = add(&jit, "int unrelated(void) { return 1; }");
    let handle = get(&jit, "call");
    get(&jit, "unrelated");
    assert_eq!(allocations(&jit), 6);
    for tracker in [helpers, even, odd, caller, unrelated] {
        // SAFETY: code that refers to it is called through the handle alone, which keeps it.
        unsafe { jit.remove_tracker_leaving_dependants(&tracker) }.expect("nothing of it objects");
    }
    jit.remove_dylib(&library).expect("nothing of it objects");
    assert_eq!(allocations(&jit), 5, "only what the function cannot reach is gone");
    assert_eq!(handle(), 43);
    drop(handle);
    assert_eq!(allocations(&jit), 0);
}

/// Exceptions and thread-local variables need what is registered beside the code.
#[test]
fn a_handle_outlives_its_engine() {
    let source = r#"
        #include <string>
        static thread_local int calls = 0;
        static void fail() { throw std::string("thrown"); }
        extern "C" int answer() {
            try { fail(); } catch (const std::string &error) { return int(error.size()) * 10 + ++calls; }
            return 0;
        }
    "#;
    let jit = engine(1);
    jit.add_object(cpp("answer.o", source)).expect("the names are free");
    let handle = get(&jit, "answer");
    assert_eq!(handle(), 61);
    drop(jit);
    assert_eq!(handle(), 62);
    let elsewhere = handle.clone();
    assert_eq!(std::thread::spawn(move || elsewhere()).join().expect("it returns"), 61);
}

#[test]
fn a_removal_ends_when_the_last_handle_goes() {
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            // Relaxed: one thread.
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let jit = engine(1);
    let tracker = add(&jit, "int answer(void) { return 1; }");
    let handles = [get(&jit, "answer"), get(&jit, "answer")];
    let mut unmapping = jit.remove_tracker(&tracker).expect("nothing of it objects");
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut poll = || Future::poll(std::pin::Pin::new(&mut unmapping), &mut Context::from_waker(&waker));
    let [first, second] = handles;
    assert_eq!(poll(), Poll::Pending);
    drop(first);
    assert_eq!(poll(), Poll::Pending);
    assert!(!woken.0.load(Ordering::Relaxed));
    drop(second);
    assert!(woken.0.load(Ordering::Relaxed));
    assert_eq!(poll(), Poll::Ready(()));
    assert_eq!(allocations(&jit), 0);

    // Of code without a handle, and of nothing.
    for source in ["int other(void) { return 1; }", "int another(void) { return 1; }"] {
        let tracker = add(&jit, source);
        let _ = jit.lookup("other");
        assert!(jit.remove_tracker(&tracker).expect("nothing of it objects").is_done());
    }
}

#[test]
fn a_thread_waits_until_nobody_runs_what_it_has_removed() {
    static ENTERED: LazyLock<Latch> = LazyLock::new(Latch::new);
    static LEAVE: LazyLock<Latch> = LazyLock::new(Latch::new);
    extern "C" fn pause() {
        ENTERED.open();
        LEAVE.wait();
    }

    let jit = engine(1);
    let dylib = jit.create_dylib("paused").expect("a new name");
    let source = "int run(void (*pause)(void)) { pause(); return 5; }";
    dylib.add_object(c("run.o", source)).expect("a new name");
    // SAFETY: `run` has this signature, and no pointer is copied out of the handle.
    let run = unsafe { dylib.get::<extern "C" fn(extern "C" fn()) -> i32>("run") };
    let run = run.expect("it links");
    let inside = std::thread::spawn(move || run(pause));
    ENTERED.wait();
    let unmapping = jit.remove_dylib(&dylib).expect("nothing of it objects");
    assert!(!unmapping.is_done());
    LEAVE.open();
    unmapping.wait().expect("this thread may wait");
    assert_eq!(allocations(&jit), 0);
    assert_eq!(inside.join().expect("it returns"), 5);
}

/// A caller who knows that there are no more calls need not wait for handles that lie about.
#[test]
fn a_removal_that_does_not_wait_gives_the_memory_back() {
    let jit = engine(1);
    let tracker = add(&jit, "int answer(void) { return 1; }");
    let handle = get(&jit, "answer");
    // SAFETY: the handle is not called again.
    unsafe { jit.remove_tracker_now(&tracker) }.expect("nothing of it objects");
    assert_eq!(allocations(&jit), 0);
    // The code that lies there now is not the one that the handle lets go.
    let next = add(&jit, "int answer(void) { return 2; }");
    let other = get(&jit, "answer");
    drop((next, handle));
    assert_eq!((other(), allocations(&jit)), (2, 1));
}

/// An alias has no code of its own. Its handle held nothing, or code that had come to lie in the place.
#[test]
fn a_handle_of_an_alias_holds_its_source_or_is_refused() {
    let jit = engine(1);
    let source = add(&jit, "int answer(void) { return 42; }");
    let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
    let target = AliasTarget { source: jit.intern("answer"), flags };
    let alias = symbol_aliases([(jit.intern("alias"), target)].into_iter().collect());
    jit.main_dylib().define(alias).expect("a new name");
    let handle = get(&jit, "alias");
    // SAFETY: the handle keeps what is called.
    unsafe { jit.remove_tracker_leaving_dependants(&source) }.expect("nothing of it objects");
    assert_eq!((handle(), allocations(&jit)), (42, 1));
    drop(handle);
    assert_eq!(allocations(&jit), 0);

    let _other = add(&jit, "int other(void) { return 7; }");
    jit.lookup("other").expect("it links, where the first one was");
    // SAFETY: nothing is called.
    let pointer = unsafe { jit.function::<Answer>("alias") }.map(drop);
    for found in [pointer, jit.lookup("alias").map(drop), block_on(jit.lookup_async("alias")).map(drop)] {
        let gone = matches!(found, Err(JitError::Lookup(LookupError::AliasOfRemoved { .. })));
        assert!(gone, "{found:?}");
    }
    // SAFETY: as in `get`.
    let refused =
        [unsafe { jit.get::<Answer>("alias") }, block_on(unsafe { jit.get_async::<Answer>("alias") })];
    for refused in refused {
        let error = refused.expect_err("its source is gone").to_string();
        assert_eq!(
            error,
            "`alias` is an alias of a symbol that was removed; remove the alias as well, and define it anew"
        );
    }
}

/// Objects that are linked together share their memory, and each has a tracker.
#[test]
fn what_is_linked_together_stays_for_any_handle_of_it() {
    let jit = engine(1);
    let table = |name: &str, value: i32| {
        let tracker = jit.create_tracker();
        let source = format!(
            "__attribute__((section(\"table\"), used)) static int entry = {value};
             extern int __start_table[], __stop_table[];
             int {name}(void) {{ int sum = 0; for (int *p = __start_table; p < __stop_table; p++) sum += *p; return sum; }}"
        );
        jit.in_tracker(&tracker).add_object(c(&format!("{name}.o"), &source)).expect("a new name");
        tracker
    };
    let (first, second) = (table("first", 1), table("second", 2));
    let handle = get(&jit, "first");
    assert_eq!((handle(), allocations(&jit)), (3, 1));
    assert!(jit.remove_tracker(&first).expect("nothing of it objects").is_done(), "it is the other's too");
    let unmapping = jit.remove_tracker(&second).expect("nothing of it objects");
    assert_eq!((handle(), unmapping.is_done()), (3, false));
    drop(handle);
    assert!(unmapping.is_done());
    assert_eq!(allocations(&jit), 0);
}

/// Between the lookup and the hold another thread may remove the function, and something else be linked in its place.
#[test]
fn handles_are_taken_while_others_remove_and_redefine() {
    const ROUNDS: usize = 300;
    let jit = engine(1);
    let objects = [1, 2].map(|value| {
        c(
            &format!("r{value}.o"),
            &format!("int answer(void) {{ return {value}; }} char pad_{value}[{}];", 64 * value),
        )
    });
    let (calls, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Relaxed, here and below: it ends when it is seen, and what is counted is read after the threads have ended.
                while !done.load(Ordering::Relaxed) {
                    // SAFETY: as in `get`.
                    let handle = unsafe { jit.get::<Answer>("answer") };
                    if let Ok(handle) = handle {
                        assert!((1..=2).contains(&handle()));
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            let tracker = jit.create_tracker();
            jit.in_tracker(&tracker).add_object(objects[round % 2].clone()).expect("the name is free");
            if round % 3 == 0 {
                jit.lookup("answer").expect("it links");
            }
        }
        let last = add(&jit, "int answer(void) { return 1; }");
        while calls.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
        drop(last);
    });
    assert_eq!(allocations(&jit), 0);
}

#[test]
fn every_form_of_pointer_is_handed_out() {
    let jit = engine(1);
    let parameters: Vec<_> = (0..16).map(|number| format!("long a{number}")).collect();
    let sum: Vec<_> = (0..16).map(|number| format!("a{number}")).collect();
    let source = format!(
        "long sum({}) {{ return {}; }} int variable; int first(const int *p) {{ return *p; }}",
        parameters.join(", "),
        sum.join(" + ")
    );
    jit.add_object(c_with("forms.o", &source, &["-fexceptions"])).expect("the names are free");
    type N = i64;
    type Sum = unsafe extern "C-unwind" fn(N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N) -> N;
    // SAFETY: the functions have these signatures, and no pointer is copied out of its handle.
    let (sum, first, variable) = unsafe {
        (
            jit.get::<Sum>("sum").expect("it links"),
            jit.get_unchecked::<extern "C" fn(&i32) -> i32>("first").expect("it links"),
            jit.get::<Answer>("variable"),
        )
    };
    // SAFETY: any integers will do.
    assert_eq!(unsafe { sum(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16) }, 136);
    assert_eq!(first(&7), 7);
    assert!(matches!(variable, Err(JitError::NotCallable { .. })), "{variable:?}");
    fn is_shared<T: Send + Sync + Clone>(_: &T) {}
    is_shared(&sum);
}

#[test]
fn a_handle_of_the_process_is_called_and_holds_nothing() {
    let jit = engine(1);
    // SAFETY: as in `unistd.h`.
    let getpid = unsafe { jit.get::<Answer>("getpid") }.expect("the C library has it");
    assert_eq!(getpid() as u32, std::process::id());
    drop(jit);
    assert_eq!(getpid() as u32, std::process::id());
}

#[test]
fn a_handle_is_awaited() {
    let jit = engine(1);
    let tracker = add(&jit, "int answer(void) { return 3; }");
    // SAFETY: as in `get`.
    let handle = block_on(unsafe { jit.get_async::<Answer>("answer") }).expect("it links");
    tracker.remove().expect("nothing of it objects");
    assert_eq!(handle(), 3);
    // SAFETY: as in `get`.
    let missing = block_on(unsafe { jit.get_async::<Answer>("answer") });
    assert!(missing.is_err_and(|error| error.to_string().contains("answer")));
}

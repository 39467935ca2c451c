//! Functions that are compiled before they are called, and the order in which they were called.

use std::time::{Duration, Instant};

use uruk::core::sync::thread;
use uruk::pipeline::lazy::{CallOrder, FunctionOfFile, SpeculationStats};
use uruk::pipeline::tiers::CallCounting;
use uruk::{Function, Jit, JitBuilder, OnCall};

type Choose = extern "C" fn(bool) -> i32;

const PROGRAM: &str = "
    @other_name = alias i32 (), ptr @next
    define i32 @next() { ret i32 1 }
    define internal i32 @twice() { %a = call i32 @next()  %b = call i32 @next()  %s = add i32 %a, %b  ret i32 %s }
    define i32 @choose(i1 %calls) { br i1 %calls, label %call, label %leave
      call: %s = call i32 @twice()  ret i32 %s
      leave: ret i32 0 }
    define i32 @never() { ret i32 1 }";

fn engine(builder: JitBuilder) -> (Jit, Function<Choose>) {
    let jit = builder.build().expect("an engine");
    jit.add_ir_text("dir/program.ll", PROGRAM).expect("the names are free");
    // SAFETY: that is its type, and no pointer is copied out of its handle.
    let choose = unsafe { jit.get("choose") }.expect("it is there");
    (jit, choose)
}

fn on_call(threads: usize) -> JitBuilder {
    Jit::builder().threads(threads).compile_on_call(OnCall::Function)
}

fn order(functions: &[&str]) -> CallOrder {
    let functions = functions.iter().map(|function| FunctionOfFile::new("program.ll", function));
    CallOrder { functions: functions.collect() }
}

/// Waits for what is compiled in the background.
fn wait_until(jit: &Jit, is_so: impl Fn(&SpeculationStats) -> bool) {
    const PATIENCE: Duration = Duration::from_secs(1200); // Only a hang takes so long.
    let begun = Instant::now();
    while !is_so(&jit.speculator().stats()) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", jit.speculator());
        thread::yield_now();
    }
}

#[test]
fn the_first_call_of_what_was_compiled_ahead_only_binds() {
    let builders = [on_call(0), on_call(1), Jit::builder().threads(1).tiers(CallCounting::new())];
    for builder in builders {
        let (jit, choose) = engine(builder);
        let unknown = jit.speculator().speculate(&order(&["nobody", "choose", "twice", "other_name"]));
        assert_eq!(unknown, 1);
        wait_until(&jit, |stats| stats.ahead == 3);
        assert_eq!(jit.speculator().first_calls(), CallOrder::default());
        let pieces = jit.memory_usage().allocations;
        assert_eq!((choose(true), jit.memory_usage().allocations), (2, pieces));
        let stats = jit.speculator().stats();
        assert_eq!((stats.ahead, stats.used, stats.failed, stats.unknown), (3, 3, 0, 1));
        // A function that has been called is not compiled again.
        assert_eq!(jit.speculator().speculate(&order(&["next", "twice"])), 0);
        assert_eq!(jit.speculator().speculate(&order(&["never"])), 0);
        wait_until(&jit, |stats| stats.ahead == 4);
    }
}

#[test]
fn functions_are_told_once_in_the_order_of_their_first_calls() {
    let (jit, choose) = engine(on_call(1));
    assert_eq!((choose(false), choose(true)), (0, 2));
    assert_eq!(jit.speculator().first_calls(), order(&["choose", "twice", "next"]));
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let text = "define i32 @late.1() { ret i32 1 } define i32 @late.2() { ret i32 2 }";
    bodies.add_ir_text("late.ll", text).expect("new names");
    jit.add_lazy(&bodies, [("late", "late.1")]).expect("they are there");
    // SAFETY: that is its type.
    let late = unsafe { jit.get::<extern "C" fn() -> i32>("late") }.expect("it is there");
    assert_eq!(late(), 1);
    jit.redefine_lazily(&bodies, [("late", "late.2")]).expect("it is lazy");
    assert_eq!((late(), choose(true)), (2, 2));
    let mut expected = order(&["choose", "twice", "next"]);
    expected.functions.push(FunctionOfFile::new("<lazy reexports>", "late"));
    // The bodies are lazy themselves.
    expected.functions.extend(["late.1", "late.2"].map(|name| FunctionOfFile::new("late.ll", name)));
    assert_eq!(jit.speculator().first_calls(), expected);
}

#[test]
fn of_a_called_function_the_callees_are_compiled_and_no_more() {
    for threads in [0, 1] {
        let (jit, choose) = engine(on_call(threads));
        jit.speculator().speculate_callees();
        assert_eq!(choose(false), 0);
        wait_until(&jit, |stats| stats.ahead == 1);
        // `next` is behind `twice`, which was not called.
        jit.speculator().stop_and_wait();
        assert_eq!(jit.speculator().stats().ahead, 1);
        assert_eq!(choose(true), 2);
        let stats = jit.speculator().stats();
        assert_eq!((stats.ahead, stats.used), (1, 1));
        assert_eq!(jit.speculator().first_calls(), order(&["choose", "twice", "next"]));
    }
}

/// It fails again, or for the first time, when it is called.
#[test]
fn what_cannot_be_compiled_ahead_says_so_when_it_is_called() {
    extern "C" fn instead() -> i32 {
        7
    }
    for threads in [0, 1] {
        let builder = on_call(threads).on_lazy_failure(|failure| {
            assert!(failure.to_string().contains("absent"), "{failure}");
            uruk::core::ExecutorAddr::from_ptr(instead as *const ())
        });
        let jit = builder.build().expect("an engine");
        let text = "declare i32 @absent()  define i32 @lost() { %x = call i32 @absent()  ret i32 %x }";
        jit.add_ir_text("program.ll", text).expect("a new name");
        // SAFETY: that is its type.
        let lost = unsafe { jit.get::<extern "C" fn() -> i32>("lost") }.expect("its stub");
        jit.speculator().speculate(&order(&["lost"]));
        wait_until(&jit, |stats| stats.failed == 1);
        assert_eq!(lost(), 7);
    }
}

/// The removal of a file does not wait for its functions that are compiled ahead.
#[test]
fn files_go_while_they_are_compiled_ahead() {
    let jit = on_call(1).build().expect("an engine");
    for round in 0..20 {
        let tracker = jit.create_tracker();
        jit.in_tracker(&tracker).add_ir_text("program.ll", PROGRAM).expect("the names are free");
        // SAFETY: as in `engine`.
        let choose = unsafe { jit.get::<Choose>("choose") }.expect("it is there");
        assert_eq!(jit.speculator().speculate(&order(&["twice", "next", "never", "choose"])), 0);
        if round % 2 == 0 {
            assert_eq!(choose(true), 2);
        }
        drop(choose);
        tracker.remove().expect("nobody needs it");
    }
    // The thread that has compiled the last of them may have it for a moment more.
    wait_until(&jit, |_| jit.speculator().speculate(&order(&["twice"])) == 1);
    assert_eq!(jit.speculator().first_calls(), CallOrder::default());
}

#[test]
fn threads_call_what_is_compiled_ahead_meanwhile() {
    for threads in [0, 1] {
        let (jit, choose) = engine(on_call(threads));
        jit.speculator().speculate_callees();
        jit.speculator().speculate(&order(&["next", "twice", "choose", "never"]));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert_eq!(choose(true), 2));
            }
        });
        let calls = jit.speculator().first_calls();
        assert_eq!(calls, order(&["choose", "twice", "next"]));
    }
}

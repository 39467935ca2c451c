//! Functions that are compiled better once they are called often.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use uruk::core::sync::{Arc, thread};
use uruk::pipeline::ir::{OptimizationLevel, OptimizationPipeline, PassHook, Stage};
use uruk::pipeline::tiers::{CallCounting, FirstTier, FunctionShape, TierPolicy, TierStats};
use uruk::{Function, Jit, JitBuilder};

type Next = extern "C" fn(i64) -> i64;

/// A function that calls another one, in both tiers: inlined into a better body of its caller, it would not be counted any more.
const PROGRAM: &str = "
    define internal i64 @one(i64 %x) noinline { %y = add i64 %x, 1 ret i64 %y }
    define i64 @next(i64 %x) { %y = call i64 @one(i64 %x) ret i64 %y }";

const CALLS: u32 = 5;

fn counting() -> CallCounting {
    CallCounting::new().with_threshold(CALLS).with_quiet(Duration::ZERO)
}

fn engine(builder: JitBuilder) -> (Jit, Function<Next>) {
    let jit = builder.build().expect("an engine");
    jit.add_ir_text("program.ll", PROGRAM).expect("the names are free");
    // SAFETY: that is its type, and no pointer is copied out of its handle.
    let next = unsafe { jit.get("next") }.expect("it is there");
    (jit, next)
}

fn stats(jit: &Jit) -> TierStats {
    jit.tiers().expect("there are tiers").stats()
}

/// Calls until the figures are as they should be.
fn call_until(jit: &Jit, next: &Function<Next>, is_so: impl Fn(&TierStats) -> bool) {
    const PATIENCE: Duration = Duration::from_secs(1200); // Only a hang takes so long.
    let begun = Instant::now();
    while !is_so(&stats(jit)) {
        assert_eq!(next(41), 42);
        assert!(begun.elapsed() < PATIENCE, "{:?}", stats(jit));
        thread::yield_now();
    }
    assert_eq!(next(41), 42);
}

#[test]
fn what_is_called_often_goes_up_with_and_without_workers() {
    for threads in [0, 1] {
        let (jit, next) = engine(Jit::builder().threads(threads).tiers(counting()));
        let address = jit.lookup("next").expect("it is there").address;
        assert_eq!(next(1), 2);
        let begun = stats(&jit);
        assert_eq!((begun.lower, begun.upper, begun.promoted), (2, 0, 0));
        call_until(&jit, &next, |stats| stats.promoted == 2);
        assert_eq!(jit.lookup("next").expect("it is there").address, address);
        assert!(stats(&jit).promoting > Duration::ZERO);
    }
}

/// A program compares what the unwinder says with addresses that it has taken.
#[test]
fn a_better_body_says_that_it_is_the_function_of_its_stub() {
    let jit = Jit::builder().threads(0).tiers(counting()).build().expect("an engine");
    let program = "
        declare ptr @llvm.returnaddress(i32)
        declare ptr @_Unwind_FindEnclosingFunction(ptr)
        define ptr @here() noinline { %pc = call ptr @llvm.returnaddress(i32 0) ret ptr %pc }
        define ptr @who() uwtable {
            %pc = call ptr @here()
            %function = call ptr @_Unwind_FindEnclosingFunction(ptr %pc)
            ret ptr %function
        }";
    jit.add_ir_text("program.ll", program).expect("the names are free");
    // SAFETY: that is its type, and no pointer is copied out of its handle.
    let who = unsafe { jit.get::<extern "C" fn() -> *const ()>("who") }.expect("it is there");
    let own = *who as *const ();
    while stats(&jit).promoted < 2 {
        assert_eq!(who(), own);
        thread::yield_now();
    }
    assert_eq!(who(), own);
}

/// Calls are counted one by one, as long as one thread makes them.
#[test]
fn nothing_goes_up_before_its_time() {
    let (jit, next) =
        engine(Jit::builder().threads(0).tiers(counting().with_quiet(Duration::from_secs(3600))));
    for _ in 0..10 * CALLS {
        assert_eq!(next(41), 42);
    }
    let stats = stats(&jit);
    assert_eq!((stats.lower, stats.promoted, stats.failed), (2, 0, 0));
}

#[test]
fn a_policy_may_begin_above_and_have_both() {
    #[derive(Debug)]
    struct By(FirstTier);
    impl TierPolicy for By {
        fn first(&self, _: FunctionShape) -> FirstTier {
            self.0
        }
        fn quiet(&self) -> Duration {
            Duration::ZERO
        }
    }
    let (jit, next) = engine(Jit::builder().threads(0).tiers(By(FirstTier::Upper)));
    assert_eq!(next(41), 42);
    assert_eq!((stats(&jit).lower, stats(&jit).upper), (0, 2));

    let (jit, next) = engine(Jit::builder().threads(0).tiers(By(FirstTier::LowerThenUpper)));
    assert_eq!(next(41), 42);
    // Two calls, of which none is counted out.
    call_until(&jit, &next, |stats| stats.promoted == 2);
    assert_eq!((stats(&jit).lower, stats(&jit).upper), (2, 0));
}

#[test]
fn a_spent_budget_leaves_functions_where_they_are() {
    let (jit, next) = engine(Jit::builder().threads(0).tiers(counting().with_budget(Duration::ZERO)));
    call_until(&jit, &next, |stats| stats.over_budget == 2);
    for _ in 0..10 * CALLS {
        assert_eq!(next(41), 42);
    }
    assert_eq!((stats(&jit).promoted, stats(&jit).over_budget), (0, 2));
}

/// The first attempts fail; calls go on in the code that there is, and it is tried again after more calls.
#[test]
fn what_fails_is_tried_again_later() {
    const FAILURES: u32 = 2;
    #[derive(Debug)]
    struct Persistent;
    impl TierPolicy for Persistent {
        fn threshold(&self) -> u32 {
            CALLS
        }
        fn quiet(&self) -> Duration {
            Duration::ZERO
        }
        fn after_failure(&self, failures: u32) -> Option<u32> {
            Some(CALLS * 10 * failures)
        }
    }
    let attempts = Arc::new(AtomicU32::new(0));
    let hook = PassHook::new("fails at first", {
        let attempts = attempts.clone();
        move |_| match attempts.fetch_add(1, Ordering::Relaxed) {
            attempt if attempt < FAILURES => Err("not yet"),
            _ => Ok(()),
        }
    });
    let pipeline = OptimizationPipeline::level(OptimizationLevel::O2).hook_before(Stage::ALL[0], hook);
    let (jit, next) = engine(Jit::builder().threads(0).pipeline(pipeline).tiers(Persistent));
    call_until(&jit, &next, |stats| stats.promoted == 2);
    assert_eq!(stats(&jit).failed, u64::from(FAILURES));
    assert_eq!(attempts.load(Ordering::Relaxed), FAILURES + 2);
}

/// Functions and their better bodies go together, also while they are being made.
#[test]
fn what_is_removed_is_not_promoted() {
    let jit = Jit::builder().threads(1).tiers(counting()).build().expect("an engine");
    for round in 0..20 {
        let tracker = jit.create_tracker();
        jit.in_tracker(&tracker).add_ir_text("program.ll", PROGRAM).expect("the names are free");
        // SAFETY: as in `engine`.
        let next: Function<Next> = unsafe { jit.get("next") }.expect("it is there");
        for _ in 0..CALLS + round {
            assert_eq!(next(41), 42);
        }
        drop(next);
        tracker.remove().expect("nobody needs it");
        assert!(jit.lookup("next").is_err());
    }
}

/// Threads lose counts, and nothing else.
#[test]
fn threads_call_while_functions_go_up() {
    let (jit, next) = engine(Jit::builder().threads(1).tiers(counting()));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| call_until(&jit, &next, |stats| stats.promoted == 2));
        }
    });
}

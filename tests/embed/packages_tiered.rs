//! Packages in engines whose functions may get other bodies: the image's are a tier.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use uruk::core::sync::{Arc, thread};
use uruk::pipeline::ir::{OptimizationLevel, OptimizationPipeline, PassHook, Stage};
use uruk::pipeline::tiers::{CallCounting, ImageBody, TierStats};
use uruk::{Function, ImageBuilder, Jit, LoadedImage, OnCall};

use crate::packages::{PackageOnDisk, call, with};
use crate::support::engine;

type Next = extern "C" fn(i64) -> i64;

/// Counts its calls in a variable that is local to the file, and calls a function that is too. The text and the table are constants of the file.
const NEXT: &str = "
    @calls = internal global i64 0
    @table = private unnamed_addr constant [4 x i64] [i64 1, i64 1, i64 1, i64 1]
    define internal i64 @one(i64 %i) noinline {
        %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
        %y = load volatile i64, ptr %at
        ret i64 %y
    }
    define i64 @next(i64 %x) {
        %n = atomicrmw add ptr @calls, i64 1 monotonic
        %i = and i64 %n, 3
        %y = call i64 @one(i64 %i)
        %z = add i64 %x, %y
        ret i64 %z
    }
    define i64 @calls_of(i64 %x) { %n = load atomic i64, ptr @calls monotonic, align 8 ret i64 %n }";
const USER: &str = "declare i64 @next(i64) define i64 @user(i64 %x) { %y = call i64 @next(i64 %x) %z = add i64 %y, 1 ret i64 %z }";

const CALLS: u32 = 5;

fn counting() -> CallCounting {
    CallCounting::new().with_threshold(CALLS).with_quiet(Duration::ZERO)
}

fn tiered() -> Jit {
    Jit::builder().threads(0).tiers(counting()).build().expect("an engine")
}

fn package(sources: &[(&str, &str)]) -> PackageOnDisk {
    at_level(OptimizationLevel::O1, sources)
}

fn at_level(level: OptimizationLevel, sources: &[(&str, &str)]) -> PackageOnDisk {
    let builder = ImageBuilder::new(Jit::builder().threads(1).optimization(level));
    let builder = builder.expect("an engine for this machine").package();
    sources.iter().for_each(|(name, text)| builder.add_ir_text(name, text).expect("the names are free"));
    PackageOnDisk::built(builder)
}

fn stats(jit: &Jit) -> TierStats {
    jit.tiers().expect("there are tiers").stats()
}

fn next_of(jit: &Jit) -> Function<Next> {
    // SAFETY: that is its type, and no pointer is copied out of its handle.
    unsafe { jit.get("next") }.expect("it is there")
}

/// Calls until it is so; the results are right all the while.
fn call_until(next: &Function<Next>, is_so: impl Fn() -> bool) -> i64 {
    const PATIENCE: Duration = Duration::from_secs(1200); // Only a hang takes so long.
    let (begun, mut calls) = (Instant::now(), 0);
    while !is_so() {
        assert_eq!(next(41), 42);
        calls += 1;
        assert!(begun.elapsed() < PATIENCE, "{calls} calls");
        thread::yield_now();
    }
    calls
}

/// Calls until it has its better body.
fn call_until_better(next: &Function<Next>, image: &LoadedImage) -> i64 {
    call_until(next, || match image.body("next") {
        Some(ImageBody::NotImprovable(reason)) => panic!("{reason}"),
        body => body == Some(ImageBody::Better),
    })
}

fn not_improvable(image: &LoadedImage, function: &str) -> String {
    match image.body(function) {
        Some(ImageBody::NotImprovable(reason)) => reason.to_string(),
        body => panic!("{function}: {body:?}"),
    }
}

#[test]
fn a_function_of_an_image_that_is_called_often_gets_a_better_body() {
    let sources = [("next.ll", NEXT), ("user.ll", USER)];
    let package = package(&sources);
    let jit = tiered();
    let image = package.load(&jit, with(&sources));
    let next = next_of(&jit);
    assert_eq!((next(41), image.body("next")), (42, Some(ImageBody::OfImage)));
    let own = stats(&jit);
    assert_eq!((own.lower, own.upper, own.promoted), (0, 0, 0), "nothing is compiled at first");
    let address = jit.lookup("next").expect("it is there").address;
    let calls = 1 + call_until_better(&next, &image);
    assert_eq!(next(41), 42);
    assert_eq!(call(&jit, "calls_of", 0), calls + 1, "both bodies count in one variable");
    assert_eq!(jit.lookup("next").expect("it is there").address, address);
    assert_eq!(call(&jit, "user", 1), 3);
    let bodies = image.bodies();
    assert_eq!((bodies.functions, bodies.better, bodies.not_improvable), (3, 1, 0));
    let why = jit.session().why(jit.main_dylib(), &jit.intern("next"));
    assert!(why.to_string().contains("and now a better body, compiled from its source"), "{why}");
}

/// Whether calls are counted at all is asked before the first one.
#[test]
fn functions_that_cannot_get_better_keep_the_images_bodies_and_say_why() {
    let sources = [("next.ll", NEXT)];
    let here = Jit::builder().threads(1);
    let native = ImageBuilder::for_targets("native", here).expect("an engine for this machine").package();
    native.add_ir_text("next.ll", NEXT).expect("new");
    let native = PackageOnDisk::built(native);
    let options = [with(&[]), with(&sources)];
    let reasons =
        ["its source is not at hand", "it was compiled for this processor, at this level or a better one"];
    for ((package, options), reason) in [package(&sources), native].iter().zip(options).zip(reasons) {
        let jit = tiered();
        let image = package.load(&jit, options);
        let next = next_of(&jit);
        for _ in 0..10 * CALLS {
            assert_eq!(next(41), 42);
        }
        assert_eq!(not_improvable(&image, "next"), reason);
        let stats = stats(&jit);
        assert_eq!((stats.lower, stats.upper, stats.promoted, stats.failed), (0, 0, 0, 0));
        let why = jit.session().why(jit.main_dylib(), &jit.intern("next")).to_string();
        assert!(why.contains(&format!("it gets no better body: {reason}")), "{why}");
        assert_eq!(image.bodies().not_improvable, 2);
    }
}

/// A unit takes the address of its function, and others find that address too.
#[test]
fn a_function_has_one_address() {
    let takes = format!("{NEXT} define ptr @get() {{ ret ptr @next }}");
    let sources = [("next.ll", &*takes)];
    let package = package(&sources);
    let jit = tiered();
    let image = package.load(&jit, with(&sources));
    // SAFETY: that is its type, and no pointer is copied out of its handle.
    let get = unsafe { jit.get::<extern "C" fn() -> *const ()>("get") }.expect("it is there");
    let next = next_of(&jit);
    assert_eq!(get(), *next as *const ());
    for _ in 0..10 * CALLS {
        assert_eq!(next(41), 42);
    }
    assert_eq!(not_improvable(&image, "next"), "its unit takes its address");
    assert_eq!(image.body("get"), Some(ImageBody::OfImage));
}

/// The address of a local function would be another one in the better body.
#[test]
fn a_better_body_that_would_take_another_address_is_not_made() {
    let compares = "
        define internal i64 @same(i64 %x) noinline { ret i64 %x }
        @known = global ptr @same
        define i64 @next(i64 %x) {
            %known = load ptr, ptr @known
            %is = icmp eq ptr %known, @same
            %one = zext i1 %is to i64
            %y = add i64 %x, %one
            ret i64 %y
        }";
    let sources = [("next.ll", compares)];
    let package = package(&sources);
    let jit = tiered();
    let image = package.load(&jit, with(&sources));
    let next = next_of(&jit);
    call_until(&next, || stats(&jit).failed > 0);
    assert_eq!(next(41), 42);
    let reason = not_improvable(&image, "next");
    assert!(reason.contains("it takes the address of `same`, which the image has elsewhere"), "{reason}");
}

/// Optimization has made a constant of the variable: the image has nothing that the source could write to.
#[test]
fn a_variable_that_the_image_has_not_keeps_the_images_body() {
    let folded = "
        @never = internal global i64 1
        define i64 @next(i64 %x) { %y = load i64, ptr @never %z = add i64 %x, %y store i64 1, ptr @never ret i64 %z }";
    let sources = [("next.ll", folded)];
    let package = at_level(OptimizationLevel::O2, &sources);
    let jit = Jit::builder().threads(0).optimization(OptimizationLevel::O3).tiers(counting());
    let jit = jit.build().expect("an engine");
    let image = package.load(&jit, with(&sources));
    let next = next_of(&jit);
    call_until(&next, || stats(&jit).failed > 0);
    assert_eq!(next(41), 42);
    assert!(not_improvable(&image, "next").contains("never"), "{:?}", image.body("next"));
}

#[test]
fn other_engines_have_no_stubs_before_images() {
    let sources = [("next.ll", NEXT), ("user.ll", USER)];
    let package = package(&sources);
    let jit = engine(1);
    let image = package.load(&jit, with(&[]));
    assert_eq!(call(&jit, "user", 1), 3);
    assert_eq!((image.bodies(), image.body("next")), (Default::default(), None));
    let place = |name: &str| jit.lookup(name).expect("it is there").address.value();
    assert!(place("next").abs_diff(place("calls_of")) < 4096, "they lie in the image, one behind the other");
}

#[test]
fn functions_of_images_are_redefined_before_and_after_they_got_better() {
    let sources = [("next.ll", NEXT), ("user.ll", USER)];
    let package = package(&sources);
    let lazy = || Jit::builder().threads(1).compile_on_call(OnCall::Function).build().expect("an engine");
    for (jit, is_tiered) in [(lazy(), false), (tiered(), false), (tiered(), true)] {
        let image = package.load(&jit, with(&sources));
        let next = next_of(&jit);
        assert_eq!((next(41), call(&jit, "user", 1)), (42, 3));
        if is_tiered {
            call_until_better(&next, &image);
        }
        let bodies = jit.create_dylib("bodies").expect("new");
        let other = "define i64 @next.2(i64 %x) { %y = add i64 %x, 100 ret i64 %y }";
        bodies.add_ir_text("2.ll", other).expect("new");
        jit.redefine(&bodies, [("next", "next.2")]).expect("a stub stands before it");
        assert_eq!((next(1), call(&jit, "user", 1)), (101, 102));
        for _ in 0..10 * CALLS {
            assert_eq!(next(1), 101, "no body of the image comes back");
        }
        assert_eq!(image.units().len(), 2);
    }
}

/// The better body uses the image's variable: who holds the function holds both.
#[test]
fn handles_hold_the_image_behind_a_better_body_and_removal_takes_all() {
    let sources = [("next.ll", NEXT), ("user.ll", USER)];
    let package = package(&sources);
    let jit = tiered();
    let tracker = jit.create_tracker();
    let image = package.load(&jit.in_tracker(&tracker), with(&sources));
    let next = next_of(&jit);
    call_until_better(&next, &image);
    // It may still hold what the compilation needed.
    jit.tiers().expect("there are tiers").stop_and_wait();
    tracker.remove().expect("nothing objects");
    assert!(jit.lookup("next").is_err());
    assert_eq!(next(41), 42);
    drop(next);
    assert_eq!(jit.memory_usage().allocations, 0);
}

/// The package goes while its function is compiled better: the compilation waits in the middle of it.
#[test]
fn a_package_is_removed_while_its_function_gets_better() {
    let sources = [("next.ll", NEXT)];
    let package = package(&sources);
    let (is_inside, may_go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let hook = PassHook::new("waits", {
        let (is_inside, may_go) = (is_inside.clone(), may_go.clone());
        move |_| {
            is_inside.store(true, Ordering::SeqCst);
            while !may_go.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            Ok::<_, &str>(())
        }
    });
    let pipeline = OptimizationPipeline::level(OptimizationLevel::O2).hook_before(Stage::ALL[0], hook);
    let jit = Jit::builder().threads(0).pipeline(pipeline).tiers(counting()).build().expect("an engine");
    let tracker = jit.create_tracker();
    package.load(&jit.in_tracker(&tracker), with(&sources));
    let next = next_of(&jit);
    call_until(&next, || is_inside.load(Ordering::SeqCst));
    drop(next);
    tracker.remove().expect("nothing objects");
    assert!(jit.lookup("next").is_err());
    may_go.store(true, Ordering::SeqCst);
    jit.tiers().expect("there are tiers").stop_and_wait();
    assert_eq!(stats(&jit).promoted, 0);
    assert_eq!(jit.memory_usage().allocations, 0);
}

/// Each call counts once, in whichever body.
#[test]
fn threads_call_while_functions_of_an_image_get_better() {
    let sources = [("next.ll", NEXT)];
    let package = package(&sources);
    let jit = Jit::builder().threads(1).tiers(counting()).build().expect("an engine");
    let image = package.load(&jit, with(&sources));
    let next = next_of(&jit);
    let calls = AtomicI64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| calls.fetch_add(call_until_better(&next, &image), Ordering::Relaxed)); // a sum
        }
    });
    assert_eq!(call(&jit, "calls_of", 0), calls.load(Ordering::Relaxed));
}

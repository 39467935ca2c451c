//! The statements but the eighth, in their order.

use std::sync::Arc;

use uruk::core::sync::Mutex;

use crate::Watched;

#[test]
fn s1_a_function_that_is_never_called_makes_no_ir() {
    let mut watched = Watched::new();
    watched.run("def f(x) x def g(x) f(x) + missing(x)");
    watched.run("def h(x) x * 2");
    assert_eq!(watched.value("h(4)"), 8.0);
    assert_eq!(watched.lowered(), ["h$1"]);
}

#[test]
fn s2_ir_is_made_at_the_first_call_and_of_callees_only_on_the_path_taken() {
    let mut watched = Watched::new();
    watched.run("def pick(x) if x < 0 then low(x) else high(x)");
    watched.run("def low(x) 0 - x def high(x) deep(x) + 1 def deep(x) x * 10");
    assert_eq!(watched.lowered(), [""; 0]);
    assert_eq!(watched.value("pick(3)"), 31.0);
    assert_eq!(watched.lowered(), ["pick$1", "high$1", "deep$1"]);
    assert_eq!(watched.value("pick(3)"), 31.0);
    assert_eq!(watched.lowered(), [""; 0]);
    assert_eq!(watched.value("pick(-3)"), 3.0);
    assert_eq!(watched.lowered(), ["low$1"]);
}

/// How many lines: more in `make soak`'s time.
fn lines() -> u32 {
    std::env::var("URUK_REPL_LINES").ok().and_then(|lines| lines.parse().ok()).unwrap_or(400)
}

#[test]
fn s3_top_level_runs_at_once_and_is_freed() {
    let mut watched = Watched::new();
    watched.run("def f(x) x + 1");
    assert_eq!(watched.value("f(1)"), 2.0);
    let usage = |watched: &Watched| watched.session.jit().memory_usage().allocations;
    let before = usage(&watched);
    for line in 0..lines() {
        assert_eq!(watched.value(&format!("f({line}) + {line}")), f64::from(2 * line + 1));
        // Functions that are replaced leave nothing either.
        if line % 100 == 0 {
            watched.run("def f(x) x + 1");
            assert_eq!(watched.value("f(1)"), 2.0);
        }
        watched.lowered();
    }
    assert_eq!(usage(&watched), before);
}

#[test]
fn s4_the_address_of_a_function_is_the_same_before_and_after_its_call_and_its_redefinition() {
    let mut watched = Watched::new();
    watched.run("def f(x) x + 1");
    let before = watched.address("f");
    assert_eq!((watched.value("f(1)"), watched.address("f")), (2.0, before));
    watched.run("def f(x) x + 10");
    assert_eq!((watched.address("f"), watched.value("f(1)"), watched.address("f")), (before, 11.0, before));
}

#[test]
fn s5_names_of_bodies_collide_with_no_name_of_a_program() {
    let mut watched = Watched::new();
    // `$` may be an operator, and in no name.
    watched.run("def binary$ 5 (a b) a * 100 + b def unary$(a) a + 1");
    watched.run("def binary(a) a".replace("binary", "unary_1").as_str());
    watched.run("def expression(x) x def f(x) x def f1(x) x + 1");
    assert_eq!(watched.value("1 $ 2"), 102.0);
    assert_eq!(watched.value("$ 1"), 2.0);
    assert_eq!(watched.value("f(f1(unary_1(expression(3))))"), 4.0);
    watched.error("f$1(2)");
    // The C library's functions are not in the way of the program's, and an optimizer does not take the one for the other.
    assert_eq!(watched.value("extern cos(x) cos(0)"), 1.0);
    assert_eq!(watched.value("def cos(x) x + 7 cos(0)"), 7.0);
    assert_eq!(
        watched.value("def exit(x) x def malloc(x) x + 1 def main() 3 exit(1) + malloc(1) + main()"),
        6.0
    );
}

#[test]
fn s6_a_generator_that_fails_fails_that_call_and_not_the_process() {
    let mut watched = Watched::new();
    watched.run("def f(x) if x then g(x) else 0 def safe(x) x");
    let error = watched.error("f(1)");
    assert!(error.starts_with("nobody has defined `g`\n --> test:1:20\n"), "{error}");
    assert_eq!(watched.value("safe(1)"), 1.0);
    assert!(
        watched.error("f(0)").starts_with("nobody has defined `g`"),
        "it is tried again, and fails again"
    );
    // A function in a loop fails once, as far as people are told.
    assert!(watched.error("for i = 1, i < 1000 in f(i)").starts_with("nobody has defined `g`"));
    watched.run("def g(x) x * 2");
    assert_eq!(watched.value("f(21)"), 42.0);
    // The number of arguments is that of now.
    watched.run("def g(x y) x * y");
    assert!(watched.error("f(21)").starts_with("`g` takes 2 arguments, and is given 1"));
    watched.run("def f(x) g(x, x)");
    assert_eq!(watched.value("f(3)"), 9.0);
    assert!(watched.error("extern no_such_function(x) no_such_function(1)").contains("has no such function"));
    assert!(watched.error("f()").starts_with("`f` takes 1 argument, and is given 0"));
}

#[test]
fn s7_generators_run_on_any_thread() {
    let threads = Arc::new(Mutex::new(Vec::new()));
    let noted = threads.clone();
    let mut watched = Watched::observed(2, move |body| {
        noted.lock().push((body.to_owned(), std::thread::current().id()));
    });
    watched.run("def f(x) x + 1 def g(x) x + 2");
    type Unary = extern "C" fn(f64) -> f64;
    // SAFETY: both take and give a number; the session outlives the handles.
    let get = |name| unsafe { watched.session.jit().get::<Unary>(name) }.expect("a stub");
    let (f, g) = (get("f"), get("g"));
    let there = std::thread::scope(|scope| {
        let call = || (g(1.0), std::thread::current().id());
        scope.spawn(call).join().expect("it returns")
    });
    assert_eq!((f(1.0), there.0), (2.0, 3.0));
    let here = std::thread::current().id();
    assert_eq!(*threads.lock(), [("g$1".to_owned(), there.1), ("f$1".to_owned(), here)]);
    assert_ne!(here, there.1);
    drop((f, g));
    // An expression is compiled by the pool.
    assert_eq!(watched.value("f(1) + g(1)"), 5.0);
    assert_ne!(threads.lock().last().expect("the expression").1, here);
}

#[test]
fn s9_what_is_removed_before_its_first_call_makes_no_ir() {
    let mut watched = Watched::new();
    watched.run("def f(x) x + 1");
    // Its first body goes.
    watched.run("def f(x) x + 2");
    assert_eq!(watched.value("f(1)"), 3.0);
    assert_eq!(watched.lowered(), ["f$2"]);
    // All bodies go: calls fail, and the session goes on.
    watched.run("def g(x) x");
    let bodies = watched.session.jit().session().jit_dylib("bodies").expect("it is there");
    bodies.clear().expect("nobody needs them");
    let error = watched.error("g(1)");
    assert!(error.contains("g$1"), "{error}");
    assert_eq!(watched.lowered(), [""; 0]);
    watched.run("def g(x) x + 4");
    assert_eq!(watched.value("g(1)"), 5.0);
}

//! Functions that get other bodies while they are called.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use uruk::core::MaterializationUnit;
use uruk::core::sync::{Arc, Latch};
use uruk::{Function, Jit, JitError, OwnedTracker, Scope};

use crate::code_unit::code_unit;
use crate::function_unit::function_unit;
use crate::support::{c, engine};

pub(crate) type Answer = extern "C" fn() -> i32;

/// Says that it has begun, and goes on when it is told to.
#[derive(Clone, Default)]
pub(crate) struct Slowly {
    has_begun: Arc<Latch>,
    may_go_on: Arc<Latch>,
}

pub(crate) fn add_unit(
    jit: &Jit,
    bodies: &Scope,
    name: &str,
    number: i32,
    slowly: Option<Slowly>,
) -> OwnedTracker {
    let tracker = bodies.create_tracker();
    let unit = gives(jit, name, number);
    let unit = match slowly {
        None => unit,
        Some(Slowly { has_begun, may_go_on }) => function_unit(jit.intern(name), move |responsibility| {
            has_begun.open();
            may_go_on.wait();
            unit.materialize(responsibility);
        }),
    };
    bodies.dylib().define_with_tracker(unit, &tracker).expect("a new name");
    tracker
}

/// A unit of a function that gives a number.
pub(crate) fn gives(jit: &Jit, name: &str, number: i32) -> Box<dyn MaterializationUnit> {
    let code = [&[0xb8], &number.to_le_bytes()[..], &[0xc3]].concat(); // mov eax, number; ret
    code_unit(jit.intern(name), jit.object_layer().clone(), code)
}

/// A body of `answer` under the name that this gives.
pub(crate) fn body(jit: &Jit, bodies: &Scope, number: i32) -> (String, OwnedTracker) {
    let name = format!("answer${number}");
    let tracker = add_unit(jit, bodies, &name, number, None);
    (name, tracker)
}

fn get(jit: &Jit, function: &str) -> Function<Answer> {
    // SAFETY: all functions here have this signature, and their pointers stay in their handles.
    unsafe { jit.get(function) }.unwrap_or_else(|error| panic!("{function}: {error}"))
}

fn pieces(jit: &Jit) -> u64 {
    jit.memory_usage().allocations
}

#[test]
fn a_function_is_redefined_before_its_stub_is_there_before_its_call_and_after() {
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let made: Vec<_> = (1..=6).map(|number| body(&jit, &bodies, number)).collect();
    let name = |number: usize| made[number - 1].0.as_str();
    jit.add_lazy(&bodies, [("answer", name(1))]).expect("a new name");
    jit.redefine_lazily(&bodies, [("answer", name(2))]).expect("it is a lazy function");
    assert_eq!(pieces(&jit), 1, "its stub, and no body");
    let answer = get(&jit, "answer");
    jit.redefine_lazily(&bodies, [("answer", name(3))]).expect("it is a lazy function");
    assert_eq!(answer(), 3);
    jit.redefine_lazily(&bodies, [("answer", name(4))]).expect("it is a lazy function");
    assert_eq!((pieces(&jit), answer(), pieces(&jit)), (2, 4, 3));
    jit.redefine(&bodies, [("answer", name(5))]).expect("its body is there");
    assert_eq!((pieces(&jit), answer(), pieces(&jit)), (4, 5, 4));
    let again = get(&jit, "answer");
    assert_eq!((*again as usize, again()), (*answer as usize, 5));
    jit.redefine(&bodies, [("answer", name(6))]).expect("its body is there");
    assert_eq!((answer(), again()), (6, 6));
}

/// A program compares what the unwinder says with addresses that it has taken.
#[test]
fn every_body_says_that_it_is_the_function_of_its_stub() {
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    for number in 1..=5 {
        let body = format!(
            "void *_Unwind_FindEnclosingFunction(void *);
             static __attribute__((noinline)) void *here(void) {{ return __builtin_return_address(0); }}
             void *who{number}(void) {{ return _Unwind_FindEnclosingFunction(here()); }}"
        );
        bodies.add_object(c(&format!("{number}.o"), &body)).expect("a new name");
    }
    jit.add_lazy(&bodies, [("who", "who1")]).expect("a new name");
    // SAFETY: all bodies have this signature, and the pointers stay in their handles.
    let who = unsafe { jit.get::<extern "C" fn() -> *const ()>("who") }.expect("it is there");
    let own = *who as *const ();
    jit.redefine(&bodies, [("who", "who2")]).expect("its body is there");
    assert_eq!(who(), own, "redefined before its first call");
    jit.redefine(&bodies, [("who", "who3")]).expect("its body is there");
    assert_eq!(who(), own, "redefined after it");
    jit.redefine_lazily(&bodies, [("who", "who4")]).expect("it is a lazy function");
    assert_eq!(who(), own, "found by its first call");

    // Code that no function leads to is a function of its own.
    jit.add_object(c("direct.o", "int direct(void) { return 1; }")).expect("a new name");
    let refused = jit.redefine(&bodies, [("who", "who5"), ("direct", "who4")]);
    assert!(matches!(refused, Err(JitError::NotLazy { symbol }) if &*symbol == "direct"));
    // SAFETY: as above.
    let who5 = unsafe { bodies.get::<extern "C" fn() -> *const ()>("who5") };
    let who5 = who5.expect("it is there");
    assert_eq!((who5(), who()), (*who5 as *const (), own));
}

/// Code that was linked before calls the new body too, and the one that is called has its address from the beginning.
#[test]
fn callers_that_are_linked_reach_the_new_body() {
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let (first, _first) = body(&jit, &bodies, 1);
    jit.add_lazy(&bodies, [("answer", &*first)]).expect("a new name");
    let caller =
        "int answer(void); int (*kept)(void) = answer; int caller(void) { return 100 * answer() + kept(); }";
    jit.add_object(c("caller.o", caller)).expect("a new name");
    let caller = get(&jit, "caller");
    assert_eq!(caller(), 101);
    let (second, _second) = body(&jit, &bodies, 2);
    jit.redefine(&bodies, [("answer", &*second)]).expect("its body is there");
    assert_eq!(caller(), 202);
}

/// One thread compiles the old body, on behalf of its own call, while the function is redefined.
#[test]
fn a_call_that_waits_for_an_older_body_goes_to_the_new_one() {
    for removes in [false, true] {
        let jit = engine(1);
        let bodies = jit.create_dylib("bodies").expect("a new name");
        let slowly = Slowly::default();
        let old = add_unit(&jit, &bodies, "old", 1, Some(slowly.clone()));
        let (new, _new) = body(&jit, &bodies, 2);
        jit.add_lazy(&bodies, [("answer", "old")]).expect("a new name");
        let answer = get(&jit, "answer");
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| answer())).collect();
            slowly.has_begun.wait();
            jit.redefine_lazily(&bodies, [("answer", &*new)]).expect("it is a lazy function");
            assert_eq!(answer(), 2, "nobody waits for the old body");
            if removes {
                old.remove().expect("nothing of it objects");
            }
            slowly.may_go_on.open();
            for caller in callers {
                assert_eq!(caller.join().expect("it returns"), 2);
            }
        });
        assert_eq!(answer(), 2);
    }
}

#[test]
fn several_functions_are_redefined_together_or_not_at_all() {
    let jit = engine(2);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let _kept: Vec<_> = ["f", "g", "f2", "g2"]
        .iter()
        .zip(1..)
        .map(|(name, number)| add_unit(&jit, &bodies, name, number, None))
        .collect();
    let broken = "int missing(void); int g3(void) { return missing(); }";
    bodies.add_object(c("broken.o", broken)).expect("a new name");
    jit.add_lazy(&bodies, ["f", "g"]).expect("new names");
    let both = || (get(&jit, "f")(), get(&jit, "g")());
    assert_eq!(both(), (1, 2));
    for broken in ["g3", "absent"] {
        let refused = jit.redefine(&bodies, [("f", "f2"), ("g", broken)]);
        assert!(matches!(refused, Err(JitError::Lookup(_))), "{refused:?}");
        assert_eq!(both(), (1, 2));
    }
    jit.redefine(&bodies, [("f", "f2"), ("g", "g2")]).expect("they are there");
    assert_eq!(both(), (3, 4));
}

/// A failure before a body is compiled leaves the order in which references of bodies are searched. Once one may have been compiled by
/// the new order, it stays.
#[test]
fn a_redefinition_that_fails_never_takes_the_link_order_back() {
    let jit = engine(1);
    let [bodies, others] = ["bodies", "others"].map(|name| jit.create_dylib(name).expect("a new name"));
    let (first, _first) = body(&jit, &bodies, 1);
    jit.add_lazy(&bodies, [("answer", &*first)]).expect("a new name");
    let searched =
        || others.dylib().link_order().iter().map(|(dylib, _)| dylib.name().to_owned()).collect::<Vec<_>>();
    let before = searched();
    for is_lazy in [false, true] {
        let refused = match is_lazy {
            true => jit.redefine_lazily(&others, [("absent", "absent")]),
            false => jit.redefine(&others, [("answer", "absent")]),
        };
        assert!(matches!(refused, Err(JitError::Lookup(_))), "{refused:?}");
        assert_eq!(searched(), before);
    }
    let broken = "int missing(void); int broken(void) { return missing(); }";
    others.add_object(c("broken.o", broken)).expect("a new name");
    let refused = jit.redefine(&others, [("answer", "broken")]);
    assert!(matches!(refused, Err(JitError::Lookup(_))), "{refused:?}");
    let after = searched();
    assert_eq!(after, [&[jit.main_dylib().name().to_owned()], &*before].concat());
    let (second, _second) = body(&jit, &others, 2);
    jit.redefine(&others, [("answer", &*second)]).expect("its body is there");
    assert_eq!((searched(), get(&jit, "answer")()), (after, 2));
}

/// The second of two calls is never older than the first, whichever functions they are of.
#[test]
fn a_group_is_never_seen_half_redefined() {
    const ROUNDS: i32 = 300;
    const FUNCTIONS: [&str; 3] = ["f", "g", "h"];
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let name = |function: &str, number: i32| format!("{function}${number}");
    let add = |number: i32| {
        FUNCTIONS.map(|function| add_unit(&jit, &bodies, &name(function, number), number, None))
    };
    let mut trackers = add(1);
    let names = |number| FUNCTIONS.map(|function| (function, name(function, number)));
    let first = names(1);
    let first = first.each_ref().map(|(function, body)| (*function, &**body));
    jit.add_lazy_group(&bodies, first).expect("new names");
    let (defined, ends) = (AtomicI32::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let call = |thread: usize| {
            let (jit, defined, ends) = (&jit, &defined, &ends);
            move || {
                let mut guard = jit.enter();
                for round in thread.. {
                    if ends.load(Ordering::Acquire) {
                        break;
                    }
                    let mut at_least = defined.load(Ordering::Acquire);
                    for turn in 0..30 {
                        let function = FUNCTIONS[(turn * (1 + round % 2) + round) % 3];
                        // SAFETY: all functions here have this signature, and refer to nothing.
                        let function = unsafe { jit.get_guarded::<Answer>(&guard, function) };
                        let number = function.expect("it is there")();
                        assert!(number >= at_least, "{number} after {at_least}");
                        at_least = number;
                    }
                    guard.checkpoint();
                }
            }
        };
        let callers: Vec<_> = (0..3).map(|thread| scope.spawn(call(thread))).collect();
        for number in 2..ROUNDS {
            let next = add(number);
            let bodies_of = names(number);
            let bodies_of = bodies_of.each_ref().map(|(function, body)| (*function, &**body));
            let redefined = match number % 2 {
                0 => jit.redefine(&bodies, bodies_of),
                _ => jit.redefine_lazily(&bodies, bodies_of),
            };
            redefined.expect("they are there");
            defined.store(number, Ordering::Release);
            trackers = next; // The old bodies go when the callers have passed.
        }
        ends.store(true, Ordering::Release);
        for caller in callers {
            caller.join().expect("it never saw an older one");
        }
    });
    assert_eq!(pieces(&jit), 4, "the stubs, and the last bodies");
    drop(trackers);
}

/// As other lazy functions are: one at a time, before and after calls, and by their names.
#[test]
fn one_function_of_a_group_is_redefined_alone() {
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let _kept: Vec<_> = ["f", "g", "f2", "g2", "f3"]
        .iter()
        .zip(1..)
        .map(|(name, number)| add_unit(&jit, &bodies, name, number, None))
        .collect();
    jit.add_lazy_group(&bodies, ["f", "g"]).expect("new names");
    let (f, g) = (get(&jit, "f"), get(&jit, "g"));
    assert_eq!(f(), 1);
    jit.redefine(&bodies, [("f", "f2"), ("g", "g2")]).expect("they are there");
    assert_eq!((f(), g()), (3, 4));
    jit.redefine(&bodies, [("f", "f3")]).expect("it is there");
    assert_eq!((f(), g()), (5, 4));
    jit.redefine_lazily(&bodies, [("f", "f"), ("g", "g")]).expect("they are lazy functions");
    assert_eq!((f(), g()), (1, 2));
    assert_eq!((*get(&jit, "f") as usize, *get(&jit, "g") as usize), (*f as usize, *g as usize));
}

/// A signal may interrupt the engine, so what a handler is comes from no first call, independent of its stub's jump.
#[test]
fn a_function_of_a_group_is_compiled_when_it_becomes_a_handler() {
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let _kept = ["first", "other", "handler"].map(|name| add_unit(&jit, &bodies, name, 0, None));
    jit.add_lazy_group(&bodies, ["first", "other", "handler"]).expect("new names");
    let install = "#include <signal.h>
                   void handler(int); int install(void) { return signal(SIGUSR2, handler) == SIG_ERR; }
                   int uninstall(void) { return signal(SIGUSR2, SIG_DFL) == SIG_ERR; }";
    jit.add_object(c("install.o", install)).expect("a new name");
    let (install, uninstall) = (get(&jit, "install"), get(&jit, "uninstall"));
    let before = pieces(&jit);
    assert_eq!((install(), pieces(&jit), uninstall()), (0, before + 1, 0));
}

/// A program's own function may begin as stubs of groups do, and what it loads be no table.
#[test]
fn a_handler_that_only_looks_like_a_stub_is_let_alone() {
    let jit = engine(1);
    let source = r#"#include <signal.h>
        __asm__(".text\n.p2align 4\n.globl jumps\n.type jumps, @function\njumps: mov table(%rip), %r11; jmp *0x1000(%r11)\n"
                ".size jumps, . - jumps\n.data\n.p2align 3\ntable: .quad 0\n.text\n");
        void jumps(int);
        int install(void) { return signal(SIGWINCH, jumps) == SIG_ERR; }
        int uninstall(void) { return signal(SIGWINCH, SIG_DFL) == SIG_ERR; }"#;
    jit.add_object(c("jumps.o", source)).expect("a new name");
    assert_eq!((get(&jit, "install")(), get(&jit, "uninstall")()), (0, 0));
}

#[test]
fn what_is_not_lazy_cannot_be_redefined() {
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let (first, _first) = body(&jit, &bodies, 1);
    jit.add_object(c("direct.o", "int direct(void) { return 1; } int data = 1;")).expect("a new name");
    let redefine = |function: &str, body: &str| jit.redefine(&bodies, [(function, body)]);
    assert!(matches!(redefine("direct", &first), Err(JitError::NotLazy { symbol }) if &*symbol == "direct"));
    assert!(matches!(redefine("data", &first), Err(JitError::NotCallable { .. })));
    assert!(matches!(redefine("absent", &first), Err(JitError::Lookup(_))));
    bodies.add_object(c("data.o", "int data2 = 1;")).expect("a new name");
    jit.add_lazy(&bodies, [("answer", &*first)]).expect("a new name");
    assert!(
        matches!(redefine("answer", "data2"), Err(JitError::NotCallable { symbol }) if &*symbol == "data2")
    );
    assert_eq!(get(&jit, "answer")(), 1);
}

#[test]
fn old_bodies_go_with_their_trackers_when_nobody_holds_them() {
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let (mut name, mut tracker) = body(&jit, &bodies, 1);
    jit.add_lazy(&bodies, [("answer", &*name)]).expect("a new name");
    for number in 2..1_000 {
        assert_eq!(get(&jit, "answer")(), number - 1);
        assert_eq!(pieces(&jit), 2);
        let (next, of_next) = body(&jit, &bodies, number);
        jit.redefine(&bodies, [("answer", &*next)]).expect("its body is there");
        (name, tracker) = (next, of_next); // The old tracker goes, and what it had.
    }
    drop((name, tracker));
}

/// A caller sees numbers that only grow, and none that was replaced before the call.
#[test]
fn threads_that_call_never_see_an_older_body_again() {
    const ROUNDS: i32 = 300;
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let (name, mut tracker) = body(&jit, &bodies, 1);
    jit.add_lazy(&bodies, [("answer", &*name)]).expect("a new name");
    let (defined, ends) = (AtomicI32::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let call = || {
            let mut last = 0;
            while !ends.load(Ordering::Acquire) {
                let at_least = defined.load(Ordering::Acquire).max(last);
                last = get(&jit, "answer")();
                assert!(last >= at_least, "{last} after {at_least}");
            }
        };
        let callers: Vec<_> = (0..3).map(|_| scope.spawn(call)).collect();
        for number in 2..ROUNDS {
            let (next, of_next) = body(&jit, &bodies, number);
            let redefined = match number % 2 {
                0 => jit.redefine(&bodies, [("answer", &*next)]),
                _ => jit.redefine_lazily(&bodies, [("answer", &*next)]),
            };
            redefined.expect("its body is there");
            defined.store(number, Ordering::Release);
            tracker = of_next;
        }
        ends.store(true, Ordering::Release);
        for caller in callers {
            caller.join().expect("it never saw an older one");
        }
    });
    drop(tracker);
    assert_eq!(pieces(&jit), 1, "its stub");
}

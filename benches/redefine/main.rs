//! Functions that get other bodies while they run: the cost of a call under a guard, and the cost and the remains of a
//! redefinition.
//!
//! ```text
//! cargo bench --bench redefine
//! ```
//!
//! The kinds of calls run in turn in each round; every call takes the answer of the one before. *Over* is the median of the
//! extra time of a round over its plain calls, through a pointer to the function itself.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

#[path = "../../tests/embed/code_unit.rs"]
mod code_unit;
#[path = "../../pipeline/tests/support/function_unit.rs"]
mod function_unit;

use std::hint::black_box;
use std::time::Instant;

use code_unit::code_unit;
use uruk::{Jit, OwnedTracker, Scope};

type Next = extern "C" fn(u64) -> u64;

const ROUNDS: usize = 51;
const CALLS: u64 = 1_000_000;
const REDEFINITIONS: usize = 20_000;
/// How many functions are called in turn.
const CYCLED: u64 = 1_000;

fn main() {
    // Under `cargo test --benches` it is only built, and measures nothing.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let jit = Jit::builder().threads(0).build().expect("an engine for this machine");
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let first = add(&jit, &bodies, "next$0", 1);
    jit.add_lazy(&bodies, [("next", "next$0")]).expect("a new name");
    // SAFETY: all bodies have this signature, and refer to nothing.
    let stub = unsafe { jit.function::<Next>("next") }.expect("it is there");
    // SAFETY: as above.
    let direct = unsafe { bodies.function::<Next>("next$0") }.expect("it is there");
    let _other = add(&jit, &bodies, "other", 1);
    jit.add_lazy_group(&bodies, [("next of a group", "next$0"), ("other of a group", "other")])
        .expect("new names");
    // SAFETY: as above.
    let grouped = unsafe { jit.function::<Next>("next of a group") }.expect("it is there");
    assert_eq!((stub(41), grouped(41)), (42, 42));
    calls(&jit, direct, stub, grouped);
    cycling(&jit);
    of_several(&jit);
    redefinitions(&jit, &bodies, first, stub);
}

fn add(jit: &Jit, bodies: &Scope, name: &str, step: u8) -> OwnedTracker {
    let tracker = bodies.create_tracker();
    let code = vec![0x48, 0x8d, 0x47, step, 0xc3]; // lea rax, [rdi + step]; ret
    let unit = code_unit(jit.intern(name), jit.object_layer().clone(), code);
    bodies.dylib().define_with_tracker(unit, &tracker).expect("a new name");
    tracker
}

fn calls(jit: &Jit, direct: Next, stub: Next, grouped: Next) {
    let through = |function: Next| {
        let function = black_box(function);
        (0..CALLS).fold(0, |sum, _| function(sum))
    };
    let cases: [(&str, &dyn Fn() -> u64); 6] = [
        ("plain", &|| through(direct)),
        ("stub", &|| through(stub)),
        ("stub of a group", &|| through(grouped)),
        ("stub, a guard around all", &|| {
            let _guard = jit.enter();
            through(stub)
        }),
        ("stub, a checkpoint after each", &|| {
            let (mut guard, function) = (jit.enter(), black_box(stub));
            (0..CALLS).fold(0, |sum, _| {
                let next = function(sum);
                guard.checkpoint();
                next
            })
        }),
        ("stub, a guard around each", &|| {
            let function = black_box(stub);
            (0..CALLS).fold(0, |sum, _| {
                let _guard = jit.enter();
                function(sum)
            })
        }),
    ];
    let mut taken = [const { Vec::new() }; 6];
    for _ in 0..ROUNDS {
        for ((_, run), taken) in cases.iter().zip(&mut taken) {
            let begun = Instant::now();
            black_box(run());
            taken.push(begun.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    let plain = taken[0].clone();
    println!("{:32} {:>8} {:>8} {:>8}", "a call, ns", "median", "over", "ratio");
    for ((case, _), taken) in cases.iter().zip(taken) {
        let over = taken.iter().zip(&plain).map(|(all, plain)| all - plain).collect();
        let ratio = taken.iter().zip(&plain).map(|(all, plain)| all / plain).collect();
        println!("{case:32} {:8.2} {:8.2} {:8.2}", median(taken), median(over), median(ratio));
    }
}

/// Calls that go round many functions, each through a stub of its own.
fn cycling(jit: &Jit) {
    let bodies = jit.create_dylib("cycled").expect("a new name");
    let names = |kind: &str| (0..CYCLED).map(|number| format!("{kind}{number}")).collect::<Vec<_>>();
    let made = names("body");
    let _kept: Vec<_> = made.iter().map(|name| add(jit, &bodies, name, 1)).collect();
    let (alone, grouped) = (names("alone"), names("grouped"));
    jit.add_lazy(&bodies, pairs(&alone, &made)).expect("new names");
    jit.add_lazy_group(&bodies, pairs(&grouped, &made)).expect("new names");
    // SAFETY: all bodies have this signature, refer to nothing, and stay.
    let get = |scope: &Scope, name: &String| unsafe { scope.function::<Next>(name) }.expect("it is there");
    let direct = made.iter().map(|name| get(&bodies, name)).collect();
    let [alone, grouped] = [alone, grouped].map(|names| names.iter().map(|name| get(jit, name)).collect());
    let functions: [Vec<Next>; 3] = [direct, alone, grouped];
    let mut taken = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (functions, taken) in functions.iter().zip(&mut taken) {
            let begun = Instant::now();
            for _ in 0..CALLS / CYCLED {
                black_box(functions.iter().fold(0, |sum, function| function(sum)));
            }
            taken.push(begun.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    println!("\n{:32} {:>8}", format!("a call, {CYCLED} functions in turn, ns"), "median");
    for (case, taken) in ["plain", "stub", "stub of a group"].iter().zip(taken) {
        println!("{case:32} {:8.2}", median(taken));
    }
}

/// Redefinitions of ten functions, to bodies that are Ready.
fn of_several(jit: &Jit) {
    const FUNCTIONS: usize = 10;
    let bodies = jit.create_dylib("several").expect("a new name");
    let names = |kind: &str| (0..FUNCTIONS).map(|number| format!("{kind}{number}")).collect::<Vec<_>>();
    let made = ["one", "two"].map(names);
    let _kept: Vec<_> = made.iter().flatten().map(|name| add(jit, &bodies, name, 1)).collect();
    println!("\n{:32} {:>8}", format!("{FUNCTIONS} functions redefined, us"), "median");
    for (case, is_group) in [("each at its moment", false), ("a group, at one moment", true)] {
        let functions = names(case);
        let first = pairs(&functions, &made[0]);
        match is_group {
            true => jit.add_lazy_group(&bodies, first),
            false => jit.add_lazy(&bodies, first),
        }
        .expect("new names");
        for function in &functions {
            // SAFETY: as above.
            let function = unsafe { jit.function::<Next>(function) }.expect("it is there");
            assert_eq!(function(41), 42);
        }
        let mut taken = Vec::new();
        for number in 1..=1_000 {
            let next = pairs(&functions, &made[number % 2]);
            let begun = Instant::now();
            jit.redefine(&bodies, next).expect("they are there");
            taken.push(begun.elapsed().as_nanos() as f64 / 1e3);
        }
        println!("{case:32} {:8.2}", median(taken));
    }
}

fn pairs<'n>(functions: &'n [String], bodies: &'n [String]) -> impl Iterator<Item = (&'n str, &'n str)> {
    functions.iter().zip(bodies).map(|(function, body)| (&**function, &**body))
}

fn redefinitions(jit: &Jit, bodies: &Scope, mut last: OwnedTracker, stub: Next) {
    let (mut to_effect, mut lazily, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let micros = |begun: Instant| begun.elapsed().as_nanos() as f64 / 1e3;
    let mut resident = Vec::new();
    for number in 1..=2 * REDEFINITIONS {
        let (name, step) = (format!("next${number}"), (number % 100) as u8);
        let begun_whole = Instant::now();
        let tracker = add(jit, bodies, &name, step);
        if number % 2 == 0 {
            bodies.lookup(&name).expect("it is there");
            let begun = Instant::now();
            jit.redefine(bodies, [("next", &*name)]).expect("its body is there");
            assert_eq!(stub(0), u64::from(step));
            to_effect.push(micros(begun));
        } else {
            let begun = Instant::now();
            jit.redefine_lazily(bodies, [("next", &*name)]).expect("it is a lazy function");
            lazily.push(micros(begun));
            assert_eq!(stub(0), u64::from(step));
        }
        last = tracker; // The body before goes.
        whole.push(micros(begun_whole));
        if number % REDEFINITIONS == 0 {
            resident.push(jit.memory_usage().allocations);
        }
    }
    drop(last);
    println!("\n{:32} {:>8}", "a redefinition, us", "median");
    println!("{:32} {:8.2}", "of a body that is Ready, called", median(to_effect));
    println!("{:32} {:8.2}", "lazily, not called", median(lazily));
    println!("{:32} {:8.2}", "with its body, linked and freed", median(whole));
    println!("\npieces of code after {REDEFINITIONS} and {}: {resident:?}", 2 * REDEFINITIONS);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

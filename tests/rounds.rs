//! Code that comes and goes through the engine leaves nothing, however it goes: a host that replaces its code for days has as much memory at
//! the end as it had after the first minute. In a binary of its own: its allocator counts.

use std::process::Command;

use allocation_counter::measure;
use uruk::Jit;
use uruk_pipeline::object::ObjectBuffer;

/// The object that `cc` makes of `source`.
fn compile(name: &str, source: &str, flags: &[&str]) -> ObjectBuffer {
    let stem = std::env::temp_dir().join(format!("uruk-rounds-{}-{name}", std::process::id()));
    let (input, output) = (stem.with_extension("c"), stem.with_extension("o"));
    std::fs::write(&input, source).expect("a temporary file");
    let compiled =
        Command::new("cc").args(["-fPIC", "-c"]).args(flags).arg(&input).arg("-o").arg(&output).status();
    assert!(compiled.expect("cc starts").success());
    let bytes = std::fs::read(&output).expect("the compiler wrote an object");
    let _ = (std::fs::remove_file(input), std::fs::remove_file(output));
    ObjectBuffer::new(name, bytes)
}

/// An engine without threads: all it allocates is counted.
fn engine() -> Jit {
    Jit::builder().threads(0).build().expect("an engine for this machine")
}

fn remove(jit: &Jit, names: &[&str]) {
    let names: Vec<_> = names.iter().map(|name| jit.intern(name)).collect();
    jit.main_dylib().remove(&names).expect("nothing goes wrong");
}

fn clear(jit: &Jit) {
    jit.main_dylib().clear().expect("nothing goes wrong");
}

/// The code stayed until its tracker was removed, which is the dylib's own here: five hundred allocations.
#[test]
fn what_is_removed_by_name_leaves_no_code() {
    let jit = engine();
    let object = compile("by_name", "int helper(void) { return 1; } int f(void) { return helper(); }", &[]);
    let initialized =
        "static int x; __attribute__((constructor)) static void c(void) { x = 1; } int g(void) { return x; }";
    let initialized = compile("initialized", initialized, &[]);
    for _ in 0..500 {
        jit.add_object(object.clone()).expect("the names are free");
        jit.add_object(initialized.clone()).expect("the names are free");
        jit.lookup("f").expect("linked");
        jit.lookup("g").expect("linked");
        remove(&jit, &["f", "g"]);
        assert_eq!(jit.memory_usage().allocations, 1, "`helper` is left");
        remove(&jit, &["helper"]);
        assert_eq!(jit.memory_usage().allocations, 0);
    }
}

/// One way for code to come and go.
type Round = (&'static str, fn(&Jit, &ObjectBuffer));

const ROUNDS: [Round; 5] = [
    ("cleared", |jit, object| {
        jit.add_object(object.clone()).expect("the name is free");
        jit.lookup("f").expect("linked");
        clear(jit);
    }),
    ("cleared before somebody asked", |jit, object| {
        jit.add_object(object.clone()).expect("the name is free");
        clear(jit);
    }),
    ("removed by name", |jit, object| {
        jit.add_object(object.clone()).expect("the name is free");
        jit.lookup("f").expect("linked");
        remove(jit, &["f"]);
    }),
    ("removed by name before somebody asked", |jit, object| {
        jit.add_object(object.clone()).expect("the name is free");
        remove(jit, &["f"]);
    }),
    ("linked with all that was added", |jit, object| {
        jit.add_object(object.clone()).expect("the name is free");
        jit.link("f").expect("linked");
        clear(jit);
    }),
];

/// A hundred bytes a round were left of each file: its place in the order of initialisation, and the name that stands for it.
#[test]
fn files_that_came_and_went_leave_nothing() {
    const EACH: u64 = 1_000;
    let object = compile("leaves", "int f(void) { return 1; }", &[]);
    for (how, round) in ROUNDS {
        let jit = engine();
        // Tables grow to their size, and names are swept now and then.
        (0..EACH).for_each(|_| round(&jit, &object));
        let bytes_a_round = left_each_time(|| (0..EACH).for_each(|_| round(&jit, &object))) / EACH as i64;
        assert!(bytes_a_round < 10, "{how}: {bytes_a_round} bytes a round are left");
    }
}

/// Variables that files define tentatively, and members of archives, came once and not again.
#[test]
fn commons_come_and_go_as_well() {
    // So many that the tables of names have their size: each round has more of them than those above.
    const EACH: u64 = 2_000;
    let object = compile("common", "int shared; int f(void) { return shared; }", &["-fcommon"]);
    let round = |jit: &Jit, by_name: bool| {
        jit.add_object(object.clone()).expect("the names are free");
        jit.lookup("f").expect("linked");
        if by_name {
            remove(jit, &["f", "shared"])
        } else {
            clear(jit)
        }
        assert_eq!(jit.memory_usage().allocations, 0);
    };
    for by_name in [false, true] {
        let jit = engine();
        (0..EACH).for_each(|_| round(&jit, by_name));
        let bytes_a_round = left_each_time(|| (0..EACH).for_each(|_| round(&jit, by_name))) / EACH as i64;
        assert!(bytes_a_round < 10, "by name: {by_name}; {bytes_a_round} bytes a round are left");
    }
}

/// The bytes that `rounds` leave whenever they run. A table may grow in one run, by the secret it hashes with; a leak is in all.
fn left_each_time(mut rounds: impl FnMut()) -> i64 {
    (0..3).map(|_| measure(&mut rounds).bytes_current).min().unwrap_or(0)
}

/// The same as the system sees it.
#[test]
#[ignore = "a million rounds take a minute, built with optimization"]
fn a_million_rounds_take_no_more_memory_than_the_first() {
    const EACH: usize = 1_000_000;
    let resident_kib = || -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the system tells");
        line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
    };
    let object = compile("million", "int f(void) { return 1; }", &[]);
    for (how, round) in [ROUNDS[0], ROUNDS[2]] {
        let jit = engine();
        (0..EACH / 100).for_each(|_| round(&jit, &object));
        let before = resident_kib();
        (0..EACH).for_each(|_| round(&jit, &object));
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 2 << 10, "{how}: {grown} KiB more");
    }
}

/// A lookup of a Ready symbol by its text read the link order behind the session's lock, and made four allocations for it.
#[test]
fn a_lookup_by_text_of_a_ready_symbol_allocates_nothing() {
    let jit = engine();
    let object = compile("ready", "int ready(void) { return 1; }", &[]);
    jit.add_object(object).expect("the name is free");
    // The second keeps what the first has found.
    for _ in 0..2 {
        jit.lookup("ready").expect("linked");
    }
    let measured = measure(|| assert!((0..100).all(|_| jit.lookup("ready").is_ok())));
    assert_eq!(measured.count_total, 0);
}

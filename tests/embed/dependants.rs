//! Code that others were linked against, and its removal.
//!
//! The story: a query engine compiled helpers once and linked queries against them. A helper was unloaded, and the next call of a query
//! that was still there jumped to unmapped memory.

use uruk::core::RemoveError;
use uruk::{Function, Jit, OwnedTracker, RemovalPolicy};

use crate::support::{alone, c, engine, is_alone, resident_bytes};

type Answer = extern "C" fn() -> i32;

const QUERIES: i32 = 10_000;
/// Until then allocators and tables have what they need.
const WARM: i32 = 1_000;
/// A ninth of what stays if each query leaves a page.
const GROWTH_MAX_BYTES: i64 = 4 << 20;

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

#[test]
fn code_that_other_code_calls_is_not_unmapped() {
    let jit = engine(1);
    let helpers = add(&jit, "int helper(void) { return 40; }");
    let query = add(&jit, "int helper(void); int query(void) { return helper() + 2; }");
    assert_eq!(get(&jit, "query")(), 42);
    let Err(RemoveError::Needed { symbol, dependants, count, .. }) = jit.remove_tracker(&helpers) else {
        panic!("the query calls it")
    };
    assert_eq!((symbol.as_str(), dependants[0].as_str(), count), ("helper", "query", 1));
    assert_eq!(get(&jit, "query")(), 42);

    drop(query);
    jit.remove_tracker(&helpers).expect("nobody calls it any more");
    assert_eq!(jit.memory_usage().allocations, 0);
}

/// An engine can be told to keep no dependants, and to leave those that it keeps.
#[test]
fn an_engine_that_is_told_so_removes_what_others_need() {
    let jit = Jit::builder().threads(1).keep_dependants(false).build().expect("an engine");
    let helpers = add(&jit, "int helper(void) { return 40; }");
    let _query = add(&jit, "int helper(void); int query(void) { return helper() + 2; }");
    let query = get(&jit, "query");
    helpers.remove().expect("nobody is asked");
    assert!(jit.lookup("helper").is_err());
    assert_eq!(query(), 42, "the handle keeps what it calls");
}

/// A dependant of another dylib counts, and so do functions that are compiled when they are called.
#[test]
fn dependants_in_other_dylibs_and_bodies_of_lazy_functions_are_known() {
    let jit = engine(1);
    let helpers = add(&jit, "int helper(void) { return 40; }");
    let other = jit.create_dylib("other").expect("a new name");
    other.link_to(&jit).expect("both are there");
    let body = other.create_tracker();
    let source = "int helper(void); int query(void) { return helper() + 2; }";
    jit.in_tracker(&body).add_object(c("query.o", source)).expect("a new name");
    jit.add_lazy(&other, ["query"]).expect("it is there");
    assert_eq!(get(&jit, "query")(), 42);
    let refused = jit.remove_tracker(&helpers).expect_err("the body calls it");
    assert!(matches!(refused, RemoveError::Needed { .. }), "{refused}");
    body.remove().expect("a stub can be led elsewhere");
    jit.remove_tracker(&helpers).expect("nobody calls it any more");
}

/// Its handle keeps the code of a dependant that went along, and what that calls.
#[test]
fn a_handle_outlives_the_helper_that_it_calls_and_itself() {
    let jit = engine(1);
    let helpers = add(&jit, "int helper(void) { return 40; }");
    let _middle = add(&jit, "int helper(void); int middle(void) { return helper() + 1; }");
    let _query = add(&jit, "int middle(void); int query(void) { return middle() + 1; }");
    let _other = add(&jit, "int other(void) { return 7; }");
    let (query, other) = (get(&jit, "query"), get(&jit, "other"));
    let gone = jit.remove_tracker_with(&helpers, RemovalPolicy::Cascade).expect("nothing of it objects");
    assert!(["helper", "middle", "query"].iter().all(|symbol| jit.lookup(symbol).is_err()));
    assert_eq!((query(), other(), gone.is_done(), jit.memory_usage().allocations), (42, 7, false, 4));
    drop(query);
    gone.wait().expect("this thread holds nothing");
    assert_eq!(jit.memory_usage().allocations, 1);
}

#[test]
fn who_knows_that_nobody_runs_it_leaves_a_dependant() {
    let jit = engine(1);
    let helpers = add(&jit, "int helper(void) { return 40; }");
    let _query = add(&jit, "int helper(void); int query(void) { return helper() + 2; }");
    jit.lookup("query").expect("it is linked");
    // SAFETY: nobody calls `query` from now on.
    let gone = unsafe { jit.remove_tracker_leaving_dependants(&helpers) }.expect("nothing of it objects");
    assert!(gone.is_done() && jit.lookup("query").is_ok() && jit.lookup("helper").is_err());
}

/// A list of those who need a helper that forgets nobody would grow by each of them.
#[test]
fn ten_thousand_queries_need_a_helper_and_memory_stays_level() {
    if !is_alone() {
        let output = alone("dependants::ten_thousand_queries_need_a_helper_and_memory_stays_level");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let jit = engine(1);
    let helpers = add(&jit, "int helper(void) { return 40; } int more(void) { return 2; }");
    let compiled = c(
        "query.o",
        "int helper(void); int more(void); int seen; int query(void) { return helper() + more() + seen++; }",
    );
    let mut warm = 0;
    for number in 0..QUERIES {
        let tracker = jit.create_tracker();
        jit.in_tracker(&tracker).add_object(compiled.clone()).expect("the names are free");
        assert_eq!(get(&jit, "query")(), 42);
        if number % 1_000 == 0 {
            assert!(helpers.remove_with(RemovalPolicy::Refuse).is_err(), "{number}");
        }
        drop(tracker);
        assert_eq!(jit.memory_usage().allocations, 1);
        if number == WARM {
            warm = resident_bytes();
        }
    }
    let grown = resident_bytes() - warm;
    assert!(grown < GROWTH_MAX_BYTES, "{grown} bytes more after {} queries", QUERIES - WARM);
    helpers.remove().expect("nobody needs it any more");
}

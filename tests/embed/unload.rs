//! A host that compiles queries, runs each and unloads it: after thousands of them it has as much memory as after the first.

use uruk::pipeline::ir::OptimizationLevel;
use uruk::pipeline::object::ObjectBuffer;
use uruk::{Jit, JitError};

use crate::support::{alone, c, is_alone, resident_bytes};

/// How many come and go; `URUK_QUERIES` says another number, as `make soak` does with 10,000.
const QUERIES: i64 = 2_000;
const COMPILED_EVERY: i64 = 10;
/// Until then allocators, tables and LLVM have what they need.
const WARM: i64 = 500;
const PAGE_BYTES: i64 = 4096;

/// Adds a query as LLVM IR, or for the most part as an object of the same symbols, so that the test takes seconds. Gives what it answers.
fn query(jit: &Jit, compiled: &ObjectBuffer, number: i64) -> Result<i64, JitError> {
    let tracker = jit.create_tracker();
    if number % COMPILED_EVERY != 0 {
        jit.in_tracker(&tracker).add_object(compiled.clone())?;
        // SAFETY: as below.
        let query = unsafe { jit.get::<extern "C" fn(i64) -> i64>("query") }?;
        return Ok(query(3 * number));
    }
    let text = format!(
        "@seen = global i64 {number}
         define i64 @helper(i64 %x) {{ %y = add i64 %x, {number} ret i64 %y }}
         define i64 @query(i64 %x) {{
            %s = load i64, ptr @seen
            %h = call i64 @helper(i64 %s)
            %r = add i64 %h, %x
            ret i64 %r
         }}"
    );
    jit.in_tracker(&tracker).add_ir_text("query.ll", &text)?;
    // SAFETY: the text above defines it with this signature, and the pointer stays here.
    let query = unsafe { jit.get::<extern "C" fn(i64) -> i64>("query") }?;
    Ok(query(number))
}

/// A host that unloaded queries had to build the engine from its parts; those who did not kept every query for ever.
#[test]
fn thousands_of_queries_come_and_go_and_memory_stays_level() {
    if !is_alone() {
        let output = alone("unload::thousands_of_queries_come_and_go_and_memory_stays_level");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let said = std::env::var("URUK_QUERIES").map(|number| number.parse().expect("a number of queries"));
    let queries = said.unwrap_or(QUERIES);
    // On this thread: what is asked here is the memory, and not who does the work.
    let jit = Jit::builder().threads(0).optimization(OptimizationLevel::O0).build().expect("an engine");
    let compiled = c(
        "query.o",
        "long seen; long helper(long x) { return x + seen++; } long query(long x) { return helper(x); }",
    );
    let mut warm = 0;
    for number in 0..queries {
        assert_eq!(query(&jit, &compiled, number).expect("it compiles"), 3 * number);
        assert_eq!(jit.memory_usage().allocations, 0);
        if number == WARM {
            warm = resident_bytes();
        }
    }
    let (grown, measured) = (resident_bytes() - warm, queries - WARM);
    // Half of what stays if each query that is compiled leaves a page.
    assert!(
        grown < measured / COMPILED_EVERY * PAGE_BYTES / 2,
        "{grown} bytes more after {measured} queries"
    );
}

//! A host that compiles queries, runs each and unloads it: after thousands of them it has as much memory as after the first.

use uruk::pipeline::ir::OptimizationLevel;
use uruk::{Jit, JitError};

use crate::support::{alone, is_alone};

const QUERIES: i64 = 10_000;
/// Until then allocators, tables and LLVM have what they need.
const WARM: i64 = 1_000;
/// A thirtieth of what stays if each query leaves a page.
const GROWTH_MAX_BYTES: i64 = 4 << 20;

fn resident_bytes() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the system tells");
    let pages = statm.split(' ').nth(1).expect("the second figure");
    pages.parse::<i64>().expect("a number") * 4096
}

fn query(jit: &Jit, number: i64) -> Result<i64, JitError> {
    let tracker = jit.create_tracker();
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

/// Who unloaded queries had to build the engine from its parts; those who did not kept every query for ever.
#[test]
fn ten_thousand_queries_come_and_go_and_memory_stays_level() {
    if !is_alone() {
        let output = alone("unload::ten_thousand_queries_come_and_go_and_memory_stays_level");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let jit = Jit::builder().threads(1).optimization(OptimizationLevel::O0).build().expect("an engine");
    let mut warm = 0;
    for number in 0..QUERIES {
        assert_eq!(query(&jit, number).expect("it compiles"), 3 * number);
        assert_eq!(jit.memory_usage().allocations, 0);
        if number == WARM {
            warm = resident_bytes();
        }
    }
    let grown = resident_bytes() - warm;
    assert!(grown < GROWTH_MAX_BYTES, "{grown} bytes more after {} queries", QUERIES - WARM);
}

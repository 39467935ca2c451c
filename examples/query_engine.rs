//! A query engine: each query is compiled while its client waits without a thread, runs, and is unloaded.
//!
//! `cargo run --example query_engine`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use uruk::prelude::*;

/// A column of the one table there is.
struct Column(Vec<i64>);

/// `SELECT sum(value) WHERE value > :above`, compiled for one value.
fn ir_of_query(name: &str, above: i64) -> String {
    format!(
        "define i64 @{name}(ptr %values, i64 %count) {{
         entry:
           %none = icmp eq i64 %count, 0
           br i1 %none, label %exit, label %loop
         loop:
           %i = phi i64 [ 0, %entry ], [ %next, %loop ]
           %sum = phi i64 [ 0, %entry ], [ %added, %loop ]
           %place = getelementptr i64, ptr %values, i64 %i
           %value = load i64, ptr %place
           %counts = icmp sgt i64 %value, {above}
           %part = select i1 %counts, i64 %value, i64 0
           %added = add i64 %sum, %part
           %next = add i64 %i, 1
           %done = icmp eq i64 %next, %count
           br i1 %done, label %exit, label %loop
         exit:
           %result = phi i64 [ 0, %entry ], [ %added, %loop ]
           ret i64 %result
         }}"
    )
}

type Query = unsafe extern "C" fn(*const i64, usize) -> i64;

/// Compiles, runs and unloads.
async fn run(jit: Arc<Jit>, number: i64, above: i64, column: Arc<Column>) -> Result<i64, JitError> {
    let name = format!("query{number}");
    // The tracker's drop removes the code added with it: at the end of this function, or earlier if the future is dropped.
    let tracker = jit.create_tracker();
    let scope = jit.in_tracker(&tracker);
    scope.add_ir_text(&name, &ir_of_query(&name, above))?;
    // SAFETY: that is the function's signature; no copy of the pointer outlives the handle.
    let query = unsafe { scope.get_async::<Query>(&name) }.await?;
    // SAFETY: the query reads as many values as it is told.
    Ok(unsafe { query(column.0.as_ptr(), column.0.len()) })
}

fn main() -> Result<(), Box<dyn Error>> {
    let (jit, column) = (Arc::new(Jit::builder().threads(2).build()?), Arc::new(Column((1..=100).collect())));
    let before = jit.memory_usage().allocations;
    // One thread, which waits for no compilation: the ten queries of a round are compiled at once, by the pool.
    tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
        for round in 0..10_i64 {
            let query = |query| run(jit.clone(), 10 * round + query, 90 + query, column.clone());
            let clients: Vec<_> = (0..10).map(|number| tokio::spawn(query(number))).collect();
            let mut sums = Vec::new();
            for client in clients {
                sums.push(client.await??);
            }
            assert_eq!((sums[0], sums[9]), (955, 100));
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    assert_eq!(jit.memory_usage().allocations, before);
    println!(
        "100 queries came and went; pieces of code that are left: {}",
        jit.memory_usage().allocations - before
    );
    Ok(())
}

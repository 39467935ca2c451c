//! Compiles a function from textual LLVM IR and calls it.
//!
//! `cargo run --example hello`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use uruk::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::builder().threads(2).build()?;
    jit.add_ir_text(
        "sum.ll",
        "define i64 @sum(i64 %n) {
         entry:
           br label %loop
         loop:
           %i = phi i64 [ 0, %entry ], [ %next, %loop ]
           %total = phi i64 [ 0, %entry ], [ %sum, %loop ]
           %next = add i64 %i, 1
           %sum = add i64 %total, %next
           %done = icmp uge i64 %next, %n
           br i1 %done, label %exit, label %loop
         exit:
           ret i64 %sum
         }",
    )?;
    // SAFETY: this is the function's signature, and the engine outlives the pointer.
    let sum: extern "C" fn(u64) -> u64 = unsafe { jit.function("sum")? };
    assert_eq!(sum(100), 5050);
    println!("1 + 2 + ... + 100 = {}", sum(100));
    Ok(())
}

//! A program that is soon there, and soon fast: functions are compiled when they are first called, and better when they are called often.
//!
//! `cargo run --example tiers`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use uruk::pipeline::tiers::{CallCounting, FirstTier, FunctionShape, TierPolicy};
use uruk::prelude::*;

/// `sum` calls `term`, which is small: its better code has a copy of it.
const PROGRAM: &str = "
    define i64 @term(i64 %i) { %t = mul i64 %i, %i ret i64 %t }
    define i64 @sum(i64 %n) {
    entry: br label %loop
    loop:
      %i = phi i64 [ 0, %entry ], [ %next, %loop ]
      %s = phi i64 [ 0, %entry ], [ %more, %loop ]
      %t = call i64 @term(i64 %i)
      %more = add i64 %s, %t
      %next = add i64 %i, 1
      %again = icmp ult i64 %next, %n
      br i1 %again, label %loop, label %done
    done: ret i64 %more
    }";

/// As .NET decides, but at the hundredth call, and without waiting for the program to become quiet. It says what it is asked.
#[derive(Debug)]
struct Talkative(CallCounting);

impl TierPolicy for Talkative {
    fn threshold(&self) -> u32 {
        100
    }

    fn quiet(&self) -> Duration {
        Duration::ZERO
    }

    fn first(&self, function: FunctionShape) -> FirstTier {
        let first = self.0.first(function);
        println!("{} instructions, loops {} deep: {first:?}", function.instructions, function.loop_depth);
        first
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::builder().threads(1).tiers(Talkative(CallCounting::new())).build()?;
    jit.add_ir_text("program.ll", PROGRAM)?;
    // SAFETY: `sum` takes and gives a 64-bit integer, and no copy of the pointer outlives `sum`.
    let sum = unsafe { jit.get::<extern "C" fn(i64) -> i64>("sum") }?;
    let stats = || jit.tiers().map(|tiers| tiers.stats()).unwrap_or_default();

    assert_eq!(sum(10), 285);
    println!("after the first call: {} functions, not optimized", stats().lower);
    let mut calls = 1_u64;
    while stats().promoted < 2 {
        assert_eq!(sum(10), 285);
        calls += 1;
    }
    println!("both are optimized, in {:?}", stats().promoting);
    println!("nobody has waited for it, in {calls} calls, and the function is where it was");
    Ok(())
}

//! A program that starts before it is compiled: each function is compiled when it is first called.
//!
//! `cargo run --example lazy`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use uruk::core::ExecutorAddr;
use uruk::prelude::*;

/// Functions of a program, a file each: `rare` is compiled only if it is called.
const FILES: [(&str, &str); 3] = [
    (
        "main.ll",
        "declare i64 @common(i64)
         declare i64 @rare(i64)
         define i64 @main(i64 %x) {
           %is_rare = icmp ugt i64 %x, 1000
           br i1 %is_rare, label %rarely, label %mostly
         rarely: %a = call i64 @rare(i64 %x) ret i64 %a
         mostly: %b = call i64 @common(i64 %x) ret i64 %b
         }",
    ),
    ("common.ll", "define i64 @common(i64 %x) { %y = add i64 %x, 1 ret i64 %y }"),
    (
        "rare.ll",
        "declare i64 @forgotten(i64) define i64 @rare(i64 %x) { %y = call i64 @forgotten(i64 %x) ret i64 %y }",
    ),
];

/// Where calls go on whose function cannot be had.
extern "C" fn instead(_: i64) -> i64 {
    -1
}

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::builder()
        .on_lazy_failure(|failure| {
            println!("{failure}");
            ExecutorAddr::from_ptr(instead as extern "C" fn(i64) -> i64 as *const u8)
        })
        .build()?;
    let bodies = jit.create_dylib("bodies")?;
    for (name, text) in FILES {
        bodies.add_ir_text(name, text)?;
    }
    jit.add_lazy(&bodies, ["main", "common", "rare"])?;

    let pieces = || jit.memory_usage().allocations;
    // SAFETY: `main` takes and gives a 64-bit integer, and no copy of the pointer outlives `main`.
    let main = unsafe { jit.get::<extern "C" fn(i64) -> i64>("main") }?;
    println!("before the first call: {} piece of code, the stubs", pieces());
    assert_eq!(main(41), 42);
    println!("main(41) = 42: {} pieces, with `main` and `common`", pieces());
    // A symbol that it needs is missing: the host is told, and chooses where the call goes on.
    assert_eq!(main(2000), -1);
    Ok(())
}

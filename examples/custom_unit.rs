//! A compiler of one's own, without LLVM: a unit that writes machine code when its symbol is first wanted.
//!
//! `cargo run --example custom_unit --no-default-features`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use uruk::core::FnUnit;
use uruk::core::sync::Arc;
use uruk::pipeline::memory::{
    FinalizedAlloc, InProcessMemoryManager, MemoryError, MemoryManager, SegmentKind, SegmentRequest,
};
use uruk::prelude::*;

/// Writes `mov eax, value; ret` into memory that may be executed.
fn compile(memory: &InProcessMemoryManager, value: i32) -> Result<FinalizedAlloc, MemoryError> {
    let code = [&[0xb8], &value.to_le_bytes()[..], &[0xc3]].concat();
    let kind = SegmentKind::Code;
    let request = SegmentRequest { kind, content_bytes: code.len(), zero_fill_bytes: 0, align: 16 };
    let mut allocation = memory.allocate("seven", &[request])?;
    allocation.working(0).copy_from_slice(&code);
    allocation.finalize()
}

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::builder().threads(1).build()?;
    let memory = Arc::new(InProcessMemoryManager::new()?);
    // The unit: its symbols, and a function that makes them at the first lookup. An error fails the symbols with the reason.
    let unit =
        FnUnit::new([jit.intern("seven")], move |request| -> Result<_, Box<dyn Error + Send + Sync>> {
            let code = compile(&memory, 7)?;
            let addresses = request.addresses([("seven", code.address(0))])?;
            request.keep(code)?;
            Ok(addresses)
        });
    jit.add_unit(Box::new(unit))?;
    // SAFETY: `compile` writes a function of this signature, and the engine outlives the pointer.
    let seven: extern "C" fn() -> i32 = unsafe { jit.function("seven")? };
    assert_eq!(seven(), 7);
    println!("seven() = {}", seven());
    Ok(())
}

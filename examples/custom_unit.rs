//! A compiler of one's own, without LLVM: a unit that writes machine code when its symbol is first wanted.
//!
//! `cargo run --example custom_unit --no-default-features`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use uruk::core::sync::Arc;
use uruk::core::{
    ExecutorSymbolDef, JitDylib, MaterializationInterface, MaterializationResponsibility,
    MaterializationUnit, Resource, SymbolFlags, SymbolName,
};
use uruk::pipeline::memory::{
    FinalizedAlloc, InProcessMemoryManager, MemoryError, MemoryManager, SegmentKind, SegmentRequest,
};
use uruk::prelude::*;

/// Promises a function that returns a constant.
struct Constant {
    name: SymbolName,
    value: i32,
    memory: Arc<InProcessMemoryManager>,
}

const FLAGS: SymbolFlags = SymbolFlags::EXPORTED.union(SymbolFlags::CALLABLE);

impl Constant {
    /// `mov eax, value; ret`.
    fn compile(&self) -> Result<FinalizedAlloc, MemoryError> {
        let code = [&[0xb8], &self.value.to_le_bytes()[..], &[0xc3]].concat();
        let request = SegmentRequest {
            kind: SegmentKind::Code,
            content_bytes: code.len(),
            zero_fill_bytes: 0,
            align: 16,
        };
        let mut allocation = self.memory.allocate(self.name.as_str(), &[request])?;
        allocation.working(0).copy_from_slice(&code);
        allocation.finalize()
    }
}

impl MaterializationUnit for Constant {
    fn name(&self) -> &str {
        "constant"
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new([(self.name.clone(), FLAGS)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        // Whatever goes wrong, the responsibility in hand fails its symbols with the reason.
        let code = match self.compile() {
            Ok(code) => code,
            Err(error) => return responsibility.fail(Arc::new(error)),
        };
        let definition = ExecutorSymbolDef::new(code.address(0), FLAGS);
        if let Err(error) = responsibility.add_resource(Box::new(Code { _memory: code })) {
            return responsibility.fail(Arc::new(error));
        }
        match responsibility.notify_resolved(&[(self.name.clone(), definition)].into_iter().collect()) {
            Ok(resolved) => {
                if let Err(refused) = resolved.notify_emitted(Vec::new()) {
                    refused.fail();
                }
            }
            Err(refused) => {
                refused.fail();
            }
        }
    }

    fn discard(&mut self, _dylib: &JitDylib, _symbol: &SymbolName) {}
}

/// The code, as long as its tracker lives.
struct Code {
    _memory: FinalizedAlloc,
}

impl Resource for Code {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::builder().threads(1).build()?;
    let memory = Arc::new(InProcessMemoryManager::new()?);
    jit.add_unit(Box::new(Constant { name: jit.intern("seven"), value: 7, memory }))?;
    // SAFETY: this is the signature of what `compile` writes, and the engine outlives the pointer.
    let seven: extern "C" fn() -> i32 = unsafe { jit.function("seven")? };
    assert_eq!(seven(), 7);
    println!("seven() = {}", seven());
    Ok(())
}

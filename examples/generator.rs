//! Definitions on demand: the functions `times_N` are listed nowhere, and each is made at its first lookup.
//!
//! `cargo run --example generator --no-default-features`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use uruk::core::sync::Arc;
use uruk::core::{DefinitionGenerator, FnUnit, GenerateRequest, shared_error};
use uruk::pipeline::memory::{InProcessMemoryManager, MemoryManager, SegmentKind, SegmentRequest};
use uruk::prelude::*;

/// Defines `times_N` for every `N` that is asked for.
struct Multiplications {
    memory: Arc<InProcessMemoryManager>,
}

impl Multiplications {
    /// A unit of `imul rax, rdi, factor; ret`.
    fn define(
        &self,
        dylib: &JitDylib,
        name: &SymbolName,
        factor: i32,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let (memory, symbol) = (self.memory.clone(), name.clone());
        let unit = FnUnit::new([name.clone()], move |request| -> Result<_, Box<dyn Error + Send + Sync>> {
            let bytes = [&[0x48, 0x69, 0xc7], &factor.to_le_bytes()[..], &[0xc3]].concat();
            let (kind, align) = (SegmentKind::Code, 16);
            let segment = SegmentRequest { kind, content_bytes: bytes.len(), zero_fill_bytes: 0, align };
            let mut code = memory.allocate(symbol.as_str(), &[segment])?;
            code.working(0).copy_from_slice(&bytes);
            let code = code.finalize()?;
            let addresses = request.addresses([(symbol.as_str(), code.address(0))])?;
            request.keep(code)?;
            Ok(addresses)
        });
        Ok(dylib.define(Box::new(unit))?)
    }
}

impl DefinitionGenerator for Multiplications {
    fn name(&self) -> &str {
        "multiplications"
    }

    fn generate(&self, request: GenerateRequest) {
        let wanted = request.symbols().iter().filter_map(|(name, _)| {
            let factor = name.as_str().strip_prefix("times_")?.parse().ok()?;
            Some(self.define(request.dylib(), name, factor))
        });
        let outcome = wanted.collect::<Result<(), _>>();
        request.finish(outcome.map_err(shared_error));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::builder().threads(2).build()?;
    let memory = Arc::new(InProcessMemoryManager::new()?);
    jit.main_dylib().add_generator(Arc::new(Multiplications { memory }));
    // SAFETY: every such function has this signature, and no copy of the pointer outlives the handle.
    let times = unsafe { jit.get::<extern "C" fn(i64) -> i64>("times_7")? };
    assert_eq!(times(6), 42);
    println!("times_7(6) = {}", times(6));
    // A name unknown to the generator is not found.
    let error = jit.lookup("times_seven").expect_err("no number");
    println!("{error}");
    Ok(())
}

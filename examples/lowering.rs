//! A language with a collector: its compiler asks for memory and for safepoints by names of its own. Until the optimizer is done nothing
//! but calls stands there. Then a hook makes a few instructions of each.
//!
//! `cargo run --example lowering`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use uruk::core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags, absolute_symbols};
use uruk::inkwell::AddressSpace;
use uruk::inkwell::builder::{Builder, BuilderError};
use uruk::inkwell::module::Module;
use uruk::inkwell::values::IntValue;
use uruk::pipeline::ir::{HookSite, OptimizationLevel, OptimizationPipeline, PassHook, Stage};
use uruk::prelude::*;

/// The heap's next free byte. Compiled code moves it.
static HEAP_TOP: AtomicUsize = AtomicUsize::new(0);
/// How often compiled code has come by a safepoint, which is all that this collector does there.
static SAFEPOINTS: AtomicU64 = AtomicU64::new(0);

/// Makes a list of `n` cells, one after another.
const PROGRAM: &str = "
    declare ptr @gc.alloc(i64)
    declare void @gc.safepoint()
    define ptr @make(i64 %n) {
    entry: br label %loop
    loop:
      %left = phi i64 [ %n, %entry ], [ %less, %loop ]
      %list = phi ptr [ null, %entry ], [ %cell, %loop ]
      %cell = call ptr @gc.alloc(i64 16)
      store ptr %list, ptr %cell
      call void @gc.safepoint()
      %less = sub i64 %left, 1
      %end = icmp eq i64 %less, 0
      br i1 %end, label %done, label %loop
    done: ret ptr %cell
    }";

/// A variable of the host's grows by `by`; what it was.
fn grow<'ctx>(
    (module, builder): (&Module<'ctx>, &Builder<'ctx>),
    name: &str,
    by: IntValue<'ctx>,
) -> Result<IntValue<'ctx>, BuilderError> {
    let variable = module.get_global(name).unwrap_or_else(|| module.add_global(by.get_type(), None, name));
    let before = builder.build_load(by.get_type(), variable.as_pointer_value(), name)?.into_int_value();
    builder.build_store(variable.as_pointer_value(), builder.build_int_add(before, by, name)?)?;
    Ok(before)
}

fn lower(site: &HookSite<'_, '_>) -> Result<(), BuilderError> {
    let module = site.module();
    let context = module.get_context();
    let builder = context.create_builder();
    let blocks = module.get_functions().flat_map(|function| function.get_basic_blocks());
    let calls: Vec<_> = blocks.flat_map(|block| block.get_instructions().collect::<Vec<_>>()).collect();
    for call in calls {
        let text = call.to_string();
        builder.position_before(&call);
        if text.contains("@gc.alloc(") {
            let size = call.get_operand(0).and_then(|operand| operand.value()).expect("one argument");
            let cell = grow((module, &builder), "heap_top", size.into_int_value())?;
            let cell = builder.build_int_to_ptr(cell, context.ptr_type(AddressSpace::default()), "cell")?;
            call.replace_all_uses_with(&cell.as_instruction().expect("no constant"));
        } else if text.contains("@gc.safepoint(") {
            grow((module, &builder), "safepoints", context.i64_type().const_int(1, false))?;
        } else {
            continue;
        }
        call.erase_from_basic_block();
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let hook = PassHook::new("lowering-1", |site| lower(&site));
    let pipeline =
        OptimizationPipeline::level(OptimizationLevel::O2).hook_before(Stage::IntrinsicLowering, hook);
    let jit = Jit::builder().pipeline(pipeline).build()?;
    let of_host = |address| ExecutorSymbolDef { address, flags: SymbolFlags::EXPORTED };
    let heap_top = (jit.intern("heap_top"), of_host(ExecutorAddr::from_ptr(&HEAP_TOP)));
    let safepoints = (jit.intern("safepoints"), of_host(ExecutorAddr::from_ptr(&SAFEPOINTS)));
    jit.main_dylib().define(absolute_symbols([heap_top, safepoints].into_iter().collect()))?;
    jit.add_ir_text("list.ll", PROGRAM)?;

    let mut heap = vec![0_u64; 2 * 1000];
    HEAP_TOP.store(heap.as_mut_ptr() as usize, Ordering::SeqCst);
    // SAFETY: that is the function's signature, and the heap has room for a thousand cells.
    let make = unsafe { jit.get::<extern "C" fn(u64) -> *const u64>("make")? };
    let cells = make(1000).addr() - heap.as_ptr().addr();
    let safepoints = SAFEPOINTS.load(Ordering::SeqCst);
    println!("the last of the cells lies at {cells}, behind {safepoints} safepoints");
    assert_eq!((cells, safepoints), (999 * 16, 1000));
    Ok(())
}

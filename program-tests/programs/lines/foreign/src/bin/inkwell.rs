//! The tasks with inkwell's `ExecutionEngine`, which is LLVM's MCJIT.

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::execution_engine::ExecutionEngine;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use std::error::Error;

type Done = Result<(), Box<dyn Error>>;

fn parse<'c>(context: &'c Context, text: &str) -> Result<Module<'c>, Box<dyn Error>> {
    let text = MemoryBuffer::create_from_memory_range_copy(&[text.as_bytes(), b"\0"].concat(), "module.ll");
    Ok(context.create_module_from_ir(text)?)
}

fn hello() -> Done {
    // task: hello
    let context = Context::create();
    let text = b"define i64 @hello() { ret i64 42 }\0";
    let module = context.create_module_from_ir(MemoryBuffer::create_from_memory_range_copy(text, "hello.ll"))?;
    let engine = module.create_jit_execution_engine(OptimizationLevel::Default)?;
    let hello = unsafe { engine.get_function::<unsafe extern "C" fn() -> i64>("hello")? };
    assert_eq!(unsafe { hello.call() }, 42);
    // end
    Ok(())
}

fn typed_call(engine: &ExecutionEngine<'_>) -> Done {
    // task: typed call
    let scale = unsafe { engine.get_function::<unsafe extern "C" fn(i64, f64) -> f64>("scale")? };
    assert_eq!(unsafe { scale.call(2, 1.5) }, 3.0);
    // end
    Ok(())
}

fn unload<'c>(context: &'c Context, engine: &ExecutionEngine<'c>) -> Done {
    // task: unload
    let module = parse(context, "define i64 @query() { ret i64 1 }")?;
    engine.add_module(&module).map_err(|()| "the module has an engine")?;
    let query = unsafe { engine.get_function::<unsafe extern "C" fn() -> i64>("query")? };
    assert_eq!(unsafe { query.call() }, 1);
    drop(query);
    engine.remove_module(&module)?;
    // end
    Ok(())
}

fn main() -> Done {
    hello()?;
    let context = Context::create();
    let text = "define double @scale(i64 %n, double %x) { %m = sitofp i64 %n to double %y = fmul double %m, %x ret double %y }";
    let engine = parse(&context, text)?.create_jit_execution_engine(OptimizationLevel::Default)?;
    typed_call(&engine)?;
    unload(&context, &engine)
}

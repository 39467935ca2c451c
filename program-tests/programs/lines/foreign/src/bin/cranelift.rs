//! The tasks with cranelift-jit's `JITModule`. It takes no LLVM IR: functions are built.

use cranelift::jit::{JITBuilder, JITModule};
use cranelift::module::{Linkage, Module, default_libcall_names};
use cranelift::prelude::*;
use std::error::Error;

type Done = Result<(), Box<dyn Error>>;

fn hello() -> Done {
    // task: hello
    let mut module = JITModule::new(JITBuilder::new(default_libcall_names())?);
    let mut context = module.make_context();
    context.func.signature.returns.push(AbiParam::new(types::I64));
    let id = module.declare_function("hello", Linkage::Export, &context.func.signature)?;
    let mut reused = FunctionBuilderContext::new();
    let mut code = FunctionBuilder::new(&mut context.func, &mut reused);
    let block = code.create_block();
    code.switch_to_block(block);
    let answer = code.ins().iconst(types::I64, 42);
    code.ins().return_(&[answer]);
    code.seal_all_blocks();
    code.finalize(module.target_config());
    module.define_function(id, &mut context)?;
    module.finalize_definitions()?;
    let code = module.get_finalized_function(id);
    let hello = unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> i64>(code) };
    assert_eq!(hello(), 42);
    // end
    typed_call(&module, id)?;
    unload(module)
}

fn typed_call(module: &JITModule, id: cranelift::module::FuncId) -> Done {
    // task: typed call
    let code = module.get_finalized_function(id);
    let hello = unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> i64>(code) };
    assert_eq!(hello(), 42);
    // end
    Ok(())
}

fn unload(module: JITModule) -> Done {
    // task: unload
    unsafe { module.free_memory() };
    // end
    Ok(())
}

fn main() -> Done {
    hello()
}

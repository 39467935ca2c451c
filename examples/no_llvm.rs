//! A small language without LLVM: each function is a unit that Cranelift compiles to an object at its first lookup.
//!
//! `cargo run --example no_llvm --no-default-features`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use cranelift::module::{Linkage, Module, default_libcall_names};
use cranelift::object::{ObjectBuilder, ObjectModule};
use cranelift::prelude::{settings::Flags, *};
use std::error::Error;
use uruk::core::{MaterializationInterface, MaterializationResponsibility, MaterializationUnit};
use uruk::core::{SymbolFlags, shared_error, sync::Arc};
use uruk::pipeline::{linking::ObjectLinkingLayer, object::ObjectLayer};
use uruk::prelude::*;

/// Functions of one number `n`, backwards as calculators once had it: what an operator takes stands before it.
const PROGRAM: &str = "square = n n *\nnext = n 1 +\nanswer = n square n next square +";

/// `name = body`.
struct Definition {
    name: SymbolName,
    body: String,
    layer: Arc<ObjectLinkingLayer>,
}

impl Definition {
    /// The function as an object file. It refers to functions that it calls by their names.
    fn compile(&self) -> Result<ObjectBuffer, Box<dyn Error + Send + Sync>> {
        let mut flags = settings::builder();
        flags.enable("is_pic")?;
        let isa = cranelift::native::builder()?.finish(Flags::new(flags))?;
        let mut module =
            ObjectModule::new(ObjectBuilder::new(isa, self.name.as_str(), default_libcall_names())?);
        let (mut context, mut reused) = (module.make_context(), FunctionBuilderContext::new());
        context.func.signature.params.push(AbiParam::new(types::I64));
        context.func.signature.returns.push(AbiParam::new(types::I64));
        let signature = context.func.signature.clone();
        let mut code = FunctionBuilder::new(&mut context.func, &mut reused);
        let block = code.create_block();
        code.append_block_params_for_function_params(block);
        code.switch_to_block(block);
        let (n, mut stack) = (code.block_params(block)[0], Vec::new());
        for word in self.body.split_whitespace() {
            let mut pop = || stack.pop().ok_or_else(|| format!("nothing stands before `{word}`"));
            let value = match (word, word.parse::<i64>()) {
                ("n", _) => n,
                ("+", _) => code.ins().iadd(pop()?, pop()?),
                ("*", _) => code.ins().imul(pop()?, pop()?),
                (_, Ok(number)) => code.ins().iconst(types::I64, number),
                (callee, _) => {
                    let id = module.declare_function(callee, Linkage::Import, &signature)?;
                    let callee = module.declare_func_in_func(id, code.func);
                    let call = code.ins().call(callee, &[pop()?]);
                    code.inst_results(call)[0]
                }
            };
            stack.push(value);
        }
        code.ins().return_(&[stack.pop().ok_or("the body is empty")?]);
        code.seal_all_blocks();
        code.finalize(module.target_config());
        let function = module.declare_function(self.name.as_str(), Linkage::Export, &signature)?;
        module.define_function(function, &mut context)?;
        Ok(ObjectBuffer::new(self.name.as_str(), module.finish().emit()?))
    }
}

impl MaterializationUnit for Definition {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        MaterializationInterface::new([(self.name.clone(), flags)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        match self.compile() {
            Ok(object) => self.layer.emit(responsibility, object),
            Err(error) => responsibility.fail(shared_error(error)),
        }
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::builder().threads(2).build()?;
    for (name, body) in PROGRAM.lines().filter_map(|line| line.split_once(" = ")) {
        let (name, body, layer) = (jit.intern(name), body.to_owned(), jit.object_layer().clone());
        jit.add_unit(Box::new(Definition { name, body, layer }))?;
    }
    // SAFETY: every function has this signature, and no copy of the pointer outlives the handle.
    let answer = unsafe { jit.get::<extern "C" fn(i64) -> i64>("answer")? };
    assert_eq!(answer(4), 16 + 25);
    println!("answer(4) = {}", answer(4));
    Ok(())
}

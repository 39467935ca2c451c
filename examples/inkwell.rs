//! Modules built with inkwell, by a compiler as its users write them: it borrows a context, a builder and a module.
//!
//! `cargo run --example inkwell`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use uruk::inkwell;
use uruk::pipeline::ir::ThreadSafeModule;
use uruk::prelude::*;

use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::values::{FloatValue, FunctionValue};

/// The expression that a parser would make of `fn f(x) { ... }`.
enum Expr {
    Number(f64),
    Argument,
    Binary(char, Box<Expr>, Box<Expr>),
    Call(&'static str, Box<Expr>),
}

struct Compiler<'a, 'ctx> {
    context: &'ctx Context,
    builder: &'a Builder<'ctx>,
    module: &'a Module<'ctx>,
}

impl<'ctx> Compiler<'_, 'ctx> {
    fn prototype(&self, name: &str) -> FunctionValue<'ctx> {
        let f64_type = self.context.f64_type();
        let declare = || self.module.add_function(name, f64_type.fn_type(&[f64_type.into()], false), None);
        self.module.get_function(name).unwrap_or_else(declare)
    }

    fn expr(&self, expr: &Expr, function: FunctionValue<'ctx>) -> Result<FloatValue<'ctx>, BuilderError> {
        Ok(match expr {
            Expr::Number(value) => self.context.f64_type().const_float(*value),
            Expr::Argument => function.get_nth_param(0).expect("one parameter").into_float_value(),
            Expr::Binary(operator, left, right) => {
                let (left, right) = (self.expr(left, function)?, self.expr(right, function)?);
                match operator {
                    '+' => self.builder.build_float_add(left, right, "sum")?,
                    _ => self.builder.build_float_mul(left, right, "product")?,
                }
            }
            Expr::Call(name, argument) => {
                let argument = self.expr(argument, function)?;
                let call = self.builder.build_call(self.prototype(name), &[argument.into()], "value")?;
                call.try_as_basic_value().expect_basic("a number").into_float_value()
            }
        })
    }

    fn function(&self, name: &str, body: &Expr) -> Result<(), BuilderError> {
        let function = self.prototype(name);
        self.builder.position_at_end(self.context.append_basic_block(function, "entry"));
        let value = self.expr(body, function)?;
        self.builder.build_return(Some(&value))?;
        Ok(())
    }
}

/// A function, in a module and a context of its own: it is compiled when it is wanted, beside others.
fn module(name: &str, body: &Expr) -> Result<ThreadSafeModule, Box<dyn Error>> {
    ThreadSafeModule::build(name, |context| {
        let (builder, module) = (context.create_builder(), context.create_module(name));
        let compiler = Compiler { context, builder: &builder, module: &module };
        compiler.function(name, body)?;
        Ok(module)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::builder().threads(2).build()?;
    let square = Expr::Binary('*', Box::new(Expr::Argument), Box::new(Expr::Argument));
    let root = Expr::Call("sqrt", Box::new(Expr::Call("square", Box::new(Expr::Argument))));
    let area = Expr::Binary('+', Box::new(root), Box::new(Expr::Number(1.0)));
    jit.add_module(module("square", &square)?)?;
    jit.add_module(module("area", &area)?)?;
    // SAFETY: that is the function's signature, and no copy of the pointer outlives the handle.
    let area = unsafe { jit.get::<extern "C" fn(f64) -> f64>("area")? };
    assert_eq!(area(3.0), 4.0);
    println!("sqrt(square(3)) + 1 = {}", area(3.0));
    Ok(())
}

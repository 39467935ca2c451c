//! Build: a module by code that was written for inkwell, in a context that is lent to it.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use inkwell::context::Context;
use inkwell::module::Module;
use llvm_sys::core::LLVMGetModuleContext;

use super::context::ThreadSafeContext;
use super::error::CompileError;
use super::module::ThreadSafeModule;

impl ThreadSafeModule {
    /// Builds a module in a context of its own, with inkwell: `build` is lent the context and answers the module that it made there.
    ///
    /// Code that was written for inkwell stays as it is. Values that it made beside the module are dropped with the closure's values. The
    /// module is not verified; inkwell's [`Module::verify`] does that.
    ///
    /// ```
    /// use inkwell::builder::{Builder, BuilderError};
    /// use inkwell::context::Context;
    /// use inkwell::module::Module;
    /// use inkwell::values::{FloatValue, FunctionValue};
    /// use uruk_pipeline::ir::{CompileError, ThreadSafeModule};
    ///
    /// enum Expr {
    ///     Number(f64),
    ///     Argument(u32),
    ///     Mul(Box<Expr>, Box<Expr>),
    /// }
    ///
    /// /// A compiler as embedders of inkwell write them: it borrows the context, and all that is in it.
    /// struct Compiler<'a, 'ctx> {
    ///     context: &'ctx Context,
    ///     builder: &'a Builder<'ctx>,
    ///     module: &'a Module<'ctx>,
    /// }
    ///
    /// impl<'ctx> Compiler<'_, 'ctx> {
    ///     fn expr(&self, expr: &Expr, function: FunctionValue<'ctx>) -> Result<FloatValue<'ctx>, BuilderError> {
    ///         match expr {
    ///             Expr::Number(value) => Ok(self.context.f64_type().const_float(*value)),
    ///             Expr::Argument(index) => Ok(function.get_nth_param(*index).unwrap().into_float_value()),
    ///             Expr::Mul(left, right) => {
    ///                 let (left, right) = (self.expr(left, function)?, self.expr(right, function)?);
    ///                 self.builder.build_float_mul(left, right, "product")
    ///             }
    ///         }
    ///     }
    ///
    ///     fn function(&self, name: &str, body: &Expr) -> Result<FunctionValue<'ctx>, BuilderError> {
    ///         let f64_type = self.context.f64_type();
    ///         let function = self.module.add_function(name, f64_type.fn_type(&[f64_type.into()], false), None);
    ///         self.builder.position_at_end(self.context.append_basic_block(function, "entry"));
    ///         let value = self.expr(body, function)?;
    ///         self.builder.build_return(Some(&value))?;
    ///         Ok(function)
    ///     }
    /// }
    ///
    /// let twice = Expr::Mul(Box::new(Expr::Argument(0)), Box::new(Expr::Number(2.0)));
    /// let module = ThreadSafeModule::build::<Box<dyn std::error::Error>>("twice.k", |context| {
    ///     let (builder, module) = (context.create_builder(), context.create_module("twice"));
    ///     let compiler = Compiler { context, builder: &builder, module: &module };
    ///     compiler.function("twice", &twice)?;
    ///     Ok(module)
    /// })?;
    /// module.verify()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What `build` answers; [`CompileError::Diagnosed`] if LLVM reported an error meanwhile.
    ///
    /// # Concurrency
    /// The thread holds the context meanwhile, so it must not wait for symbols: a session with
    /// [`held_resource`](ThreadSafeContext::held_resource) refuses that.
    ///
    /// # Panics
    /// If the module is of another context than the one that was lent.
    #[track_caller]
    pub fn build<E: From<CompileError>>(
        name: impl Into<Arc<str>>,
        build: impl for<'ctx> FnOnce(&'ctx Context) -> Result<Module<'ctx>, E>,
    ) -> Result<Self, E> {
        let (name, context) = (name.into(), ThreadSafeContext::try_new()?);
        let guard = context.lock();
        // SAFETY: the context is alive and held for the closure, whose type lets nothing out that borrows from it but the module;
        // `ManuallyDrop` leaves the ownership here.
        let lent = ManuallyDrop::new(unsafe { Context::new(guard.raw()) });
        // Ours from here on: inkwell no longer disposes of it, and an execution engine that has it stays for ever.
        let module = ManuallyDrop::new(build(&lent)?);
        let raw = module.as_mut_ptr();
        // SAFETY: the module is alive.
        let is_of_context = unsafe { LLVMGetModuleContext(raw) } == guard.raw();
        assert!(is_of_context, "`{name}` was to be built in the context that was lent, and is of another");
        guard.restore_handler();
        let reported = guard.take_errors(&name);
        drop(guard);
        // SAFETY: the module is of that context, and has had no other owner since it came out of the closure.
        let module = unsafe { Self::adopt(raw, name.clone(), context) };
        module.lock()?.set_identifier();
        match reported {
            None => Ok(module),
            Some(message) => Err(CompileError::Diagnosed { module: name, message }.into()),
        }
    }
}

//! From a function's tree to a module of LLVM IR.
//!
//! Each variable is a place on the stack, made in the entry block: LLVM's passes turn them into registers where they run. Each callee of
//! a function, itself included, is declared and nothing more, so that no optimizer sees through what may be defined anew.
//!
//! **A function can be stopped** before each call, and each time a loop repeats: it compares the address of its frame with the word
//! [`STOP_LIMIT`], and if it lies below, calls [`STOP_NOTE`] and answers no number. A limit near the end of the stack keeps recursion within it; the largest number
//! stops what runs. Since nothing is called then, a stopped expression does nothing more that can be seen. All frames return as they always do.

use std::error::Error;
use std::fmt;

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{BasicMetadataTypeEnum, IntType};
use inkwell::values::{BasicValue as _, FloatValue, FunctionValue, IntValue, PhiValue, PointerValue};
use inkwell::{AddressSpace, AtomicOrdering, FloatPredicate, IntPredicate};

use crate::ast::{Arithmetic, Binding, Definition, Expr, ExprKind, Named, Operator};
use crate::functions::{Callee, Functions, nearest};
use crate::{Diagnostic, Span};

/// The word that frames are compared with, a number of eight bytes. The host of a program defines it.
pub const STOP_LIMIT: &str = "$limit";

/// The function that a frame below the limit calls, with the address of [`STOP_STATE`], the address of the definition, and the place there: `start << 32 | end`.
pub const STOP_NOTE: &str = "$stopped";

/// The argument of [`STOP_NOTE`].
pub const STOP_STATE: &str = "$stop";

/// Why there is no IR of a function.
#[derive(Debug)]
pub enum LowerError {
    /// The program is wrong.
    Wrong(Diagnostic),
    /// LLVM refused something.
    Builder(BuilderError),
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(diagnostic) => diagnostic.fmt(f),
            Self::Builder(error) => error.fmt(f),
        }
    }
}

impl Error for LowerError {}

impl From<Diagnostic> for LowerError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::Wrong(diagnostic)
    }
}

impl From<BuilderError> for LowerError {
    fn from(error: BuilderError) -> Self {
        Self::Builder(error)
    }
}

/// Makes a module with one function, which is called `symbol` there and calls what `functions` has.
///
/// # Errors
/// [`LowerError::Wrong`] if it calls what `functions` has not, or with another number of arguments.
pub fn lower<'ctx>(
    context: &'ctx Context,
    definition: &Definition,
    symbol: &str,
    functions: &Functions,
) -> Result<Module<'ctx>, LowerError> {
    let (module, builder) = (context.create_module(symbol), context.create_builder());
    let function = declare(context, &module, symbol, definition.prototype.parameters.len());
    let mut lowering = Lowering {
        context,
        module: &module,
        builder: &builder,
        function,
        definition,
        functions,
        stopped: None,
    };
    lowering.function()?;
    Ok(module)
}

fn declare<'ctx>(
    context: &'ctx Context,
    module: &Module<'ctx>,
    name: &str,
    parameters: usize,
) -> FunctionValue<'ctx> {
    let double = context.f64_type();
    let parameters = vec![BasicMetadataTypeEnum::from(double); parameters];
    module.add_function(name, double.fn_type(&parameters, false), None)
}

struct Lowering<'a, 'ctx> {
    context: &'ctx Context,
    module: &'a Module<'ctx>,
    builder: &'a Builder<'ctx>,
    function: FunctionValue<'ctx>,
    definition: &'a Definition,
    functions: &'a Functions,
    /// Where a function that is stopped goes, with the place from which it does.
    stopped: Option<PhiValue<'ctx>>,
}

type Lowered<T> = Result<T, LowerError>;

/// The variables that are known at one place, the innermost last.
type Variables<'a, 'ctx> = Vec<(&'a str, PointerValue<'ctx>)>;

impl<'a, 'ctx> Lowering<'a, 'ctx> {
    fn function(&mut self) -> Lowered<()> {
        let entry = self.context.append_basic_block(self.function, "entry");
        self.builder.position_at_end(entry);
        let mut variables = Variables::new();
        for (name, value) in self.definition.prototype.parameters.iter().zip(self.function.get_param_iter()) {
            value.set_name(name);
            self.bind(name, value.into_float_value(), &mut variables)?;
        }
        let value = self.value(&self.definition.body, &mut variables)?;
        self.builder.build_return(Some(&value))?;
        Ok(())
    }

    /// Makes a variable that begins with `value`.
    fn bind(
        &self,
        name: &'a str,
        value: FloatValue<'ctx>,
        variables: &mut Variables<'a, 'ctx>,
    ) -> Lowered<PointerValue<'ctx>> {
        let entry = self.function.get_first_basic_block().expect("the function has begun");
        let places = self.context.create_builder();
        match entry.get_first_instruction() {
            Some(first) => places.position_before(&first),
            None => places.position_at_end(entry),
        }
        let place = places.build_alloca(self.context.f64_type(), name)?;
        self.builder.build_store(place, value)?;
        variables.push((name, place));
        Ok(place)
    }

    fn value(&mut self, expr: &'a Expr, variables: &mut Variables<'a, 'ctx>) -> Lowered<FloatValue<'ctx>> {
        let builder = self.builder;
        Ok(match &expr.kind {
            ExprKind::Number(value) => self.context.f64_type().const_float(*value),
            ExprKind::Variable(name) => self.load(place_of(name, variables), name)?,
            ExprKind::Negate(operand) => {
                builder.build_float_neg(self.value(operand, variables)?, "negated")?
            }
            ExprKind::Chain { first, rest } => {
                let mut left = self.value(first, variables)?;
                for (operator, right) in rest {
                    let right = self.value(right, variables)?;
                    left = match operator {
                        Operator::Arithmetic(operator) => self.arithmetic(*operator, left, right)?,
                        Operator::Call(callee) => self.call(callee, &[left, right])?,
                    };
                }
                left
            }
            ExprKind::Assign(name, value) => {
                let value = self.value(value, variables)?;
                builder.build_store(place_of(name, variables), value)?;
                value
            }
            ExprKind::Call { callee, arguments } => {
                // A mistake in the call is told before one in its arguments.
                self.callee(callee, arguments.len())?;
                let values: Vec<_> = arguments
                    .iter()
                    .map(|argument| self.value(argument, variables))
                    .collect::<Result<_, _>>()?;
                self.call(callee, &values)?
            }
            ExprKind::If { condition, then, otherwise } => {
                self.conditional(condition, then, otherwise, variables)?
            }
            ExprKind::For { variable, end, step, body } => {
                self.repetition(variable, end, step.as_deref(), body, variables)?
            }
            ExprKind::Var { bindings, body } => {
                let outside = variables.len();
                for binding in bindings {
                    let value = self.beginning(binding, variables)?;
                    self.bind(&binding.name, value, variables)?;
                }
                let value = self.value(body, variables)?;
                variables.truncate(outside);
                value
            }
        })
    }

    fn beginning(
        &mut self,
        binding: &'a Binding,
        variables: &mut Variables<'a, 'ctx>,
    ) -> Lowered<FloatValue<'ctx>> {
        match &binding.value {
            Some(value) => self.value(value, variables),
            None => Ok(self.context.f64_type().const_zero()),
        }
    }

    fn load(&self, place: PointerValue<'ctx>, name: &str) -> Lowered<FloatValue<'ctx>> {
        Ok(self.builder.build_load(self.context.f64_type(), place, name)?.into_float_value())
    }

    fn arithmetic(
        &self,
        operator: Arithmetic,
        left: FloatValue<'ctx>,
        right: FloatValue<'ctx>,
    ) -> Lowered<FloatValue<'ctx>> {
        let builder = self.builder;
        Ok(match operator {
            Arithmetic::Add => builder.build_float_add(left, right, "sum")?,
            Arithmetic::Subtract => builder.build_float_sub(left, right, "difference")?,
            Arithmetic::Multiply => builder.build_float_mul(left, right, "product")?,
            Arithmetic::Less => {
                let less = builder.build_float_compare(FloatPredicate::OLT, left, right, "less")?;
                builder.build_unsigned_int_to_float(less, self.context.f64_type(), "truth")?
            }
        })
    }

    fn call(&mut self, callee: &Named, arguments: &[FloatValue<'ctx>]) -> Lowered<FloatValue<'ctx>> {
        let (name, target) = (&*callee.name, self.callee(callee, arguments.len())?);
        let function = self.module.get_function(name).unwrap_or_else(|| {
            let function = declare(self.context, self.module, name, arguments.len());
            if matches!(target, Callee::Defined { .. }) {
                // A function of the program that is called `sin` is not the C library's.
                let kind = Attribute::get_named_enum_kind_id("nobuiltin");
                function.add_attribute(AttributeLoc::Function, self.context.create_enum_attribute(kind, 0));
            }
            function
        });
        self.stop_if_below_limit(callee.span)?;
        let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).into()).collect();
        let call = self.builder.build_call(function, &arguments, "value")?;
        Ok(call.try_as_basic_value().expect_basic("every function answers a number").into_float_value())
    }

    /// Goes on only if the frame lies above the limit.
    fn stop_if_below_limit(&mut self, span: Span) -> Lowered<()> {
        let (context, builder, word) = (self.context, self.builder, self.context.i64_type());
        let pointer = context.ptr_type(AddressSpace::default());
        let frame_address = Intrinsic::find("llvm.frameaddress")
            .and_then(|intrinsic| intrinsic.get_declaration(self.module, &[pointer.into()]))
            .expect("LLVM has this intrinsic");
        let frame = builder.build_call(frame_address, &[context.i32_type().const_zero().into()], "frame")?;
        let frame = frame.try_as_basic_value().expect_basic("it answers an address").into_pointer_value();
        let frame = builder.build_ptr_to_int(frame, word, "address")?;
        let limit = builder.build_load(word, self.variable_of_host(STOP_LIMIT, word), "limit")?;
        // It changes at any time, and nothing else hangs on it.
        let load = limit.as_instruction_value().expect("a load is an instruction");
        load.set_alignment(8).expect("a load has an alignment");
        load.set_atomic_ordering(AtomicOrdering::Monotonic).expect("a load may be atomic");
        let is_below =
            builder.build_int_compare(IntPredicate::ULT, frame, limit.into_int_value(), "is_stopped")?;
        let stopped = match self.stopped {
            Some(stopped) => stopped,
            None => self.begin_stopped()?,
        };
        let place = word.const_int((span.start as u64) << 32 | span.end as u64, false);
        stopped.add_incoming(&[(&place, self.builder.get_insert_block().expect("it stands in a block"))]);
        let goes_on = context.append_basic_block(self.function, "goes_on");
        builder.build_conditional_branch(
            is_below,
            stopped.as_instruction().get_parent().expect("it stands in a block"),
            goes_on,
        )?;
        builder.position_at_end(goes_on);
        Ok(())
    }

    /// Where the function goes when it is stopped: it says from which place, and answers no number.
    fn begin_stopped(&mut self) -> Lowered<PhiValue<'ctx>> {
        let (context, word) = (self.context, self.context.i64_type());
        let pointer = context.ptr_type(AddressSpace::default());
        let builder = context.create_builder();
        builder.position_at_end(context.append_basic_block(self.function, "stopped"));
        let place = builder.build_phi(word, "place")?;
        let note = self.module.get_function(STOP_NOTE).unwrap_or_else(|| {
            let parameters = [pointer.into(), word.into(), word.into()];
            self.module.add_function(STOP_NOTE, context.void_type().fn_type(&parameters, false), None)
        });
        let state = self.variable_of_host(STOP_STATE, word);
        let definition = word.const_int(std::ptr::from_ref(self.definition).addr() as u64, false);
        builder.build_call(note, &[state.into(), definition.into(), place.as_basic_value().into()], "")?;
        builder.build_return(Some(&context.f64_type().const_float(f64::NAN)))?;
        self.stopped = Some(place);
        Ok(place)
    }

    fn variable_of_host(&self, name: &str, kind: IntType<'ctx>) -> PointerValue<'ctx> {
        let known = self.module.get_global(name);
        known.unwrap_or_else(|| self.module.add_global(kind, None, name)).as_pointer_value()
    }

    /// The function that a call refers to.
    fn callee(&self, callee: &Named, arguments: usize) -> Result<Callee, Diagnostic> {
        let name = &*callee.name;
        let error = |message: String| Diagnostic::new(&self.definition.source, callee.span, message);
        let Some(callee) = self.functions.get(name) else {
            let similar = nearest(name, self.functions.keys().map(String::as_str));
            return Err(error(format!("nobody has defined `{name}`"))
                .help(similar.map(|similar| format!("is `{similar}` meant?"))));
        };
        if let Callee::Extern { is_missing: true, .. } = callee {
            return Err(error(format!(
                "`{name}` was declared with `extern`, and this process has no such function"
            )));
        }
        let parameters = callee.parameters();
        if parameters != arguments {
            let takes = if parameters == 1 { "argument" } else { "arguments" };
            return Err(error(format!("`{name}` takes {parameters} {takes}, and is given {arguments}")));
        }
        Ok(*callee)
    }

    fn truth(&self, value: FloatValue<'ctx>) -> Lowered<IntValue<'ctx>> {
        let zero = self.context.f64_type().const_zero();
        Ok(self.builder.build_float_compare(FloatPredicate::ONE, value, zero, "is_true")?)
    }

    fn conditional(
        &mut self,
        condition: &'a Expr,
        then: &'a Expr,
        otherwise: &'a Expr,
        variables: &mut Variables<'a, 'ctx>,
    ) -> Lowered<FloatValue<'ctx>> {
        let (context, builder) = (self.context, self.builder);
        let condition = self.value(condition, variables)?;
        let is_true = self.truth(condition)?;
        let [yes, no, after] =
            ["then", "else", "after"].map(|name| context.append_basic_block(self.function, name));
        builder.build_conditional_branch(is_true, yes, no)?;
        let mut branch = |block, value| -> Lowered<_> {
            builder.position_at_end(block);
            let value = self.value(value, variables)?;
            builder.build_unconditional_branch(after)?;
            // The expression inside may have begun other blocks.
            Ok((value, builder.get_insert_block().expect("the builder stands in a block")))
        };
        let (then, otherwise) = (branch(yes, then)?, branch(no, otherwise)?);
        builder.position_at_end(after);
        let result = builder.build_phi(context.f64_type(), "result")?;
        result.add_incoming(&[(&then.0, then.1), (&otherwise.0, otherwise.1)]);
        Ok(result.as_basic_value().into_float_value())
    }

    fn repetition(
        &mut self,
        variable: &'a Binding,
        end: &'a Expr,
        step: Option<&'a Expr>,
        body: &'a Expr,
        variables: &mut Variables<'a, 'ctx>,
    ) -> Lowered<FloatValue<'ctx>> {
        let (builder, double) = (self.builder, self.context.f64_type());
        let first = self.beginning(variable, variables)?;
        let place = self.bind(&variable.name, first, variables)?;
        let [repeat, after] =
            ["loop", "after"].map(|name| self.context.append_basic_block(self.function, name));
        builder.build_unconditional_branch(repeat)?;
        builder.position_at_end(repeat);
        self.stop_if_below_limit(end.span)?;
        self.value(body, variables)?;
        let step = match step {
            Some(step) => self.value(step, variables)?,
            None => double.const_float(1.0),
        };
        let goes_on = self.value(end, variables)?;
        let goes_on = self.truth(goes_on)?;
        let next = builder.build_float_add(self.load(place, &variable.name)?, step, "next")?;
        builder.build_store(place, next)?;
        builder.build_conditional_branch(goes_on, repeat, after)?;
        builder.position_at_end(after);
        variables.pop();
        Ok(double.const_zero())
    }
}

fn place_of<'ctx>(name: &str, variables: &Variables<'_, 'ctx>) -> PointerValue<'ctx> {
    let known = variables.iter().rev().find(|(known, _)| *known == name);
    known.expect("the parser refuses variables that are not known").1
}

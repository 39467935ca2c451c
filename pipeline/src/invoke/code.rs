//! The steps of a trampoline. The instructions of each are the architecture's.

use uruk_core::ExecutorAddr;
use uruk_instances::CodeInstance;

use super::{BoxedValue, ValueType};
use crate::arch::x86_64::{Register, Trampoline, WordBase};

/// Called boxed: loads and unboxes the arguments, calls `specptr`, boxes the result.
pub(super) fn unboxing(parameters: &[(ValueType, Register)], result: ValueType) -> Trampoline {
    let mut code = Trampoline::begin(parameters.len());
    code.keep_boxed_arguments();
    for (index, (parameter, _)) in parameters.iter().enumerate() {
        if let Some((unboxes, given)) = parameter.unboxing() {
            code.load(Register::ARGUMENT, WordBase::Arguments, index);
            code.call(unboxes);
            code.store(given, index);
        }
    }
    for (index, (parameter, register)) in parameters.iter().enumerate() {
        // Boxed values stay where the caller has put them until now: a collector may have moved them.
        let base = if matches!(parameter, ValueType::Boxed) { WordBase::Arguments } else { WordBase::Frame };
        code.load(*register, base, index);
    }
    code.call_kept_instance(CodeInstance::<ExecutorAddr>::SPECPTR_OFFSET);
    if let Some((boxes, taken)) = result.boxing() {
        code.pass_result(taken);
        code.call(boxes);
    }
    code.end(parameters.len())
}

/// Called by types: boxes the arguments, calls the `invoke` of an instance, unboxes the result.
pub(super) fn boxing(
    parameters: &[(ValueType, Register)],
    result: ValueType,
    instance: &CodeInstance<ExecutorAddr>,
) -> Trampoline {
    let mut code = Trampoline::begin(parameters.len());
    for (index, (_, register)) in parameters.iter().enumerate() {
        code.store(*register, index);
    }
    for (index, (parameter, _)) in parameters.iter().enumerate() {
        if let Some((boxes, taken)) = parameter.boxing() {
            code.load(taken, WordBase::Frame, index);
            code.call(boxes);
            code.store(Register::RESULT, index);
        }
    }
    let instance = ExecutorAddr::from_ptr(instance).value();
    code.call_boxed(instance, parameters.len(), CodeInstance::<ExecutorAddr>::INVOKE_OFFSET);
    if let Some((unboxes, _)) = result.unboxing() {
        code.pass_result(Register::ARGUMENT); // a boxed value
        code.call(unboxes);
    }
    code.end(parameters.len())
}

impl ValueType {
    /// The function that takes it out of a boxed value, and where that gives it.
    fn unboxing(self) -> Option<(u64, Register)> {
        match self {
            Self::Boxed => None,
            Self::Integer { unboxes, .. } => {
                Some((unboxes as extern "C-unwind" fn(BoxedValue) -> u64 as usize as u64, Register::RESULT))
            }
            Self::Float { unboxes, .. } => {
                Some((unboxes as extern "C-unwind" fn(BoxedValue) -> f64 as usize as u64, Register::FLOAT))
            }
        }
    }

    /// The function that makes a boxed value of it, and where that takes it.
    fn boxing(self) -> Option<(u64, Register)> {
        match self {
            Self::Boxed => None,
            Self::Integer { boxes, .. } => {
                Some((boxes as extern "C-unwind" fn(u64) -> BoxedValue as usize as u64, Register::ARGUMENT))
            }
            Self::Float { boxes, .. } => {
                Some((boxes as extern "C-unwind" fn(f64) -> BoxedValue as usize as u64, Register::FLOAT))
            }
        }
    }
}

//! The methods: `weigh(x, weight)` is `(scale(x) + square(x)) * weight`, and `scale(x)` is `factor * x + 1`, whose factor
//! changes.

use std::cell::Cell;

use uruk::core::ExecutorAddr;
use uruk::instances::{CodeInstance, CodeInstanceState};
use uruk::pipeline::invoke::{BoxedFn, BoxedValue, SpecializedSignature, ValueType};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    /// Is redefined.
    Scale,
    /// Belongs to the host, which has it by the boxed convention alone.
    Square,
    /// Is called.
    Weigh,
}

pub(crate) type Instance = CodeInstance<ExecutorAddr>;

/// The specialized code of `weigh`.
type Weigh = extern "C" fn(i64, f64) -> f64;

thread_local! {
    /// The factor of `scale` in the world in which this thread calls.
    pub(crate) static FACTOR: Cell<i64> = const { Cell::new(0) };
}

// A boxed value is an odd word, twice an integer and 1, or an even one, a float.

pub(crate) extern "C-unwind" fn box_integer(integer: u64) -> BoxedValue {
    BoxedValue(integer << 1 | 1)
}

pub(crate) extern "C-unwind" fn unbox_integer(value: BoxedValue) -> u64 {
    assert_eq!(value.0 & 1, 1, "{value:?} is no integer");
    value.0 >> 1
}

pub(crate) extern "C-unwind" fn box_float(float: f64) -> BoxedValue {
    BoxedValue(float.to_bits() & !1)
}

pub(crate) extern "C-unwind" fn unbox_float(value: BoxedValue) -> f64 {
    assert_eq!(value.0 & 1, 0, "{value:?} is no float");
    f64::from_bits(value.0)
}

pub(crate) const INTEGER: ValueType = ValueType::Integer { boxes: box_integer, unboxes: unbox_integer };
pub(crate) const FLOAT: ValueType = ValueType::Float { boxes: box_float, unboxes: unbox_float };

pub(crate) fn signature_of_weigh() -> SpecializedSignature {
    SpecializedSignature { parameters: vec![INTEGER, FLOAT], result: FLOAT }
}

pub(crate) fn signature_of_square() -> SpecializedSignature {
    SpecializedSignature { parameters: vec![INTEGER], result: INTEGER }
}

pub(crate) fn expected(factor: i64, x: i64, weight: f64) -> f64 {
    (factor * x + 1 + x * x) as f64 * weight
}

/// `weigh` before it is compiled.
pub(crate) unsafe extern "C-unwind" fn interpret_weigh(
    _: *const Instance,
    arguments: *const BoxedValue,
    _count: usize,
) -> BoxedValue {
    // SAFETY: two were passed.
    let [x, weight] = unsafe { *arguments.cast::<[BoxedValue; 2]>() };
    box_float(expected(FACTOR.get(), unbox_integer(x) as i64, unbox_float(weight)))
}

pub(crate) unsafe extern "C-unwind" fn square(
    _: *const Instance,
    arguments: *const BoxedValue,
    _count: usize,
) -> BoxedValue {
    // SAFETY: one was passed.
    let x = unbox_integer(unsafe { *arguments });
    box_integer(x * x)
}

/// Calls `weigh`: by its types, if the caller knows them and there is such code, and otherwise by the boxed convention.
///
/// This thread is inside, so that code stays which was published when `state` was read.
pub(crate) fn weigh(
    instance: &Instance,
    state: CodeInstanceState<ExecutorAddr>,
    knows_types: bool,
    x: i64,
    weight: f64,
) -> f64 {
    let invoke = match state {
        CodeInstanceState::Specialized { specptr, .. } if knows_types => {
            // SAFETY: the specialized code of this method has this signature.
            let weigh: Weigh = unsafe { std::mem::transmute(specptr.to_ptr::<()>()) };
            return weigh(x, weight);
        }
        // Its first caller is about to publish it.
        CodeInstanceState::Unset => ExecutorAddr::from_ptr(interpret_weigh as BoxedFn as *const u8),
        CodeInstanceState::InvokeOnly { invoke }
        | CodeInstanceState::Boxed { invoke, .. }
        | CodeInstanceState::Specialized { invoke, .. } => invoke,
    };
    // SAFETY: each `invoke` is a function of the boxed convention.
    let invoke: BoxedFn = unsafe { std::mem::transmute(invoke.to_ptr::<()>()) };
    let arguments = [box_integer(x as u64), box_float(weight)];
    // SAFETY: `weigh` takes these arguments.
    unbox_float(unsafe { invoke(instance, arguments.as_ptr(), arguments.len()) })
}

pub(crate) fn ir_of_scale(name: &str, factor: i64) -> String {
    format!("define i64 @{name}(i64 %x) {{ %y = mul i64 %x, {factor} %z = add i64 %y, 1 ret i64 %z }}")
}

/// `weigh` with `scale` called by its name, or with its code.
pub(crate) fn ir_of_weigh(name: &str, scale: &str, inlined: Option<i64>) -> String {
    let scaled = match inlined {
        None => format!("%a = call i64 @{scale}(i64 %x)"),
        Some(factor) => format!("%m = mul i64 %x, {factor} %a = add i64 %m, 1"),
    };
    format!(
        "declare i64 @square(i64)
         declare i64 @{scale}(i64)
         define double @{name}(i64 %x, double %weight) {{
           {scaled}
           %b = call i64 @square(i64 %x)
           %c = add i64 %a, %b
           %d = sitofp i64 %c to double
           %e = fmul double %d, %weight
           ret double %e
         }}"
    )
}

//! Trampolines between boxed and specialized code, of many signatures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use uruk_core::{ExecutionSession, ExecutorAddr, JitDylib, LookupRequest, LookupSet};
use uruk_instances::{CodeInstance, CodeSignature};
use uruk_pipeline::invoke::{
    BoxedFn, BoxedValue, InvokeApi, InvokeTrampolines, SpecializedSignature, TrampolineError, ValueType,
};
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::memory::InProcessMemoryManager;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::in_process::InProcessExecutor;

type Instance = Arc<CodeInstance<ExecutorAddr>>;

/// The upper bits of every boxed value. They show a value that was not boxed, or boxed twice.
const INTEGER: u64 = 0x1111 << 48;
const FLOAT: u64 = 0x2222 << 48;

extern "C-unwind" fn box_integer(integer: u64) -> BoxedValue {
    assert_eq!(integer >> 48, 0, "{integer:#x} is no integer");
    clobber();
    BoxedValue(INTEGER | integer)
}

extern "C-unwind" fn unbox_integer(value: BoxedValue) -> u64 {
    assert_eq!(value.0 & (0xffff << 48), INTEGER, "{value:?} is no integer");
    clobber();
    value.0 ^ INTEGER
}

extern "C-unwind" fn box_float(float: f64) -> BoxedValue {
    assert!((0.0..1e6).contains(&float), "{float} is no float of these tests");
    clobber();
    BoxedValue(FLOAT | (float * 2.0) as u64)
}

extern "C-unwind" fn unbox_float(value: BoxedValue) -> f64 {
    assert_eq!(value.0 & (0xffff << 48), FLOAT, "{value:?} is no float");
    clobber();
    (value.0 ^ FLOAT) as f64 / 2.0
}

/// Uses the registers that a callee may use.
#[inline(never)]
fn clobber() {
    let floats: [f64; 16] = std::array::from_fn(|index| std::hint::black_box(index as f64 + 0.5));
    std::hint::black_box((floats.iter().product::<f64>(), format!("{floats:?}").len()));
}

const I: ValueType = ValueType::Integer { boxes: box_integer, unboxes: unbox_integer };
const F: ValueType = ValueType::Float { boxes: box_float, unboxes: unbox_float };
const B: ValueType = ValueType::Boxed;

struct Stage {
    session: ExecutionSession,
    dylib: JitDylib,
    trampolines: InvokeTrampolines,
}

impl Stage {
    fn new() -> Self {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").expect("new");
        let memory = Arc::new(InProcessMemoryManager::new().expect("an address range"));
        let layer =
            ObjectLinkingLayer::new(Arc::new(InProcessExecutor::new(memory)), Arc::new(Platform::new()));
        Self { session, dylib, trampolines: InvokeTrampolines::new(layer) }
    }

    fn trampoline(&self, name: &str, signature: &SpecializedSignature, api: &InvokeApi) -> ExecutorAddr {
        let name = self.session.intern(name);
        let unit = self.trampolines.unit(name.clone(), signature, api).expect("there are registers enough");
        self.dylib.define(unit).expect("a new name");
        let found = self
            .dylib
            .session()
            .lookup(LookupRequest::along(&self.dylib, LookupSet::one(name.clone())))
            .expect("it can be linked");
        found.get(&name).expect("it was asked for").address
    }
}

fn specialized(parameters: &[ValueType], result: ValueType) -> SpecializedSignature {
    SpecializedSignature { parameters: parameters.to_vec(), result }
}

fn call(instance: &Instance, arguments: &[BoxedValue]) -> BoxedValue {
    let invoke = instance.invoke().expect("it was published");
    // SAFETY: each `invoke` here is a boxed function.
    let invoke: BoxedFn = unsafe { std::mem::transmute(invoke.to_ptr::<()>()) };
    // SAFETY: its instance takes so many arguments.
    unsafe { invoke(Arc::as_ptr(instance), arguments.as_ptr(), arguments.len()) }
}

/// A boxed function: adds up what is in the boxes, weighed by their places, and gives it as an integer.
extern "C-unwind" fn weigh(
    _: *const CodeInstance<ExecutorAddr>,
    arguments: *const BoxedValue,
    count: usize,
) -> BoxedValue {
    // SAFETY: so many were passed.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, count) };
    clobber();
    BoxedValue(INTEGER | weighed(arguments))
}

fn weighed(arguments: &[BoxedValue]) -> u64 {
    let part = |(place, value): (u64, &BoxedValue)| (place + 1) * (value.0 & 0xffff_ffff) + (value.0 >> 60);
    (0..).zip(arguments).map(part).sum()
}

fn address(function: *const ()) -> ExecutorAddr {
    ExecutorAddr::new(function as u64)
}

fn boxed_only(function: BoxedFn) -> Instance {
    let instance = Instance::default();
    instance.publish_invoke(address(function as *const ())).expect("nothing was there");
    instance
}

/// Boxed to specialized to boxed, so that each parameter goes through its register.
#[test]
fn arguments_arrive_whatever_the_signature() {
    let stage = Stage::new();
    let weigh = boxed_only(weigh);
    let all = [I, F, F, I, B, F, I, F, F, F, B, F, I, F];
    let mut signatures: Vec<Vec<ValueType>> = (0..=all.len()).map(|count| all[..count].to_vec()).collect();
    signatures.extend([vec![I; 6], vec![B; 6], vec![F; 8], vec![F, I, F, B]]);
    for (number, parameters) in signatures.iter().enumerate() {
        let signature = specialized(parameters, I);
        let boxing = InvokeApi::Specialized(weigh.clone());
        let specptr = stage.trampoline(&format!("boxing {number}"), &signature, &boxing);
        let invoke = stage.trampoline(&format!("unboxing {number}"), &signature, &InvokeApi::Boxed);
        let instance = Instance::default();
        instance.publish(invoke, specptr, CodeSignature::Specialized).expect("nothing was there");
        let argument = |(place, parameter): (u64, &ValueType)| match parameter {
            ValueType::Boxed => BoxedValue((0x7777 << 48) | (1000 + place)),
            ValueType::Integer { .. } => box_integer(2000 + place),
            ValueType::Float { .. } => box_float(3000.5 + place as f64),
        };
        let arguments: Vec<_> = (0..).zip(parameters).map(argument).collect();
        assert_eq!(call(&instance, &arguments), BoxedValue(INTEGER | weighed(&arguments)), "{number}");
    }
}

#[test]
fn compiled_functions_are_called_by_their_types() {
    extern "C" fn scale(count: u64, factor: f64, tag: BoxedValue) -> f64 {
        assert_eq!(tag, BoxedValue(77));
        count as f64 * factor
    }
    extern "C" fn scale_twice(count: u64, factor: f64, _: BoxedValue) -> f64 {
        2.0 * count as f64 * factor
    }
    let stage = Stage::new();
    let signature = specialized(&[I, F, B], F);
    let invoke = stage.trampoline("invoke", &signature, &InvokeApi::Boxed);
    let instance = Instance::default();
    instance
        .publish(invoke, address(scale as *const ()), CodeSignature::Specialized)
        .expect("nothing was there");
    let arguments = [box_integer(6), box_float(1.5), BoxedValue(77)];
    assert_eq!(call(&instance, &arguments), box_float(9.0));
    // A boxed caller reaches better code by the same `invoke`.
    instance.update(address(scale_twice as *const ())).expect("there is a pair");
    assert_eq!(call(&instance, &arguments), box_float(18.0));
}

/// An interpreter, say, gives way to code: callers by types reach that too.
#[test]
fn callers_by_types_reach_what_the_instance_has_now() {
    extern "C-unwind" fn interpret(
        _: *const CodeInstance<ExecutorAddr>,
        arguments: *const BoxedValue,
        count: usize,
    ) -> BoxedValue {
        assert_eq!(count, 1);
        // SAFETY: one was passed.
        let argument = unsafe { *arguments };
        box_float(unbox_integer(argument) as f64 + 0.5)
    }
    extern "C" fn compiled(argument: u64) -> f64 {
        argument as f64 + 1000.0
    }
    let stage = Stage::new();
    let signature = specialized(&[I], F);
    let instance = boxed_only(interpret);
    let by_types = stage.trampoline("by types", &signature, &InvokeApi::Specialized(instance.clone()));
    // SAFETY: that is its signature.
    let by_types: extern "C" fn(u64) -> f64 = unsafe { std::mem::transmute(by_types.to_ptr::<()>()) };
    assert_eq!(by_types(41), 41.5);
    let invoke = stage.trampoline("invoke", &signature, &InvokeApi::Boxed);
    instance
        .publish(invoke, address(compiled as *const ()), CodeSignature::Specialized)
        .expect("no pair was there");
    assert_eq!(by_types(41), 1041.0);
}

/// The frame of a trampoline can be unwound, and gives back what it keeps in registers.
#[test]
fn a_value_of_another_type_unwinds_through_trampolines() {
    let stage = Stage::new();
    let weigh = boxed_only(weigh);
    let signature = specialized(&[I, F], F); // and what `weigh` gives is an integer
    let specptr = stage.trampoline("boxing", &signature, &InvokeApi::Specialized(weigh));
    let invoke = stage.trampoline("unboxing", &signature, &InvokeApi::Boxed);
    let instance = Instance::default();
    instance.publish(invoke, specptr, CodeSignature::Specialized).expect("nothing was there");
    let refused = |arguments: [BoxedValue; 2]| {
        let panic =
            catch_unwind(AssertUnwindSafe(|| call(&instance, &arguments))).expect_err("it is refused");
        panic.downcast_ref::<String>().expect("a message").clone()
    };
    let [integer, float] = [box_integer(5), box_float(6.5)];
    assert!(refused([float, float]).contains("is no integer"), "its own argument");
    assert!(refused([integer, integer]).contains("is no float"));
    assert!(refused([integer, float]).contains("is no float"), "the result, two trampolines further");
}

#[test]
fn what_does_not_fit_into_registers_is_refused() {
    let stage = Stage::new();
    let unit = |parameters: &[ValueType], api: &InvokeApi| {
        let name = stage.session.intern("trampoline");
        stage.trampolines.unit(name, &specialized(parameters, B), api).map(drop)
    };
    let too_many = |index| Err(TrampolineError::TooManyParameters { index });
    assert_eq!(unit(&[I, F, I, B, I, I, I, F, I], &InvokeApi::Boxed), too_many(8));
    assert_eq!(unit(&[F; 9], &InvokeApi::Boxed), too_many(8));
    let unset = InvokeApi::Specialized(Instance::default());
    assert_eq!(unit(&[I], &unset), Err(TrampolineError::Unset));
}

/// Its address is in the code.
#[test]
fn a_trampoline_keeps_the_instance_that_it_calls() {
    let stage = Stage::new();
    let instance = boxed_only(weigh);
    let tracker = stage.dylib.create_tracker();
    let name = stage.session.intern("by types");
    let api = InvokeApi::Specialized(instance.clone());
    let unit = stage.trampolines.unit(name.clone(), &specialized(&[I], I), &api).expect("one parameter");
    stage.dylib.define_with_tracker(unit, &tracker).expect("a new name");
    drop(api);
    stage
        .dylib
        .session()
        .lookup(LookupRequest::along(&stage.dylib, LookupSet::one(name)))
        .expect("it can be linked");
    assert_eq!(Arc::strong_count(&instance), 2);
    tracker.remove().expect("it is there");
    assert_eq!(Arc::strong_count(&instance), 1);
}

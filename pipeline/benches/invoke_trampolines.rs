//! The cost that a trampoline between the boxed and the specialized convention adds to a call.
//!
//! ```text
//! cargo bench -p uruk-pipeline --no-default-features --bench invoke_trampolines
//! ```
//!
//! Of a function of two integers, whose boxing is a shift and whose boxed values are words on the stack. The kinds of calls run in turn in
//! each round; every call takes the answer of the one before. *Over* is the median of what a round took more than its plain calls.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use uruk_core::{ExecutionSession, ExecutorAddr, LookupRequest, LookupSet};
use uruk_instances::{CodeInstance, CodeSignature};
use uruk_pipeline::invoke::{
    BoxedFn, BoxedValue, InvokeApi, InvokeTrampolines, SpecializedSignature, ValueType,
};
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::memory::InProcessMemoryManager;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::in_process::InProcessExecutor;

type Instance = CodeInstance<ExecutorAddr>;
type Add = extern "C" fn(u64, u64) -> u64;

const ROUNDS: usize = 51;
const CALLS: u64 = 1_000_000;

extern "C-unwind" fn boxes(integer: u64) -> BoxedValue {
    BoxedValue(integer << 1 | 1)
}

extern "C-unwind" fn unboxes(value: BoxedValue) -> u64 {
    value.0 >> 1
}

extern "C" fn add(left: u64, right: u64) -> u64 {
    left + right
}

/// The work of a trampoline, written by hand for this one function.
unsafe extern "C-unwind" fn add_boxed(
    _: *const Instance,
    arguments: *const BoxedValue,
    _: usize,
) -> BoxedValue {
    // SAFETY: two were passed.
    let [left, right] = unsafe { *arguments.cast::<[BoxedValue; 2]>() };
    boxes(add(unboxes(left), unboxes(right)))
}

fn main() {
    // `cargo test --benches` builds this and measures nothing.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let session = ExecutionSession::new();
    let dylib = session.create_jit_dylib("main").expect("new");
    let memory = Arc::new(InProcessMemoryManager::new().expect("an address range"));
    let trampolines = InvokeTrampolines::new(ObjectLinkingLayer::new(
        Arc::new(InProcessExecutor::new(memory)),
        Arc::new(Platform::new()),
    ));
    let integer = ValueType::Integer { boxes, unboxes };
    let signature = SpecializedSignature { parameters: vec![integer; 2], result: integer };
    let trampoline = |name: &str, api: &InvokeApi| {
        let name = session.intern(name);
        let unit = trampolines.unit(name.clone(), &signature, api).expect("two parameters");
        dylib.define(unit).expect("a new name");
        let found = dylib
            .session()
            .lookup(LookupRequest::along(&dylib, LookupSet::one(name.clone())))
            .expect("it can be linked");
        found.get(&name).expect("it was asked for").address
    };
    let compiled = Instance::new();
    let invoke = trampoline("invoke", &InvokeApi::Boxed);
    let code = ExecutorAddr::from_ptr(add as Add as *const u8);
    compiled.publish(invoke, code, CodeSignature::Specialized).expect("nothing was there");
    let by_hand = Arc::new(Instance::new());
    let code = ExecutorAddr::from_ptr(add_boxed as BoxedFn as *const u8);
    by_hand.publish_invoke(code).expect("nothing was there");
    let by_types = trampoline("by types", &InvokeApi::Specialized(by_hand.clone()));
    // SAFETY: that is its signature.
    let by_types: Add = unsafe { std::mem::transmute(by_types.to_ptr::<()>()) };

    let typed = |function: Add| {
        let function = black_box(function);
        (0..CALLS).fold(0, |sum, _| function(sum, 1))
    };
    let boxed = |instance: &Instance| {
        let invoke = instance.invoke().expect("it was published");
        // SAFETY: each `invoke` here is a boxed function.
        let invoke = black_box(unsafe { std::mem::transmute::<*mut (), BoxedFn>(invoke.to_ptr()) });
        let next = |sum, _| {
            // SAFETY: it takes two integers.
            unboxes(unsafe { invoke(instance, [boxes(sum), boxes(1)].as_ptr(), 2) })
        };
        (0..CALLS).fold(0, next)
    };
    let cases: [(&str, &dyn Fn() -> u64); 4] = [
        ("by types", &|| typed(add)),
        ("boxed, unboxes by hand", &|| boxed(&by_hand)),
        ("boxed, a trampoline unboxes", &|| boxed(&compiled)),
        ("by types, a trampoline boxes, unboxes by hand", &|| typed(by_types)),
    ];
    let mut taken = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for ((_, run), taken) in cases.iter().zip(&mut taken) {
            let begun = Instant::now();
            assert_eq!(black_box(run()), CALLS);
            taken.push(begun.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    let plain = taken[0].clone();
    println!("{:48} {:>8} {:>8}", "a call, ns", "median", "over");
    for ((case, _), taken) in cases.iter().zip(taken) {
        let over = taken.iter().zip(&plain).map(|(all, plain)| all - plain).collect();
        println!("{case:48} {:8.2} {:8.2}", median(taken), median(over));
    }
    session.close().expect("nothing is left");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

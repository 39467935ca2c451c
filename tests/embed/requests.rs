//! Code that is asked for in the background, and compilers of one's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use uruk::core::sync::Latch;
use uruk::core::{Deadline, LookupError, Task, TaskPriority, shared_error};
use uruk::pipeline::object::ObjectBuffer;
use uruk::{Function, Jit, JitError};

use crate::support::{c, engine};

type Answer = extern "C" fn() -> i64;

/// A runtime that compiled in the background wrote a request, an order and a set of names, and held the code by a second lookup.
#[test]
fn a_function_that_was_asked_for_arrives() {
    for threads in [0, 1] {
        let jit = engine(threads);
        jit.add_object(c("f.o", "long f(void) { return 42; } long data = 1;")).expect("new names");
        let ask = |name: &str| {
            let (told, answer) = channel();
            let request = jit.request(name).at(TaskPriority::Speculative);
            // SAFETY: all functions here have this signature.
            unsafe {
                request.then(move |function: Result<Function<Answer>, _>| {
                    told.send(function).expect("the test waits");
                });
            }
            answer.recv().expect("it is answered")
        };
        let f = ask("f").expect("it links");
        assert!(matches!(ask("data"), Err(JitError::NotCallable { .. })));
        assert_eq!(ask("nowhere").expect_err("there is none").missing_symbols(), [jit.intern("nowhere")]);
        drop(jit);
        assert_eq!(f(), 42);
    }
}

#[test]
fn what_comes_too_late_starts_nothing() {
    let jit = engine(1);
    let compiled = Arc::new(AtomicUsize::new(0));
    let count = compiled.clone();
    jit.add_object_fn(["f"], move || {
        // Relaxed: a figure.
        count.fetch_add(1, Ordering::Relaxed);
        Ok::<_, JitError>(c("f.o", "long f(void) { return 42; }"))
    })
    .expect("a new name");
    let request = || jit.request("f");
    // SAFETY: that is the function's signature.
    let late = unsafe { request().until(Deadline::after(Duration::ZERO)).get::<Answer>() };
    assert!(matches!(late, Err(JitError::Lookup(LookupError::DeadlineExceeded { .. }))), "{late:?}");
    // Relaxed: as above; the lookup has ended.
    assert_eq!(compiled.load(Ordering::Relaxed), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { request().get::<Answer>() }.expect("it links")(), 42);
    assert_eq!(compiled.load(Ordering::Relaxed), 1);
}

#[test]
fn a_compiler_of_ones_own_gives_objects() {
    let jit = engine(1);
    let source = "long g(void) { return 40; } long h(void) { return 2; }";
    jit.add_object_fn(["g", "h"], move || Ok::<_, JitError>(c("gh.o", source))).expect("new names");
    let caller = "long g(void); long h(void); long f(void) { return g() + h(); }";
    jit.add_object_fn(["f"], move || Ok::<_, JitError>(c("f.o", caller))).expect("a new name");
    // SAFETY: that is the function's signature.
    assert_eq!(unsafe { jit.get::<Answer>("f") }.expect("it links")(), 42);

    jit.add_object_fn(["bad"], || Err::<ObjectBuffer, _>("no such opcode")).expect("a new name");
    let error = shared_error(jit.lookup("bad").expect_err("the compiler fails"));
    assert!(uruk::core::WithCauses(&*error).to_string().contains("no such opcode"), "{error}");

    // One that gives another object than it promised.
    jit.add_object_fn(["promised"], || Ok::<_, JitError>(c("x.o", "long x(void) { return 1; }")))
        .expect("a new name");
    let error = jit.lookup("promised").expect_err("the object has no such function");
    assert!(error.to_string().contains("promised"), "{error}");
}

/// The counter of bits is an instruction of processors that came after the first with 64 bits.
#[cfg(feature = "llvm")]
#[test]
fn code_is_for_the_processor_that_the_host_says() {
    use uruk::pipeline::ir::{JitTargetMachineBuilder, TargetOptions, ThreadSafeModule};
    const POPCNT: [u8; 4] = [0xf3, 0x48, 0x0f, 0xb8];
    let source = "declare i64 @llvm.ctpop.i64(i64)
        define i64 @bits(i64 %x) { %n = call i64 @llvm.ctpop.i64(i64 %x) ret i64 %n }";
    let host = JitTargetMachineBuilder::host().expect("LLVM knows this machine");
    for (cpu, has_popcnt) in [("x86-64", false), ("x86-64-v2", true)] {
        let options = TargetOptions { cpu: cpu.into(), features: String::new(), ..host.options().clone() };
        let target = JitTargetMachineBuilder::new(options).expect("LLVM knows the processor");
        let jit = Jit::builder().threads(1).target(target).build().expect("an engine for this machine");
        let module = ThreadSafeModule::parse(&ObjectBuffer::new("f.ll", source.as_bytes())).expect("valid");
        let object = jit.ir_layer().compiler().compile(module).expect("valid");
        assert_eq!(object.bytes().windows(4).any(|code| code == POPCNT), has_popcnt, "{cpu}");
        jit.add_object(object).expect("new names");
        // SAFETY: it takes and gives a 64-bit integer.
        let bits = unsafe { jit.get::<extern "C" fn(i64) -> i64>("bits") }.expect("it links");
        assert_eq!(bits(0xff), 8);
    }
}

#[test]
fn errors_that_no_caller_waits_for_are_told() {
    let (told, errors) = channel();
    let jit = Jit::builder().threads(1).on_error(move |error| {
        let _ = told.send(error.to_string());
    });
    let jit = jit.build().expect("an engine for this machine");
    jit.session().dispatch(Task::new("panics", TaskPriority::Demanded, || panic!("nobody waits")));
    assert!(errors.recv().expect("it is told").contains("nobody waits"));
}

/// With one worker in the background of two, the other stays free for lookups.
#[test]
fn work_ahead_takes_as_many_workers_as_it_may() {
    let jit = Jit::builder().threads(3).background_workers(1).build().expect("an engine for this machine");
    let (goes_on, running) = (Arc::new(Latch::new()), Arc::new(AtomicUsize::new(0)));
    let (done, ended) = channel();
    for _ in 0..4 {
        let (goes_on, running, done) = (goes_on.clone(), running.clone(), done.clone());
        jit.session().dispatch(Task::new("works ahead", TaskPriority::Speculative, move || {
            // SeqCst: a figure that must not be seen late.
            let beside = running.fetch_add(1, Ordering::SeqCst);
            goes_on.wait();
            running.fetch_sub(1, Ordering::SeqCst);
            done.send(beside).expect("the test waits");
        }));
    }
    jit.add_object(c("f.o", "long f(void) { return 42; }")).expect("a new name");
    jit.lookup("f").expect("workers are free");
    goes_on.open();
    let beside: Vec<usize> = (0..4).map(|_| ended.recv().expect("it ends")).collect();
    assert_eq!(beside, [0; 4]);
}

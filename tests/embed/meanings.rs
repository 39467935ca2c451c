//! Modules whose names mean something else each time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use uruk::core::{ExecutorAddr, LookupError};
use uruk::instances::{CodeInstance, CodeSignature};
use uruk::pipeline::invoke::{BoxedValue, SpecializedSignature, TrampolineError, ValueType};
use uruk::pipeline::ir::LinkerInfo;
use uruk::pipeline::object::ObjectBuffer;
use uruk::{CacheOptions, Function, Jit, JitError};

use crate::support::{engine, temporary};

type Answer = extern "C" fn() -> i64;

/// A module that calls `callee`, reads `table`, and has a function and a variable that are its own.
const MODULE: &str = "
    @table = external global i64
    @count = global i64 0
    declare i64 @callee()
    define i64 @f() {
      %before = load i64, ptr @count
      %count = add i64 %before, 1
      store i64 %count, ptr @count
      %x = call i64 @callee()
      %y = load i64, ptr @table
      %xy = add i64 %x, %y
      %all = add i64 %xy, %count
      ret i64 %all
    }";

static TABLE: i64 = 1_000;

fn add(jit: &Jit, info: LinkerInfo) -> Result<(), JitError> {
    jit.add_translation_unit(ObjectBuffer::new("f.ll", MODULE.as_bytes()), info)
}

/// The meanings that stay alike, of compile `number`.
fn info(number: u32) -> LinkerInfo {
    LinkerInfo::new()
        .define("f", &format!("f#{number}"))
        .define("count", &format!("count#{number}"))
        .refer_to_address("table", ExecutorAddr::from_ptr(&raw const TABLE))
}

fn get(jit: &Jit, function: &str) -> Function<Answer> {
    // SAFETY: all functions here have this signature, and their pointers stay in their handles.
    unsafe { jit.get(function) }.unwrap_or_else(|error| panic!("{function}: {error}"))
}

#[test]
fn one_module_is_several_units_and_one_entry_of_the_cache() {
    let directory = temporary();
    let jit = Jit::builder().threads(2).cache(CacheOptions::directory(&directory)).build();
    let jit = jit.expect("an engine for this machine");
    jit.add_ir_text("callees.ll", "define i64 @c1() { ret i64 100 } define i64 @c2() { ret i64 200 }")
        .expect("new names");
    for number in 1..=2 {
        add(&jit, info(number).refer_to("callee", &format!("c{number}"))).expect("new names");
    }
    let [first, second] = ["f#1", "f#2"].map(|name| get(&jit, name));
    assert_eq!([first(), first(), second()], [1_101, 1_102, 1_201]);
    let stats = jit.cache_stats().expect("there is a cache");
    assert_eq!(
        (stats.object_hits, stats.object_misses),
        (1, 2),
        "the callees, and the module once: {stats:?}"
    );
    drop((first, second, jit));
    let _ = std::fs::remove_dir_all(directory);
}

#[test]
fn an_instance_is_called_directly_once_it_has_code_and_by_what_stands_for_it_before() {
    let jit = engine(1);
    jit.add_ir_text("code.ll", "define i64 @otherwise() { ret i64 1 } define i64 @better() { ret i64 2 }")
        .expect("new names");
    let instance = Arc::new(CodeInstance::<ExecutorAddr>::new());
    let unit = |number| info(number).refer_to_instance("callee", instance.clone(), "otherwise");
    add(&jit, unit(1)).expect("new names");
    assert_eq!(get(&jit, "f#1")(), 1_002);
    let better = jit.lookup("better").expect("it is there").address;
    let invoke = ExecutorAddr::new(0x1000); // Nobody enters it.
    instance.publish(invoke, better, CodeSignature::Specialized).expect("nobody else publishes");
    add(&jit, unit(2)).expect("new names");
    assert_eq!((get(&jit, "f#2")(), get(&jit, "f#1")()), (1_003, 1_003));
}

extern "C-unwind" fn boxes(integer: u64) -> BoxedValue {
    BoxedValue(integer << 1 | 1)
}

extern "C-unwind" fn unboxes(value: BoxedValue) -> u64 {
    assert_eq!(value.0 & 1, 1, "{value:?} is not boxed");
    value.0 >> 1
}

extern "C-unwind" fn eight_boxed(
    _: *const CodeInstance<ExecutorAddr>,
    _: *const BoxedValue,
    arguments: usize,
) -> BoxedValue {
    assert_eq!(arguments, 0);
    boxes(8)
}

/// Before it is compiled a function that compiles it; an adapter if its code is boxed; its code once that is of the types.
#[test]
fn an_instance_of_another_convention_is_called_through_an_adapter() {
    let jit = engine(1);
    let bodies = jit.create_dylib("bodies").expect("a new name");
    let code = "define i64 @otherwise() { ret i64 1 } define i64 @better() { ret i64 2 }";
    bodies.add_ir_text("code.ll", code).expect("new names");
    jit.add_lazy(&bodies, ["otherwise"]).expect("a new name");
    let integer = ValueType::Integer { boxes, unboxes };
    let instance = Arc::new(CodeInstance::<ExecutorAddr>::new());
    let unit = |number| {
        let signature = SpecializedSignature { parameters: Vec::new(), result: integer };
        info(number).refer_to_instance_as("callee", instance.clone(), signature, "otherwise")
    };
    let add = |number| add(&jit, unit(number).expect("no parameters")).expect("new names");
    add(1);
    assert_eq!(get(&jit, "f#1")(), 1_002);
    let invoke = ExecutorAddr::from_ptr(eight_boxed as *const ());
    instance.publish_invoke(invoke).expect("nobody else publishes");
    add(2);
    let adapted = get(&jit, "f#2");
    assert_eq!(adapted(), 1_009);
    add(3);
    assert_eq!(get(&jit, "f#3")(), 1_009, "each unit has an adapter of its own");

    let compiled = Arc::new(CodeInstance::<ExecutorAddr>::new());
    let better = bodies.lookup("better").expect("it is there").address;
    compiled.publish(invoke, better, CodeSignature::Specialized).expect("nobody else publishes");
    let signature = SpecializedSignature { parameters: Vec::new(), result: integer };
    let info = info(4).refer_to_instance_as("callee", compiled, signature, "otherwise");
    jit.add_translation_unit(ObjectBuffer::new("f.ll", MODULE.as_bytes()), info.expect("no parameters"))
        .expect("new names");
    assert_eq!(get(&jit, "f#4")(), 1_003, "its code, and not its `invoke`");

    let many = SpecializedSignature { parameters: vec![integer; 7], result: integer };
    let refused = LinkerInfo::new().refer_to_instance_as("callee", instance.clone(), many, "otherwise");
    assert!(matches!(refused, Err(TrampolineError::TooManyParameters { index: 6 })));
}

/// Adapter and module have one unwind table.
#[test]
fn a_panic_passes_through_an_adapter() {
    extern "C-unwind" fn panics(
        _: *const CodeInstance<ExecutorAddr>,
        _: *const BoxedValue,
        _: usize,
    ) -> BoxedValue {
        panic!("as the test wants it");
    }
    let jit = engine(1);
    let instance = Arc::new(CodeInstance::<ExecutorAddr>::new());
    instance.publish_invoke(ExecutorAddr::from_ptr(panics as *const ())).expect("nobody else publishes");
    let signature =
        SpecializedSignature { parameters: Vec::new(), result: ValueType::Integer { boxes, unboxes } };
    let info = LinkerInfo::new().refer_to_instance_as("callee", instance, signature, "nobody");
    let module = "declare i64 @callee() define i64 @f() uwtable { %x = call i64 @callee() ret i64 %x }";
    let source = ObjectBuffer::new("f.ll", module.as_bytes());
    jit.add_translation_unit(source, info.expect("no parameters")).expect("a new name");
    // SAFETY: that is its type.
    let f = unsafe { jit.get::<extern "C-unwind" fn() -> i64>("f") }.expect("it is there");
    let payload = std::panic::catch_unwind(AssertUnwindSafe(|| f())).expect_err("it panics");
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"as the test wants it"));
}

/// The instance is there for as long as an adapter that reads it.
#[test]
fn a_unit_keeps_the_instances_that_its_adapters_call() {
    let jit = engine(1);
    let instance = Arc::new(CodeInstance::<ExecutorAddr>::new());
    instance.publish_invoke(ExecutorAddr::from_ptr(eight_boxed as *const ())).expect("nobody else publishes");
    let watched = Arc::downgrade(&instance);
    let signature =
        SpecializedSignature { parameters: Vec::new(), result: ValueType::Integer { boxes, unboxes } };
    let info = info(1).refer_to_instance_as("callee", instance, signature, "nobody");
    let tracker = jit.create_tracker();
    let source = ObjectBuffer::new("f.ll", MODULE.as_bytes());
    jit.in_tracker(&tracker).add_translation_unit(source, info.expect("no parameters")).expect("new names");
    let f = get(&jit, "f#1");
    tracker.remove().expect("nothing of it objects");
    assert_eq!(f(), 1_009, "its handle keeps it");
    assert!(watched.upgrade().is_some());
    drop((f, jit));
    assert!(watched.upgrade().is_none());
}

#[test]
fn a_boxed_caller_calls_what_an_instance_has_for_it() {
    let module = "
        declare i64 @callee(ptr, ptr, i64)
        define i64 @f() { %x = call i64 @callee(ptr null, ptr null, i64 0) ret i64 %x }";
    let jit = engine(1);
    jit.add_ir_text("otherwise.ll", "define i64 @otherwise(ptr %i, ptr %a, i64 %n) { ret i64 1 }")
        .expect("a new name");
    let instance = Arc::new(CodeInstance::<ExecutorAddr>::new());
    let add = |symbol: &str| {
        let info =
            LinkerInfo::new().define("f", symbol).refer_to_invoke("callee", instance.clone(), "otherwise");
        jit.add_translation_unit(ObjectBuffer::new("boxed.ll", module.as_bytes()), info).expect("a new name");
    };
    add("f#1");
    assert_eq!(get(&jit, "f#1")(), 1);
    instance.publish_invoke(ExecutorAddr::from_ptr(eight_boxed as *const ())).expect("nobody else publishes");
    add("f#2");
    assert_eq!((get(&jit, "f#2")(), get(&jit, "f#1")()), (17, 1), "eight, boxed");
}

#[test]
fn a_meaning_that_nobody_defines_is_named_as_the_program_knows_it() {
    let jit = engine(1);
    add(&jit, info(1).refer_to("callee", "callee#7")).expect("new names");
    let error = jit.lookup("f#1").expect_err("its callee is missing");
    assert_eq!(error.missing_symbols(), [jit.intern("callee#7")]);
    assert!(matches!(error, JitError::Lookup(LookupError::Failed { .. })), "{error:?}");
    add(&jit, info(1)).expect("what has failed may be defined again");
    let again = add(&jit, info(1));
    assert!(matches!(again, Err(JitError::Define(_))), "{again:?}");
}

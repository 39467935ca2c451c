//! Names of addresses: the symbol, its unit and dylib, and the line of its source; of code that has gone, nothing.

use uruk::Jit;
use uruk::core::ExecutorAddr;

use crate::support::{c_with, engine};

const SOURCE: &str = "static int twice(int x) {\n    return x * 2;\n}\nint (*pointer)(int) = twice;\nint plus(int x) {\n    return x + 1;\n}\nint counter;\n";

fn address(jit: &Jit, symbol: &str) -> ExecutorAddr {
    jit.lookup(symbol).unwrap_or_else(|error| panic!("{symbol}: {error}")).address
}

/// Symbols that are local to an object have names too, and data has.
#[test]
fn an_address_has_its_symbol_unit_dylib_and_line() {
    let jit = engine(1);
    jit.add_object(c_with("names.o", SOURCE, &["-O0", "-g"])).expect("the names are free");
    let plus = address(&jit, "plus");
    let found = jit.symbol_at(plus).expect("the code is there");
    assert_eq!((&*found.symbol, found.offset, found.is_stub), ("plus", 0, false));
    assert_eq!((&*found.unit, &*found.dylib), ("names.o", jit.main_dylib().name()));
    let place = found.place.expect("the object has DWARF");
    assert!(place.file.ends_with(".c"), "{place:?}");
    assert_eq!(place.line, 5);
    // SAFETY: the variable holds a pointer to a function.
    let twice = unsafe { *(address(&jit, "pointer").value() as *const u64) };
    let found = jit.symbol_at(ExecutorAddr::new(twice + 1)).expect("the code is there");
    assert_eq!((&*found.symbol, found.offset, found.place.map(|place| place.line)), ("twice", 1, Some(1)));
    let counter = jit.symbol_at(ExecutorAddr::new(address(&jit, "counter").value() + 3));
    let counter = counter.expect("data has names");
    assert_eq!((&*counter.symbol, counter.offset, counter.place), ("counter", 3, None));
}

/// An object without DWARF has symbols alone.
#[test]
fn an_object_without_debug_information_has_no_lines() {
    let jit = engine(1);
    jit.add_object(c_with("bare.o", SOURCE, &["-O1", "-g0"])).expect("the names are free");
    let found = jit.symbol_at(address(&jit, "plus")).expect("the code is there");
    assert_eq!((&*found.symbol, found.place), ("plus", None));
}

/// Other code takes the memory, and its name is found there.
#[test]
fn code_that_was_removed_has_no_name() {
    let jit = engine(1);
    let mut is_reused = false;
    let mut before = None;
    for round in 0..4 {
        let tracker = jit.create_tracker();
        let name = format!("round{round}");
        let source = format!("int {name}(void) {{ return {round}; }}");
        jit.in_tracker(&tracker)
            .add_object(c_with(&format!("{name}.o"), &source, &["-g"]))
            .expect("a new name");
        let at = address(&jit, &name);
        is_reused |= before == Some(at);
        assert_eq!(&*jit.symbol_at(at).expect("the code is there").symbol, &*name);
        tracker.remove().expect("nothing of it objects");
        assert_eq!(jit.symbol_at(at), None);
        before = Some(at);
    }
    assert!(is_reused, "the test means to use memory again");
}

/// The handle of a function keeps its code, and with it the name.
#[test]
fn code_that_is_held_keeps_its_name() {
    let jit = engine(1);
    let tracker = jit.create_tracker();
    jit.in_tracker(&tracker)
        .add_object(c_with("held.o", "int held(void) { return 1; }", &[]))
        .expect("a new name");
    let at = address(&jit, "held");
    // SAFETY: that is the function's signature.
    let handle = unsafe { jit.get::<extern "C" fn() -> i32>("held") }.expect("it is Ready");
    tracker.remove().expect("nothing of it objects");
    assert_eq!(jit.symbol_at(at).map(|found| found.symbol), Some("held".into()));
    drop(handle);
    assert_eq!(jit.symbol_at(at), None);
}

/// The lines of a module that is compiled here, as one object and in parts.
#[cfg(feature = "llvm")]
#[test]
fn modules_have_lines_whole_and_in_parts() {
    use uruk::pipeline::ir::{Partition, PartitionPolicy};
    let text = crate::support::ir_with("lines.ll", SOURCE, &["-O0", "-g"]);
    for partition in [
        Partition::new(PartitionPolicy::Whole, 1),
        Partition::new(PartitionPolicy::Early, 2).of_all_modules(),
    ] {
        let jit = Jit::builder().threads(1).partition(partition).build().expect("an engine for this machine");
        jit.add_ir(text.clone()).expect("the names are free");
        let found = jit.symbol_at(address(&jit, "plus")).expect("the code is there");
        assert_eq!(&*found.symbol, "plus");
        assert_eq!(found.place.map(|place| place.line), Some(5), "{partition:?}");
    }
}

/// Functions that are compiled by themselves had no lines.
#[cfg(feature = "llvm")]
#[test]
fn functions_that_are_compiled_by_themselves_have_lines_if_they_are_to_keep_them() {
    let text = crate::support::ir_with("lines.ll", SOURCE, &["-O0", "-g"]);
    for keep in [true, false] {
        let builder = Jit::builder().threads(1).debug_info(keep).compile_on_call(uruk::OnCall::Function);
        let jit = builder.build().expect("an engine for this machine");
        jit.add_ir(text.clone()).expect("the names are free");
        // SAFETY: that is the function's signature.
        let plus = unsafe { jit.get_unchecked::<extern "C" fn(i32) -> i32>("plus") }.expect("it is lazy");
        let body = plus.try_call(|plus| plus as usize as u64).expect("it compiles");
        let found = jit.symbol_at(ExecutorAddr::new(body)).expect("the code is there");
        assert_eq!(found.place.map(|place| place.line), keep.then_some(5));
    }
}

//! Files that are compiled or linked as a whole when a function of theirs is first called.

use uruk::core::sync::{Arc, Mutex};
use uruk::pipeline::ir::{IrCompiler, OptimizationLevel, ThreadSafeModule};
use uruk::pipeline::object::ObjectBuffer;
use uruk::{Function, FunctionPointer, Jit, OnCall};

/// `f` may be replaced, `g` calls it, and `twice` is called by the other file. `table` has two of them.
const FILE: &str = "
    @table = constant [2 x ptr] [ptr @twice, ptr @f]
    @again = alias i64 (i64), ptr @twice
    define weak i64 @f() { ret i64 1 }
    define i64 @g() { %r = call i64 @f()  ret i64 %r }
    define dso_local i64 @twice(i64 %x) { %y = mul i64 %x, 2  ret i64 %y }
    define ptr @address() { ret ptr @twice }";

const USER: &str = "
    @table = external constant [2 x ptr]
    declare i64 @twice(i64)
    declare ptr @address()
    define i64 @four() { %r = call i64 @twice(i64 2)  ret i64 %r }
    define i1 @is_one_function() { %a = call ptr @address()  %e = icmp eq ptr %a, @twice  ret i1 %e }
    define i1 @is_in_table() { %a = load ptr, ptr @table  %e = icmp eq ptr %a, @twice  ret i1 %e }";

fn compiled(name: &str, text: &'static str) -> ObjectBuffer {
    let source = ObjectBuffer::new(name, text.as_bytes());
    let module = ThreadSafeModule::parse(&source).expect("valid IR");
    let compiler = IrCompiler::host(OptimizationLevel::O1).expect("a compiler for this machine");
    compiler.compile(module).expect("it can be compiled")
}

fn engine(what: OnCall) -> Jit {
    Jit::builder().threads(1).compile_on_call(what).build().expect("an engine for this machine")
}

fn get<F: FunctionPointer>(jit: &Jit, symbol: &str) -> Function<F> {
    // SAFETY: the sources above say what each takes and gives; no pointer is copied out of its handle.
    unsafe { jit.get(symbol) }.unwrap_or_else(|error| panic!("{symbol}: {error}"))
}

/// How many pieces of code and data are in memory.
fn pieces(jit: &Jit) -> u64 {
    jit.memory_usage().allocations
}

/// Both files lie there as stubs; a call has its file linked, and what another file calls there has that one linked.
fn whole_files_come_when_they_are_called(jit: &Jit) {
    let four = get::<extern "C" fn() -> i64>(jit, "four");
    assert_eq!(pieces(jit), 1, "the stubs of the file that is called");
    assert_eq!((four(), pieces(jit)), (4, 4), "both files and both files' stubs");
    let twice = get::<extern "C" fn(i64) -> i64>(jit, "twice");
    assert_eq!((twice(21), pieces(jit)), (42, 4));
    assert_eq!(jit.lookup("twice").expect("ready").address, jit.lookup("again").expect("ready").address);
    assert!(
        get::<extern "C" fn() -> bool>(jit, "is_one_function")(),
        "who takes the address gets the stub's"
    );
    assert!(get::<extern "C" fn() -> bool>(jit, "is_in_table")(), "so does data");
}

#[test]
fn an_object_is_linked_when_it_is_called() {
    let jit = engine(OnCall::Function);
    for (name, text) in [("file.o", FILE), ("user.o", USER)] {
        jit.add_object(compiled(name, text)).expect("names are new");
    }
    whole_files_come_when_they_are_called(&jit);
}

#[test]
fn a_module_is_compiled_when_it_is_called() {
    let jit = engine(OnCall::Module);
    for (name, text) in [("file.ll", FILE), ("user.ll", USER)] {
        jit.add_ir_text(name, text).expect("names are new");
    }
    whole_files_come_when_they_are_called(&jit);
}

/// A weak function of the same file yields to another file's, in calls from its own file too.
#[test]
fn what_is_replaced_is_not_called_by_its_own_file() {
    let jit = engine(OnCall::Function);
    jit.add_object(compiled("file.o", FILE)).expect("names are new");
    jit.add_object(compiled("other.o", "define i64 @f() { ret i64 2 }")).expect("the first one is weak");
    assert_eq!(get::<extern "C" fn() -> i64>(&jit, "g")(), 2);
}

/// An undefined name is missed by the call that needs it, and told with the file and the name.
#[test]
fn a_file_that_cannot_be_linked_fails_where_it_is_called() {
    extern "C" fn instead() -> i64 {
        -1
    }
    let told = Arc::new(Mutex::new(String::new()));
    let note = told.clone();
    let builder = Jit::builder().threads(1).compile_on_call(OnCall::Module);
    let builder = builder.on_lazy_failure(move |failure| {
        *note.lock() = failure.to_string();
        uruk::core::ExecutorAddr::from_ptr(instead as *const ())
    });
    let jit = builder.build().expect("an engine for this machine");
    let text = "declare i64 @nowhere()  define i64 @f() { %r = call i64 @nowhere()  ret i64 %r }";
    jit.add_object(compiled("lacking.o", text)).expect("the name is new");
    assert_eq!(get::<extern "C" fn() -> i64>(&jit, "f")(), -1);
    let told = told.lock().clone();
    assert!(
        told.starts_with("cannot call `f`: undefined: `nowhere` (needed by `f` at lacking.o: .text"),
        "{told}"
    );
}

/// A function that is called or taken the address of by code that does not run is not linked.
#[test]
fn a_program_is_linked_without_files_that_it_does_not_call() {
    let jit = engine(OnCall::Function);
    let user = "
        declare i64 @twice(i64)
        define i64 @start(i64 %x) { %c = icmp eq i64 %x, 0  br i1 %c, label %no, label %yes
          yes: %r = call i64 @twice(i64 %x)  ret i64 %r
          no: ret i64 0 }";
    for (name, text) in [("file.o", FILE), ("user.o", user)] {
        jit.add_object(compiled(name, text)).expect("names are new");
    }
    jit.link("start").expect("nothing is missing");
    assert_eq!(pieces(&jit), 1, "the stubs of the file with the entry");
    let start = get::<extern "C" fn(i64) -> i64>(&jit, "start");
    assert_eq!((start(0), pieces(&jit)), (0, 3), "its body, and the other file's stubs");
    assert_eq!((start(21), pieces(&jit)), (42, 4));
}

/// A function that only its file knows has another name for all. Code of its section may take the address without telling a linker, so it
/// has no stub: both names are the code.
#[test]
fn another_name_of_a_local_function_is_its_address() {
    let jit = engine(OnCall::Function);
    let text = "
        @table = constant [2 x ptr] [ptr @own, ptr getelementptr (i8, ptr @api, i64 1)]
        @api = alias i64 (), ptr @own
        define internal i64 @own() { ret i64 7 }";
    jit.add_object(compiled("local.o", text)).expect("names are new");
    let api = jit.lookup("api").expect("its code").address;
    let table = jit.lookup("table").expect("it links the file").address;
    // SAFETY: `table` is two addresses, and its file stays with the engine.
    let [own, inside] = unsafe { table.to_ptr::<[u64; 2]>().read() };
    assert_eq!(own, api.value());
    assert_eq!(inside, api.value() + 1, "an address inside the code");
    assert_eq!(get::<extern "C" fn() -> i64>(&jit, "api")(), 7);
}

#[test]
fn a_file_that_is_refused_leaves_no_stubs() {
    let jit = engine(OnCall::Function);
    jit.add_object(compiled("first.o", "@taken = global i64 1")).expect("the name is new");
    let refused =
        jit.add_object(compiled("second.o", "@taken = global i64 2  define i64 @f() { ret i64 1 }"));
    assert!(refused.expect_err("a name is taken").to_string().contains("taken"));
    jit.lookup("f").expect_err("nothing of the file is there");
    jit.add_object(compiled("third.o", "define i64 @f() { ret i64 2 }")).expect("the name is free");
    assert_eq!(get::<extern "C" fn() -> i64>(&jit, "f")(), 2);
}

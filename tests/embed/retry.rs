//! Symbols that failed for the want of something are made once more when that has come.
//!
//! A failed symbol once stayed failed for ever: what had missed something had to be added again, and nothing said so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use uruk::OnCall;
use uruk::core::sync::Latch;
use uruk::core::{
    ExecutorAddr, ExecutorSymbolDef, JitDylib, MaterializationInterface, MaterializationResponsibility,
    MaterializationUnit, SymbolFlags, SymbolName, WithCauses, shared_error,
};
use uruk::pipeline::object::ObjectBuffer;
use uruk::prelude::*;

use crate::support::{archive, c, engine};

const CALLER: &str = "declare i64 @late() define i64 @caller() { %x = call i64 @late() ret i64 %x }";
const TOP: &str =
    "declare i64 @caller() define i64 @top() { %x = call i64 @caller() %y = add i64 %x, 1 ret i64 %y }";
const LATE: &str = "define i64 @late() { ret i64 41 }";

fn call(jit: &Jit, function: &str) -> i64 {
    // SAFETY: the functions of this file have this signature.
    let function = unsafe { jit.get::<extern "C" fn() -> i64>(function) };
    function.unwrap_or_else(|error| panic!("{}", WithCauses(&error)))()
}

#[test]
fn a_lookup_makes_what_lacked_something_once_more() {
    let jit = engine(1);
    jit.add_ir_text("caller.ll", CALLER).expect("valid IR");
    jit.add_ir_text("top.ll", TOP).expect("valid IR");
    let error = jit.lookup("top").expect_err("nothing defines `late`");
    assert!(
        WithCauses(&error).to_string().contains("failed (add what is missing and look it up again): "),
        "{error}"
    );
    jit.add_ir_text("other.ll", "define i64 @other() { ret i64 1 }").expect("valid IR");
    jit.lookup("caller").expect_err("nothing defines `late` still");
    jit.add_ir_text("late.ll", LATE).expect("valid IR");
    assert_eq!((call(&jit, "top"), call(&jit, "caller")), (42, 41));
}

/// Objects, and what defines the rest: an archive, a library, another dylib.
#[test]
fn archives_libraries_and_dylibs_bring_what_is_missing_too() {
    let needs = |jit: &Jit, function: &str, late: &str| {
        let source = format!("long {late}(void); long {function}(void) {{ return {late}() + 1; }}");
        jit.add_object(c(&format!("{function}.o"), &source)).expect("the names are free");
        jit.lookup(function).expect_err("it misses something");
        jit.lookup(function).expect_err("it misses that still");
    };
    let jit = engine(1);
    needs(&jit, "by_archive", "late_archive");
    let member = c("late_archive.o", "long late_archive(void) { return 1; }");
    jit.add_archive(&archive("liblate.a", &[member])).expect("an archive");
    assert_eq!(call(&jit, "by_archive"), 2);

    needs(&jit, "by_dylib", "late_dylib");
    let other = jit.create_dylib("other").expect("a new name");
    let object = c("late_dylib.o", "long late_dylib(void) { return 2; }");
    other.add_object(object).expect("the names are free");
    jit.lookup("by_dylib").expect_err("it is not searched");
    jit.link_to(&other).expect("it is there");
    assert_eq!(call(&jit, "by_dylib"), 3);

    needs(&jit, "by_library", "crc32");
    jit.load_library("libz.so.1").expect("the machine has it");
    jit.lookup("by_library").expect("the library has it");
}

/// The engine is told of libraries that its symbols of the process load by themselves.
#[test]
fn a_name_that_was_missing_is_found_when_a_library_has_come() {
    let jit = engine(1);
    for _ in 0..2 {
        jit.lookup("crc32_combine").expect_err("no library has it");
    }
    jit.process_symbols().load_library("libz.so.1").expect("the machine has it");
    jit.lookup("crc32_combine").expect("the library has it");
}

/// Symbols that failed for another reason stay so until they are retried.
#[test]
fn other_failures_stay_until_a_retry() {
    let jit = engine(1);
    let name = jit.intern("short_of_memory");
    let attempts = Arc::new(AtomicUsize::new(0));
    jit.add_unit(Box::new(SecondTime { name, attempts: attempts.clone() })).expect("a new name");
    let source = "long short_of_memory(void); long above(void) { return short_of_memory() + 1; }";
    jit.add_object(c("above.o", source)).expect("the names are free");
    let error = jit.lookup("above").expect_err("the first attempt fails");
    let text = WithCauses(&error).to_string();
    assert!(text.contains("failed (`retry` makes it once more): "), "{text}");
    jit.add_ir_text("late.ll", LATE).expect("valid IR");
    jit.lookup("above").expect_err("nothing that it misses has come");
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
    jit.retry(&["above"]).expect("both have spares");
    jit.lookup("above").expect("the second attempt does not fail");
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
}

/// Fails when it is made for the first time.
#[derive(Clone)]
struct SecondTime {
    name: SymbolName,
    attempts: Arc<AtomicUsize>,
}

impl MaterializationUnit for SecondTime {
    fn name(&self) -> &str {
        "second time"
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        MaterializationInterface::new([(self.name.clone(), flags)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        if self.attempts.fetch_add(1, Ordering::SeqCst) == 0 {
            return responsibility.fail(shared_error("no memory is left"));
        }
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        let here = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), flags);
        drop(responsibility.complete(&[(self.name, here)].into_iter().collect(), Vec::new()));
    }

    fn spare(&self) -> Option<Box<dyn MaterializationUnit>> {
        Some(Box::new(self.clone()))
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

/// Bytes that are counted.
struct Watched(Vec<u8>, #[expect(dead_code, reason = "it is counted")] Arc<()>);

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes that were added stay as long as they may be needed, and no longer.
#[test]
fn bytes_are_kept_until_their_symbols_are_ready() {
    let jit = engine(0);
    let counted = Arc::new(());
    let object = c("kept.o", "long late(void); long kept(void) { return late(); }");
    let object = ObjectBuffer::new("kept.o", Watched(object.bytes().to_vec(), counted.clone()));
    let tracker = jit.create_tracker();
    jit.in_tracker(&tracker).add_object(object.clone()).expect("the names are free");
    jit.lookup("kept").expect_err("it misses something");
    tracker.remove().expect("nothing goes wrong");
    jit.add_object(object).expect("the names are free");
    assert_eq!(Arc::strong_count(&counted), 2);
    jit.lookup("kept").expect_err("it misses something");
    assert_eq!(Arc::strong_count(&counted), 2, "it may be linked once more");
    jit.add_ir_text("late.ll", LATE).expect("valid IR");
    assert_eq!(call(&jit, "kept"), 41);
    assert_eq!(Arc::strong_count(&counted), 1);
}

/// Constructors of a file that is linked once more run, once, in the place that the file had.
#[test]
fn a_file_keeps_its_place_in_the_order_of_initialisation() {
    let jit = engine(1);
    jit.add_object(c("order.o", "long order;")).expect("the names are free");
    let starts = |digit: &str, needs: &str| {
        format!(
            "extern long order; long {needs}(void);
             __attribute__((constructor)) static void start(void) {{ order = order * 10 + {digit}; }}
             long of_{digit}(void) {{ return {needs}(); }}"
        )
    };
    jit.add_object(c("first.o", &starts("1", "late"))).expect("the names are free");
    jit.add_object(c("second.o", &starts("2", "of_1"))).expect("the names are free");
    jit.lookup("of_2").expect_err("it misses something");
    jit.add_ir_text("late.ll", LATE).expect("valid IR");
    assert_eq!(call(&jit, "of_2"), 41);
    // SAFETY: the constructors count.
    unsafe { jit.initialize() }.expect("everything is linked");
    let order = jit.lookup("order").expect("it is there").address;
    // SAFETY: it is a `long` of code that is mapped.
    assert_eq!(unsafe { *order.to_ptr::<i64>() }, 12);
}

extern "C" fn nothing() -> i64 {
    -1
}

/// A function that is compiled when it is called is tried again by the next call.
#[test]
fn a_call_tries_again() {
    let jit = Jit::builder().threads(0).compile_on_call(OnCall::Function);
    let jit = jit.on_lazy_failure(|_| ExecutorAddr::from_ptr(nothing as extern "C" fn() -> i64 as *const u8));
    let jit = jit.build().expect("an engine for this machine");
    jit.add_ir_text("caller.ll", CALLER).expect("valid IR");
    assert_eq!((call(&jit, "caller"), call(&jit, "caller")), (-1, -1));
    jit.add_ir_text("late.ll", LATE).expect("valid IR");
    assert_eq!(call(&jit, "caller"), 41);
}

#[test]
fn threads_that_look_up_at_once_have_it_linked_once() {
    const THREADS: usize = 4;
    for _ in 0..20 {
        let jit = engine(2);
        jit.add_ir_text("caller.ll", CALLER).expect("valid IR");
        jit.add_ir_text("top.ll", TOP).expect("valid IR");
        jit.lookup("top").expect_err("nothing defines `late`");
        jit.add_ir_text("late.ll", LATE).expect("valid IR");
        let start = Latch::new();
        let found: Vec<_> = thread::scope(|scope| {
            let ask = || {
                start.wait();
                jit.lookup("top").expect("nothing is missing").address
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
            start.open();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(found.iter().all(|address| *address == found[0]));
        assert_eq!(call(&jit, "top"), 42);
    }
}

//! Modules from source to object, against what clang 22 and LLVM's own tools make of the same source.
#![cfg(feature = "llvm")]

#[path = "../support/alone.rs"]
#[macro_use]
mod alone;

mod build;
mod cache;
mod canonical;
mod code;
mod promises;
mod refusals;
mod spans;
mod stages;
mod units;

#[path = "../support/layers.rs"]
mod layers;
#[path = "../support/mod.rs"]
mod support;

use uruk_core::SymbolFlags;
use uruk_pipeline::ir::{IrCompiler, JitTargetMachineBuilder, OptimizationPipeline, ThreadSafeModule};
use uruk_pipeline::object::{ObjectBuffer, ObjectInterface};

use support::Scratch;

fn target() -> JitTargetMachineBuilder {
    JitTargetMachineBuilder::host().expect("host target")
}

fn compiler(pipeline: OptimizationPipeline) -> IrCompiler {
    IrCompiler::new(target(), pipeline)
}

fn text(name: &str, source: &str) -> ObjectBuffer {
    ObjectBuffer::new(name, source.as_bytes().to_vec())
}

fn parse(source: &str) -> ThreadSafeModule {
    ThreadSafeModule::parse(&text("test.ll", source)).expect("valid IR")
}

const ADD: &str = "define i32 @add(i32 %a, i32 %b) {\n  %sum = add i32 %a, %b\n  ret i32 %sum\n}\n";

/// All kinds of definitions that C has.
const KINDS: &str = "
    int data = 1; const int constant = 2; int tentative; static int local; __thread int per_thread;
    void function(void) {} static void hidden_away(void) { local++; }
    __attribute__((weak)) void yielding(void) {}
    __attribute__((visibility(\"hidden\"))) int hidden = 3;
    __attribute__((visibility(\"protected\"))) int protected = 4;
    static void *choose(void) { return (void *)hidden_away; }
    void chosen(void) __attribute__((ifunc(\"choose\")));
    void other_name(void) __attribute__((alias(\"function\")));
    extern int other_data __attribute__((alias(\"data\")));
    extern int verbatim __asm__(\"verbatim name\"); int verbatim = 5;
    extern int needed; int *use(void) { return &needed; }
    __asm__(\".globl bare\\n.type bare,@function\\n.text\\nbare: ret\\n.weak maybe\\nmaybe: ret\\nquiet: ret\\n\");";

/// Compiles `source` to bitcode with clang 22.
fn bitcode(scratch: &Scratch, name: &str, source: &str, arguments: &[&str]) -> ObjectBuffer {
    let compiler = if name.ends_with(".cpp") { "clang++-22" } else { "clang-22" };
    let arguments: Vec<&str> = ["-emit-llvm"].iter().chain(arguments).copied().collect();
    scratch.compile(compiler, name, source, &arguments)
}

type Symbols = Vec<(String, SymbolFlags)>;

/// The flags of each defined symbol, by name.
fn defined(object: &ObjectBuffer) -> Symbols {
    let interface = ObjectInterface::read(object).expect("an object");
    let mut symbols: Vec<_> =
        interface.defined.iter().map(|symbol| (symbol.name.to_owned(), symbol.flags)).collect();
    symbols.sort_by(|left, right| left.0.cmp(&right.0));
    symbols
}

//! How long code generation takes for modules of one function, and what it keeps of them.
//!
//! `cargo bench -p uruk-pipeline --bench codegen` prints the fastest round of 1,500 modules, then the growth over 20,000 modules whose
//! names all differ.

use std::time::{Duration, Instant};

use uruk_pipeline::ir::{
    CodegenLevel, IrCompiler, JitTargetMachineBuilder, OptimizationPipeline, ThreadSafeModule,
};
use uruk_pipeline::object::ObjectBuffer;

const MODULES: usize = 1_500;
const ROUNDS: usize = 7;
const DISTINCT: usize = 20_000;

fn main() {
    for (name, level) in [("O0", CodegenLevel::None), ("O2", CodegenLevel::Default)] {
        let target = JitTargetMachineBuilder::host().expect("host").with_codegen_level(level);
        let compiler = IrCompiler::new(target, OptimizationPipeline::none());
        let modules: Vec<_> = (0..MODULES).map(module).collect();
        round(&compiler, modules.iter());
        // Other load on the machine only adds time.
        let fastest = (0..ROUNDS).map(|_| round(&compiler, modules.iter())).min().unwrap_or_default();
        print(&format!("{name}, {MODULES} modules: {:.1} ms", fastest.as_secs_f64() * 1e3));
        if level == CodegenLevel::None {
            let before = resident_kib();
            for number in 0..DISTINCT {
                round(&compiler, std::iter::once(&module(number)));
            }
            print(&format!("{name}, {DISTINCT} others: {} KiB more", resident_kib() - before));
        }
    }
}

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn print(what: &str) {
    println!("{what}");
}

/// The time for the objects, without that for reading the modules.
fn round<'a>(compiler: &IrCompiler, modules: impl Iterator<Item = &'a ObjectBuffer>) -> Duration {
    let compile = |source| {
        let module = ThreadSafeModule::parse(source).expect("valid IR");
        let start = Instant::now();
        let object = compiler.compile(module).expect("compiles");
        let time = start.elapsed();
        assert!(object.size_bytes() > 0);
        time
    };
    modules.map(compile).sum()
}

/// A loop, a branch and a call. Each has a section of its own name, which assemblers remember.
fn module(number: usize) -> ObjectBuffer {
    let text = format!(
        "@table{number} = internal constant [4 x i32] [i32 1, i32 2, i32 3, i32 {number}]\n\
         declare i32 @other{number}(i32)\n\
         define i32 @function{number}(i32 %count) section \".text.function{number}\" {{\n\
         entry:\n  br label %loop\n\
         loop:\n  %i = phi i32 [ 0, %entry ], [ %next, %more ]\n  %sum = phi i32 [ 0, %entry ], [ %total, %more ]\n\
         %place = and i32 %i, 3\n\
         %slot = getelementptr [4 x i32], ptr @table{number}, i32 0, i32 %place\n\
         %value = load i32, ptr %slot\n  %called = call i32 @other{number}(i32 %value)\n\
         %total = add i32 %sum, %called\n  %next = add i32 %i, 1\n\
         %done = icmp sge i32 %next, %count\n  br i1 %done, label %end, label %more\n\
         more:\n  br label %loop\nend:\n  ret i32 %total\n}}\n"
    );
    ObjectBuffer::new(format!("module{number}.ll"), text.into_bytes())
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the system tells");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

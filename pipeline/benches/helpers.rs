//! The price of a helper process: the time until the first one is ready, and how much longer a compilation takes there.
//!
//! `cargo bench -p uruk-pipeline --bench helpers`. The bench is its own helper. Medians, and the 90th percentile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk_pipeline::helpers::{HelperPool, Helpers};
use uruk_pipeline::ir::{IrCompiler, OptimizationLevel, ThreadSafeModule, helper_build, serve_compiles};
use uruk_pipeline::object::ObjectBuffer;

const HELPER: &str = "compile-helper";
const STARTS: usize = 9;
const MODULES: usize = 300;

fn main() {
    if std::env::args().any(|argument| argument == HELPER) {
        serve_compiles().expect("a host has started this");
        return;
    }
    let pool = || {
        let helpers = Helpers::new(std::env::current_exe().expect("a program")).argument(HELPER);
        Arc::new(HelperPool::new(helpers.count(1), helper_build()))
    };
    let here = IrCompiler::host(OptimizationLevel::O2).expect("this machine");
    let apart = |pool| here.clone().with_helpers(pool).expect("no hooks");
    compile(&here, 0, 1);
    let starts = (0..STARTS).map(|number| {
        let start = Instant::now();
        compile(&apart(pool()), number, 1);
        start.elapsed()
    });
    print("first object of a new pool", starts.collect());
    let apart = apart(pool());
    compile(&apart, 0, 1);
    for functions in [1, 100] {
        let times =
            |compiler: &IrCompiler| (0..MODULES).map(|number| compile(compiler, number, functions)).collect();
        print(&format!("{functions} functions, here"), times(&here));
        print(&format!("{functions} functions, in a helper"), times(&apart));
    }
}

/// The time for the object, without that for reading the text; in a helper bitcode is written and read besides.
fn compile(compiler: &IrCompiler, number: usize, functions: usize) -> Duration {
    let text: String = (0..functions)
        .map(|function| {
            format!(
                "define i64 @f{number}_{function}(i64 %x) {{\n  %y = mul i64 %x, {number}\n  ret i64 %y\n}}\n"
            )
        })
        .collect();
    let source = ObjectBuffer::new(format!("module{number}.ll"), text.into_bytes());
    let module = ThreadSafeModule::parse(&source).expect("valid IR");
    let start = Instant::now();
    let object = compiler.compile(module).expect("compiles");
    let time = start.elapsed();
    assert!(object.size_bytes() > 0);
    time
}

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e3;
    println!("{what}: {:.2} ms, p90 {:.2} ms", at(50), at(90));
}

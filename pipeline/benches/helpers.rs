//! The price of a helper process: the time until the first one is ready, and how much longer a compilation takes there.
//!
//! `cargo bench -p uruk-pipeline --bench helpers`. The bench is its own helper. Medians, and the 90th percentile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk_pipeline::helpers::{Checked, HelperPool, Helpers};
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
    print("a new pool's helper is ready", (0..STARTS).map(|_| ask_nothing(&pool())).collect());
    let starts = (0..STARTS).map(|number| {
        let start = Instant::now();
        let apart = apart(pool());
        compile(&apart, number, 1);
        // The end of the helper comes later.
        start.elapsed()
    });
    print("first object of a new pool", starts.collect());
    let pool = pool();
    let apart = apart(pool.clone());
    compile(&apart, 0, 1);
    print("nothing, there and back", (0..MODULES).map(|_| ask_nothing(&pool)).collect());
    for functions in [1, 100] {
        let mut times = [const { Vec::new() }; 3];
        // In turns: what else happens on the machine meets all of them.
        for number in 0..MODULES {
            times[0].push(compile(&here, number, functions));
            times[1].push(compile_copy(&here, number, functions));
            times[2].push(compile(&apart, number, functions));
        }
        for (place, times) in ["here", "here, written and read before", "in a helper"].into_iter().zip(times)
        {
            print(&format!("{functions} functions, {place}"), times);
        }
    }
}

/// The time for a job that is none, so that its helper does nothing.
fn ask_nothing(pool: &HelperPool) -> Duration {
    let start = Instant::now();
    let answer = pool.ask(&[0; 32], b"", b"", &|_| Ok(Checked::Sound), &|wait| wait());
    let time = start.elapsed();
    answer.expect("it says that this is no job");
    time
}

/// As [`compile`], of a copy of the module that is made by way of bitcode: what a helper does to it, without the helper.
fn compile_copy(compiler: &IrCompiler, number: usize, functions: usize) -> Duration {
    let module = module(number, functions);
    let start = Instant::now();
    let copy = module.clone_to_new_context().and_then(|copy| compiler.compile(copy));
    let time = start.elapsed();
    assert!(copy.expect("compiles").size_bytes() > 0);
    time
}

/// The time for the object, without that for reading the text; in a helper bitcode is written and read besides.
fn compile(compiler: &IrCompiler, number: usize, functions: usize) -> Duration {
    let module = module(number, functions);
    let start = Instant::now();
    let object = compiler.compile(module).expect("compiles");
    let time = start.elapsed();
    assert!(object.size_bytes() > 0);
    time
}

fn module(number: usize, functions: usize) -> ThreadSafeModule {
    let text: String = (0..functions)
        .map(|function| {
            format!(
                "define i64 @f{number}_{function}(i64 %x) {{\n  %y = mul i64 %x, {number}\n  ret i64 %y\n}}\n"
            )
        })
        .collect();
    let source = ObjectBuffer::new(format!("module{number}.ll"), text.into_bytes());
    ThreadSafeModule::parse(&source).expect("valid IR")
}

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e3;
    println!("{what}: {:.3} ms, p90 {:.3} ms", at(50), at(90));
}

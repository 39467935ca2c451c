//! Modules that share an LLVM context beside modules that do not, on two workers.
//!
//! A hundred modules of one context must be compiled one after another; a hundred with contexts of their own can use what is
//! left of the machine meanwhile. Prints one JSON object a line: the median of several repetitions, in milliseconds.
//!
//! | case | what is compiled |
//! |---|---|
//! | `shared` | a hundred modules of one context |
//! | `own` | a hundred modules, each in a context of its own |
//! | `both` | all of them at once |
//! | `both_locked` | the same, as units that know of no queue: workers meet at the context's lock |
//!
//! `bound_ms` is what two workers could do at best: the longer of the shared group alone and half of all the work. `contentions`
//! says how often a worker slept because another had the context; `threads` how many were started.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use std::fmt::Write;
use std::time::Instant;

use uruk_core::sync::Arc;
use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupSet, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, SearchOrder, SymbolName,
};
use uruk_dispatch::WorkStealingTaskDispatcher;
use uruk_pipeline::ir::{
    IrCompileLayer, IrCompiler, IrMaterializationUnit, JitTargetMachineBuilder, OptimizationLevel,
    ThreadSafeContext, ThreadSafeModule,
};
use uruk_pipeline::layer::{IrLayer, ObjectLayer};
use uruk_pipeline::object::ObjectBuffer;

const WORKERS: usize = 2;
const MODULES: usize = 100;
const REPETITIONS: usize = 5;

fn main() {
    let shared = measure("shared", MODULES, 0, false, None);
    let own = measure("own", 0, MODULES, false, None);
    // The shared group runs on one worker, the other group alone on both.
    let bound = shared.max((shared + own * WORKERS as f64) / WORKERS as f64);
    measure("both", MODULES, MODULES, false, Some(bound));
    measure("both_locked", MODULES, MODULES, true, Some(bound));
}

fn measure(case: &str, shared: usize, own: usize, locked: bool, bound: Option<f64>) -> f64 {
    let (mut times, mut contentions, mut threads) = (Vec::new(), 0, 0);
    for _ in 0..REPETITIONS {
        let scene = Scene::new(shared, own, locked);
        let begun = Instant::now();
        scene.lookup();
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        contentions += scene.context.contentions();
        threads += scene.pool.metrics().started_threads;
        scene.session.close().expect("nothing is left open");
    }
    times.sort_by(f64::total_cmp);
    let median = times[REPETITIONS / 2];
    let bound = bound.map(|bound| format!(",\"bound_ms\":{bound:.1}")).unwrap_or_default();
    println!(
        "{{\"case\":\"{case}\",\"workers\":{WORKERS},\"n\":{},\"reps\":{REPETITIONS},\"ms\":{median:.1},\"ms_min\":{:.1}{bound},\"contentions\":{},\"threads\":{}}}",
        shared + own,
        times[0],
        contentions / REPETITIONS as u64,
        threads / REPETITIONS as u64,
    );
    median
}

struct Scene {
    session: ExecutionSession,
    main: JitDylib,
    pool: Arc<WorkStealingTaskDispatcher>,
    context: ThreadSafeContext,
    names: Vec<SymbolName>,
}

impl Scene {
    fn new(shared: usize, own: usize, locked: bool) -> Self {
        let pool = WorkStealingTaskDispatcher::builder().workers(WORKERS).build().expect("a small pool");
        let pool = Arc::new(pool);
        let session = ExecutionSession::builder().dispatcher(pool.clone()).build();
        let main = session.create_jit_dylib("main").expect("the first dylib");
        let target = JitTargetMachineBuilder::host().expect("host target");
        let compiler = IrCompiler::host(OptimizationLevel::O1).expect("host target");
        let layer: Arc<dyn IrLayer> = Arc::new(IrCompileLayer::new(compiler, Arc::new(Nowhere)));
        let context = ThreadSafeContext::new();
        let mut names = Vec::new();
        for index in 0..shared + own {
            // In turn, as they would come.
            let is_shared = index % 2 == 0 && index / 2 < shared || index / 2 >= own && shared > 0;
            let name = format!("f{index}");
            let source = ObjectBuffer::new(format!("{name}.ll"), function(&name).into_bytes());
            let fresh = ThreadSafeContext::new();
            let module = ThreadSafeModule::parse_in(if is_shared { &context } else { &fresh }, &source)
                .expect("valid");
            let unit = IrMaterializationUnit::from_module(&session, layer.clone(), &target, module);
            let unit: Box<dyn MaterializationUnit> = Box::new(unit.expect("valid"));
            main.define(if locked { Box::new(Queueless(unit)) } else { unit }).expect("new");
            names.push(session.intern(&name));
        }
        Self { session, main, pool, context, names }
    }

    fn lookup(&self) {
        let names = LookupSet::required(self.names.iter().cloned());
        self.session.lookup(&SearchOrder::of(&self.main), names).expect("found");
    }
}

/// A function that takes a millisecond or two to compile.
fn function(name: &str) -> String {
    let mut text = format!("define i64 @{name}(i64 %v0) {{\n");
    for step in 0..300 {
        let operation = ["add", "xor", "mul"][step % 3];
        let _ = writeln!(text, "  %v{} = {operation} i64 %v{step}, {}", step + 1, step * 7 + 3);
    }
    text + "  ret i64 %v300\n}\n"
}

/// Stands where the linker would.
struct Nowhere;

impl ObjectLayer for Nowhere {
    fn emit(&self, responsibility: MaterializationResponsibility, _object: ObjectBuffer) {
        let somewhere = |flags| ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), flags);
        let symbols = responsibility.symbols().iter();
        let addresses = symbols.map(|(name, flags)| (name.clone(), somewhere(*flags))).collect();
        let resolved = responsibility.notify_resolved(&addresses).expect("every symbol has an address");
        resolved.notify_emitted(Vec::new()).expect("nothing to wait for");
    }
}

/// A unit that says nothing of its queue.
struct Queueless(Box<dyn MaterializationUnit>);

impl MaterializationUnit for Queueless {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn interface(&self) -> MaterializationInterface {
        self.0.interface()
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.0.materialize(responsibility);
    }

    fn discard(&mut self, dylib: &JitDylib, symbol: &SymbolName) {
        self.0.discard(dylib, symbol);
    }
}

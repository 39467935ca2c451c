//! From modules to functions that run, and beside it what LLVM alone takes for that.
//!
//! `parse` says how a module is handed over: `deferred`, as bitcode whose interface is known; `eager`, as a module that
//! the timed region has read into a context of its own; `bitcode`, as bitcode of which the engine reads the interface at
//! once and the rest later. The peer has the first two.

use std::time::{Duration, Instant};
use uruk_core::LookupRequest;

use uruk::pipeline::cache::MemoryCache;
use uruk::pipeline::ir::{IrCompiler, JitTargetMachineBuilder};
use uruk::{CacheOptions, Jit};
use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Row, Sample, Scale, millis, on_threads, repeat};
use crate::modules::{Level, Module, load, parse};
use crate::parts::{parts, with_machine_of_its_own};
use crate::point::{Inputs, Point};
use crate::support::{order, set};

/// Room for the objects of two hundred modules, many times.
const STORE_BYTES: usize = 256 << 20;

/// How modules are handed over.
#[derive(Clone, Copy)]
enum HandOver {
    Deferred,
    Eager,
    Bitcode,
}

impl HandOver {
    fn name(self) -> &'static str {
        match self {
            Self::Deferred => "deferred",
            Self::Eager => "eager",
            Self::Bitcode => "bitcode",
        }
    }

    fn add(self, jit: &Jit, module: &Module) {
        let bitcode = module.bitcode.clone();
        let added = match self {
            Self::Deferred => jit.add_ir_with_interface(bitcode, &module.interface),
            Self::Eager => jit.add_module(parse(module)),
            Self::Bitcode => jit.add_ir(bitcode),
        };
        added.expect("the generator's modules are valid and their names distinct");
    }
}

/// The state of the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Cold,
    /// An untimed run has filled a cache in memory.
    Warm,
}

/// Whose target machine compiles a module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Machine {
    PerThread,
    PerModule,
}

pub(crate) fn points(inputs: &Inputs) -> Vec<Point> {
    let mut points = Vec::new();
    for level in [Level::O0, Level::O2] {
        for (threads, machine) in [(1, Machine::PerThread), (2, Machine::PerThread), (1, Machine::PerModule)]
        {
            points.push(point(inputs, "e2e_limit", level, threads, move |scale, modules| {
                limit(scale, modules, level, threads, machine);
            }));
        }
        for hand_over in [HandOver::Eager, HandOver::Deferred, HandOver::Bitcode] {
            for threads in [0, 1, 2] {
                points.push(point(inputs, "e2e_ir", level, threads, move |scale, modules| {
                    whole(scale, modules, level, threads, hand_over, State::Cold);
                }));
            }
        }
        for hand_over in [HandOver::Bitcode, HandOver::Eager] {
            for threads in [0, 2] {
                let case = case(hand_over, State::Warm);
                points.push(point(inputs, case, level, threads, move |scale, modules| {
                    whole(scale, modules, level, threads, hand_over, State::Warm);
                }));
            }
        }
        points.push(point(inputs, "e2e_parts", level, 0, move |scale, modules| parts(scale, modules, level)));
    }
    points
}

fn point(
    inputs: &Inputs,
    case: &'static str,
    level: Level,
    threads: usize,
    run: impl Fn(Scale, &[Module]) + 'static,
) -> Point {
    let inputs = inputs.clone();
    Point::new(case, level.label(), threads, move || {
        let modules = load(&inputs).unwrap_or_else(|mistake| panic!("{mistake}"));
        run(inputs.scale, &modules);
    })
}

/// Modules go in, all functions are looked up.
fn whole(scale: Scale, modules: &[Module], level: Level, threads: usize, hand_over: HandOver, state: State) {
    let store = Arc::new(MemoryCache::new(STORE_BYTES));
    let engine = || {
        let builder = Jit::builder().threads(threads).optimization(level.optimization());
        let mut builder = builder.pipeline(level.pipeline()).verify_ir(false);
        if state == State::Warm {
            builder = builder.cache(CacheOptions::store(store.clone()).memory_bytes(0));
        }
        builder.build().expect("an engine for this machine")
    };
    if state == State::Warm {
        let jit = engine();
        modules.iter().for_each(|module| hand_over.add(&jit, module));
        run_all(&jit, modules);
    }
    let mut checksum = None;
    let samples = repeat(scale, |_| {
        let jit = engine();
        let order = order([jit.main_dylib()]);
        let mut sample = Sample::default();
        let begun = Instant::now();
        let mut names = Vec::new();
        sample.time(|| {
            for module in modules {
                hand_over.add(&jit, module);
                names.extend(module.interface.symbols.iter().map(|symbol| jit.intern(&symbol.name)));
            }
        });
        sample.extra("add_ms", millis(begun.elapsed()));
        let found = sample.time(|| jit.session().lookup(LookupRequest::new(&order, set(&names))));
        assert_eq!(found.expect("every symbol compiles").len(), names.len());
        if let Some(stats) = jit.cache_stats() {
            assert_eq!((stats.object_hits, stats.object_misses), (modules.len() as u64, 0));
        }
        let answer = run(&jit, modules);
        assert_eq!(answer, *checksum.get_or_insert(answer), "the same modules compute something else");
        sample
    });
    let mut parameters = vec![("opt", level.json()), ("checksum", checksum.unwrap_or_default().to_string())];
    if state == State::Cold {
        parameters.push(("parse", format!("\"{}\"", hand_over.name())));
    }
    Row {
        case: case(hand_over, state),
        parameters,
        n: modules.len(),
        threads: threads as i64,
        operations: modules.len(),
    }
    .report(&samples);
}

/// The name of a row. The peer's cache takes modules that are parsed already, and has one row. Ours has another row as well,
/// for its usual input: files that are not parsed yet.
fn case(hand_over: HandOver, state: State) -> &'static str {
    match (state, hand_over) {
        (State::Cold, _) => "e2e_ir",
        (State::Warm, HandOver::Eager) => "cache_warm_parsed",
        (State::Warm, _) => "cache_warm",
    }
}

/// Compiles all modules.
fn run_all(jit: &Jit, modules: &[Module]) {
    let symbols = modules.iter().flat_map(|module| &module.interface.symbols);
    let names: Vec<_> = symbols.map(|symbol| jit.intern(&symbol.name)).collect();
    jit.session()
        .lookup(LookupRequest::new(order([jit.main_dylib()]), set(&names)))
        .expect("every symbol compiles");
}

/// Calls a function of every seventh module; the results are the same for every engine and case.
fn run(jit: &Jit, modules: &[Module]) -> u32 {
    let mut checksum = 0_u64;
    for (index, module) in modules.iter().enumerate().step_by(7) {
        let last = module.interface.symbols.last().expect("each module has functions");
        // SAFETY: the generator gives every function this signature, and `jit` outlives the call.
        let function: extern "C" fn(u64, u64) -> u64 =
            unsafe { jit.function(&last.name) }.expect("it is Ready and callable");
        checksum = checksum.wrapping_mul(31).wrapping_add(function(index as u64, 3));
    }
    checksum as u32
}

/// The time of each stage, on all threads together.
#[derive(Default)]
struct Stages {
    parse: Duration,
    machine: Duration,
    compile: Duration,
    object_bytes: usize,
}

/// Reads and compiles the modules on plain threads: no session, no linking.
fn limit(scale: Scale, modules: &[Module], level: Level, threads: usize, machine: Machine) {
    let target = JitTargetMachineBuilder::host().expect("a code generator for this machine");
    let target = target.with_codegen_level(level.codegen());
    let mut object_bytes = 0;
    let samples = repeat(scale, |_| {
        let next = AtomicUsize::new(0);
        let mut states: Vec<Stages> = (0..threads).map(|_| Stages::default()).collect();
        let mut sample = on_threads(&mut states, |_, stages| {
            // Relaxed: the counter hands out numbers and orders nothing.
            while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < modules.len())
            {
                compile(
                    &modules[index],
                    level,
                    &target,
                    (machine == Machine::PerModule).then_some(index),
                    stages,
                );
            }
        });
        let sum = |stage: fn(&Stages) -> Duration| millis(states.iter().map(stage).sum());
        sample.extra("parse_ms", sum(|stages| stages.parse));
        sample.extra("tm_ms", sum(|stages| stages.machine));
        // Passes and code generation are one call here.
        sample.extra("compile_ms", sum(|stages| stages.compile));
        object_bytes = states.iter().map(|stages| stages.object_bytes).sum();
        sample
    });
    let machine = match machine {
        Machine::PerThread => "\"per_thread\"",
        Machine::PerModule => "\"per_module\"",
    };
    Row {
        case: "e2e_limit",
        parameters: vec![
            ("opt", level.json()),
            ("tm", machine.to_owned()),
            ("object_bytes", object_bytes.to_string()),
        ],
        n: modules.len(),
        threads: threads as i64,
        operations: modules.len(),
    }
    .report(&samples);
}

/// Compiles `module` with this thread's target machine, or with one of its own if there is a `number` to tell it by.
fn compile(
    module: &Module,
    level: Level,
    target: &JitTargetMachineBuilder,
    number: Option<usize>,
    stages: &mut Stages,
) {
    let begun = Instant::now();
    let parsed = parse(module);
    let read = Instant::now();
    let target = number.map_or_else(|| target.clone(), |number| with_machine_of_its_own(target, number));
    let made = Instant::now();
    let object = IrCompiler::new(target, level.pipeline()).compile(parsed).expect("valid modules compile");
    stages.parse += read - begun;
    stages.machine += made - read;
    stages.compile += made.elapsed();
    stages.object_bytes += object.size_bytes();
}

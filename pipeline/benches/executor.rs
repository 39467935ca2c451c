//! The price of another process that runs the code: a link there beside one here, a call there and back, a first call, the start, and the news of a crash.
//!
//! `cargo bench -p uruk-pipeline --bench executor`. The bench is its own executor, and needs a C compiler. Medians, and the 90th percentile. A call
//! is measured on one processor too, where no thread has to wake on another one.

use std::error::Error;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use uruk_core::{
    AliasTarget, ExecutionSession, ExecutorAddr, JitDylib, LookupRequest, LookupSet, SymbolFlags, SymbolName,
};
use uruk_pipeline::executor::Executor;
use uruk_pipeline::lazy::LazyCallThroughManager;
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::memory::InProcessMemoryManager;
use uruk_pipeline::object::{ObjectBuffer, ObjectLayer, define_object};
use uruk_pipeline::platform::Platform;
use uruk_pipeline::remote::{RemoteExecutor, RemoteProgram, serve_executor};
use uruk_pipeline::runtime::in_process::InProcessExecutor;

const EXECUTOR: &str = "executor";
const OBJECTS: usize = 500;
const ROUNDS: usize = 15;
const CALLS: usize = 10_000;
const FIRST_CALLS: usize = 300;
const STARTS: usize = 25;

/// A small function with a constant, a variable and frames. Each object has it under a number of its own.
const SOURCE: &str = "
    static long count_00000;
    long small_00000(long x) { return x * 3 + ++count_00000; }
    long other_00000(const char *text) { return text ? *text : \"none\"[small_00000(1) & 3]; }
";

const CRASH: &str = "void crash(void) { __builtin_trap(); }";

type BenchResult<T> = Result<T, Box<dyn Error>>;

fn main() -> BenchResult<()> {
    if std::env::args().any(|argument| argument == EXECUTOR) {
        return Ok(serve_executor()?);
    }
    let objects = Objects::compile()?;
    print("an executor is ready", (0..STARTS).map(|_| start()).collect::<Result<_, _>>()?);
    print("from a crash to its error", (0..STARTS).map(|_| crash(&objects)).collect::<Result<_, _>>()?);
    let links = Links::measure(&objects)?;
    print(&format!("{OBJECTS} objects, in process"), links.here);
    print(&format!("{OBJECTS} objects, in memory that is shared"), links.shared);
    print(&format!("{OBJECTS} objects, through the socket"), links.sent);
    print_ratio("shared, of in process", links.ratios);
    print("a call there and back", calls(&objects)?);
    print("a first call with its link, shared", first_calls(&objects, program()?)?);
    print(
        "a first call with its link, through the socket",
        first_calls(&objects, program()?.sends_memory(true))?,
    );
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first)?; // threads and processes that are started later too
    print("a call there and back, on one processor", calls(&objects)?);
    print("a first call with its link, shared, on one processor", first_calls(&objects, program()?)?);
    print(
        "a first call with its link, through the socket, on one processor",
        first_calls(&objects, program()?.sends_memory(true))?,
    );
    Ok(())
}

fn program() -> io::Result<RemoteProgram> {
    Ok(RemoteProgram::new(std::env::current_exe()?).argument(EXECUTOR))
}

fn start() -> BenchResult<Duration> {
    let start = Instant::now();
    let executor = RemoteExecutor::reach(&program()?)?;
    let time = start.elapsed();
    drop(executor);
    Ok(time)
}

fn crash(objects: &Objects) -> BenchResult<Duration> {
    let there = Linker::there(RemoteExecutor::reach(&program()?)?)?;
    let function = there.link(&[ObjectBuffer::new("crash.o", objects.crash.clone())], &["crash".into()])?;
    let executor = there.executor.as_ref().ok_or("it is there")?;
    let start = Instant::now();
    let end = executor.call::<()>(function, ());
    let time = start.elapsed();
    end.err().ok_or("it did not crash")?;
    Ok(time)
}

fn calls(objects: &Objects) -> BenchResult<Vec<Duration>> {
    let there = Linker::there(RemoteExecutor::reach(&program()?)?)?;
    let function = there.link(&objects.numbered(1), &["small_00000".into()])?;
    let executor = there.executor.as_ref().ok_or("it is there")?;
    let call = |_| {
        let start = Instant::now();
        executor.call::<u64>(function, [7])?;
        Ok(start.elapsed())
    };
    (0..CALLS).map(call).collect()
}

/// Calls of stubs that link an object each.
fn first_calls(objects: &Objects, program: RemoteProgram) -> BenchResult<Vec<Duration>> {
    let there = Linker::there(RemoteExecutor::reach(&program)?)?;
    let bodies = there.session.create_jit_dylib("bodies")?;
    let layer: Arc<dyn ObjectLayer> = Arc::new(there.layer.clone());
    for object in objects.numbered(FIRST_CALLS) {
        define_object(&bodies, &layer, object)?;
    }
    let names: Vec<_> =
        (0..FIRST_CALLS).map(|number| there.session.intern(&format!("small_{number:05}"))).collect();
    let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
    let target = |name: &SymbolName| (name.clone(), AliasTarget { source: name.clone(), flags });
    let lazy = LazyCallThroughManager::new(there.layer.clone());
    there.main.define(lazy.lazy_reexports(&bodies, names.iter().map(target).collect()))?;
    let stubs =
        there.session.lookup(LookupRequest::along(&there.main, LookupSet::required(names.clone())))?;
    let executor = there.executor.as_ref().ok_or("it is there")?;
    let call = |name| {
        let stub = stubs.get(name).ok_or("it was required")?.address;
        let start = Instant::now();
        executor.call::<u64>(stub, [7])?;
        Ok(start.elapsed())
    };
    names.iter().map(call).collect()
}

/// The times of linking all objects.
#[derive(Default)]
struct Links {
    here: Vec<Duration>,
    shared: Vec<Duration>,
    sent: Vec<Duration>,
    /// Of two that ran one after the other.
    ratios: Vec<f64>,
}

impl Links {
    fn measure(objects: &Objects) -> BenchResult<Self> {
        let mut links = Self::default();
        let small = objects.numbered(OBJECTS);
        let names: Vec<_> = (0..OBJECTS).map(|number| format!("other_{number:05}")).collect();
        let time = |linker: Linker| -> BenchResult<Duration> {
            let start = Instant::now();
            linker.link(&small, &names)?;
            Ok(start.elapsed())
        };
        for _ in 0..ROUNDS {
            let here = time(Linker::here()?)?;
            let shared = time(Linker::there(RemoteExecutor::reach(&program()?)?)?)?;
            let sent = RemoteExecutor::reach(&program()?.sends_memory(true))?;
            links.here.push(here);
            links.shared.push(shared);
            links.sent.push(time(Linker::there(sent)?)?);
            links.ratios.push(shared.as_secs_f64() / here.as_secs_f64());
        }
        Ok(links)
    }
}

/// A session that links on the thread that asks.
struct Linker {
    executor: Option<RemoteExecutor>,
    session: ExecutionSession,
    main: JitDylib,
    layer: ObjectLinkingLayer,
}

impl Linker {
    fn here() -> BenchResult<Self> {
        let memory = Arc::new(InProcessMemoryManager::new()?);
        Self::of(Arc::new(InProcessExecutor::new(memory)), None)
    }

    fn there(executor: RemoteExecutor) -> BenchResult<Self> {
        Self::of(Arc::new(executor.clone()), Some(executor))
    }

    fn of(place: Arc<dyn Executor>, executor: Option<RemoteExecutor>) -> BenchResult<Self> {
        let session = ExecutionSession::new();
        let main = session.create_jit_dylib("main")?;
        let layer = ObjectLinkingLayer::new(place, Arc::new(Platform::new()));
        Ok(Self { executor, session, main, layer })
    }

    /// Links the objects, and gives the address of the first of `names`.
    fn link(&self, objects: &[ObjectBuffer], names: &[String]) -> BenchResult<ExecutorAddr> {
        let layer: Arc<dyn ObjectLayer> = Arc::new(self.layer.clone());
        for object in objects {
            define_object(&self.main, &layer, object.clone())?;
        }
        let names: Vec<SymbolName> = names.iter().map(|name| self.session.intern(name)).collect();
        let found =
            self.session.lookup(LookupRequest::along(&self.main, LookupSet::required(names.clone())))?;
        let first = names.first().and_then(|name| found.get(name)).ok_or("it was required")?;
        Ok(first.address)
    }
}

impl Drop for Linker {
    fn drop(&mut self) {
        let _ = self.session.close(); // An executor that has crashed has no code.
    }
}

/// The output of a C compiler.
struct Objects {
    small: Vec<u8>,
    crash: Vec<u8>,
}

impl Objects {
    fn compile() -> BenchResult<Self> {
        let directory = std::env::temp_dir().join(format!("uruk-bench-executor-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let compiled = Self::compile_in(&directory);
        std::fs::remove_dir_all(&directory)?;
        compiled
    }

    fn compile_in(directory: &Path) -> BenchResult<Self> {
        let compile = |source: &str| -> BenchResult<Vec<u8>> {
            let (from, to) = (directory.join("source.c"), directory.join("object.o"));
            std::fs::write(&from, source)?;
            let done =
                Command::new("cc").args(["-O2", "-fPIC", "-c"]).arg(&from).arg("-o").arg(&to).status()?;
            if done.success() { Ok(std::fs::read(to)?) } else { Err("cc has failed".into()) }
        };
        Ok(Self { small: compile(SOURCE)?, crash: compile(CRASH)? })
    }

    /// So many objects: the same one, with other digits in its names.
    fn numbered(&self, count: usize) -> Vec<ObjectBuffer> {
        let numbered = |number: usize| {
            let (mut bytes, digits) = (self.small.clone(), format!("{number:05}"));
            let at: Vec<usize> =
                bytes.windows(6).enumerate().filter(|(_, w)| w == b"_00000").map(|(at, _)| at).collect();
            at.into_iter().for_each(|at| bytes[at + 1..at + 6].copy_from_slice(digits.as_bytes()));
            ObjectBuffer::new(format!("small{number}.o"), bytes)
        };
        (0..count).map(numbered).collect()
    }
}

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6;
    println!("{what}: {:.1} us, p90 {:.1} us", at(50), at(90));
}

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn print_ratio(what: &str, mut ratios: Vec<f64>) {
    ratios.sort_unstable_by(f64::total_cmp);
    println!("{what}: {:.3} ({:.3} to {:.3})", ratios[ratios.len() / 2], ratios[0], ratios[ratios.len() - 1]);
}

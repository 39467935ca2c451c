//! The same module becomes the same object, independent of modules before it, beside it, or in its context.
//!
//! | compiled | what could show |
//! |---|---|
//! | in order, and in reverse | what LLVM and the engine keep from one module to the next |
//! | on four threads | what they keep for all threads |
//! | all in one context | names and kinds that others have taken |
//! | in another process | addresses, seeds of hash maps |
//!
//! A run of a few minutes compiles a few programs. `URUK_DOUBLE_COMPILE=all` has all of them compiled, and the libraries.
#![cfg(feature = "llvm")]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use uruk_core::sync::Mutex;
use uruk_pipeline::ir::{IrCompiler, OptimizationLevel, ThreadSafeContext, ThreadSafeModule};
use uruk_pipeline::object::ObjectBuffer;
use uruk_tests::forms::Form;
use uruk_tests::program::{Program, names_in};
use uruk_tests::sources::ProgramSource;

/// The object of every module: hashes of its canonical bitcode and of its object, by file and level.
type Made = BTreeMap<String, (u64, u64)>;

/// One module at one level.
struct Task {
    source: ObjectBuffer,
    level: OptimizationLevel,
}

impl Task {
    fn name(&self) -> String {
        format!("{} at {}", self.source.name(), self.level)
    }

    fn module(&self, context: &ThreadSafeContext) -> ThreadSafeModule {
        ThreadSafeModule::parse_in(context, &self.source).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Compiles a module of the task.
    fn compile(&self, module: ThreadSafeModule) -> (u64, u64) {
        let compiler = IrCompiler::host(self.level).expect("host");
        let canonical = compiler.canonical(&module).and_then(|copy| copy.to_bitcode());
        let canonical = hash(canonical.unwrap_or_else(|error| panic!("{error}")).bytes());
        let object = compiler.compile(module).unwrap_or_else(|error| panic!("{}: {error}", self.name()));
        (canonical, hash(object.bytes()))
    }

    fn compile_apart(&self) -> (u64, u64) {
        self.compile(self.module(&ThreadSafeContext::new()))
    }
}

/// With fixed keys: two processes agree.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn is_whole() -> bool {
    std::env::var_os("URUK_DOUBLE_COMPILE").is_some_and(|value| value == "all")
}

/// The bitcode of the programs, in an order that is always the same.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for directory in ["c", "cxx", "rust"] {
        let names = names_in(directory).expect("the directory is there");
        let each = if is_whole() { 1 } else { 18 };
        for name in names.iter().step_by(each) {
            let program = Program::load(name).expect("the program is there");
            let is_skipped = program.skipped.iter().any(|(form, _)| form == Form::BitcodeO2.name());
            if !is_skipped {
                files.extend(program.build(Form::BitcodeO2).expect("it is built"));
            }
        }
    }
    if is_whole() {
        use ProgramSource::{Lua, Lz4, Mimalloc, Sqlite, TreeSitter, TreeSitterJson, Zlib, Zstd};
        let libraries = [
            ("sqlite", &[Sqlite][..]),
            ("lua", &[Lua]),
            ("zstd", &[Zstd]),
            ("zlib", &[Zlib]),
            ("lz4", &[Lz4]),
            ("mimalloc", &[Mimalloc]),
            ("tree-sitter", &[TreeSitter, TreeSitterJson]),
        ];
        for (name, libraries) in libraries {
            let mut program = Program::load(name).expect("the program is there");
            for library in libraries {
                program = program.with_library(*library).expect("the library is there");
            }
            files.extend(program.build(Form::BitcodeO2).expect("it is built"));
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "bc"));
    files.sort();
    files.dedup();
    files
}

fn tasks() -> Vec<Task> {
    let read =
        |path: &Path| ObjectBuffer::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let of = |level| move |path: &PathBuf| Task { source: read(path), level };
    let files = files();
    let mut tasks: Vec<_> = files.iter().map(of(OptimizationLevel::O2)).collect();
    tasks.extend(files.iter().map(of(OptimizationLevel::O0)));
    tasks
}

fn in_order<'a>(tasks: impl Iterator<Item = &'a Task>) -> Made {
    tasks.map(|task| (task.name(), task.compile_apart())).collect()
}

fn on_threads(tasks: &[Task], threads: usize) -> Made {
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Made::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            // LLVM recurses deeper than a plain thread's stack allows.
            let work = || {
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let compiled = task.compile_apart();
                    made.lock().insert(task.name(), compiled);
                }
            };
            std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, work).expect("a thread");
        }
    });
    made.into_inner()
}

/// All modules are there before the first of them is compiled.
fn in_one_context(tasks: &[Task]) -> Made {
    let context = ThreadSafeContext::new();
    let modules: Vec<_> = tasks.iter().map(|task| (task, task.module(&context))).collect();
    modules.into_iter().map(|(task, module)| (task.name(), task.compile(module))).collect()
}

/// Set in a process that is to compile everything and print it.
const CHILD: &str = "URUK_DOUBLE_COMPILE_CHILD";

fn in_another_process() -> Made {
    let this = std::env::current_exe().expect("this program");
    let mut command = Command::new(this);
    command.args(["--exact", "a_process_of_its_own", "--nocapture", "--ignored"]).env(CHILD, "1");
    let output = command.output().expect("this program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter_map(|line| line.split_once("made ")).map(|(_, line)| {
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next().and_then(|word| u64::from_str_radix(word, 16).ok()).expect("a hash");
        let made = (number(), number());
        (words.next().expect("a name").to_owned(), made)
    });
    lines.collect()
}

#[test]
#[ignore = "what the other test starts as a process of its own"]
#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn a_process_of_its_own() {
    if std::env::var_os(CHILD).is_some() {
        for (name, (canonical, object)) in in_order(tasks().iter()) {
            println!("made {canonical:x} {object:x} {name}");
        }
    }
}

#[track_caller]
fn assert_same(expected: &Made, made: &Made, how: &str) {
    assert!(expected.keys().eq(made.keys()), "{how}: others were compiled");
    let differs = |(name, hashes): &(&String, &(u64, u64))| made[*name] != **hashes;
    let different: Vec<_> = expected.iter().filter(differs).map(|(name, _)| name).collect();
    assert!(different.is_empty(), "{how}: other bytes: {different:#?}");
}

#[test]
fn the_same_module_becomes_the_same_object() {
    let tasks = tasks();
    let expected = in_order(tasks.iter());
    assert!(expected.len() > 10, "{} modules", expected.len());
    assert_same(&expected, &in_order(tasks.iter().rev()), "in reverse");
    assert_same(&expected, &on_threads(&tasks, 4), "on threads");
    assert_same(&expected, &in_one_context(&tasks), "in one context");
    assert_same(&expected, &in_another_process(), "in another process");
}

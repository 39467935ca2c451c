//! Code for AArch64 runs in an executor of that architecture, in an emulator, and is linked here.
//!
//! ```text
//!   this process: clang, the linker ── contents by messages ──▶ qemu-aarch64 uruk-executor
//! ```
//! The executor is the file that `URUK_AARCH64_EXECUTOR` names, as in `make aarch64`. Without the variable these tests say that they are skipped;
//! with it they need clang and the emulator.

use std::ffi::CString;
use std::io::Write as _;
use std::sync::Arc;

use uruk_core::{ExecutorAddr, ResourceTracker};
use uruk_pipeline::executor::{Executor as _, Startup};
use uruk_pipeline::object::ObjectBuffer;
use uruk_pipeline::peer::ProcessEnd;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::remote::{CallArguments, RemoteExecutor, RemoteProgram, RemoteSymbolsGenerator};

use crate::aarch64::CLANG;
use crate::link_support::linking::Linking;
use crate::link_support::{Tool, chain, compile};

const CLANG_CPP: Tool = Tool("clang++-22");

/// The libraries of a process on AArch64.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

const VARIABLES: &str = "
    __thread unsigned long local = 5;
    unsigned long constructed;
    __attribute__((constructor)) static void construct(void) { constructed = 40; }
    unsigned long bump(void) { return ++local; }
    static unsigned long nine(void) { return 9; }
    static void *choose(void) { return (void *)nine; }
    unsigned long chosen(void) __attribute__((ifunc(\"choose\")));
";

/// Touches the variables from the first thread and from a second one.
const MAIN: &str = "
    typedef unsigned long word;
    int pthread_create(word *, void *, void *(*)(void *), void *), pthread_join(word, void **), getpid(void);
    void _exit(int);
    extern __thread word local;
    extern word constructed;
    extern int nowhere __attribute__((weak));
    extern __thread int no_variable __attribute__((weak));
    word bump(void), chosen(void), caught(word);
    static void *on_thread(void *unused) { (void)unused; bump(); return (void *)bump(); }
    word run(word depth) {
        void *of_thread;
        word thread;
        if (pthread_create(&thread, 0, on_thread, 0) || pthread_join(thread, &of_thread)) return 0;
        bump();
        return constructed + local * 100 + (word)of_thread * 1000 + chosen() * 10000 + caught(depth) * 100000;
    }
    word sum(word a, word b, word c, word d, word e, word f) { return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f; }
    word absent(void) {
        word variable = (word)&no_variable;
        __asm__ volatile(\"\" : \"+r\"(variable)); // or the compiler believes that there is one
        return &nowhere == 0 && variable == 0;
    }
    word where(void) { return getpid(); }
    __attribute__((noinline)) word crash(word *address) { return *(volatile word *)address; }
    __attribute__((noinline)) word crash_below(word *address) { return crash(address) + 1; }
    static int code;
    __attribute__((destructor)) static void destruct(void) { if (code) _exit(code + 1); }
    int main(int argc, char **argv, char **envp) { code = argc * 10 + argv[1][0] - '0' + (envp ? 1 : 0); return code; }
";

const THROWER: &str = "
    struct Guard { unsigned long &count; ~Guard() { count++; } };
    void thrower(unsigned long depth, unsigned long &count) {
        Guard guard{count};
        if (depth == 0) throw 3ul;
        thrower(depth - 1, count);
    }
";

const CATCHER: &str = "
    void thrower(unsigned long depth, unsigned long &count);
    extern \"C\" unsigned long caught(unsigned long depth) {
        unsigned long count = 0;
        try { thrower(depth, count); } catch (unsigned long value) { return value * 10 + count; }
        return 0;
    }
";

/// The executor's file; without one, says so.
fn executor_file() -> Option<String> {
    let file = std::env::var("URUK_AARCH64_EXECUTOR").ok();
    if file.is_none() {
        let why = "skipped: URUK_AARCH64_EXECUTOR names no executor for AArch64; `make aarch64` builds one";
        writeln!(std::io::stderr(), "{why}").expect("standard error");
    }
    file
}

fn object(name: &str, tool: Tool, language: &str, source: &str) -> ObjectBuffer {
    let flags = ["--target=aarch64-linux-gnu", "-fPIC", "-O1", "-funwind-tables"];
    ObjectBuffer::new(name, compile(tool, language, source, &flags))
}

/// A session whose code runs in the emulator.
struct Scene {
    place: RemoteExecutor,
    linking: Linking,
}

impl Scene {
    /// `None` where there is no executor.
    fn new() -> Option<Self> {
        Self::with_platform(Platform::new())
    }

    fn with_platform(platform: Platform) -> Option<Self> {
        let program = RemoteProgram::new("qemu-aarch64").argument("-L").argument(SYSROOT);
        let program = program.argument(executor_file()?).sends_memory(true);
        let place = RemoteExecutor::reach(&program).unwrap_or_else(|error| panic!("{}", chain(&error)));
        let linking = Linking::for_executor(Arc::new(place.clone()), place.code_memory(), platform);
        let symbols = RemoteSymbolsGenerator::new(place.clone());
        let _generator = linking.dylib.add_generator(Arc::new(symbols));
        Some(Self { place, linking })
    }

    fn add(&self, object: ObjectBuffer) -> ResourceTracker {
        let name = object.name().to_string();
        let unit = self.linking.unit_of(object);
        let initializer = self.linking.declare(&name, unit.shares_sections());
        self.linking.define(self.linking.file_of(unit, initializer))
    }

    /// The C program.
    fn with_program(self) -> (Self, Vec<ResourceTracker>) {
        let trackers = [
            object("variables.c", CLANG, "c", VARIABLES),
            object("main.c", CLANG, "c", MAIN),
            object("thrower.cpp", CLANG_CPP, "cpp", THROWER),
            object("catcher.cpp", CLANG_CPP, "cpp", CATCHER),
        ]
        .map(|object| self.add(object));
        (self, trackers.into())
    }

    fn find(&self, name: &str) -> ExecutorAddr {
        let function = self.linking.ask(name).function().unwrap_or_else(|error| panic!("{name}: {error}"));
        ExecutorAddr::from_ptr(function as *const ())
    }

    fn startup(&self) -> Startup {
        self.linking.platform.take_startup()
    }

    fn call(&self, name: &str, arguments: impl CallArguments) -> u64 {
        let function = self.find(name);
        self.place.start(&self.startup()).expect("the executor is there");
        self.place.call(function, arguments).unwrap_or_else(|error| panic!("{name}: {}", chain(&error)))
    }
}

#[test]
fn a_program_of_several_files_runs_there() {
    let Some(scene) = Scene::new() else { return };
    let (scene, trackers) = scene.with_program();
    assert_eq!(scene.place.architecture().to_string(), "AArch64");
    assert_eq!(scene.call("sum", [1, 2, 3, 4, 5, 6]), 91);
    assert_eq!(scene.call("where", ()), u64::from(scene.place.pid()));
    // 40 of the constructor; 6 of this thread's variable, 7 of the other's; 9 chosen; 3 thrown through 5 frames.
    assert_eq!(scene.call("run", [4]), 40 + 600 + 7_000 + 90_000 + 3_500_000);
    assert_eq!(
        scene.call("run", [0]),
        40 + 700 + 7_000 + 90_000 + 3_100_000,
        "the first thread's variable goes on"
    );
    assert_eq!(scene.call("absent", ()), 1);
    trackers.into_iter().for_each(|tracker| tracker.remove().expect("nothing goes wrong"));
    scene.place.find(&["puts"]).expect("it goes on");
}

#[test]
fn a_program_starts_with_its_arguments_and_ends_with_its_code() {
    let Some(scene) = Scene::with_platform(Platform::of_process()) else { return };
    let (scene, _trackers) = scene.with_program();
    let main = scene.find("main");
    let arguments = ["program", "7"].map(|argument| CString::new(argument).expect("no zero"));
    let end =
        scene.place.run_program(&scene.startup(), main, &arguments, None, Box::new(|_| Default::default()));
    // 2 arguments, the digit, the environment; 1 of the destructor.
    assert_eq!(end.process_end(), Some(ProcessEnd::Exited(20 + 7 + 1 + 1)), "{}", chain(&end));
}

#[test]
fn a_fault_is_told_with_its_function() {
    let Some(scene) = Scene::new() else { return };
    let (scene, _trackers) = scene.with_program();
    let function = scene.find("crash_below");
    let error = scene.place.call::<u64>(function, [8]).expect_err("nothing lies there");
    assert_eq!(error.process_end(), Some(ProcessEnd::Signal(libc::SIGSEGV)), "{}", chain(&error));
    assert!(error.to_string().contains("in `crash` + 0"), "{}", chain(&error));
}

/// Where a library's function faults, the place is the linked code that has called it.
#[test]
fn a_fault_in_a_library_is_told_with_its_caller() {
    const SOURCE: &str = "
        unsigned long strlen(const char *);
        __attribute__((noinline)) unsigned long length(const char *text) { return strlen(text) + 1; }
    ";
    let Some(scene) = Scene::new() else { return };
    let _tracker = scene.add(object("length.c", CLANG, "c", SOURCE));
    let error = scene.place.call::<u64>(scene.find("length"), [8]).expect_err("nothing lies there");
    assert_eq!(error.process_end(), Some(ProcessEnd::Signal(libc::SIGSEGV)), "{}", chain(&error));
    assert!(error.to_string().contains("in `length` + "), "{}", chain(&error));
}

/// Processors, and the emulator, may keep what they have fetched before.
#[test]
fn code_that_comes_where_other_code_lay_is_what_runs() {
    let Some(scene) = Scene::new() else { return };
    let mut addresses = Vec::new();
    for number in 0..20 {
        let source = format!("unsigned long number(void) {{ return {number}; }}");
        let tracker = scene.add(object("number.c", CLANG, "c", &source));
        assert_eq!(scene.call("number", ()), number);
        addresses.push(scene.find("number"));
        tracker.remove().expect("nothing goes wrong");
    }
    addresses.sort_unstable();
    addresses.dedup();
    assert!(addresses.len() < 20, "memory is used again");
}

//! Code runs in another process, which the linker reaches by the door alone: a C program of several files, with constructors,
//! thread-local variables, a function that chooses its implementation, and an exception.

use std::sync::Arc;

use uruk_core::{ExecutorAddr, ResourceTracker};
use uruk_pipeline::memory::{InProcessMemoryManager, MemoryManager};
use uruk_pipeline::object::ObjectBuffer;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::process::{ProcessSymbols, ProcessSymbolsGenerator};

use crate::link_support::linking::Linking;
use crate::link_support::{Tool, compile};
use crate::other_place::OtherProcess;

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
    #include <pthread.h>
    #include <unistd.h>
    extern __thread unsigned long local;
    extern unsigned long constructed;
    unsigned long bump(void), chosen(void), caught(unsigned long);
    static void *on_thread(void *unused) { (void)unused; bump(); return (void *)bump(); }
    unsigned long run(unsigned long depth) {
        void *of_thread;
        pthread_t thread;
        if (pthread_create(&thread, 0, on_thread, 0) || pthread_join(thread, &of_thread)) return 0;
        bump();
        return constructed + local * 100 + (unsigned long)of_thread * 1000 + chosen() * 10000 + caught(depth) * 100000;
    }
    unsigned long where(unsigned long unused) { (void)unused; return (unsigned long)getpid(); }
    unsigned long crash(unsigned long address) { return *(volatile unsigned long *)address; }
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

/// A session whose code runs in a child of this process.
struct Scene {
    place: Arc<OtherProcess>,
    linking: Linking,
    trackers: Vec<ResourceTracker>,
}

impl Scene {
    fn new() -> Self {
        let place = Arc::new(OtherProcess::start());
        let memory: Arc<dyn MemoryManager> = Arc::new(InProcessMemoryManager::new().expect("address space"));
        let linking = Linking::for_executor(place.clone(), memory, Platform::of_process());
        let symbols = ProcessSymbolsGenerator::new(Arc::new(ProcessSymbols::new()));
        let _generator = linking.dylib.add_generator(Arc::new(symbols));
        let files = [
            ("variables.c", "c", VARIABLES),
            ("main.c", "c", MAIN),
            ("thrower.cpp", "cpp", THROWER),
            ("catcher.cpp", "cpp", CATCHER),
        ];
        let trackers = files.map(|(name, language, source)| {
            let tool = Tool(if language == "c" { "cc" } else { "c++" });
            let object = ObjectBuffer::new(name, compile(tool, language, source, &["-fPIC", "-O1"]));
            let unit = linking.unit_of(object);
            let initializer = linking.declare(name, unit.shares_sections());
            linking.define(linking.file_of(unit, initializer))
        });
        Self { place, linking, trackers: trackers.into() }
    }

    fn find(&self, name: &str) -> ExecutorAddr {
        let function = self.linking.ask(name).function().unwrap_or_else(|error| panic!("{name}: {error}"));
        ExecutorAddr::from_ptr(function as *const ())
    }

    /// Links everything, and runs the functions that come before the program.
    fn begin(&self) {
        for name in ["run", "where", "crash"] {
            self.find(name);
        }
        let platform = &self.linking.platform;
        self.place.bind(&platform.take_indirect_functions()).expect("the child is there");
        for function in platform.take_initializers() {
            self.place.call(function.address, 0).expect("the child is there");
        }
    }
}

#[test]
fn a_program_runs_in_a_child_that_shares_its_code_with_the_linker() {
    alone!();
    let mut scene = Scene::new();
    scene.begin();
    let call = |name, argument| scene.place.call(scene.find(name), argument).expect("the child is there");
    assert_eq!(call("where", 0), scene.place.pid(), "not here");
    // 40 of the constructor; 6 of this thread's variable, 7 of the other's; 9 chosen; 3 thrown through 5 frames.
    assert_eq!(call("run", 4), 40 + 600 + 7_000 + 90_000 + 3_500_000);
    assert_eq!(call("run", 0), 40 + 700 + 7_000 + 90_000 + 3_100_000, "the first thread's variable goes on");

    assert_eq!(scene.place.published().expect("the child is there"), 4);
    scene.trackers.drain(..).for_each(|tracker| tracker.remove().expect("nothing goes wrong"));
    assert_eq!(scene.place.published().expect("the child is there"), 0, "removed there too");
}

#[test]
fn a_crash_of_the_program_ends_the_child_alone() {
    alone!();
    let mut scene = Scene::new();
    scene.begin();
    assert!(scene.place.call(scene.find("crash"), 8).is_err());
    assert_eq!(scene.place.signal_of_its_end(), Some(libc::SIGSEGV));
    // Nothing here waits for the child, and the session goes on.
    scene.trackers.drain(..).for_each(|tracker| tracker.remove().expect("nothing goes wrong"));
    scene.linking.session.close().expect("nothing goes wrong");
}

//! Plugins in C++: what they begin with, and how they end.
//!
//! A static `std::vector` was destroyed when the process ended, by the C library, long after its code and its data had gone with the
//! engine: a program that had done everything right died of SIGSEGV as it returned from `main`.
//!
//! Each test runs in a process of its own. What its plugin says on standard output is what is compared, so that what comes
//! at the end of the process counts too.

use std::ffi::{CStr, c_char};
use std::io::Write as _;
use std::sync::mpsc;
use std::sync::{Arc, LazyLock};

use uruk::Jit;
use uruk::core::sync::Latch;
use uruk::core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags, absolute_symbols};
use uruk::pipeline::memory::{InProcessMemoryManager, MemoryManager};
use uruk::pipeline::runtime::unwind::registered_objects;

use crate::support::{alone, cpp, engine, is_alone};

/// Begins what is said, among the lines of the test harness.
const MARK: &str = "> ";

fn say(text: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "\n{MARK}{text}").and_then(|()| out.flush()).expect("somebody reads");
}

/// What plugins call to say something.
unsafe extern "C" fn host_say(text: *const c_char) {
    // SAFETY: the plugins of these tests give terminated strings.
    say(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
}

/// Runs `embedder` in a process of its own, which has to end well after having said `expected`.
fn check(name: &str, expected: &[&str], embedder: impl FnOnce()) {
    if is_alone() {
        return embedder();
    }
    let output = alone(&format!("endings::{name}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let said: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(MARK)).collect();
    assert_eq!(said, expected, "{output:?}");
    assert!(output.status.success(), "{output:?}");
}

/// Lets the plugins of `jit` call `function` by `name`.
fn provide(jit: &Jit, name: &str, function: *const ()) {
    let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
    let definition = ExecutorSymbolDef::new(ExecutorAddr::from_ptr(function), flags);
    let symbols = [(jit.intern(name), definition)].into_iter().collect();
    jit.main_dylib().define(absolute_symbols(symbols)).expect("a new name");
}

/// Adds a plugin that may `say` something, and says so when a `Named` object begins and ends.
fn add(jit: &Jit, name: &str, source: &str) {
    const HEAD: &str = r#"
        #include <cstdlib>
        #include <string>
        #include <vector>
        extern "C" void host_say(const char *);
        static void say(const std::string &text) { host_say(text.c_str()); }
        namespace {
        struct Named {
            std::string name;
            Named(const char *name) : name(name) { say("begin " + this->name); }
            ~Named() { say("end " + name); }
        };
        }
    "#;
    jit.add_object(cpp(name, &format!("{HEAD}\n{source}"))).expect("the names are new");
}

fn talking(jit: Jit) -> Jit {
    provide(&jit, "host_say", host_say as *const ());
    jit
}

fn call(jit: &Jit, name: &str) -> i32 {
    // SAFETY: the functions that the tests call have this signature, and the engine outlives the call.
    let function: extern "C" fn() -> i32 = unsafe { jit.function(name) }.expect("it links");
    function()
}

fn initialize(jit: &Jit) {
    // SAFETY: the plugins of these tests are sound.
    unsafe { jit.initialize(jit.main_dylib()) }.expect("it links");
}

fn deinitialize(jit: &Jit) {
    // SAFETY: as above, and nobody calls them afterwards.
    unsafe { jit.deinitialize(jit.main_dylib()) };
}

/// Static objects of each kind, handlers and finalisers.
const PLUGIN: &str = r#"
    static std::vector<std::string> words{"a plugin that is", "longer than what fits into a string itself"};
    static Named first("first"), second("second");
    static const int registered = std::atexit([] { say("atexit"); });
    static Named third("third");
    __attribute__((destructor)) static void finalize() { say("finalize"); }
    extern "C" int use() {
        static Named local("local");
        words.push_back("more");
        return static_cast<int>(words.size());
    }
"#;

const BEGINNING: [&str; 5] = ["begin first", "begin second", "begin third", "begin local", "used 3"];
const ENDING: [&str; 6] = ["end local", "end third", "atexit", "end second", "end first", "finalize"];

fn begin_and_use() -> Jit {
    let jit = talking(engine(1));
    add(&jit, "plugin.o", PLUGIN);
    initialize(&jit);
    say(&format!("used {}", call(&jit, "use")));
    jit
}

/// What is said from the beginning on: `parts`, one after another.
fn all<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

#[test]
fn a_plugin_ends_with_the_engine() {
    check("a_plugin_ends_with_the_engine", &all(&[&BEGINNING, &ENDING, &["dropped"]]), || {
        drop(begin_and_use());
        say("dropped");
    });
}

#[test]
fn a_plugin_ends_with_the_process_if_the_engine_is_still_there() {
    let name = "a_plugin_ends_with_the_process_if_the_engine_is_still_there";
    check(name, &all(&[&BEGINNING, &["main is over"], &ENDING]), || {
        Box::leak(Box::new(begin_and_use())); // as an engine in a static
        say("main is over");
    });
}

#[test]
fn a_plugin_that_is_removed_ends_before() {
    check("a_plugin_that_is_removed_ends_before", &all(&[&BEGINNING, &ENDING, &["removed"]]), || {
        let jit = begin_and_use();
        jit.main_dylib().clear().expect("nothing goes wrong");
        say("removed");
    });
}

#[test]
fn a_plugin_ends_with_a_session_that_somebody_closes() {
    let name = "a_plugin_ends_with_a_session_that_somebody_closes";
    check(name, &all(&[&BEGINNING, &ENDING, &["closed"]]), || {
        let jit = begin_and_use();
        jit.session().close().expect("nothing goes wrong");
        say("closed");
    });
}

#[test]
fn what_was_deinitialised_neither_ends_nor_begins_again() {
    let name = "what_was_deinitialised_neither_ends_nor_begins_again";
    check(name, &all(&[&BEGINNING, &ENDING, &["deinitialised", "begin other", "end other"]]), || {
        let jit = begin_and_use();
        deinitialize(&jit);
        say("deinitialised");
        deinitialize(&jit);
        initialize(&jit);
        add(&jit, "other.o", "static Named other(\"other\");");
        initialize(&jit);
        initialize(&jit);
    });
}

#[test]
fn lookups_initialise_if_they_are_asked_to() {
    let expected = all(&[&BEGINNING[..3], &["looked up"], &BEGINNING[3..], &ENDING]);
    check("lookups_initialise_if_they_are_asked_to", &expected, || {
        let built = Jit::builder().threads(1).initialize_on_lookup(true).build();
        let jit = talking(built.expect("an engine for this machine"));
        add(&jit, "plugin.o", PLUGIN);
        jit.lookup("use").expect("it links");
        say("looked up");
        say(&format!("used {}", call(&jit, "use")));
    });
}

/// Each said what the one before it had registered while it ran: the C++ standard demands that it runs.
#[test]
fn handlers_may_register_handlers() {
    const RELAY: &str = r#"
        static void third() { say("third"); }
        static void second() { say("second"); std::atexit(third); say("second goes on"); }
        static void first() { say("first"); std::atexit(second); }
        static const int oldest = std::atexit([] { say("oldest"); });
        static const int registered = std::atexit(first);
        __attribute__((destructor)) static void finalize() { say("finalize"); std::atexit([] { say("last"); }); }
        extern "C" int use() { return 1; }
    "#;
    let expected = ["first", "second", "second goes on", "third", "oldest", "finalize", "last", "dropped"];
    check("handlers_may_register_handlers", &expected, || {
        let jit = talking(engine(0));
        add(&jit, "relay.o", RELAY);
        initialize(&jit);
        drop(jit);
        say("dropped");
    });
}

/// The destructor of one calls the other, which was linked first and would go first.
#[test]
fn all_that_goes_together_ends_before_any_of_it_goes() {
    let expected =
        ["begin below", "begin above", "above calls", "below answers", "end above", "end below", "removed"];
    check("all_that_goes_together_ends_before_any_of_it_goes", &expected, || {
        let jit = talking(engine(0));
        const BELOW: &str = "static Named below(\"below\"); void answer() { say(\"below answers\"); }";
        const ABOVE: &str = r#"
            void answer();
            static struct Above { Named named{"above"}; ~Above() { say("above calls"); answer(); } } above;
        "#;
        add(&jit, "below.o", BELOW);
        add(&jit, "above.o", ABOVE);
        initialize(&jit);
        jit.main_dylib().clear().expect("nothing goes wrong");
        say("removed");
    });
}

/// The destructor is linked with one of the files that have it, which is removed.
#[test]
fn a_handler_runs_before_its_function_or_its_object_goes() {
    const SHARED: &str = r#"
        extern "C" void host_say(const char *);
        struct Shared { ~Shared(); };
        inline __attribute__((noinline, used)) Shared::~Shared() { host_say("end shared"); }
    "#;
    let expected = ["linked", "end shared", "removed"];
    check("a_handler_runs_before_its_function_or_its_object_goes", &expected, || {
        let jit = talking(engine(0));
        let object = |name, function| cpp(name, &format!("{SHARED} {function}"));
        let tracker = jit.create_tracker();
        let keeps = object("keeps.o", "extern \"C\" int keeps() { Shared shared; return 1; }");
        jit.in_tracker(&tracker).add_object(keeps).expect("new names");
        jit.lookup("keeps").expect("it links");
        let uses = object("uses.o", "extern \"C\" int uses() { static Shared shared; return 1; }");
        jit.add_object(uses).expect("a new name");
        assert_eq!(call(&jit, "uses"), 1);
        say("linked");
        tracker.remove().expect("nothing goes wrong");
        say("removed");
    });
}

static SESSION: std::sync::OnceLock<uruk::core::ExecutionSession> = std::sync::OnceLock::new();

/// What a plugin's handler calls to look something up that was not linked so far.
extern "C" fn look_up() {
    let session = SESSION.get().expect("the test has set it");
    let found = session
        .jit_dylib("main")
        .is_some_and(|main| session.lookup_symbol(&main.link_order(), &session.intern("late")).is_ok());
    say(if found { "found" } else { "refused" });
}

fn look_up_at_the_end() -> Jit {
    const LOOKS: &str = r#"
        extern "C" void look_up();
        static struct Looks { Looks() {} ~Looks() { look_up(); } } looks;
    "#;
    let jit = talking(engine(1));
    provide(&jit, "look_up", look_up as *const ());
    SESSION.set(jit.session().clone()).expect("nobody else does");
    add(&jit, "looks.o", LOOKS);
    add(&jit, "late.o", "extern \"C\" int late() { return 1; }");
    initialize(&jit);
    jit
}

#[test]
fn a_handler_may_look_up_symbols_while_the_engine_goes() {
    check("a_handler_may_look_up_symbols_while_the_engine_goes", &["found", "dropped"], || {
        drop(look_up_at_the_end());
        say("dropped");
    });
}

/// Nobody would answer.
#[test]
fn a_handler_that_looks_up_symbols_of_a_closed_session_is_refused() {
    let name = "a_handler_that_looks_up_symbols_of_a_closed_session_is_refused";
    check(name, &["refused", "closed"], || {
        let jit = look_up_at_the_end();
        jit.session().close().expect("nothing goes wrong");
        say("closed");
    });
}

/// A destructor of a `thread_local` ran where its code had been.
#[test]
fn code_of_thread_locals_stays_until_their_threads_have_ended() {
    const CACHE: &str = r#"
        void help();
        static thread_local struct Cache { std::string name{"a name that takes memory of its own"}; ~Cache() { help(); } } cache;
        static thread_local std::string word("another name that takes memory of its own");
        extern "C" int use() { return static_cast<int>(cache.name.size() + word.size()); }
    "#;
    const HELPER: &str = "int twice(int); void help() { say(twice(21) == 42 ? \"helped\" : \"no\"); }";
    const MORE: &str = "int twice(int value) { return 2 * value; }";
    let expected = ["used", "dropped", "helped", "over"];
    check("code_of_thread_locals_stays_until_their_threads_have_ended", &expected, || {
        let memory = Arc::new(InProcessMemoryManager::new().expect("address space"));
        let allocations = || memory.usage().allocations;
        let jit = talking(Jit::builder().threads(1).memory(memory.clone()).build().expect("an engine"));
        for (name, source) in [("cache.o", CACHE), ("helper.o", HELPER), ("more.o", MORE)] {
            add(&jit, name, source);
        }
        // Nothing of a thread's is there.
        add(&jit, "idle.o", "extern \"C\" int idle() { return 1; }");
        assert_eq!(call(&jit, "idle"), 1);
        // SAFETY: as in `call`; the thread calls it before the engine goes.
        let function: extern "C" fn() -> i32 = unsafe { jit.function("use") }.expect("it links");
        let (go_on, waits) = mpsc::channel::<()>();
        let (used, is_used) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            assert!(function() > 40);
            used.send(()).expect("the test waits");
            let _ = waits.recv();
        });
        is_used.recv().expect("the thread calls it");
        say("used");
        drop(jit);
        say("dropped");
        assert_eq!((allocations(), registered_objects()), (3, 3), "what the destructor may call");
        drop(go_on);
        thread.join().expect("it ends well");
        assert_eq!((allocations(), registered_objects()), (0, 0));
        say("over");
    });
}

/// The main thread's own come before the static objects, as in a native program.
#[test]
fn thread_locals_of_the_main_thread_end_when_it_does() {
    const LOCAL: &str = r#"
        static thread_local Named local("local");
        extern "C" int use() { return static_cast<int>(local.name.size()); }
    "#;
    let expected = ["begin local", "dropped", "end local"];
    check("thread_locals_of_the_main_thread_end_when_it_does", &expected, || {
        let jit = talking(engine(1));
        add(&jit, "local.o", LOCAL);
        call(&jit, "use");
        drop(jit);
        say("dropped");
    });
}

/// An initialiser that calls back waited for itself.
#[test]
fn an_initialiser_may_initialise() {
    static AGAIN: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    extern "C" fn again() {
        let jit = std::ptr::with_exposed_provenance::<Jit>(*AGAIN.get().expect("the test has set it"));
        // SAFETY: the engine is there, as it runs this.
        initialize(unsafe { &*jit });
        say("again");
    }
    const RECURSES: &str = r#"
        extern "C" void again();
        static Named before("before");
        static const int called = (again(), 1);
        static Named after("after");
    "#;
    let expected = ["begin before", "again", "begin after", "end after", "end before"];
    check("an_initialiser_may_initialise", &expected, || {
        let jit = talking(engine(1));
        AGAIN.set((&raw const jit).expose_provenance()).expect("nobody else does");
        provide(&jit, "again", again as *const ());
        add(&jit, "recurses.o", RECURSES);
        initialize(&jit);
    });
}

/// Two plugins whose initialisers initialise each other, on two threads: each waits for the other.
///
/// ```text
///  one:  a begins ─ waits for b to begin ─ initialises b: it waits, or finds b begun ─ a goes on
///  two:  b begins ─ waits for a to begin ─ initialises a: it waits, or finds a begun ─ b goes on
/// ```
#[test]
fn two_threads_whose_plugins_initialise_each_other_both_end() {
    static ENGINE: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    static BEGUN: LazyLock<[Latch; 2]> = LazyLock::new(|| [Latch::new(), Latch::new()]);
    extern "C" fn initialize_other(of_a: i32) {
        let jit = std::ptr::with_exposed_provenance::<Jit>(*ENGINE.get().expect("the test has set it"));
        // SAFETY: the engine is there, as it runs this.
        let jit = unsafe { &*jit };
        let own = usize::from(of_a == 1);
        BEGUN[own].open();
        BEGUN[1 - own].wait();
        let other = jit.session().jit_dylib(if of_a == 1 { "b" } else { "a" }).expect("the test has made it");
        // SAFETY: both plugins are sound.
        unsafe { jit.initialize(&other) }.expect("it links");
    }
    check("two_threads_whose_plugins_initialise_each_other_both_end", &["both"], || {
        let jit = engine(1);
        ENGINE.set((&raw const jit).expose_provenance()).expect("nobody else does");
        let dylibs = [("a", 1), ("b", 0)].map(|(name, is_a)| {
            let dylib = jit.create_dylib(name).expect("a new name");
            let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
            let address = ExecutorAddr::from_ptr(initialize_other as *const ());
            let definition = ExecutorSymbolDef::new(address, flags);
            let symbols = [(jit.intern("initialize_other"), definition)].into_iter().collect();
            dylib.define(absolute_symbols(symbols)).expect("a new name");
            let source = format!(
                "extern \"C\" void initialize_other(int);
                 static const int begun = (initialize_other({is_a}), 1);
                 extern \"C\" int use() {{ return begun; }}"
            );
            jit.in_dylib(&dylib).add_object(cpp(name, &source)).expect("new names");
            dylib
        });
        std::thread::scope(|scope| {
            for dylib in &dylibs {
                let jit = &jit;
                // SAFETY: both plugins are sound.
                scope.spawn(move || unsafe { jit.initialize(dylib) }.expect("it links"));
            }
        });
        say("both");
    });
}

static RUNS: LazyLock<Latch> = LazyLock::new(Latch::new);
static MAY_END: LazyLock<Latch> = LazyLock::new(Latch::new);

extern "C" fn wait_for_the_test() {
    RUNS.open();
    MAY_END.wait();
}

/// It was unmapped below the feet of the handler.
#[test]
fn code_stays_while_another_thread_runs_a_handler_of_it() {
    const WAITS: &str = r#"
        extern "C" void wait_for_the_test();
        extern "C" int use() { return std::atexit([] { wait_for_the_test(); say("handled"); }); }
    "#;
    let expected = ["removed", "handled"];
    check("code_stays_while_another_thread_runs_a_handler_of_it", &expected, || {
        let jit = talking(engine(0));
        provide(&jit, "wait_for_the_test", wait_for_the_test as *const ());
        add(&jit, "waits.o", WAITS);
        assert_eq!(call(&jit, "use"), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| deinitialize(&jit));
            RUNS.wait();
            jit.main_dylib().clear().expect("nothing goes wrong");
            assert_eq!(jit.memory_usage().allocations, 1);
            say("removed");
            MAY_END.open();
        });
        assert_eq!(jit.memory_usage().allocations, 0);
    });
}

/// The handlers behind the one that exits are the process's.
#[test]
fn a_handler_may_exit() {
    const EXITS: &str = r#"
        static Named named("named");
        static const int registered = std::atexit([] { say("exit"); std::exit(0); });
    "#;
    check("a_handler_may_exit", &["begin named", "exit", "end named"], || {
        let jit = talking(engine(0));
        add(&jit, "exits.o", EXITS);
        initialize(&jit);
        jit.main_dylib().clear().expect("nothing goes wrong");
        say("not reached");
    });
}

/// Fork handlers of a plugin that was gone ran in the next fork.
#[test]
fn the_c_library_forgets_what_it_keeps_of_removed_code() {
    const FORKS: &str = r#"
        #include <pthread.h>
        static void prepare() { say("prepare"); }
        extern "C" int use() {
            return pthread_atfork(prepare, nullptr, nullptr) + std::at_quick_exit([] { say("quick"); });
        }
    "#;
    let expected = ["prepare", "removed", "forked"];
    check("the_c_library_forgets_what_it_keeps_of_removed_code", &expected, || {
        let jit = talking(engine(0));
        add(&jit, "forks.o", FORKS);
        assert_eq!(call(&jit, "use"), 0);
        let fork = || {
            // SAFETY: the child ends at once.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child, by what at_quick_exit was told.
                unsafe { libc::_exit(0) };
            }
            let mut status = -1;
            // SAFETY: the child is ours.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
        };
        fork();
        jit.main_dylib().clear().expect("nothing goes wrong");
        say("removed");
        fork();
        say("forked");
        unsafe extern "C" {
            fn quick_exit(status: i32) -> !;
        }
        // SAFETY: the test is over.
        unsafe { quick_exit(0) };
    });
}

/// Two threads that initialise one plugin: one runs it, and the other finds it done.
#[test]
fn one_of_several_threads_initialises_and_the_others_find_it_done() {
    const COUNTS: &str = r#"
        #include <vector>
        static int begun = 0, done = 0;
        static const int counted = (++begun, std::vector<int>(100000, 1).size(), ++done);
        extern "C" int use() { return begun * 10 + done; }
    "#;
    check("one_of_several_threads_initialises_and_the_others_find_it_done", &["done"], || {
        let counts = cpp("counts.o", COUNTS);
        for _ in 0..50 {
            let jit = engine(1);
            jit.add_object(counts.clone()).expect("new names");
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        initialize(&jit);
                        assert_eq!(call(&jit, "use"), 11);
                    });
                }
            });
        }
        say("done");
    });
}

/// What comes and goes leaves nothing, in memory and in what is to run at exit.
#[test]
fn a_plugin_is_reloaded_a_thousand_times() {
    const RELOADED: &str = r#"
        static std::vector<std::string> words{"a plugin that is longer than what fits into a string"};
        static thread_local std::string local("a thread has its own, and that is long as well");
        static const int registered = std::atexit([] { words.push_back("at exit"); });
        extern "C" int use() {
            static std::vector<int> more(1000, 1);
            return static_cast<int>(words.size() + more.size() + local.size());
        }
    "#;
    const THREADS: usize = 4;
    const ROUNDS: usize = 250;
    check("a_plugin_is_reloaded_a_thousand_times", &["level"], || {
        let engines: Vec<Jit> = (0..THREADS).map(|_| talking(engine(1))).collect();
        let plugin = cpp(
            "reloaded.o",
            &format!("#include <cstdlib>\n#include <string>\n#include <vector>\n{RELOADED}"),
        );
        let round = |jit: &Jit| {
            jit.add_object(plugin.clone()).expect("the names are free");
            initialize(jit);
            // On a thread that ends: what it has of the plugin goes with it.
            std::thread::scope(|scope| {
                // A scope does not wait for destructors, as `join` does.
                scope.spawn(|| assert_eq!(call(jit, "use"), 1 + 1000 + 46)).join().expect("it ends well");
            });
            jit.main_dylib().clear().expect("nothing goes wrong");
            provide(jit, "host_say", host_say as *const ());
            assert_eq!(jit.memory_usage().allocations, 0);
        };
        let all = |rounds: usize| {
            std::thread::scope(|scope| {
                for jit in &engines {
                    scope.spawn(move || (0..rounds).for_each(|_| round(jit)));
                }
            });
        };
        all(ROUNDS / 5);
        let before = resident_kib();
        all(ROUNDS);
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 8 << 10, "{grown} KiB more");
        assert_eq!(registered_objects(), 0);
        say("level");
    });
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the system tells");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

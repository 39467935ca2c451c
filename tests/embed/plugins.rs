//! Shared parts of the tests of plugins: plugins in C++ that say what they do, and hosts in a process of their own.
//!
//! The standard output of a plugin is compared, so that what comes at the end of the process counts too.

use std::ffi::{CStr, c_char};
use std::io::Write as _;

use uruk::Jit;
use uruk::core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags, absolute_symbols};

use crate::support::{alone, cpp, engine, is_alone};

/// Begins what is said, among the lines of the test harness.
const MARK: &str = "> ";

pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "\n{MARK}{text}").and_then(|()| out.flush()).expect("somebody reads");
}

/// Plugins call this to say something.
pub(crate) unsafe extern "C" fn host_say(text: *const c_char) {
    // SAFETY: the plugins of these tests give terminated strings.
    say(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
}

/// Runs `embedder`, the test `name` of this binary, in a process of its own, which has to end well after having said `expected`.
pub(crate) fn check(name: &str, expected: &[&str], embedder: impl FnOnce()) {
    if is_alone() {
        return embedder();
    }
    let output = alone(name);
    let text = String::from_utf8_lossy(&output.stdout);
    let said: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(MARK)).collect();
    assert_eq!(said, expected, "{output:?}");
    assert!(output.status.success(), "{output:?}");
}

/// Lets the plugins of `jit` call `function` by `name`.
pub(crate) fn provide(jit: &Jit, name: &str, function: *const ()) {
    let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
    let definition = ExecutorSymbolDef::new(ExecutorAddr::from_ptr(function), flags);
    let symbols = [(jit.intern(name), definition)].into_iter().collect();
    jit.main_dylib().define(absolute_symbols(symbols)).expect("a new name");
}

/// Adds a plugin that may `say` something, and says so when a `Named` object begins and ends.
pub(crate) fn add(jit: &Jit, name: &str, source: &str) {
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

pub(crate) fn talking(jit: Jit) -> Jit {
    provide(&jit, "host_say", host_say as *const ());
    jit
}

pub(crate) fn call(jit: &Jit, name: &str) -> i32 {
    // SAFETY: the functions that the tests call have this signature, and the engine outlives the call.
    let function: extern "C" fn() -> i32 = unsafe { jit.function(name) }.expect("it links");
    function()
}

pub(crate) fn initialize(jit: &Jit) {
    // SAFETY: the plugins of these tests are sound.
    unsafe { jit.initialize() }.expect("it links");
}

pub(crate) fn deinitialize(jit: &Jit) {
    // SAFETY: as above, and they are not called afterwards.
    unsafe { jit.deinitialize() };
}

/// Static objects of each kind, handlers and finalisers.
pub(crate) const PLUGIN: &str = r#"
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

pub(crate) const BEGINNING: [&str; 5] =
    ["begin first", "begin second", "begin third", "begin local", "used 3"];
pub(crate) const ENDING: [&str; 6] =
    ["end local", "end third", "atexit", "end second", "end first", "finalize"];

pub(crate) fn begin_and_use() -> Jit {
    let jit = talking(engine(1));
    add(&jit, "plugin.o", PLUGIN);
    initialize(&jit);
    say(&format!("used {}", call(&jit, "use")));
    jit
}

/// The words from the beginning on: `parts`, one after another.
pub(crate) fn all<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

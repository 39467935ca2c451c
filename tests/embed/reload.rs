//! Plugins in C++ that come and go.

use uruk::Jit;
use uruk::pipeline::runtime::unwind::registered_objects;

use crate::plugins::*;
use crate::support::{cpp, engine};

/// Code that comes and goes leaves nothing, in memory and in what is to run at exit.
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
    check("reload::a_plugin_is_reloaded_a_thousand_times", &["level"], || {
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

/// A file that missed something could not be added again when that had come, but by removing its tracker.
#[cfg(feature = "llvm")]
#[test]
fn a_file_that_has_failed_can_be_added_again() {
    let jit = crate::support::engine(1);
    let file = "declare i64 @missing() define i64 @answer() { %x = call i64 @missing() ret i64 %x }";
    let add = || jit.add_ir_text("file.ll", file);
    add().expect("new names");
    assert!(jit.lookup("answer").is_err());
    jit.add_ir_text("other.ll", "define i64 @missing() { ret i64 42 }").expect("a new name");
    add().expect("what has failed makes room");
    // SAFETY: the function has this signature.
    let answer = unsafe { jit.get::<extern "C" fn() -> i64>("answer") }.expect("nothing is missing");
    assert_eq!(answer(), 42);
    assert!(add().is_err(), "it is there");
}

//! Plugins in C++: how they begin, and which thread begins them.

use std::sync::LazyLock;

use uruk::Jit;
use uruk::core::sync::Latch;
use uruk::core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags, absolute_symbols};

use crate::plugins::*;
use crate::support::{block_on, cpp, engine};

#[test]
fn lookups_initialise_if_they_are_asked_to() {
    let expected = all(&[&BEGINNING[..3], &["looked up"], &BEGINNING[3..], &ENDING]);
    check("beginnings::lookups_initialise_if_they_are_asked_to", &expected, || {
        let built = Jit::builder().threads(1).initialize_on_lookup(true).build();
        let jit = talking(built.expect("an engine for this machine"));
        add(&jit, "plugin.o", PLUGIN);
        jit.lookup("use").expect("it links");
        say("looked up");
        say(&format!("used {}", call(&jit, "use")));
    });
}

/// Handles and awaited lookups gave the address of a function whose static objects were not constructed.
#[test]
fn handles_and_awaited_lookups_initialise_as_well() {
    check("beginnings::handles_and_awaited_lookups_initialise_as_well", &["3", "3", "3"], || {
        const USED: &str =
            "static std::vector<int> v(3); extern \"C\" int use() { return static_cast<int>(v.size()); }";
        for way in 0..3 {
            let built = Jit::builder().threads(1).initialize_on_lookup(true).build();
            let jit = talking(built.expect("an engine for this machine"));
            add(&jit, "plugin.o", USED);
            type Use = extern "C" fn() -> i32;
            let size = match way {
                // SAFETY: the plugin defines `use` so, and the engine outlives the call.
                0 => unsafe { jit.get::<Use>("use") }.expect("it links")(),
                // SAFETY: as above.
                1 => block_on(unsafe { jit.get_async::<Use>("use") }).expect("it links")(),
                _ => {
                    block_on(jit.lookup_async("use")).expect("it links");
                    assert!(!jit.platform().has_uninitialized());
                    // SAFETY: as above. This looks up, and initialises nothing more.
                    unsafe { jit.function::<Use>("use") }.expect("it is Ready")()
                }
            };
            assert!(!jit.platform().has_uninitialized());
            say(&size.to_string());
        }
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
    check("beginnings::an_initialiser_may_initialise", &expected, || {
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
        let other = jit.in_dylib(&other);
        // SAFETY: both plugins are sound.
        unsafe { other.initialize() }.expect("it links");
    }
    check("beginnings::two_threads_whose_plugins_initialise_each_other_both_end", &["both"], || {
        let jit = engine(1);
        ENGINE.set((&raw const jit).expose_provenance()).expect("nobody else does");
        let dylibs = [("a", 1), ("b", 0)].map(|(name, is_a)| {
            let dylib = jit.create_dylib(name).expect("a new name");
            let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
            let address = ExecutorAddr::from_ptr(initialize_other as *const ());
            let definition = ExecutorSymbolDef::new(address, flags);
            let symbols = [(jit.intern("initialize_other"), definition)].into_iter().collect();
            dylib.dylib().define(absolute_symbols(symbols)).expect("a new name");
            let source = format!(
                "extern \"C\" void initialize_other(int);
                 static const int begun = (initialize_other({is_a}), 1);
                 extern \"C\" int use() {{ return begun; }}"
            );
            dylib.add_object(cpp(name, &source)).expect("new names");
            dylib
        });
        std::thread::scope(|scope| {
            for dylib in &dylibs {
                // SAFETY: both plugins are sound.
                scope.spawn(move || unsafe { dylib.initialize() }.expect("it links"));
            }
        });
        say("both");
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
    check("beginnings::one_of_several_threads_initialises_and_the_others_find_it_done", &["done"], || {
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

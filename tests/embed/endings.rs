//! Plugins in C++: how they end.
//!
//! A static `std::vector` was destroyed when the process ended, by the C library, long after its code and its data had gone with the
//! engine: a program that had done everything right died of SIGSEGV as it returned from `main`.

use std::sync::LazyLock;

use uruk::Jit;
use uruk::core::sync::Latch;

use crate::plugins::*;
use crate::support::{cpp, engine};

#[test]
fn a_plugin_ends_with_the_engine() {
    check("endings::a_plugin_ends_with_the_engine", &all(&[&BEGINNING, &ENDING, &["dropped"]]), || {
        drop(begin_and_use());
        say("dropped");
    });
}

#[test]
fn a_plugin_ends_with_the_process_if_the_engine_is_still_there() {
    let name = "endings::a_plugin_ends_with_the_process_if_the_engine_is_still_there";
    check(name, &all(&[&BEGINNING, &["main is over"], &ENDING]), || {
        Box::leak(Box::new(begin_and_use())); // as an engine in a static
        say("main is over");
    });
}

#[test]
fn a_plugin_that_is_removed_ends_before() {
    check(
        "endings::a_plugin_that_is_removed_ends_before",
        &all(&[&BEGINNING, &ENDING, &["removed"]]),
        || {
            let jit = begin_and_use();
            jit.main_dylib().clear().expect("nothing goes wrong");
            say("removed");
        },
    );
}

#[test]
fn a_plugin_ends_with_a_session_that_somebody_closes() {
    let name = "endings::a_plugin_ends_with_a_session_that_somebody_closes";
    check(name, &all(&[&BEGINNING, &ENDING, &["closed"]]), || {
        let jit = begin_and_use();
        jit.session().close().expect("nothing goes wrong");
        say("closed");
    });
}

#[test]
fn what_was_deinitialised_neither_ends_nor_begins_again() {
    let name = "endings::what_was_deinitialised_neither_ends_nor_begins_again";
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
    check("endings::handlers_may_register_handlers", &expected, || {
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
    check("endings::all_that_goes_together_ends_before_any_of_it_goes", &expected, || {
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
    check("endings::a_handler_runs_before_its_function_or_its_object_goes", &expected, || {
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
        // SAFETY: `uses` is not called again.
        drop(unsafe { jit.remove_tracker_leaving_dependants(&tracker) }.expect("nothing goes wrong"));
        say("removed");
    });
}

static SESSION: std::sync::OnceLock<uruk::core::ExecutionSession> = std::sync::OnceLock::new();

/// A plugin's handler calls this to look something up that was not linked so far.
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
    check("endings::a_handler_may_look_up_symbols_while_the_engine_goes", &["found", "dropped"], || {
        drop(look_up_at_the_end());
        say("dropped");
    });
}

/// There would be no answer.
#[test]
fn a_handler_that_looks_up_symbols_of_a_closed_session_is_refused() {
    let name = "endings::a_handler_that_looks_up_symbols_of_a_closed_session_is_refused";
    check(name, &["refused", "closed"], || {
        let jit = look_up_at_the_end();
        jit.session().close().expect("nothing goes wrong");
        say("closed");
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
    check("endings::code_stays_while_another_thread_runs_a_handler_of_it", &expected, || {
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
    check("endings::a_handler_may_exit", &["begin named", "exit", "end named"], || {
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
    check("endings::the_c_library_forgets_what_it_keeps_of_removed_code", &expected, || {
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

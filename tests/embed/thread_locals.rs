//! Plugins in C++ with `thread_local` objects: their code stays as long as a thread has some.

use std::sync::{Arc, mpsc};

use uruk::Jit;
use uruk::pipeline::memory::{InProcessMemoryManager, MemoryManager};
use uruk::pipeline::runtime::unwind::registered_objects;

use crate::plugins::*;
use crate::support::engine;

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
    check("thread_locals::code_of_thread_locals_stays_until_their_threads_have_ended", &expected, || {
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
    check("thread_locals::thread_locals_of_the_main_thread_end_when_it_does", &expected, || {
        let jit = talking(engine(1));
        add(&jit, "local.o", LOCAL);
        call(&jit, "use");
        drop(jit);
        say("dropped");
    });
}

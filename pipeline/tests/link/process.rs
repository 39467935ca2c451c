//! Several objects linked as a session would link them, with the process side's help: exceptions, thread-local
//! variables, indirect functions, position-independent executables' objects, Rust.

use std::path::PathBuf;
use std::process::Command;

use crate::link_support::*;
use crate::running::*;
use uruk_pipeline::memory::{InProcessMemoryManager, MemoryOptions};
use uruk_pipeline::runtime::process::ProcessSymbols;

/// Links `objects` together: the first definition of a name counts.
fn start(objects: &[Vec<u8>], libraries: &[PathBuf]) -> Running {
    let process = ProcessSymbols::new();
    // Objects of position-independent executables count on the libraries' variables being within reach. A range
    // lies below what is loaded by then; and many ranges have to fit within reach here.
    process.lookup("_ZSt4cout");
    for library in libraries {
        process.load_library(library).expect("the library loads");
    }
    let options = MemoryOptions { reserve_bytes: Some(64 << 20), ..MemoryOptions::default() };
    let memory = InProcessMemoryManager::with_options(options).expect("address space");
    start_in(Box::new(memory), &process, objects).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn exceptions_cross_objects_and_statics_are_shared() {
    // libstdc++'s headers, where there are any.
    if !Command::new("c++").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return;
    }
    for tool in compilers() {
        for flags in
            [&["-fPIC"][..], &["-fPIC", "-O2"], &["-fPIE", "-O2"], &["-fPIC", "-mcmodel=large", "-O1"]]
        {
            // Thread-local variables of position-independent executables sit in the executable's own block.
            let catcher =
                if flags[0] == "-fPIE" { CATCHER.replace("thread_local", "static") } else { CATCHER.into() };
            let objects = [compile(tool, "cpp", THROWER, flags), compile(tool, "cpp", &catcher, flags)];
            // Destructors of the program run when the thread and the process end: the code has to be there.
            let running = Box::leak(Box::new(start(&objects, &[])));
            let expected = 7 + 50 + 100 + 11 * 1000 + 200_000 + 1_000_000 + 30_000_000;
            assert_eq!(running.call("run"), expected, "{tool:?} {flags:?}");
            assert_eq!(running.call("run"), expected + 11 * 1000 + 200_000, "{tool:?} {flags:?}");
        }
    }
}

#[test]
fn thread_local_variables_are_each_threads_own_and_shared_between_objects() {
    let first = "__thread long shared = 5; static __thread long own[100]; long bump(void) { own[99]++; return ++shared * 10 + own[99]; }";
    let second = "extern __thread long shared; static __thread char text[] = \"abc\"; long bump(void);
        long run(void) { bump(); text[1]++; return bump() * 100 + shared + (text[1] - 'b') * 10000; }";
    for tool in compilers() {
        for flags in [&["-fPIC"][..], &["-fPIC", "-O2"], &["-fPIC", "-fno-plt"], &["-fPIC", "-mcmodel=large"]]
        {
            let running = start(&[compile(tool, "c", first, flags), compile(tool, "c", second, flags)], &[]);
            assert_eq!(running.call("run"), 7207 + 10000, "{tool:?} {flags:?}");
            assert_eq!(running.call("run"), 9409 + 20000, "{tool:?} {flags:?}");
            let other = std::thread::scope(|scope| scope.spawn(|| running.call("run")).join());
            assert_eq!(other.expect("no panic"), 7207 + 10000, "{tool:?} {flags:?}");
        }
    }
}

#[test]
fn thread_local_variables_of_libraries_are_reached() {
    let source = "#include <errno.h>\n#include <stdlib.h>\nlong run(void) { errno = 0; strtol(\"99999999999999999999\", 0, 10); return errno == ERANGE; }";
    assert_eq!(start(&[compile(CC, "c", source, &["-fPIC"])], &[]).call("run"), 1);
}

#[test]
fn indirect_functions_are_chosen_once_and_keep_their_arguments() {
    let source = "
        static long calls;
        static double slow(double a, double b, int c, long *d) { return a * b + c + *d; }
        static void *resolve(void) { calls++; return (void *)slow; }
        double chosen(double, double, int, long *) __attribute__((ifunc(\"resolve\")));
        __attribute__((target_clones(\"avx2\", \"default\"))) long clones(long x) { long s = 0; for (long i = 0; i < x; i++) s += i * i; return s; }
        double (*pointer)(double, double, int, long *) = chosen;
        long run(void) { long d = 3; double first = chosen(2.5, 4, 7, &d); return (long)first + (long)pointer(1, 1, 1, &d) * 100 + calls * 10000 + (pointer == chosen) * 100000 + clones(10) * 1000000; }";
    // `target_clones` asks libgcc.a about the processor; here that is stood in for.
    let support = "struct { unsigned vendor, type, subtype, features[1]; } __cpu_model; unsigned __cpu_features2[8]; int __cpu_indicator_init(void) { return 0; }";
    for tool in compilers() {
        for flags in [&["-fPIC"][..], &["-fPIC", "-O2"], &["-fPIC", "-mcmodel=large"]] {
            let objects = [compile(tool, "c", support, &["-fPIC"]), compile(tool, "c", source, flags)];
            assert_eq!(
                start(&objects, &[]).call("run"),
                20 + 500 + 10000 + 100_000 + 285_000_000,
                "{tool:?} {flags:?}"
            );
        }
    }
}

#[test]
fn objects_of_position_independent_executables_reach_the_c_library() {
    let source = "
        #include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <math.h>\n#include <unistd.h>
        extern char **environ;
        static int by_length(const void *a, const void *b) { return (int)strlen(*(char **)a) - (int)strlen(*(char **)b); }
        long run(void) {
            const char *words[] = { \"three\", \"a\", \"to\" };
            qsort(words, 3, sizeof *words, by_length);
            int (*function)(const char *, ...) = printf;
            return words[0][0] + (stderr != 0) * 1000 + (environ != 0) * 10000 + (function == printf) * 100000;
        }";
    for tool in compilers() {
        for flags in [&["-fPIE"][..], &["-fPIE", "-O2"]] {
            assert_eq!(
                start(&[compile(tool, "c", source, flags)], &[]).call("run"),
                111_097,
                "{tool:?} {flags:?}"
            );
        }
    }
}

#[test]
fn rust_objects_run_with_panics_threads_and_thread_locals() {
    let source = r#"
        use std::cell::Cell;
        use std::collections::HashMap;
        struct Noisy(&'static str);
        impl Drop for Noisy { fn drop(&mut self) { COUNT.with(|count| count.set(count.get() + 1)); } }
        thread_local! { static COUNT: Cell<i64> = const { Cell::new(0) }; static MAP: Cell<HashMap<i64, i64>> = Cell::default(); }
        fn fail(depth: i64) -> i64 { let _noisy = Noisy("x"); if depth == 0 { std::panic::resume_unwind(Box::new(5_i64)) } fail(depth - 1) + 1 }
        #[unsafe(no_mangle)] pub extern "C" fn run() -> i64 {
            let caught = std::panic::catch_unwind(|| fail(9)).unwrap_err();
            let value = *caught.downcast::<i64>().unwrap();
            let other = std::thread::spawn(|| { let _noisy = Noisy("y"); drop(_noisy); COUNT.with(Cell::get) }).join().unwrap();
            let mut map = MAP.with(Cell::take); map.insert(3, value);
            value + other * 10 + COUNT.with(Cell::get) * 100 + map[&3] * 10000 + format!("{:?}", vec![1.5; 3]).len() as i64 * 100000
        }"#;
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let Ok(output) = Command::new(&rustc).args(["--print", "sysroot"]).output() else { return };
    let root = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let Ok(listing) = std::fs::read_dir(root.join("lib")) else { return };
    let is_std =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libstd-"));
    let Some(library) = listing.flatten().map(|entry| entry.path()).find(is_std) else { return };

    let directory = std::env::temp_dir();
    let input = directory.join(format!("uruk-link-rust-{}.rs", std::process::id()));
    std::fs::write(&input, source).expect("the temporary directory is writable");
    for level in ["0", "2"] {
        let object = input.with_extension("o");
        let result = Command::new(&rustc)
            .args(["--edition", "2024", "--crate-type", "cdylib", "--emit", "obj", "-C", "prefer-dynamic"])
            .args(["-C", "codegen-units=1", "-C", &format!("opt-level={level}"), "-o"])
            .args([&object, &input])
            .output()
            .expect("rustc starts");
        assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
        let bytes = std::fs::read(&object).expect("the object");
        let running = start(&[bytes], std::slice::from_ref(&library));
        assert_eq!(running.call("run"), 5 + 10 + 1000 + 50_000 + 15 * 100_000, "opt-level {level}");
        let _ = std::fs::remove_file(&object);
    }
    let _ = std::fs::remove_file(&input);
}

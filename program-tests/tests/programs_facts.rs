//! Facts that LLVM may use of a global or a function hold in every mode: also where a function is compiled without its module, or a module
//! in parts.
//!
//! Each program of `program-tests/programs/facts` is one row, or a few, of the table in `pipeline/src/ir/README.md`. Its first line says what it
//! writes. There is no native twin: the same line has to come in every mode.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::compile;
use uruk_tests::process::{End, Input, run};
use uruk_tests::uruk::uruk;

/// The modes of the same program as an object, which a compiler has made.
const OBJECT_MODES: [&[&str]; 4] =
    [&[], &["--lazy"], &["--lazy=module"], &["--tiered", "--tier-threshold=1", "--tier-delay=0"]];

/// The modes; `CACHE` stands for a folder that is empty before the first run.
const MODES: [&[&str]; 9] = [
    &["-O0"],
    &["-O2"],
    &["-O0", "--lazy"],
    &["-O2", "--lazy"],
    &["-O2", "--lazy=module"],
    &["--tiered", "--tier-threshold=1", "--tier-delay=0"],
    &["-O2", "--partition=early", "--parts=8"],
    &["-O2", "--partition=late", "--parts=8"],
    &["-O1", "--lazy", "--cache", CACHE],
];

const CACHE: &str = "CACHE";

macro_rules! facts {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )+

        #[test]
        fn every_program_here_is_listed() {
            let mut listed = vec![$(concat!(stringify!($name), ".ll").to_owned()),+];
            listed.sort_unstable();
            let entries = std::fs::read_dir(folder()).expect("the folder is there");
            let mut present: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            present.sort_unstable();
            assert_eq!(listed, present);
        }
    };
}

facts! {
    alias_into_array, aliases, aliases_of_locals, aligned_differently, aligned_functions, associated, before_first_function, blocks_of_others,
    checked_calls, collectors, data_at_start, interrupt, labels_of_assembly, local_and_exported, padding_before_code, patchable_functions, registers,
    root_chain, stack_maps, tentative_in_assembly, words_before_code,
}

/// Callers read the words before a function, in another object too; and code of one section takes an address that no linker sees.
#[test]
fn objects_whose_functions_are_more_than_stubs_are_linked_before() {
    const CHECKED: &str = r#"
        #include <stdio.h>
        static int twice(int x) { return 2 * x; }
        int thrice(int x) { return 3 * x; }
        int (*volatile functions[])(int) = {twice, thrice};
        int main(void) { printf("%d %d\n", functions[0](5), functions[1](5)); return 0; }
    "#;
    const NAMED_TWICE: &str = r#"
        #include <stdio.h>
        static int local(int x) { return x; }
        extern int exported(int) __attribute__((alias("local")));
        int (*volatile seen)(int), (*volatile other)(int) = exported;
        int main(void) { seen = local; printf("%d\n", seen == other); return 0; }
    "#;
    // The word is an object of its own, as GHC's tables are.
    const TAGGED: &str = r#"
        #include <stdio.h>
        asm(".text; .p2align 4; .type word,@object; word: .quad 77; .size word,8;"
            ".globl tagged; .type tagged,@function; tagged: mov %edi,%eax; ret; .size tagged,.-tagged");
        int tagged(int);
        int (*volatile seen)(int) = tagged;
        int main(void) { printf("%d %ld\n", seen(5), ((long *)seen)[-1]); return 0; }
    "#;
    runs_lazily("kcfi.c", CHECKED, &["-O1", "-fsanitize=kcfi"], "10 15\n");
    runs_lazily(
        "sanitized.c",
        CHECKED,
        &["-O1", "-fsanitize=function", "-fsanitize-trap=function"],
        "10 15\n",
    );
    runs_lazily("named_twice.c", NAMED_TWICE, &["-O0"], "1\n");
    runs_lazily("tagged.c", TAGGED, &["-O1"], "5 77\n");
}

/// Each thread's copy is found by a call of a library of the compiler.
#[test]
fn emulated_thread_locals_are_each_threads_own() {
    const COUNTED: &str = r#"
        #include <pthread.h>
        #include <stdio.h>
        __thread int calls = 5;
        static __thread int locals;
        int *count(void) { locals++; return &calls; }
        int count_locals(void) { return locals; }
        void *in_thread(void *unused) { *count() += 2; printf("%d %d\n", calls, count_locals()); return unused; }
        int main(void) {
            pthread_t thread;
            pthread_create(&thread, 0, in_thread, 0);
            pthread_join(thread, 0);
            printf("%d %d\n", *count(), count_locals());
            return 0;
        }
    "#;
    runs_lazily("emulated.c", COUNTED, &["-O1", "-fPIC", "-femulated-tls"], "7 1\n5 1\n");
}

/// A part that refers to an alias finds the local function behind it, although another file defines its name for all.
#[test]
fn a_local_function_behind_an_alias_is_its_files() {
    const ALIASED: &str = r#"
        #include <stdio.h>
        static int impl(int x) { return x + 1; }
        static int value = 5;
        extern int first(int) __attribute__((alias("impl")));
        extern int data __attribute__((alias("value")));
        int second(int);
        __attribute__((noinline)) int a(int x) { return first(x) * 2; }
        __attribute__((noinline)) int b(int x) { return first(x) * 3 + data; }
        int main(void) { printf("%d %d %d\n", a(1), b(1), second(1)); return 0; }
    "#;
    const SAME_NAMES: &str = r#"
        int value = 100;
        int impl(int x) { return x + 1000; }
        int second(int x) { return impl(x) + value; }
    "#;
    const READABLE: [&str; 5] = ["-O0", "-Xclang", "-disable-O0-optnone", "-fPIE", "-emit-llvm"];
    let aliased = compile("aliased.c", ALIASED, &READABLE, "aliased.bc").expect("it compiles");
    let same = compile("same_names.c", SAME_NAMES, &READABLE, "same_names.bc").expect("it compiles");
    for partition in ["whole", "early", "late"] {
        for level in ["-O0", "-O2"] {
            let mut command = Command::new(uruk());
            command.args(["run", level, "--partition", partition, "--parts=8"]).args([&aliased, &same]);
            let outcome = run(&mut command, &Input::default(), Duration::from_secs(60));
            let outcome = outcome.expect("the command can be started");
            let stderr = String::from_utf8_lossy(&outcome.stderr);
            assert_eq!(outcome.end, End::Exited(0), "{}\n{stderr}", outcome.command);
            assert_eq!(String::from_utf8_lossy(&outcome.stdout), "4 11 1101\n", "{}", outcome.command);
        }
    }
}

/// Runs an object of `text` in all modes that objects have.
fn runs_lazily(source: &str, text: &str, flags: &[&str], expected: &str) {
    let object = compile(source, text, flags, &source.replace(".c", ".o")).expect("it compiles");
    for mode in OBJECT_MODES {
        let mut command = Command::new(uruk());
        command.arg("run").args(mode).arg(&object);
        let outcome = run(&mut command, &Input::default(), Duration::from_secs(60));
        let outcome = outcome.expect("the command can be started");
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.end, End::Exited(0), "{}\n{stderr}", outcome.command);
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), expected, "{}\n{stderr}", outcome.command);
    }
}

/// Type identifiers of virtual tables go into a module of their own, beside the one that uses them.
#[test]
fn a_file_of_two_modules_is_one_program() {
    const SHAPES: &str = r#"
        extern "C" int printf(const char *, ...);
        struct Shape { virtual int sides() { return 0; } virtual ~Shape() {} };
        struct Square : Shape { int sides() override { return 4; } };
        Shape *volatile shape = new Square;
        int main() { printf("%d\n", shape->sides()); return 0; }
    "#;
    const SPLIT: [&str; 5] =
        ["-O1", "-flto=thin", "-fsplit-lto-unit", "-fwhole-program-vtables", "-fvisibility=hidden"];
    let program = compile("shapes.cpp", SHAPES, &SPLIT, "shapes.bc").expect("it compiles");
    for mode in MODES.iter().filter(|mode| !mode.contains(&CACHE)) {
        let mut command = Command::new(uruk());
        let outcome =
            run(command.arg("run").args(*mode).arg(&program), &Input::default(), Duration::from_secs(60));
        let outcome = outcome.expect("the command can be started");
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!(outcome.end, End::Exited(0), "{}\n{stderr}", outcome.command);
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), "4\n", "{}\n{stderr}", outcome.command);
    }
}

/// Compilers leave tests of types to a link of all modules. Without that step every test is passed, and the program's author asked for none
/// of that: such a file is refused before any of it runs. Tests that only tell the optimizer something need no such step.
#[test]
fn type_tests_that_code_relies_on_are_refused_and_others_go() {
    const CALLS: &str = r#"
        extern "C" int printf(const char *, ...);
        struct Shape { virtual int sides() { return 0; } virtual ~Shape() {} };
        struct Square : Shape { int sides() override { return 4; } };
        __attribute__((noinline)) int count(Shape *shape) { return shape->sides(); }
        int main() { Shape shape; Square square; printf("%d %d\n", count(&shape), count(&square)); return 0; }
    "#;
    const CALLED_BY_POINTER: &str = r#"
        static int once(int x) { return x; }
        int (*volatile called)(int) = once;
        int main(void) { return called(0); }
    "#;
    const HIDDEN: [&str; 2] = ["-flto", "-fvisibility=hidden"];
    let made = |source: &str, text: &str, flags: &[&str], output: &str| {
        compile(source, text, &[&HIDDEN, flags].concat(), output).expect("it compiles")
    };
    let refused = [
        made("checked.cpp", CALLS, &["-O0", "-fsanitize=cfi"], "checked.bc"),
        made("checked.cpp", CALLS, &["-O2", "-fsanitize=cfi", "-flto=thin"], "checked_thin.bc"),
        made("by_pointer.c", CALLED_BY_POINTER, &["-O1", "-fsanitize=cfi-icall"], "by_pointer.bc"),
    ];
    const VTABLES: &str = "-fwhole-program-vtables";
    const ELIMINATED: &str = "-fvirtual-function-elimination";
    let run_as_they_are = [
        made("assumed.cpp", CALLS, &["-O0", VTABLES], "assumed.bc"),
        made("assumed.cpp", CALLS, &["-O2", VTABLES, "-fvisibility=default"], "assumed_public.bc"),
        made("assumed.cpp", CALLS, &["-O1", VTABLES, ELIMINATED], "eliminated.bc"),
        made(
            "assumed.cpp",
            CALLS,
            &["-O1", VTABLES, ELIMINATED, "-fexperimental-relative-c++-abi-vtables"],
            "relative.bc",
        ),
    ];
    let others: [&[&str]; 2] = [&["--compile-in-helpers=1"], &["--executor"]];
    for mode in MODES.iter().filter(|mode| !mode.contains(&CACHE)).chain(&others) {
        for (program, is_refused) in refused
            .iter()
            .map(|program| (program, true))
            .chain(run_as_they_are.iter().map(|program| (program, false)))
        {
            let mut command = Command::new(uruk());
            let outcome =
                run(command.arg("run").args(*mode).arg(program), &Input::default(), Duration::from_secs(60));
            let outcome = outcome.expect("the command can be started");
            let (stdout, stderr) =
                (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
            let end = End::Exited(if is_refused { 1 } else { 0 });
            assert_eq!(outcome.end, end, "{}\n{stderr}", outcome.command);
            assert_eq!(stdout, if is_refused { "" } else { "0 4\n" }, "{}\n{stderr}", outcome.command);
            assert_eq!(stderr.contains("or compile without -fsanitize=cfi"), is_refused, "{stderr}");
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/facts")
}

fn check(name: &str) {
    let program = folder().join(name).with_extension("ll");
    let text = std::fs::read_to_string(&program).expect("the program is there");
    let expected = text.lines().next().and_then(|line| line.strip_prefix("; stdout: "));
    let expected = format!("{}\n", expected.expect("the first line says what it writes"));
    let object = format!("{name}.o");
    let object = compile(&format!("{name}.ll"), &text, &["-O1", "-fPIC", "-Wno-override-module"], &object);
    let object = object.expect("it compiles");
    let cache = std::env::temp_dir().join(format!("uruk-facts-{}-{name}", std::process::id()));
    let mut findings = Vec::new();
    let modules = MODES.iter().map(|mode| (*mode, &program));
    for (mode, file) in modules.chain(OBJECT_MODES.iter().map(|mode| (*mode, &object))) {
        // The second run finds in the cache what the first has stored.
        let runs = if mode.contains(&CACHE) { 2 } else { 1 };
        for _ in 0..runs {
            let mut command = Command::new(uruk());
            command.arg("run");
            for option in mode {
                if *option == CACHE {
                    command.arg(&cache)
                } else {
                    command.arg(option)
                };
            }
            let outcome = run(command.arg(file), &Input::default(), Duration::from_secs(60));
            let outcome = outcome.expect("the command can be started");
            let stdout = String::from_utf8_lossy(&outcome.stdout);
            if outcome.end != End::Exited(0) || stdout != expected {
                let stderr = String::from_utf8_lossy(&outcome.stderr);
                findings.push(format!("{}: {}, {stdout:?}\n{stderr}", outcome.command, outcome.end));
            }
        }
    }
    std::fs::remove_dir_all(&cache).expect("the command has made it");
    assert!(findings.is_empty(), "{} wrote not {expected:?}:\n{}", program.display(), findings.join("\n"));
}

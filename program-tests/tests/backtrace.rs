//! `--backtrace`: a program that a fault ends shows its frames by name, and ends as it would natively.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::{compile, linked};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <stdlib.h>
    #include <string.h>
    static volatile int sink;
    __attribute__((noinline)) static void innermost(const char *way) {
        if (!strcmp(way, "fault")) *(volatile int *)8 = 1;
        if (!strcmp(way, "abort")) abort();
        if (!strcmp(way, "call")) ((void (*)(void))16)();
        if (!strcmp(way, "trap")) __builtin_trap();
        sink++;
    }
    __attribute__((noinline)) void middle(const char *way) { innermost(way); sink++; }
    static int deep(int n) { volatile char room[4096]; room[0] = n; return deep(n + 1) + room[0]; }
    static int compare(const void *left, const void *right) { middle(getenv("WAY")); return 0; }
    static void *on_thread(void *way) { middle(way); sink++; return way; }
    int main(int argc, char **argv) {
        int two[2] = {2, 1};
        if (!strcmp(argv[1], "deep")) return deep(0);
        if (argc > 2 && !strcmp(argv[2], "thread")) {
            pthread_t thread;
            pthread_create(&thread, NULL, on_thread, argv[1]);
            pthread_join(thread, NULL);
        }
        setenv("WAY", argv[1], 1);
        qsort(two, 2, sizeof *two, compare);
        sink++;
        return 0;
    }
"#;

fn outcome(options: &[&str], file: &Path, args: &[&str]) -> Outcome {
    let mut command = Command::new(uruk());
    command.arg("run").args(options).arg(file).arg("--").args(args);
    run(&mut command, &Input::default(), Duration::from_secs(600)).expect("it can be started")
}

/// The names in the report's frames, innermost first.
fn names(outcome: &Outcome) -> Vec<String> {
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let frames = stderr.lines().filter_map(|line| line.trim_start().split_once(": 0x")?.1.split_once(' '));
    frames.map(|(_, name)| name.split('+').next().unwrap_or_default().to_owned()).collect()
}

/// Whether `wanted` stand in `names` in that order, with others between them.
fn in_order(names: &[String], wanted: &[&str]) -> bool {
    let mut names = names.iter();
    wanted.iter().all(|wanted| names.any(|name| name == wanted))
}

fn programs() -> Vec<(&'static str, std::path::PathBuf)> {
    let bitcode = compile("frames.c", PROGRAM, &["-O1", "-emit-llvm"], "frames.bc").expect("it compiles");
    let object = compile("frames.c", PROGRAM, &["-O1", "-fPIC", "-fomit-frame-pointer"], "frames.o");
    vec![("bitcode", bitcode), ("object", object.expect("it compiles"))]
}

/// Frames were not found, or by addresses alone. The one of `qsort` is the C library's, and stands between ours.
#[test]
fn frames_have_names_through_libraries_and_on_threads() {
    for (kind, file) in programs() {
        for options in [&["--backtrace"][..], &["--backtrace", "--lazy=module"]] {
            for (way, signal) in [("fault", 11), ("abort", 6), ("call", 11), ("trap", 4)] {
                let ended = outcome(options, &file, &[way]);
                let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
                assert_eq!(ended.end, End::Killed(signal), "{kind} {options:?} {way}: {stderr}");
                let names = names(&ended);
                let wanted = ["innermost", "middle", "compare", "libc.so.6", "main", "the command"];
                assert!(in_order(&names, &wanted), "{kind} {options:?} {way}: {stderr}");
            }
        }
        let ended = outcome(&["--backtrace"], &file, &["fault", "thread"]);
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(in_order(&names(&ended), &["innermost", "middle", "on_thread"]), "{kind}: {stderr}");
    }
}

/// The report runs on a stack of its own, and stops after so many frames.
#[test]
fn a_full_stack_is_reported_too() {
    let file = &programs()[0].1;
    let ended = outcome(&["--backtrace"], file, &["deep"]);
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.end, End::Killed(11), "{stderr}");
    assert_eq!(names(&ended).iter().filter(|name| *name == "deep").count(), 64, "{stderr}");
    assert!(stderr.contains("... and more"), "{stderr}");
}

/// The end is that of a native process, and without the option nothing is written.
#[test]
fn nothing_is_written_unasked_and_the_end_is_the_same() {
    let native = linked("frames.c", PROGRAM, &["-O1"], "frames").expect("it compiles");
    let file = &programs()[0].1;
    for way in ["fault", "abort", "none"] {
        let native = run(Command::new(&native).arg(way), &Input::default(), Duration::from_secs(60));
        let native = native.expect("it can be started");
        let silent = outcome(&[], file, &[way]);
        assert_eq!((silent.end, silent.stderr.is_empty()), (native.end, true), "{way}");
        assert_eq!(outcome(&["--backtrace"], file, &[way]).end, native.end, "{way}");
    }
}

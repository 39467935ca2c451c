//! Functions that code generation alone refers to: no file of the program names them, and compilers have libraries of them.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::linked;
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

fn run_with(options: &[&str], files: &[PathBuf]) -> Outcome {
    let mut command = Command::new(uruk());
    command.arg("run").args(options).args(files);
    run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it starts")
}

const SMALL_FLOATS: &str = "
    #include <stdio.h>
    __attribute__((noinline)) __bf16 of_float(float a) { return (__bf16)a; }
    __attribute__((noinline)) __bf16 of_double(double a) { return (__bf16)a; }
    __attribute__((noinline)) _Float16 half(float a) { return (_Float16)a; }
    __attribute__((noinline)) __float128 twice(__float128 a) { return a + a; }
    int main(int count, char **arguments) {
        (void)arguments;
        printf(\"%g %g %g %g\\n\", (float)of_float(1.00390625f * count), (float)of_double(3.0 * count), (float)half(0.5f * count), (double)twice(4 * count));
        return 0;
    }";

/// GCC's library lacks helpers for `__bf16`. With `--lazy` and `--tiered` the program was ended in its middle.
#[test]
fn helpers_of_code_generation_are_found_in_the_library_of_clang_too() {
    let bitcode =
        linked("small.c", SMALL_FLOATS, &["-O1", "-emit-llvm", "-c"], "small.bc").expect("it compiles");
    let object = linked("small.c", SMALL_FLOATS, &["-O1", "-fPIC", "-c"], "small.o").expect("it compiles");
    for options in [&[][..], &["-O0"], &["--lazy"], &["--lazy=module"], &["--tiered"], &["--executor"]] {
        for file in [&bitcode, &object] {
            let outcome = run_with(options, std::slice::from_ref(file));
            let stderr = String::from_utf8_lossy(&outcome.stderr);
            assert_eq!(
                (outcome.end, &*outcome.stdout),
                (End::Exited(0), &b"1 3 0.5 8\n"[..]),
                "{options:?}: {stderr}"
            );
        }
    }
}

/// The advice was to use the helper of another type.
#[test]
fn a_helper_that_is_nowhere_is_told_as_one() {
    let text = "int __truncnobf2(int); int main(void) { return __truncnobf2(1); }";
    let object = linked("nowhere.c", text, &["-O1", "-fPIC", "-c"], "nowhere.o").expect("it compiles");
    let outcome = run_with(&[], &[object]);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Exited(1), "{stderr}");
    assert!(stderr.contains("install clang's library") && !stderr.contains("did you mean"), "{stderr}");
}

/// Functions are compiled when they are called, so the program was ended by `abort` in its middle.
#[test]
fn a_helper_that_is_nowhere_is_refused_at_start() {
    let hidden = "for directory in /usr/lib/llvm-*/lib/clang /usr/lib/clang /usr/lib64/clang; do test ! -d $directory || mount -t tmpfs none $directory || exit; done; ";
    let apart = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", &[hidden, script].concat()]);
        run(&mut command, &Input::default(), Duration::from_secs(60)).ok()
    };
    if !apart("true").is_some_and(|outcome| outcome.end == End::Exited(0)) {
        // Nothing is left to say without a reader.
        let _ = writeln!(std::io::stderr(), "skipped: directories cannot be hidden here");
        return;
    }
    let bitcode =
        linked("small.c", SMALL_FLOATS, &["-O1", "-emit-llvm", "-c"], "small.bc").expect("it compiles");
    for option in ["-O1", "--lazy", "--lazy=module", "--tiered"] {
        let outcome = apart(&format!("exec {} run {option} {}", uruk().display(), bitcode.display()));
        let Outcome { end, stdout, stderr, .. } = outcome.expect("it starts");
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!((end, &*stdout), (End::Exited(1), &b""[..]), "{option}: {stderr}");
        assert!(
            stderr.contains("fbf2` is a function of compilers") && stderr.contains("install clang's library"),
            "{option}: {stderr}"
        );
    }
}

//! `uruk run --compile-in-helpers`: programs run as without it, and a file that ends its compiler ends nothing else.

use std::process::Command;
use std::time::Duration;

use uruk_tests::forms::Form;
use uruk_tests::inputs::{bitcode, file};
use uruk_tests::matrix::{Compiles, Variant};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::program::Program;
use uruk_tests::uruk::uruk;

fn run_with(options: &[&str], files: &[std::path::PathBuf]) -> Outcome {
    let mut command = Command::new(uruk());
    command.arg("run").args(options).args(files);
    run(&mut command, &Input::default(), Duration::from_secs(120)).expect("it starts")
}

#[test]
fn programs_run_as_without_helpers() {
    let names = [
        "c/arguments",
        "c/constructors",
        "c/common_symbols",
        "c/fork_wait",
        "c/signal_handlers",
        "c/thread_locals",
        "c/visibility",
        "c/weak_override",
        "cxx/comdat",
        "cxx/exceptions",
        "cxx/rtti",
        "cxx/statics",
    ];
    for name in names {
        let of = |form, level, jobs| Variant { form, level, jobs, compiles: Compiles::InHelpers };
        let variants = [of(Form::BitcodeO0, 2, 2), of(Form::Text, 0, 1), of(Form::Mixed, 2, 2)];
        Program::load(name).expect("the program is there").check_variants(&variants);
    }
}

/// The program waits for all of its children, and looks for LLVM in its own process.
#[test]
fn the_program_has_no_children_and_no_llvm() {
    let program = r#"
        #include <errno.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/wait.h>
        int main(void) {
            char line[4096];
            FILE *maps = fopen("/proc/self/maps", "r");
            while (fgets(line, sizeof line, maps)) if (strstr(line, "libLLVM")) return 1;
            return wait(NULL) == -1 && errno == ECHILD ? 0 : 2;
        }
    "#;
    let program = bitcode("program.c", program).expect("it compiles");
    let outcome = run_with(&["--compile-in-helpers"], std::slice::from_ref(&program));
    assert_eq!(outcome.end, End::Exited(0), "{}", String::from_utf8_lossy(&outcome.stderr));
    let here = run_with(&[], &[program]);
    assert_eq!(here.end, End::Exited(1), "without helpers LLVM is there");
}

#[test]
fn a_file_that_is_no_ir_is_the_same_error_as_without_helpers() {
    let prose = file("prose.ll", b"it was a dark and stormy night").expect("it is written");
    let [here, there] =
        [&[][..], &["--compile-in-helpers"]].map(|options| run_with(options, std::slice::from_ref(&prose)));
    assert_eq!(there.end, End::Exited(1));
    assert_eq!(String::from_utf8_lossy(&there.stderr), String::from_utf8_lossy(&here.stderr));
}

#[test]
fn options_that_do_not_go_with_helpers_are_wrong_usage() {
    let program = bitcode("program.c", "int main(void) { return 0; }").expect("it compiles");
    for option in ["--lazy", "--tiered", "--dump=out"] {
        let outcome = run_with(&["--compile-in-helpers", option], std::slice::from_ref(&program));
        assert_eq!(outcome.end, End::Exited(2), "{option}: {}", String::from_utf8_lossy(&outcome.stderr));
    }
}

/// By hand the hidden verb has nothing to talk to.
#[test]
fn a_helper_that_is_started_by_hand_says_what_it_is() {
    let mut command = Command::new(uruk());
    command.arg("compile-helper");
    let input = Input { stdin: b"hello, is there somebody in here?".to_vec(), ..Input::default() };
    let outcome = run(&mut command, &input, Duration::from_secs(60)).expect("it starts");
    assert_eq!(outcome.end, End::Exited(1));
    assert!(!outcome.stderr.is_empty());
}

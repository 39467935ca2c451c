//! Which libLLVM a command calls, and what it says where that cannot be called.
//!
//! The place of the build was the only one. A library of another C++ library was called, and the process died in the midst of a call; so it
//! did where another LLVM was in the process already.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::{bitcode, linked};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

const NAME: &str = "libLLVM.so.22.1";

/// A library that answers to LLVM's name, and is of this version.
fn of_version(major: u32, minor: u32) -> PathBuf {
    let text = format!(
        "void LLVMGetVersion(unsigned *major, unsigned *minor, unsigned *patch) {{ *major = {major}; *minor = {minor}; *patch = 0; }}
         void *LLVMContextCreate(void) {{ __builtin_trap(); }}
         void _ZN4llvm11LLVMContextC1Ev(void) {{ __builtin_trap(); }}"
    );
    let flags = ["-O1", "-fPIC", "-shared", "-Wl,-soname,libLLVM.so.22.1"];
    linked("llvm.c", &text, &flags, NAME).expect("it links")
}

fn program() -> PathBuf {
    bitcode("place.c", "#include <stdio.h>\nint main(void) { return puts(\"runs\") < 0; }")
        .expect("it compiles")
}

fn run_of(command: &Path, variable: &str, value: &Path) -> Outcome {
    let mut command = Command::new(command);
    command.arg("run").arg(program());
    let env = vec![(variable.to_owned(), value.to_str().expect("a path in UTF-8").to_owned())];
    run(&mut command, &Input { env, ..Input::default() }, Duration::from_secs(60))
        .expect("the command can be started")
}

#[track_caller]
fn assert_runs(outcome: &Outcome) {
    let (printed, errors) =
        (String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    assert_eq!((&*printed, outcome.end), ("runs\n", End::Exited(0)), "{errors}");
}

/// One sentence, which names the file and what to do.
#[track_caller]
fn assert_refuses(outcome: &Outcome, library: &Path, why: &str) {
    let errors = String::from_utf8_lossy(&outcome.stderr);
    let begins = format!("error: {}: LLVM cannot be loaded: ", library.display());
    assert_eq!(outcome.end, End::Exited(1), "{errors}");
    assert!(errors.starts_with(&begins) && errors.contains(why), "{errors}");
    assert!(errors.contains("URUK_LLVM=PATH") && errors.trim_end().lines().count() == 1, "{errors}");
}

/// The one that `llvm-config` names.
fn real() -> PathBuf {
    let listing = Command::new("llvm-config-22").args(["--libfiles", "--link-shared"]).output();
    let listing = String::from_utf8(listing.expect("LLVM 22 is there").stdout).expect("a path");
    PathBuf::from(listing.trim()).canonicalize().expect("llvm-config names a file")
}

/// A directory of this process's own.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

#[test]
fn a_variable_names_the_file_or_its_directory() {
    let (real, directory) = (real(), directory("named"));
    symlink(&real, directory.join(NAME)).expect("a link");
    assert_runs(&run_of(uruk(), "URUK_LLVM", &real));
    assert_runs(&run_of(uruk(), "URUK_LLVM", &directory));
    assert_runs(&run_of(uruk(), "URUK_LLVM", Path::new("")));
    let nowhere = directory.join("nowhere.so");
    assert_refuses(&run_of(uruk(), "URUK_LLVM", &nowhere), &nowhere, "No such file");
    let text = directory.join("text.so");
    fs::write(&text, "no library").expect("written");
    assert_refuses(&run_of(uruk(), "URUK_LLVM", &text), &text, "");
    fs::remove_dir_all(&directory).expect("it is ours");
}

#[test]
fn another_llvm_is_told_by_its_version_and_its_cxx_library() {
    let (older, other) = (of_version(21, 1), of_version(22, 1));
    assert_refuses(
        &run_of(uruk(), "URUK_LLVM", &older),
        &older,
        "it is LLVM 21.1.0, and this program was built for 22.1.",
    );
    assert_refuses(&run_of(uruk(), "URUK_LLVM", &other), &other, "another C++ library");
    let none = linked("none.c", "int none;", &["-fPIC", "-shared"], "libnone.so").expect("it links");
    assert_refuses(&run_of(uruk(), "URUK_LLVM", &none), &none, "it is no LLVM");
}

/// Beside the program comes before the loader's places, and these before that of the build.
#[test]
fn it_is_looked_for_beside_the_program_and_by_the_loaders_rules() {
    let (directory, older) = (directory("beside"), of_version(21, 1));
    let (command, library) = (directory.join("bin/uruk"), directory.join("lib").join(NAME));
    for part in ["bin", "lib"] {
        fs::create_dir(directory.join(part)).expect("a directory");
    }
    fs::copy(uruk(), &command).expect("copied");
    let listed = older.parent().expect("in a directory");
    assert_refuses(&run_of(&command, "LD_LIBRARY_PATH", listed), &older, "LLVM 21.1.0");
    symlink(real(), &library).expect("a link");
    assert_runs(&run_of(&command, "LD_LIBRARY_PATH", listed));
    fs::remove_file(&library).expect("it is ours");
    symlink(&older, &library).expect("a link");
    let outcome = run_of(&command, "HOME", &directory);
    assert_refuses(&outcome, &directory.join("bin/../lib").join(NAME), "LLVM 21.1.0");
    fs::remove_dir_all(&directory).expect("it is ours");
}

/// The part of the command that calls LLVM asked for it by its name, and was given the one that was there first.
#[test]
fn another_llvm_of_the_same_name_may_be_in_the_process() {
    assert_runs(&run_of(uruk(), "LD_PRELOAD", &of_version(22, 1)));
    assert_runs(&run_of(uruk(), "LD_PRELOAD", &of_version(21, 1)));
}

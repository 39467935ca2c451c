//! How the `uruk` command refuses what it cannot run.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::process::{End, Input, Outcome, run};
use crate::uruk::uruk;

/// A good program, in C.
pub const MAIN: &str = "int puts(const char *);\nint main(void) { puts(\"it ran\"); return 0; }\n";

/// Runs the command.
///
/// # Panics
/// If it cannot be started, or does not end within a minute.
pub fn uruk_with(arguments: &[&OsStr]) -> Outcome {
    let mut command = Command::new(uruk());
    command.args(arguments);
    run(&mut command, &Input::default(), Duration::from_secs(60)).expect("the command can be started")
}

/// Runs `uruk run`, as [`uruk_with`].
pub fn uruk_run(options: &[&str], files: &[&Path]) -> Outcome {
    let run = ["run"].iter().chain(options).map(OsStr::new);
    uruk_with(&run.chain(files.iter().map(|file| file.as_os_str())).collect::<Vec<_>>())
}

/// Fails unless `outcome` is an orderly refusal with `code` that mentions all of `words`.
#[track_caller]
pub fn assert_refused(outcome: &Outcome, code: i32, words: &[&str]) {
    if let Some(wrong) = not_refused(outcome, code, words) {
        panic!("{wrong}");
    }
}

/// The parts that `outcome` lacks to be an orderly refusal with `code` that mentions all of `words`.
pub fn not_refused(outcome: &Outcome, code: i32, words: &[&str]) -> Option<String> {
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    let wrong = if outcome.end != End::Exited(code) {
        format!("{}, expected exit code {code}", outcome.end)
    } else if !stdout.is_empty() {
        "standard output is not empty".to_owned()
    } else if !stderr.starts_with("error:") {
        "standard error does not begin with `error:`".to_owned()
    } else if stderr.lines().filter(|line| line.starts_with("error:")).count() != 1 {
        "standard error holds more than one block".to_owned()
    } else if stderr.contains("panicked at") {
        "a thread of the engine panicked".to_owned()
    } else {
        format!("standard error does not mention `{}`", words.iter().find(|&&word| !stderr.contains(word))?)
    };
    Some(format!("{wrong}\n{}\nout| {stdout}\nerr| {stderr}", outcome.command))
}

/// Fails unless the program ran, or was refused with advice on how to compile it.
#[track_caller]
pub fn assert_ran_or_advised(outcome: &Outcome, printed: &str) {
    if outcome.end == End::Exited(0) {
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), printed, "{}", outcome.command);
    } else {
        assert_refused(outcome, 1, &["-fPIC"]);
    }
}

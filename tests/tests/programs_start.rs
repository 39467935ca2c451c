//! What a program's start costs: LLVM is loaded by those that need it.
//!
//! Every start loaded libLLVM, which took 11 ms of processor time and 55 MiB, also where only objects were linked.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::{bitcode, object};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

/// Says whether LLVM is in its process.
const PROGRAM: &str = r#"
    #include <stdio.h>
    #include <string.h>
    int main(void) {
      char line[4096];
      FILE *maps = fopen("/proc/self/maps", "r");
      while (fgets(line, sizeof line, maps)) if (strstr(line, "libLLVM")) return puts("with LLVM") < 0;
      return puts("without LLVM") < 0;
    }
"#;

fn finish(mut command: Command) -> Outcome {
    run(&mut command, &Input::default(), Duration::from_secs(60)).expect("the command can be started")
}

fn run_file(file: &PathBuf) -> Outcome {
    let mut command = Command::new(uruk());
    command.arg("run").arg(file);
    finish(command)
}

#[track_caller]
fn assert_prints(outcome: &Outcome, stdout: &str) {
    let printed = String::from_utf8_lossy(&outcome.stdout);
    assert_eq!(
        (&*printed, outcome.end),
        (stdout, End::Exited(0)),
        "{}",
        String::from_utf8_lossy(&outcome.stderr)
    );
}

#[test]
fn objects_start_without_llvm() {
    assert_prints(&run_file(&object("start.c", PROGRAM).expect("it compiles")), "without LLVM\n");
    assert_prints(&run_file(&bitcode("start.c", PROGRAM).expect("it compiles")), "with LLVM\n");
}

#[test]
fn a_library_that_is_gone_is_named_and_objects_run_without_it() {
    // The one that a run would load, if it is a file of its own.
    let listing = Command::new("llvm-config-22").args(["--libfiles", "--link-shared"]).output();
    let listing = String::from_utf8(listing.expect("LLVM 22 is there").stdout).expect("a path");
    let library = PathBuf::from(listing.trim()).canonicalize().expect("llvm-config names a file");
    let without = |arguments: &[&OsStr]| {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--map-root-user",
            "sh",
            "-c",
            "mount --bind /dev/null \"$0\" && exec \"$@\"",
        ]);
        command.arg(&library).args(arguments);
        finish(command)
    };
    if without(&["true".as_ref()]).end != End::Exited(0) {
        let reason =
            "hiding libLLVM from a process needs `unshare --mount --map-root-user`, which is refused here";
        // Nothing is left to say if nobody listens.
        let _ = writeln!(std::io::stderr(), "skipped: {reason}");
        return;
    }
    let object = object("start.c", PROGRAM).expect("it compiles");
    let command = uruk().as_os_str();
    assert_prints(&without(&[command, "run".as_ref(), object.as_ref()]), "without LLVM\n");
    let bitcode = bitcode("start.c", PROGRAM).expect("it compiles");
    let outcome = without(&[command, "run".as_ref(), bitcode.as_ref()]);
    let message = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Exited(1), "{message}");
    let expected = format!("{}: LLVM cannot be loaded: ", library.display());
    assert!(message.contains(&expected) && message.contains("libllvm22"), "{message}");
}

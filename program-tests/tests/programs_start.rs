//! The cost of a program's start: LLVM is loaded by those that need it.
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
        // Nothing is left to say without a reader.
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

/// The command was named `/proc/self/fd/N` as the file of a part of its own, and the debugger opened the file of its own that has this
/// number. If that was a pipe, it waited for ever.
#[test]
fn a_debugger_that_runs_a_module_ends() {
    let there = Command::new("gdb").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        // Nothing is left to say without a reader.
        let _ = writeln!(std::io::stderr(), "skipped: there is no gdb");
        return;
    }
    for file in [bitcode("start.c", PROGRAM), object("start.c", PROGRAM)] {
        let mut command = Command::new("gdb");
        command.args(["-nx", "-q", "-batch", "-ex", "run", "--args"]).arg(uruk()).arg("run");
        command.arg(file.expect("it compiles"));
        let outcome = finish(command);
        let printed = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(outcome.end, End::Exited(0), "{printed}");
        assert!(printed.contains("LLVM\n") && printed.contains("exited normally"), "{printed}");
    }
}

/// Runs a command that may make no files in memory, as sandboxes have it.
const WITHOUT_FILES_IN_MEMORY: &str = r#"
    #include <errno.h>
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #include <stddef.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
      struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      };
      struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
      if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 96;
      execv(argv[1], argv + 1);
      return 95;
    }
"#;

/// No module was compiled, and the message said that LLVM was to be installed.
#[test]
fn modules_run_where_files_in_memory_are_forbidden() {
    let wrapper = object("wrapper.c", WITHOUT_FILES_IN_MEMORY).expect("it compiles");
    let executable = wrapper.with_extension("");
    let linked = Command::new("cc").arg(&wrapper).arg("-o").arg(&executable).status();
    assert!(linked.expect("there is a linker").success());
    let confined = |file: &PathBuf, scratch: &str| {
        let mut command = Command::new(&executable);
        command.arg(uruk()).arg("run").arg(file).env("TMPDIR", scratch);
        finish(command)
    };
    let module = bitcode("start.c", PROGRAM).expect("it compiles");
    assert_prints(&confined(&module, "/tmp"), "with LLVM\n");
    // Where a script is clang's standard input.
    let script = wrapper.with_file_name("script.c");
    std::fs::write(&script, format!("#!/usr/bin/uruk\n{PROGRAM}")).expect("temporary file");
    assert_prints(&confined(&script, "/nowhere"), "with LLVM\n");
}

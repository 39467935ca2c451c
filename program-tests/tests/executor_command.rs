//! `uruk run --executor`: programs run in a process of their own as they do in the command's.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use uruk_tests::forms::Form;
use uruk_tests::inputs::{bitcode, file, linked, shared_library};
use uruk_tests::matrix::{Compiles, Variant};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::program::Program;
use uruk_tests::uruk::uruk;

fn run_with(options: &[&str], files: &[PathBuf]) -> Outcome {
    let mut command = Command::new(uruk());
    command.arg("run").args(options).args(files);
    run(&mut command, &Input::default(), Duration::from_secs(120)).expect("it starts")
}

/// Programs that another process runs.
const PROGRAMS: [&str; 34] = [
    "c/arguments",
    "c/atexit_order",
    "c/broken_pipe",
    "c/callbacks",
    "c/common_symbols",
    "c/constructors",
    "c/dynamic_symbols",
    "c/environment",
    "c/error_numbers",
    "c/exit_from_thread",
    "c/floating_point_state",
    "c/fork_wait",
    "c/ifuncs",
    "c/immediate_exit",
    "c/jumps",
    "c/linker_symbols",
    "c/main_thread_ends",
    "c/quick_exit",
    "c/signal_handlers",
    "c/standard_input",
    "c/start_block",
    "c/thread_locals",
    "c/threads",
    "c/unflushed",
    "c/visibility",
    "c/weak_override",
    "cxx/comdat",
    "cxx/containers",
    "cxx/exceptions",
    "cxx/function_statics",
    "cxx/rtti",
    "cxx/statics",
    "cxx/streams",
    "cxx/thread_local_objects",
];

/// Children of these programs call functions that the program has not called. They have no compiler.
const FORKING: [&str; 1] = ["c/fork_wait"];

#[test]
fn programs_run_as_in_the_command_itself() {
    for name in PROGRAMS {
        let of = |form, level, jobs| Variant { form, level, jobs, compiles: Compiles::Executor };
        let variants = [of(Form::BitcodeO2, 2, 2), of(Form::Pic, 0, 1), of(Form::Pie, 2, 2)];
        Program::load(name).expect("the program is there").check_variants(&variants);
    }
}

#[test]
fn functions_are_compiled_when_they_are_called_there() {
    for name in PROGRAMS.into_iter().filter(|name| !FORKING.contains(name)) {
        let of = |level, jobs, compiles| Variant { form: Form::BitcodeO0, level, jobs, compiles };
        let variants = [of(0, 2, Compiles::ExecutorLazy), of(2, 1, Compiles::ExecutorTiered)];
        Program::load(name).expect("the program is there").check_variants(&variants);
    }
}

/// The compiler is not theirs, and does not answer for the parent meanwhile.
#[test]
fn a_child_that_calls_a_function_first_ends_with_a_message() {
    let program = r"
        #include <sys/wait.h>
        #include <unistd.h>
        static volatile int one = 1;
        __attribute__((noinline)) int three(void) { return 3 * one; }
        __attribute__((noinline)) int four(void) { return 4 * one; }
        int main(void) {
            int status = 0, seen = three();
            pid_t child = fork();
            if (child == 0) _exit(three() + four());
            waitpid(child, &status, 0);
            return WIFSIGNALED(status) ? WTERMSIG(status) * seen + four() : 1;
        }";
    let program = bitcode("fork.c", program).expect("it compiles");
    let outcome = run_with(&["--executor", "--lazy"], &[program]);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Exited(6 * 3 + 4), "{stderr}");
    assert!(stderr.contains("by a child of the process that runs the code"), "{stderr}");
}

#[test]
fn a_fault_is_told_with_its_function_and_ends_the_command_by_the_same_signal() {
    let crash = "
        int *nowhere;
        __attribute__((noinline)) static int fall(void) { return *(volatile int *)nowhere; }
        int main(void) { return fall() + 1; }";
    let outcome = run_with(&["--executor"], &[bitcode("crash.c", crash).expect("it compiles")]);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Killed(11), "{stderr}");
    assert!(stderr.contains("was ended by SIGSEGV") && stderr.contains("in `fall` + 0x"), "{stderr}");
    // A fault in a library is told with the function that has called it.
    let abort = "
        #include <stdlib.h>
        int main(void) { abort(); }";
    let outcome = run_with(&["--executor"], &[bitcode("abort.c", abort).expect("it compiles")]);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Killed(6), "{stderr}");
    assert!(stderr.contains("in `main` + 0x"), "{stderr}");
}

/// The program finds no compiler in its process, and none of the command's files.
#[test]
fn the_process_of_the_program_has_no_llvm_and_few_descriptors() {
    let program = r#"
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        int main(void) {
            char line[4096];
            if (open("/dev/null", O_RDONLY) != 3) return 3;
            FILE *maps = fopen("/proc/self/maps", "r");
            while (fgets(line, sizeof line, maps)) if (strstr(line, "libLLVM")) return 1;
            return 0;
        }
    "#;
    let program = bitcode("program.c", program).expect("it compiles");
    let outcome = run_with(&["--executor"], &[program]);
    assert_eq!(outcome.end, End::Exited(0), "{}", String::from_utf8_lossy(&outcome.stderr));
}

/// It was killed after a second, since its channel is closed: the other file takes as long as a shell takes to count.
#[test]
fn a_program_may_have_another_file_executed() {
    let program = r#"
        #include <unistd.h>
        int main(void) {
            execl("/bin/sh", "sh", "-c", "i=0; while [ $i -lt 2000000 ]; do i=$((i+1)); done; exit 7", (char *)0);
            return 1;
        }"#;
    let program = bitcode("program.c", program).expect("it compiles");
    let outcome = run_with(&["--executor"], &[program]);
    assert_eq!(outcome.end, End::Exited(7), "{}", String::from_utf8_lossy(&outcome.stderr));
}

#[test]
fn libraries_are_loaded_there() {
    let library =
        shared_library("seven.c", "int seven(void) { return 7; }", "libseven.so").expect("it links");
    let program =
        bitcode("main.c", "int seven(void); int main(void) { return seven(); }").expect("it compiles");
    let load = format!("--load={}", library.display());
    let outcome = run_with(&["--executor", &load], &[program]);
    assert_eq!(outcome.end, End::Exited(7), "{}", String::from_utf8_lossy(&outcome.stderr));
}

/// The file is of the process that runs the program.
#[test]
fn perf_is_told_of_code_there() {
    let source = file("seven.c", b"int main(void) { return 7; }").expect("written");
    let directory = std::env::temp_dir().join(format!("uruk-dump-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory is writable");
    let mut command = Command::new(uruk());
    command.args(["run", "--executor", "--perf=jitdump"]).arg(&source);
    let env = vec![("JITDUMPDIR".to_owned(), directory.display().to_string())];
    let outcome =
        run(&mut command, &Input { env, ..Input::default() }, Duration::from_secs(120)).expect("it starts");
    assert_eq!(outcome.end, End::Exited(7), "{}", String::from_utf8_lossy(&outcome.stderr));
    let files = std::fs::read_dir(&directory).expect("it is there").filter_map(Result::ok);
    let dumps: Vec<_> =
        files.map(|entry| entry.path()).filter(|path| path.extension() == Some("dump".as_ref())).collect();
    let [dump] = &dumps[..] else { panic!("{dumps:?}") };
    let bytes = std::fs::read(dump).expect("it is there");
    std::fs::remove_dir_all(&directory).expect("nothing holds it");
    for text in [&b"main"[..], b"seven.c"] {
        assert!(bytes.windows(text.len()).any(|window| window == text), "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn what_does_not_go_with_an_executor_is_refused() {
    let program = bitcode("program.c", "int main(void) { return 0; }").expect("it compiles");
    let outcome = run_with(&["--executor", "--backtrace"], std::slice::from_ref(&program));
    assert_eq!(outcome.end, End::Exited(2), "{}", String::from_utf8_lossy(&outcome.stderr));
    for (place, told) in [
        ("exec:", "exec: is followed by the command that starts the executor"),
        ("nowhere", "`nowhere` is no address of an executor: write unix:PATH or HOST:PORT, or exec:COMMAND"),
    ] {
        let outcome = run_with(&[&format!("--executor={place}")], std::slice::from_ref(&program));
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert!(outcome.end == End::Exited(2) && stderr.contains(told), "{place}: {stderr}");
    }
    let replaces = "
        #include <stddef.h>
        void *malloc(size_t size) { (void)size; return NULL; }
        int main(void) { return malloc(1) != NULL; }";
    let program = bitcode("malloc.c", replaces).expect("it compiles");
    let outcome = run_with(&["--executor"], &[program]);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Exited(1), "{stderr}");
    assert!(stderr.contains("cannot run with --executor"), "{stderr}");
}

/// By hand the hidden verb has nothing to talk to.
#[test]
fn an_executor_that_is_started_by_hand_says_what_it_is() {
    let mut command = Command::new(uruk());
    command.arg("executor");
    let outcome = run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it starts");
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Exited(1), "{stderr}");
    assert!(stderr.contains("started by a host, not by hand"), "{stderr}");
}

/// Objects for executables read variables of libraries directly. They were refused in about every third run, where these happened to lie too far away.
#[test]
fn variables_of_libraries_are_always_near() {
    let text = "
        #include <stdio.h>
        #include <stdlib.h>
        extern char **environ, **__environ;
        int main(void) {
            setenv(\"SET_BY_THE_PROGRAM\", \"1\", 1);
            int sees = 0;
            for (char **entry = environ; *entry; entry++) sees |= *entry[0] == 'S';
            fprintf(stdout, \"%d\\n\", sees && environ == __environ);
            return 3;
        }";
    let program = linked("near.c", text, &["-O1", "-fPIE", "-c"], "near.o").expect("it compiles");
    for place in ["--executor".to_owned(), format!("--executor=exec:{} executor", uruk().display())] {
        for _ in 0..8 {
            let outcome = run_with(&[&place], std::slice::from_ref(&program));
            let stderr = String::from_utf8_lossy(&outcome.stderr);
            assert_eq!((outcome.end, &*outcome.stdout), (End::Exited(3), &b"1\n"[..]), "{place}: {stderr}");
        }
    }
}

/// Data of this size has no room beside code. In one process it fits.
#[test]
fn zeros_of_great_size_have_room_there() {
    let text = "
        static char many[1500u << 20];
        char more[700u << 20];
        int main(void) { many[1400u << 20] = 3; more[600u << 20] = 4; return many[1400u << 20] + more[600u << 20] + many[5]; }";
    let flags = ["-O0", "-Xclang", "-disable-O0-optnone", "-emit-llvm", "-c"];
    let program = linked("great.c", text, &flags, "great.bc").expect("it compiles");
    let sent = format!("--executor=exec:{} executor", uruk().display());
    for options in [&["--executor", "-O0"][..], &["--executor", "--lazy"], &[&sent, "-O0"]] {
        let outcome = run_with(options, std::slice::from_ref(&program));
        assert_eq!(outcome.end, End::Exited(7), "{options:?}: {}", String::from_utf8_lossy(&outcome.stderr));
    }
}

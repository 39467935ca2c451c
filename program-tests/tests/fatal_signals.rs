//! `--stats` of a program that a signal ends: the report is written, the end is that of a native process, and the program sees no handler.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::{bitcode, file, linked, shared_library};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

/// Ends as its argument says, after it has printed what it finds installed.
const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static int deep(int n) { volatile char room[4096]; room[0] = n; return deep(n + 1) + room[0]; }
    static void *on_thread(void *unused) { deep(0); return unused; }
    static void again(int s) { write(1, "handled\n", 8); signal(s, SIG_DFL); raise(s); }
    static void leave(int s) { write(1, "leaves\n", 7); _exit(s); }
    static void show(const char *what) {
        int differ = 0;
        for (int s = 1; s <= SIGRTMAX; s++) {
            struct sigaction found;
            memset(&found, 0xff, sizeof found);
            if (sigaction(s, NULL, &found) == 0 && (found.sa_handler != SIG_DFL || found.sa_flags != 0)) differ = s;
        }
        stack_t stack;
        sigaltstack(NULL, &stack);
        printf("%s: %d %p %d\n", what, differ, stack.ss_sp, stack.ss_flags);
        fflush(stdout);
    }
    static void *shows(void *unused) { show("thread"); return unused; }
    int main(int argc, char **argv) {
        const char *way = argv[1];
        pthread_t thread;
        show("main");
        pthread_create(&thread, NULL, shows, NULL);
        pthread_join(thread, NULL);
        if (!strcmp(way, "fault")) *(volatile int *)8 = 1;
        if (!strcmp(way, "trap")) __builtin_trap();
        if (!strcmp(way, "abort")) abort();
        if (!strcmp(way, "deep")) return deep(0);
        if (!strcmp(way, "deep-thread")) { pthread_create(&thread, NULL, on_thread, NULL); pthread_join(thread, NULL); }
        if (!strcmp(way, "again")) { signal(SIGTERM, again); raise(SIGTERM); }
        if (!strcmp(way, "leave")) { sigset(SIGINT, leave); printf("%d\n", sigset(SIGINT, leave) == leave); fflush(stdout); raise(SIGINT); }
        if (!strcmp(way, "given-back")) {
            static char room[65536];
            stack_t stack = {room, 0, sizeof room}, none = {0, SS_DISABLE, 0}, found;
            sigaltstack(&stack, NULL);
            sigaltstack(&none, &found);
            printf("%d\n", found.ss_sp == room);
            printf("%d\n", signal(SIGSEGV, SIG_IGN) == SIG_DFL);
            printf("%d\n", signal(SIGSEGV, SIG_DFL) == SIG_IGN);
            printf("%d\n", signal(SIGSEGV, SIG_DFL) == SIG_DFL);
            fflush(stdout);
            deep(0);
        }
        if (!strcmp(way, "no-reader")) { int p[2]; pipe(p); close(p[0]); dup2(p[1], 2); raise(SIGTERM); }
        if (!strcmp(way, "slow-reader")) {
            static char bytes[65536];
            int p[2];
            pipe(p), write(p[1], bytes, sizeof bytes), dup2(p[1], 2), raise(SIGTERM);
        }
        if (!strcmp(way, "child")) {
            if (fork() == 0) raise(SIGTERM);
            int status;
            wait(&status);
            printf("%d\n", WTERMSIG(status));
        }
        if (!strcmp(way, "exec")) execlp("sh", "sh", "-c", "kill -TERM $$", (char *)NULL);
        if (atoi(way) != 0) { kill(getpid(), atoi(way)); puts("goes on"); }
        return 0;
    }
"#;

const SHOWN: &str = "main: 0 (nil) 2\nthread: 0 (nil) 2\n";

fn program() -> PathBuf {
    bitcode("ends.c", PROGRAM).expect("it compiles")
}

fn outcome(command: &mut Command) -> Outcome {
    run(command, &Input::default(), Duration::from_secs(600)).expect("it can be started")
}

fn with_stats(options: &[&OsStr], way: &str) -> Outcome {
    outcome(Command::new(uruk()).args(["run", "--stats"]).args(options).arg("--").arg(way))
}

/// The lines of a report: the first of a table, and the last one.
#[track_caller]
fn report(outcome: &Outcome) -> (usize, Option<String>) {
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let begins = stderr.lines().filter(|line| line.starts_with("materialized ")).count();
    let last = stderr.lines().last().filter(|line| line.starts_with("ended by signal "));
    (begins, last.map(|line| line.split(',').next().unwrap_or_default().to_owned()))
}

/// Nothing was printed then.
#[test]
fn the_report_is_written_whichever_signal_ends_the_program() {
    let file = program();
    let ways = [("fault", 11, "SEGV"), ("trap", 4, "ILL"), ("abort", 6, "ABRT"), ("deep", 11, "SEGV")];
    let ways = ways.into_iter().chain([("deep-thread", 11, "SEGV"), ("1", 1, "HUP"), ("2", 2, "INT")]);
    let ways = ways.chain([("3", 3, "QUIT"), ("8", 8, "FPE"), ("10", 10, "USR1"), ("13", 13, "PIPE")]);
    for (way, signal, name) in ways.chain([("14", 14, "ALRM"), ("15", 15, "TERM"), ("31", 31, "SYS")]) {
        let outcome = with_stats(&[file.as_os_str()], way);
        let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.end, End::Killed(signal), "{way}: {stderr}");
        assert_eq!(report(&outcome), (1, Some(format!("ended by signal {signal} (SIG{name})"))), "{stderr}");
        assert!(stderr.contains("\nir.codegen "), "{way}: {stderr}");
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), SHOWN, "{way}");
    }
    let outcome = with_stats(&[file.as_os_str()], "40");
    assert_eq!((outcome.end, report(&outcome).1.as_deref()), (End::Killed(40), Some("ended by signal 40")));
}

/// Output and end of a program are those of its native twin.
#[test]
fn programs_see_and_do_what_they_do_natively() {
    let file = program();
    let native = linked("ends.c", PROGRAM, &["-pthread"], "ends").expect("it compiles");
    for way in
        ["again", "leave", "given-back", "no-reader", "slow-reader", "child", "exec", "9", "17", "28", "0"]
    {
        let natively = outcome(Command::new(&native).arg(way));
        for options in [&[][..], &["--lazy".as_ref()], &["--tiered".as_ref()]] {
            let ours = with_stats(&[options, &[file.as_os_str()]].concat(), way);
            let stderr = String::from_utf8_lossy(&ours.stderr).into_owned();
            assert_eq!(ours.end, natively.end, "{way}: {stderr}");
            let printed = [&ours.stdout, &natively.stdout].map(|bytes| String::from_utf8_lossy(bytes));
            assert_eq!(printed[0], printed[1], "{way}");
            let by_signal = matches!(way, "again" | "given-back");
            let by_exit = matches!(way, "child" | "17" | "28" | "0");
            let (begins, last) = report(&ours);
            assert_eq!(
                (begins, last.is_some()),
                (usize::from(by_signal || by_exit), by_signal),
                "{way}: {stderr}"
            );
        }
    }
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let file = program();
    let uruk = Command::new(uruk());
    let mut command = Command::new("env");
    command.arg("--ignore-signal=TERM").arg(uruk.get_program());
    let outcome = outcome(command.args(["run", "--stats"]).arg(&file).args(["--", "15"]));
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    assert_eq!((outcome.end, report(&outcome)), (End::Exited(0), (1, None)));
    assert!(stdout.contains("main: 15 ") && stdout.ends_with("goes on\n"), "{stdout}");
}

#[test]
fn a_library_does_not_see_the_handler_either() {
    let text = "#include <signal.h>\nint seen(void) { struct sigaction found; sigaction(SIGSEGV, 0, &found);\
                return found.sa_handler == SIG_DFL && signal(SIGTERM, SIG_IGN) == SIG_DFL; }\n";
    let library = shared_library("sees.c", text, "libsees.so").expect("it links");
    let main = bitcode("asks.c", "int seen(void); int main(void) { return seen(); }\n").expect("it compiles");
    let outcome = with_stats(&["--load".as_ref(), library.as_os_str(), main.as_os_str()], "");
    assert_eq!((outcome.end, report(&outcome)), (End::Exited(1), (1, None)));
}

/// A person who waits for a compiler and gives up learns what has taken so long.
#[test]
fn an_interrupted_compilation_is_reported_too() {
    let source = file("long.c", b"int main(void) { return 0; }\n").expect("written");
    let directory = source.with_file_name("interrupts");
    _ = fs::create_dir(&directory);
    let compiler = directory.join("clang-22");
    fs::write(&compiler, "#!/bin/sh\nkill -INT $PPID\n").expect("written");
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).expect("it was written");
    let path = format!("{}:/usr/bin:/bin", directory.display());
    let input = Input { env: vec![("PATH".to_owned(), path)], ..Input::default() };
    let mut command = Command::new(uruk());
    command.args(["run".as_ref(), "--stats".as_ref(), source.as_os_str()]);
    let outcome = run(&mut command, &input, Duration::from_secs(600)).expect("it can be started");
    assert_eq!(outcome.end, End::Killed(2));
    assert_eq!(report(&outcome), (1, Some("ended by signal 2 (SIGINT)".to_owned())));
}

/// Without `--stats` the process has the handlers that it began with.
/// The frames were looked for on the program's own stack for handlers, which was too small: SIGSEGV came instead of SIGABRT.
#[test]
fn a_small_stack_for_handlers_is_not_filled_by_the_report() {
    let program = r#"
        #include <signal.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        int main(void) {
            char *memory = mmap(0, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            mprotect(memory + 4096, 2 * 4096, PROT_READ | PROT_WRITE);
            stack_t small = {memory + 4096, 0, 2 * 4096};
            if (sigaltstack(&small, 0)) return 1;
            abort();
        }
    "#;
    let program = bitcode("small_stack.c", program).expect("it compiles");
    for option in ["--backtrace", "--stats", "--executor"] {
        let ended = outcome(Command::new(uruk()).args(["run", option]).arg(&program));
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.end, End::Killed(6), "{option}\n{stderr}");
    }
}

#[test]
fn nothing_is_installed_unasked() {
    let text = "#include <stdio.h>\n#include <string.h>\nint main(void) { char line[256]; FILE *f = fopen(\"/proc/self/status\", \"r\");\
                while (fgets(line, sizeof line, f)) if (!strncmp(line, \"SigCgt:\", 7)) fputs(line, stdout); return 0; }\n";
    let file: &Path = &bitcode("caught.c", text).expect("it compiles");
    let caught = |stats: &[&str]| {
        let outcome = outcome(Command::new(uruk()).arg("run").args(stats).arg(file));
        let set = String::from_utf8_lossy(&outcome.stdout).split_whitespace().last().map(str::to_owned);
        u64::from_str_radix(&set.expect("it is a number"), 16).expect("it is a number")
    };
    // Signals 32 and 33 are the C library's own.
    assert_eq!(caught(&[]) & !(0b11 << 31), 0);
    assert_eq!(caught(&["--stats"]) & 0b10, 0b10);
}

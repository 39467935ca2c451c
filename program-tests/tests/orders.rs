//! Orders of first calls: written at the program's end, and followed ahead of the program in a later run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::{bitcode, file};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::refusal::assert_refused;
use uruk_tests::uruk::uruk;

const HEAD: &str = "# uruk order 1\n";

const MAIN: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    int helper(int);
    static void last(void) { puts("last"); }
    __attribute__((noinline)) static int twice(int x) { return helper(x) + helper(x); }
    int never(int x) { return x; }
    __attribute__((constructor)) static void early(void) { puts("early"); }
    int main(int argc, char **argv) { atexit(last); return argc > 5 ? never(1) : twice(3); }
"#;
const HELPER: &str = "__attribute__((noinline)) static int same(volatile int x) { return x; }\n\
                      int helper(int x) { return same(x) + 1; }\n";

fn program() -> [PathBuf; 2] {
    [("main.c", MAIN), ("helper.c", HELPER)].map(|(name, text)| bitcode(name, text).expect("it compiles"))
}

fn uruk_run(options: &[&OsStr], files: &[PathBuf]) -> Outcome {
    let mut command = Command::new(uruk());
    command.arg("run").args(options).args(files);
    run(&mut command, &Input::default(), Duration::from_secs(60)).expect("the command can be started")
}

#[track_caller]
fn assert_ends(outcome: &Outcome, end: End, stdout: &str) {
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), stdout, "{}\n{stderr}", outcome.command);
    assert_eq!(outcome.end, end, "{}\n{stderr}", outcome.command);
}

/// The functions of an order, without the lines for people.
fn order(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the order was written");
    assert!(text.starts_with(HEAD), "{text}");
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.replace('\t', " ")).collect()
}

/// One of a program, in a file of the name.
fn recorded(name: &str, files: &[PathBuf], options: &[&str], end: End, stdout: &str) -> PathBuf {
    let path = file(name, name.as_bytes()).expect("it can be written");
    let options = options.iter().map(OsStr::new).chain(["--record-order".as_ref(), path.as_os_str()]);
    assert_ends(&uruk_run(&options.collect::<Vec<_>>(), files), end, stdout);
    path
}

/// Follows an order.
fn followed(order: &Path, options: &[&str], files: &[PathBuf]) -> Outcome {
    let options = options.iter().map(OsStr::new).chain(["--speculate".as_ref(), order.as_os_str()]);
    uruk_run(&options.collect::<Vec<_>>(), files)
}

#[test]
fn an_order_has_what_was_called_in_the_order_of_first_calls() {
    let files = program();
    for options in [&["--lazy"][..], &["--lazy", "-O0"], &["--tiered"]] {
        let path = recorded("calls.txt", &files, options, End::Exited(8), "early\nlast\n");
        let mut expected = vec!["main.bc early", "main.bc main", "main.bc twice", "helper.bc helper"];
        expected.extend(["helper.bc same", "main.bc last"]);
        assert_eq!(order(&path), expected, "{options:?}");
        // A program that is ahead of itself calls as ever.
        let again = path.with_file_name("again.txt");
        let also = ["--record-order", again.to_str().expect("a path of the tests")];
        let outcome = followed(&path, &[options, &also].concat(), &files);
        assert_ends(&outcome, End::Exited(8), "early\nlast\n");
        assert_eq!(order(&again), expected, "{options:?}");
        // One file may be both.
        let also = ["--record-order", path.to_str().expect("a path of the tests")];
        assert_ends(&followed(&path, &[options, &also].concat(), &files), End::Exited(8), "early\nlast\n");
        assert_eq!(order(&path), expected, "{options:?}");
    }
}

#[test]
fn what_no_file_has_is_passed_over_and_counted() {
    let files = program();
    let text = format!("{HEAD}main.bc\tnobody\n\nother.bc\tmain\nhelper.bc\thelper\nmain.bc\tnever\n");
    let path = file("order.txt", text.as_bytes()).expect("it can be written");
    let outcome = followed(&path, &["--lazy", "--stats"], &files);
    assert_ends(&outcome, End::Exited(8), "early\nlast\n");
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let line = stderr.lines().find(|line| line.starts_with("compiled ahead: ")).expect("it is said");
    assert!(line.ends_with("; 2 of the order are unknown"), "{line}");
    let outcome = uruk_run(&["--lazy".as_ref(), "--speculate-callees".as_ref(), "--stats".as_ref()], &files);
    assert_ends(&outcome, End::Exited(8), "early\nlast\n");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("compiled ahead: "));
}

#[test]
fn what_is_no_order_is_refused() {
    let [main, helper] = program();
    let refused = |name: &str, text: &str, words: &[&str]| {
        let path = file(name, text.as_bytes()).expect("it can be written");
        assert_refused(&followed(&path, &["--lazy"], &[main.clone(), helper.clone()]), 1, words);
    };
    refused("empty.txt", "", &["empty.txt", "line 1", "# uruk order 1", "--record-order"]);
    refused("other.txt", "main\nhelper\n", &["other.txt", "line 1"]);
    refused("line.txt", &format!("{HEAD}main.bc\tmain\nhelper\n"), &["line.txt", "line 3", "tab"]);
    refused("escape.txt", &format!("{HEAD}main.bc\t\\q\n"), &["escape.txt", "line 2", "backslash"]);
    let files = [main.clone(), helper];
    let missing = main.with_file_name("missing.txt");
    assert_refused(&followed(&missing, &["--lazy"], &files), 1, &["missing.txt", "No such file"]);
    assert_refused(&followed(&main, &["--lazy"], &files), 1, &["main.bc", "UTF-8"]);
    let record =
        |path: &Path| uruk_run(&["--lazy".as_ref(), "--record-order".as_ref(), path.as_ref()], &files);
    for path in ["/no/such/place/order.txt", "/proc/version/x", "/"] {
        assert_refused(&record(Path::new(path)), 1, &[path, "cannot write the order"]);
    }
    for options in [["--record-order", "x"], ["--speculate", "x"], ["--speculate-callees", "-O0"]] {
        assert_refused(&uruk_run(&options.map(OsStr::new), &files), 2, &["--lazy"]);
    }
    // An order of which writing shows a defect: the program has run.
    let outcome = record(Path::new("/dev/full"));
    assert_ends(&outcome, End::Exited(8), "early\nlast\n");
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert!(stderr.starts_with("error: cannot write the order of calls /dev/full\n"), "{stderr}");
}

/// The program's process writes, wherever it has gone, and no child of it.
#[test]
fn children_record_nothing_and_end_without_a_thread() {
    let text = r#"
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        __attribute__((noinline)) static int in_child(void) { return 3; }
        __attribute__((noinline)) static int after(volatile int status) { return WEXITSTATUS(status) + 1; }
        int main(void) {
          int status = 0;
          for (int i = 0; i < 20; i++) {
            if (!fork()) exit(in_child());
            wait(&status);
          }
          return chdir("/") + after(status);
        }
    "#;
    let files = [bitcode("forks.c", text).expect("it compiles")];
    let path = recorded("forks.txt", &files, &["--lazy", "-O0"], End::Exited(4), "");
    assert_eq!(order(&path), ["forks.bc main", "forks.bc after"]);
    let text = format!("{HEAD}forks.bc\tafter\nforks.bc\tin_child\n");
    let both = file("both.txt", text.as_bytes()).expect("it can be written");
    for _ in 0..10 {
        assert_ends(&followed(&both, &["--lazy", "--stats"], &files), End::Exited(4), "");
        assert_ends(&followed(&both, &["--lazy", "--speculate-callees"], &files), End::Exited(4), "");
    }
    let line = "cd \"$2\" && exec \"$1\" run --lazy --record-order relative.txt forks.bc";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line, "sh"]).arg(uruk()).arg(files[0].parent().expect("it lies in a directory"));
    let outcome = run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it starts");
    assert_ends(&outcome, End::Exited(4), "");
    assert_eq!(order(&files[0].with_file_name("relative.txt")), ["forks.bc main", "forks.bc after"]);
}

/// A process ends with its last thread, and a thread of ours must not be that.
#[test]
fn an_order_is_whole_however_the_program_exits() {
    let text = r#"
        #include <pthread.h>
        #include <stdlib.h>
        static void *thread(void *leave) { if (leave) exit(5); return 0; }
        int main(int argc, char **argv) {
          pthread_t started;
          if (pthread_create(&started, 0, thread, HOW)) return 1;
          pthread_exit(0);
        }
    "#;
    for (how, end) in [("0", End::Exited(0)), ("&started", End::Exited(5))] {
        let files = [bitcode("ends.c", &text.replace("HOW", how)).expect("it compiles")];
        let path = recorded("ends.txt", &files, &["--lazy"], end, "");
        assert_eq!(order(&path), ["ends.bc main", "ends.bc thread"]);
        for options in [&["--lazy"][..], &["--lazy", "--speculate-callees"], &["--tiered"]] {
            assert_ends(&followed(&path, options, &files), end, "");
        }
    }
}

/// Its functions are for its own threads.
#[test]
fn nothing_is_compiled_ahead_by_a_program_that_allocates_by_itself() {
    let text = r#"
        static char pool[16 << 20];
        static unsigned long used;
        void *malloc(unsigned long size) { used = (used + 15) / 16 * 16 + size; return pool + used - size; }
        void *calloc(unsigned long count, unsigned long size) { return malloc(count * size); }
        void *realloc(void *memory, unsigned long size) {
          char *to = malloc(size);
          for (unsigned long i = 0; memory && i < size; i++) to[i] = ((char *)memory)[i];
          return to;
        }
        void free(void *memory) {}
    "#;
    let own = bitcode("own.c", text).expect("it compiles");
    let [main, helper] = program();
    let files = [main, helper, own];
    let path = recorded("own.txt", &files, &["--lazy"], End::Exited(8), "early\nlast\n");
    let outcome = followed(&path, &["--lazy", "--stats", "--speculate-callees"], &files);
    assert_ends(&outcome, End::Exited(8), "early\nlast\n");
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert!(stderr.contains("compiled ahead: 0 functions in 0.00 ms"), "{stderr}");
}

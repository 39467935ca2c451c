//! Traces of what was compiled: written while programs run, and compiled ahead into a cache.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::refusal::assert_refused;
use uruk_tests::uruk::uruk;

const MAIN: &str = r#"
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int helper(int);
    int never(int x) { return x; }
    __attribute__((noinline)) static int in_child(void) { return 3; }
    __attribute__((noinline)) static int after(volatile int status) { return WEXITSTATUS(status) + 1; }
    __attribute__((noinline)) static void last(volatile int aborts) { if (aborts) abort(); }
    int main(int argc, char **argv) {
      int status = 0;
      if (!fork()) _exit(in_child());
      wait(&status);
      chdir("/");
      int sum = after(status) + helper(argc);
      last(argc > 1);
      return argc > 5 ? never(1) : sum;
    }
"#;
const HELPER: &str = "__attribute__((noinline)) static int same(volatile int x) { return x; }\n\
                      int helper(int x) { return same(x) + 1; }\n";

/// A directory with the program, which goes at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let this = Self(std::env::temp_dir().join(format!("uruk-traces-{}-{name}", std::process::id())));
        fs::create_dir(&this.0).expect("the temporary directory is writable");
        this.write("main.c", MAIN);
        this.write("helper.c", HELPER);
        this
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("the directory is writable");
    }

    /// Runs the command here, with these words as arguments, and `before` before it.
    fn outcome(&self, before: &str, words: &str) -> Outcome {
        let script = format!("cd {} && {before} exec {} {words}", self.0.display(), uruk().display());
        let mut command = Command::new("sh");
        command.env_remove("URUK_CACHE").env_remove("URUK_TRACE_COMPILE").args(["-c", &script]);
        run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it is started")
    }

    #[track_caller]
    fn ends(&self, words: &str, code: i32) -> String {
        let Outcome { end, stdout, stderr, .. } = self.outcome("ulimit -c 0;", words);
        let text = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert_eq!(end, End::Exited(code), "{words}: {text}");
        text
    }

    /// The lines of a trace without hashes, and its heads.
    fn trace(&self, name: &str) -> (Vec<String>, usize) {
        let text = fs::read_to_string(self.0.join(name)).expect("it was written");
        let (heads, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
        let short = |line: &str| {
            let columns: Vec<&str> = line.split('\t').collect();
            assert!(columns.len() == 6 && columns[1].len() == 16, "{line}");
            format!("{} {} {}", columns[2], columns[3], columns[4])
        };
        (lines.into_iter().map(short).collect(), heads.len())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const CALLED: [&str; 6] = [
    "main.c main upper",
    "main.c in_child upper",
    "main.c after upper",
    "helper.c helper upper",
    "helper.c same upper",
    "main.c last upper",
];

#[test]
fn processes_and_their_children_add_lines_to_one_file() {
    let directory = Directory::new("lines");
    directory.ends("run --lazy --trace-compile a.trace main.c helper.c", 6);
    assert_eq!(directory.trace("a.trace"), (CALLED.map(str::to_owned).to_vec(), 1));
    // One more run, which is killed, adds the same once more.
    let of_environment = "ulimit -c 0; URUK_TRACE_COMPILE=a.trace";
    let outcome = directory.outcome(of_environment, "run --lazy main.c helper.c -- and aborts");
    assert!(matches!(outcome.end, End::Killed(_)), "{}", outcome.end);
    let (lines, heads) = directory.trace("a.trace");
    assert_eq!(
        (&lines[..6], &lines[6..], heads),
        (&CALLED.map(str::to_owned)[..], &CALLED.map(str::to_owned)[..], 1)
    );
    // Without functions that wait for their calls there is nothing to note.
    let outcome = directory.outcome("URUK_TRACE_COMPILE=none.trace", "run main.c helper.c");
    assert_eq!(outcome.end, End::Exited(6));
    assert!(!directory.0.join("none.trace").exists());
}

#[test]
fn a_function_has_a_line_for_each_tier() {
    let directory = Directory::new("tiers");
    let hot = "__attribute__((noinline)) static int hot(volatile int x) { return x; }
               int main(void) { int sum = 0; for (long i = 0; i < 4000000000 && !sum; i++) sum = hot(i < 1000 ? 0 : i > 1000000000); return sum - 1; }";
    directory.write("hot.c", hot);
    directory.ends("run --tiered --tier-delay 0 --trace-compile hot.trace hot.c", 0);
    let (lines, _) = directory.trace("hot.trace");
    let of_hot: Vec<&String> = lines.iter().filter(|line| line.contains(" hot ")).collect();
    assert_eq!(of_hot, ["hot.c hot lower", "hot.c hot upper"], "{lines:?}");
}

#[test]
fn what_a_trace_lists_is_found_in_the_cache() {
    let directory = Directory::new("found");
    directory.ends("run --lazy --trace-compile a.trace main.c helper.c", 6);
    directory.ends("run --lazy --record-order a.order main.c helper.c", 6);
    for (way, trace, functions) in
        [("--lazy", "a.trace", 6), ("--tiered", "a.trace", 6), ("--lazy", "a.order", 5)]
    {
        let cache = format!("cache{way}-{trace}");
        let tiered = if way == "--tiered" { way } else { "" };
        let precompile = format!("precompile {tiered} {trace} main.c helper.c --cache {cache}");
        let text = directory.ends(&precompile, 0);
        assert_eq!(text, format!("functions in the cache: {functions}, of which 0 were there before\n"));
        let text = directory.ends(&precompile, 0);
        assert!(text.contains(&format!("of which {functions} were there")), "{text}");
        // The order has nothing of the child, in which alone that fails.
        let required = format!("run {way} --cache {cache} --cache-mode require-hit main.c helper.c");
        if functions == 6 {
            directory.ends(&required, 6);
        }
        let text = directory.ends(&format!("run {way} --cache {cache} --stats main.c helper.c"), 6);
        let all = format!("parts and functions: {0}/{0} (100 %)", functions.min(5));
        assert!(text.contains(&all) || functions == 5, "{text}");
    }
    // A trace is an order too.
    let text = directory.ends("run --lazy --speculate a.trace --stats main.c helper.c", 6);
    assert!(text.contains("compiled ahead: ") && !text.contains("unknown"), "{text}");
}

#[test]
fn lines_of_nothing_are_counted() {
    let directory = Directory::new("stale");
    let text = "f\t1\tmain.c\tgone\tupper\t-\n# by hand\n# uruk trace 1\nf\t-\tmain.c\tmain\tupper\t-\n\
                i\t1\t-\tprint\tupper\t(Int)\nz\n";
    directory.write("some.trace", text);
    directory.write("more.trace", "# uruk trace 1\nf\t2\tother.c\tmain\tupper\t-\n");
    let text = directory.ends("precompile --cache cache some.trace main.c helper.c more.trace", 0);
    let expected = "functions in the cache: 1, of which 0 were there before; 2 are in no file; \
                    1 are code instances, which their host compiles; 1 lines are not understood\n";
    assert_eq!(text, expected);
}

/// Where two files have one name, the contents count.
#[test]
fn files_of_one_name_are_told_apart() {
    let directory = Directory::new("apart");
    for (place, text) in [
        ("a", "int same(void); int main(void) { return 7; }"),
        ("b", "int same(void) { return 5; } static int main(void) { return 9; } int (*p)(void) = main;"),
    ] {
        fs::create_dir(directory.0.join(place)).expect("it is writable");
        directory.write(&format!("{place}/x.c"), text);
    }
    directory.ends("run --lazy --trace-compile x.trace a/x.c b/x.c", 7);
    assert_eq!(directory.trace("x.trace").0, ["x.c main upper"]);
    let text = directory.ends("precompile x.trace a/x.c b/x.c --cache cache", 0);
    assert!(text.starts_with("functions in the cache: 1,"), "{text}");
    // Of other contents all are meant.
    directory.write("x.trace", "# uruk trace 1\nf\t1\tx.c\tmain\tupper\t-\n");
    let text = directory.ends("precompile x.trace a/x.c b/x.c --cache cache", 0);
    assert!(text.starts_with("functions in the cache: 2,"), "{text}");
}

#[test]
fn what_is_no_trace_is_refused_and_left_as_it_is() {
    let directory = Directory::new("refused");
    let refused = |words: &str, code: i32, says: &[&str]| {
        assert_refused(&directory.outcome("", words), code, says);
    };
    refused("run --lazy --trace-compile main.c main.c helper.c", 1, &["main.c", "no trace", "another file"]);
    assert_eq!(fs::read_to_string(directory.0.join("main.c")).expect("it is there"), MAIN);
    refused(
        "run --lazy --trace-compile /no/such/place main.c helper.c",
        1,
        &["/no/such/place", "cannot write"],
    );
    refused("run --trace-compile a.trace main.c helper.c", 2, &["--lazy"]);
    directory.write("a.trace", "# uruk trace 1\n");
    refused("precompile a.trace main.c helper.c", 1, &["which cache", "URUK_CACHE"]);
    refused("precompile --cache c main.c helper.c", 1, &["none of the files is a trace"]);
    refused("precompile --cache c b.trace main.c", 1, &["b.trace", "No such file"]);
    refused("precompile --cache c a.trace", 1, &["of what"]);
    // A program that lacks something is as good as it can be.
    directory
        .write("a.trace", "# uruk trace 1\nf\t-\tmain.c\tmain\tupper\t-\nf\t-\tmain.c\tnever\tupper\t-\n");
    let text = directory.ends("precompile --cache c a.trace main.c", 0);
    let says = ["functions in the cache: 1,", "1 cannot be compiled and linked", "`main`", "`helper`"];
    assert!(says.iter().all(|words| text.contains(words)), "{text}");
    let outcome = directory.outcome("", "run --lazy --trace-compile /dev/full main.c helper.c");
    assert_refused(&outcome, 1, &["/dev/full", "No space left"]);
}

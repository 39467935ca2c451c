//! `uruk run --dump`: what is compiled is in files, and a dump that cannot be written is no failure of the program.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::bitcode;
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

/// Takes the room for files away before its second function is compiled, if its argument says so.
const PROGRAM: &str = r#"
    #include <signal.h>
    #include <string.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <unistd.h>
    __attribute__((noinline)) int second(int x) { return x * x; }
    __attribute__((noinline)) int third(int x) { return x + 1; }
    int main(int argc, char **argv) {
        struct rlimit was, none = {64, RLIM_INFINITY};
        if (!strcmp(argv[1], "chdir")) return chdir("/") + second(3);
        if (!strcmp(argv[1], "fork")) {
            int status, child = fork();
            int result = second(child ? 3 : 2);
            if (!child) return result;
            waitpid(child, &status, 0);
            return WEXITSTATUS(status) * 16 + result;
        }
        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &was);
        setrlimit(RLIMIT_FSIZE, &none);
        int result = second(3);
        setrlimit(RLIMIT_FSIZE, &was);
        return result + third(0);
    }
"#;

/// A directory that goes at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uruk-dump-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("the temporary directory is writable");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run_with(arguments: &[&str], dump: &Path, way: &str) -> Outcome {
    let program = bitcode("program.c", PROGRAM).expect("it compiles");
    let mut command = Command::new(uruk());
    command.arg("run").args(arguments).arg("--dump").arg(dump).arg(program).args(["--", way]);
    run(&mut command, &Input::default(), Duration::from_secs(120)).expect("it starts")
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("it is there");
    let names = entries.map(|entry| entry.expect("it can be read").file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().expect("plain letters")).collect();
    names.sort();
    names
}

fn ends(files: &[String], end: &str) -> usize {
    files.iter().filter(|file| file.ends_with(end)).count()
}

#[test]
fn functions_of_a_lazy_program_are_dumped_wherever_it_goes() {
    let directory = Directory::new("lazy");
    let outcome = run_with(&["--lazy", "-O1"], &directory.0.join("out"), "chdir");
    assert_eq!(outcome.end, End::Exited(9), "{}", String::from_utf8_lossy(&outcome.stderr));
    assert_eq!(String::from_utf8_lossy(&outcome.stderr), "");
    let files = files(&directory.0.join("out"));
    for kind in ["in.ll", "opt.ll", "s", "o"] {
        assert_eq!(ends(&files, &format!("program.bc_second.O1.{kind}")), 1, "{files:?}");
        assert_eq!(ends(&files, &format!("program.bc_third.O1.{kind}")), 0, "{files:?}");
    }
}

/// Both compile a function of one name, at one time, under one number.
#[test]
fn a_child_and_its_parent_overwrite_nothing() {
    let directory = Directory::new("fork");
    let outcome = run_with(&["--lazy", "-O0"], &directory.0, "fork");
    assert_eq!(outcome.end, End::Exited(4 * 16 + 9), "{}", String::from_utf8_lossy(&outcome.stderr));
    let files = files(&directory.0);
    for kind in ["in.ll", "opt.ll", "s", "o"] {
        assert_eq!(ends(&files, &format!("program.bc_second.O0.{kind}")), 2, "{files:?}");
    }
}

#[test]
fn a_full_disk_is_told_at_the_end_and_fails_nothing() {
    let directory = Directory::new("full");
    let outcome = run_with(&["--lazy"], &directory.0, "full");
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.end, End::Exited(10), "{told}");
    assert!(told.starts_with("warning: the dump is not whole\n  because: cannot write "), "{told}");
    assert!(told.contains("bc_second.O2.in.ll\n  because: File too large"), "{told}");
    let files = files(&directory.0);
    assert_eq!(ends(&files, "bc_main.O2.o"), 1, "{files:?}");
    assert!(!files.iter().any(|file| file.contains("second") || file.contains("third")), "{files:?}");
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_at_start() {
    let directory = Directory::new("refused");
    fs::write(directory.0.join("file"), "").expect("it is ours");
    for name in ["missing/out", "file"] {
        let outcome = run_with(&[], &directory.0.join(name), "chdir");
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.end, End::Exited(1), "{told}");
        assert!(told.starts_with("error: --dump needs a directory") && told.contains(name), "{told}");
    }
}

/// With a cache nothing might be compiled, and the dump be empty.
#[test]
fn a_cache_of_the_environment_is_not_asked() {
    let directory = Directory::new("cached");
    let program = bitcode("program.c", PROGRAM).expect("it compiles");
    for dump in ["first", "second"] {
        let mut command = Command::new(uruk());
        let arguments = [OsStr::new("run"), OsStr::new("--dump"), directory.0.join(dump).as_os_str()]
            .map(OsStr::to_owned);
        command.args(arguments).arg(&program).args(["--", "chdir"]);
        let cache = directory.0.join("cache").display().to_string();
        let input = Input { env: vec![("URUK_CACHE".to_owned(), cache)], ..Input::default() };
        let outcome = run(&mut command, &input, Duration::from_secs(120)).expect("it starts");
        assert_eq!(outcome.end, End::Exited(9), "{}", String::from_utf8_lossy(&outcome.stderr));
        assert_eq!(files(&directory.0.join(dump)).len(), 4);
    }
}

//! `--perf`: perf itself names functions and lines of linked code.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use uruk_tests::inputs::compile;
use uruk_tests::uruk::uruk;

const PROGRAM: &str = r#"
    #include <stdio.h>
    __attribute__((noinline)) long hot_function(long n) {
        long sum = 0;
        for (long i = 0; i < n; i++) {
            sum += i * i ^ n;
            __asm__ volatile("" : "+r"(sum));
        }
        return sum;
    }
    int main(void) {
        long sum = 0;
        for (int round = 0; round < 100; round++) sum += hot_function(3000000);
        return sum == 42;
    }
"#;

fn perf(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("perf");
    command.current_dir(directory).args(arguments).env("JITDUMPDIR", directory).env("HOME", directory);
    command.output().expect("it was there before")
}

/// Whether perf is there and may record; says so if not.
fn can_record(directory: &Path) -> bool {
    let is_there = Command::new("perf").arg("--version").output().is_ok();
    assert!(is_there || std::env::var_os("CI").is_none(), "perf is missing: scripts/setup.sh installs it");
    let can = is_there
        && perf(directory, &["record", "-q", "-e", "cpu-clock", "-o", "try.data", "true"]).status.success();
    if !can {
        // Nothing is left to say without a reader.
        let _ = writeln!(std::io::stderr(), "skipped: perf is missing, or may not record here");
    }
    can
}

/// perf had addresses alone.
#[test]
fn perf_names_functions_and_lines() {
    let directory = std::env::temp_dir().join(format!("uruk-perf-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory is writable");
    let object = compile("hot.c", PROGRAM, &["-O1", "-g", "-fPIC"], "hot.o").expect("it compiles");
    if can_record(&directory) {
        let (command, object) = (uruk().display().to_string(), object.display().to_string());
        for format in ["map", "jitdump"] {
            let record = ["record", "-q", "-e", "cpu-clock", "-k", "mono", "-o", "taken.data"];
            let recorded =
                perf(&directory, &[&record[..], &[&command, "run", "--perf", format, &object]].concat());
            assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
            let mut data = "taken.data";
            if format == "jitdump" {
                assert!(
                    perf(&directory, &["inject", "--jit", "-i", "taken.data", "-o", "named.data"])
                        .status
                        .success()
                );
                data = "named.data";
            }
            let report = perf(&directory, &["report", "--stdio", "-i", data, "--sort", "sym"]);
            let report = String::from_utf8_lossy(&report.stdout).into_owned();
            assert!(report.lines().take(40).any(|line| line.contains("hot_function")), "{format}: {report}");
            if format == "jitdump" {
                let annotated =
                    perf(&directory, &["annotate", "--stdio", "-i", data, "-l", "-s", "hot_function"]);
                let annotated = String::from_utf8_lossy(&annotated.stdout).into_owned();
                assert!(annotated.contains("hot.c:"), "{annotated}");
            }
        }
    }
    std::fs::remove_dir_all(directory).expect("it is ours");
}

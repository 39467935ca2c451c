//! Tests that are chosen by name are there.
//!
//! A test was moved, and its name in `.ci/run` stayed. To libtest a name that no test has is a run of no tests, which passes: random
//! histories were left out, without a word.

use std::process::{Command, Output};

use super::demand_none;
use super::source::{read, workspace};

/// A recipe that chooses tests by name asks first whether there are any.
#[test]
fn tests_are_chosen_by_the_script_that_finds_them() {
    const RUNS: [&str; 4] = ["cargo test", "$(CARGO) test", "$(LOOM) test", "$(SHUTTLE) test"];
    let mut findings = Vec::new();
    for file in ["Makefile", ".ci/run"] {
        let text = read(file).expect("it is there").replace("\\\n", " ");
        let chooses = |line: &&str| {
            let run = RUNS.iter().find_map(|run| line.split_once(run));
            run.is_some_and(|(_, after)| after.contains(" -- ") || after.contains("\"$@\""))
        };
        let asks = |line: &&str| line.contains("$(CHOSEN) ") || line.contains("scripts/chosen-tests.sh ");
        let silent = text.lines().filter(chooses).filter(|line| !asks(line));
        findings.extend(silent.map(|line| format!("{file}: {}", line.trim())));
    }
    demand_none(findings, "put `scripts/chosen-tests.sh` in front of it");
}

#[test]
fn a_name_that_chooses_no_test_is_an_error() {
    let run = chosen(&["forest", "histories"]);
    assert!(run.status.success(), "{run:?}");
    assert_eq!(String::from_utf8_lossy(&run.stdout), "runs forest histories\n");
    // The first name is right, and the second was right once.
    let run = chosen(&["forest", "waiting_on::forest"]);
    assert!(!run.status.success(), "{run:?}");
    assert!(!String::from_utf8_lossy(&run.stdout).contains("runs"), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("`waiting_on::forest` chooses no test"), "{run:?}");
}

#[test]
fn options_that_leave_no_test_are_an_error() {
    assert!(chosen(&[]).status.success());
    let run = chosen(&["--ignored"]);
    assert!(!run.status.success(), "{run:?}");
}

/// Gives the script these arguments, for something that has two tests, neither of them ignored.
fn chosen(arguments: &[&str]) -> Output {
    const TESTS: &str = r#"
        shift
        [[ $1 == --list ]] || { echo "runs $*"; exit; }
        for test in dependences::forest model::histories; do
            [[ " $* " == *" --ignored "* || $test != *"${@: -1}"* ]] || echo "$test: test"
        done"#;
    let script = workspace().join("scripts/chosen-tests.sh");
    let mut command = Command::new(script);
    command.args(["bash", "-c", TESTS, "tests", "--"]).args(arguments).output().expect("bash runs")
}

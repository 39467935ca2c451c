//! Weakenings: each step that a model's head says it cannot do without is left out, and the model must fail.
//!
//! A step is left out where it stands, by `uruk_core::sync::weakened("model::what_is_left_out")`, in runs of a model
//! whose environment names it; nothing is built for it. The table *Fails if* of a model has a row for each:
//!
//! ```text
//! //! | `model::what_is_left_out`: what that means | where | `the_test_that_fails` |
//! ```
//!
//! **Architecture Invariant:** a weakening is caught by the test that promises it, by a panic of that test: neither a
//! build that fails, nor a crash, nor a limit of loom's counts.

use std::process::Command;

/// How long a weakened model may explore before it counts as blind. Loom looks at it between two orders.
const SECONDS_MAX: &str = "60";

/// Panics of loom's that say that a model is too large, or not deterministic, and nothing of what it models.
const LIMITS: [&str; 3] = ["exceeded maximum number of branches", "internal error", "not match the expected"];

/// Makes the model file where it stands test its own table.
#[macro_export]
macro_rules! catches_its_weakenings {
    () => {
        #[test]
        fn every_weakening_is_caught() {
            let head =
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/", env!("CARGO_CRATE_NAME"), ".rs"));
            $crate::weakenings::demand_caught(env!("CARGO_CRATE_NAME"), head);
        }
    };
}

/// A row of a table *Fails if*.
struct Weakening<'a> {
    step: &'a str,
    test: &'a str,
}

/// Leaves out each step that the text of `model` names, and demands that the test named beside it fails.
///
/// Runs the calling test binary again for each step, so that nothing else is in the way of what is left out.
pub fn demand_caught(model: &str, text: &str) {
    if std::env::var_os("URUK_WEAKEN").is_some() {
        // Somebody looks at one weakening and runs the whole file for it.
        return;
    }
    let weakenings: Vec<Weakening<'_>> = rows(model, text).collect();
    assert!(!weakenings.is_empty(), "no row of a table begins with a step of {model}");
    let missed: Vec<String> = weakenings.iter().filter_map(|weakening| run(weakening).err()).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// The rows of the tables whose first cell begins with a step of `model`.
fn rows<'a>(model: &str, text: &'a str) -> impl Iterator<Item = Weakening<'a>> {
    let prefix = format!("//! | `{model}::");
    text.lines().filter(move |line| line.starts_with(&prefix)).map(|line| {
        let cells: Vec<&str> = line.trim_end_matches(['|', ' ']).split('|').collect();
        let quoted = |cell: &'a str| cell.split('`').nth(1).unwrap_or_else(|| panic!("no name in: {line}"));
        Weakening { step: quoted(cells[1]), test: quoted(cells[cells.len() - 1]) }
    })
}

/// Runs one test without one step. An error says why that shows nothing.
fn run(Weakening { step, test }: &Weakening<'_>) -> Result<(), String> {
    let binary = std::env::current_exe().expect("the running test");
    // Not captured: a model that finds a lost wake-up may panic inside its panic, and what is captured dies with it.
    let output = Command::new(binary)
        .args(["--exact", test, "--nocapture"])
        .env("URUK_WEAKEN", step)
        .env("LOOM_MAX_DURATION", SECONDS_MAX)
        .output()
        .expect("the running test can be run again");
    let told = String::from_utf8_lossy(&output.stderr);
    let listed = String::from_utf8_lossy(&output.stdout);
    let why = if !listed.contains("running 1 test\n") {
        "there is no such test"
    } else if output.status.success() {
        "it does not notice"
    } else if let Some(limit) = LIMITS.iter().find(|limit| told.contains(**limit)) {
        limit
    } else if !told.contains(&format!("thread '{test}'")) || !told.contains("panicked at") {
        "it ended without a panic of its own"
    } else {
        return Ok(());
    };
    Err(format!("{test} without {step}: {why} ({})\n{listed}{told}", output.status))
}

//! Weakenings: steps that a scenario must miss when they are left out.
//!
//! A step is left out where it stands, by `uruk_core::sync::weakened`, in runs whose environment names it. Loom's models say
//! why each is there; here it is seen that random schedules, as many as any run tries, come across what it prevents.

use std::process::Command;

/// Runs `test` of the calling file once without each of `steps`, and demands that it panics.
pub(crate) fn demand_noticed(test: &str, steps: &[&str]) {
    if std::env::var_os("URUK_WEAKEN").is_some() {
        // A developer runs the whole file to look at one weakening.
        return;
    }
    let binary = std::env::current_exe().expect("the running test");
    let is_missed = |step: &&&str| {
        let run = Command::new(&binary)
            .args(["--exact", test, "--nocapture"])
            .env("URUK_WEAKEN", step)
            .output()
            .expect("the running test can be run again");
        let told = String::from_utf8_lossy(&run.stderr);
        run.status.success() || !told.contains("panicked at")
    };
    let missed: Vec<_> = steps.iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "{test} does not notice that these are left out: {missed:?}");
}

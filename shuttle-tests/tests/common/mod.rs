//! The common part of random scenarios: how long they run.

use std::time::Duration;

use shuttle::scheduler::Scheduler;

/// Runs `scenario` under `iterations` random schedules of `scheduler`, or under as many as `URUK_SHUTTLE_ITERATIONS` says or
/// `URUK_SHUTTLE_SECONDS` leaves time for.
///
/// The seed is new in each process; the one of a schedule that fails is printed, and `SHUTTLE_RANDOM_SEED` sets it for the
/// scheduler that chooses at random at each step.
pub(crate) fn explore<S: Scheduler + 'static>(
    scheduler: impl FnOnce(usize) -> S,
    iterations: usize,
    scenario: impl Fn() + Send + Sync + 'static,
) {
    let mut config = shuttle::Config::new();
    // A session's frames are deeper than shuttle expects of a thread.
    config.stack_size = 512 << 10;
    config.silence_warnings = true;
    let (seconds, fixed) = (number("URUK_SHUTTLE_SECONDS"), number("URUK_SHUTTLE_ITERATIONS"));
    config.max_time = seconds.map(|seconds| Duration::from_secs(seconds as u64));
    let iterations = fixed.unwrap_or(if seconds.is_some() { usize::MAX } else { iterations });
    shuttle::Runner::new(scheduler(iterations), config).run(scenario);
}

fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

//! How long tests that hammer go on, and from which seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime};

/// Calls `round` with one seed after another until `limit` is over, or with `URUK_STRESS_SEED` alone if it is set. If a round
/// panics, says which. A short run uses the same seeds each time, a long one others.
pub fn hammer(limit: Duration, mut round: impl FnMut(u64)) {
    let only = number("URUK_STRESS_SEED");
    let begun = Instant::now();
    let first = if limit > SHORT { milliseconds_since_1970() } else { 0 };
    for seed in only.unwrap_or(first).. {
        if catch_unwind(AssertUnwindSafe(|| round(seed))).is_err() {
            panic!("URUK_STRESS_SEED={seed} repeats what has gone wrong");
        }
        if only.is_some() || begun.elapsed() > limit {
            return;
        }
    }
}

/// No hammering in the usual tests takes longer.
const SHORT: Duration = Duration::from_secs(2);

fn milliseconds_since_1970() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("a clock that is set");
    u64::try_from(since.as_millis()).expect("it is not that late")
}

/// How long `make stress` wants it: `URUK_STRESS_SECONDS`, or a minute.
pub fn stress_length() -> Duration {
    Duration::from_secs(number("URUK_STRESS_SECONDS").unwrap_or(60))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

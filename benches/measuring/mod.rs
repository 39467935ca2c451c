//! The common part of all measurements: their scale, processor time, the median of several figures.

use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Small,
    Full,
}

impl Scale {
    /// One of the two, by scale.
    pub(crate) fn pick<T>(self, small: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "small" => Ok(Self::Small),
            "full" => Ok(Self::Full),
            _ => Err(format!("--scale {text}: choose small or full")),
        }
    }
}

/// Processor time of this process; zero under valgrind, which hides the page from which the clock is read: looking for
/// it there is a fault.
pub(crate) fn processor_time() -> Duration {
    static HAS_CLOCK: OnceLock<bool> = OnceLock::new();
    let maps = || std::fs::read_to_string("/proc/self/maps");
    if !HAS_CLOCK.get_or_init(|| maps().is_ok_and(|maps| maps.contains("[vdso]"))) {
        return Duration::ZERO;
    }
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The value in the middle, or between the two in the middle; zero of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        even if even % 2 == 0 => f64::midpoint(values[half - 1], values[half]),
        _ => values[half],
    }
}

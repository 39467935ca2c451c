//! Policies: when a function is compiled better.

use std::fmt;
use std::time::Duration;

use super::TierStats;

/// Facts about a function before it is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionShape {
    /// How many instructions of the IR it has.
    pub instructions: u32,
    /// How many loops lie in each other at most; zero if no instruction runs more than once a call.
    pub loop_depth: u32,
    /// The same around a loop that calls no function. Called functions may go up while the loop runs, but the loop itself cannot.
    pub tight_loop_depth: u32,
}

#[cfg(feature = "llvm")]
impl FunctionShape {
    /// For a cache.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let Self { instructions, loop_depth, tight_loop_depth } = self;
        [instructions, loop_depth, tight_loop_depth].into_iter().flat_map(u32::to_le_bytes).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (fields, []) = bytes.as_chunks() else { return None };
        let &[instructions, loop_depth, tight_loop_depth] = fields else { return None };
        let [instructions, loop_depth, tight_loop_depth] =
            [instructions, loop_depth, tight_loop_depth].map(u32::from_le_bytes);
        Some(Self { instructions, loop_depth, tight_loop_depth })
    }
}

/// How a function is compiled that is called for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstTier {
    /// In the lower tier: it is soon there. Its calls are counted.
    Lower,
    /// The same, and in the upper tier too, in the background, after this one call. Later calls reach that.
    LowerThenUpper,
    /// In the upper tier, for which the caller waits.
    Upper,
}

/// Decides which tier a function begins in, and when it goes up.
///
/// The methods that are provided decide as .NET does.
///
/// # Concurrency
/// Called on any thread that compiles. [`threshold`](Self::threshold) and [`quiet`](Self::quiet) are asked once, when the engine is made.
///
/// # Examples
/// ```
/// use uruk_pipeline::tiers::{FirstTier, FunctionShape, TierPolicy};
///
/// /// Patient with small functions.
/// #[derive(Debug)]
/// struct Patient;
///
/// impl TierPolicy for Patient {
///     fn threshold(&self) -> u32 {
///         1_000
///     }
///     fn first(&self, function: FunctionShape) -> FirstTier {
///         if function.instructions > 100 { FirstTier::Upper } else { FirstTier::Lower }
///     }
/// }
/// assert_eq!(Patient.after_failure(3), None);
/// ```
pub trait TierPolicy: fmt::Debug + Send + Sync {
    /// How many calls of a function in the lower tier have it compiled in the upper one.
    fn threshold(&self) -> u32 {
        30
    }

    /// For how long no function may have been called for the first time before one goes up: a program that starts has no use for better code.
    fn quiet(&self) -> Duration {
        Duration::from_millis(100)
    }

    /// How a function is compiled that is called for the first time. Code that runs is not replaced, so a loop that is entered once stays in
    /// the tier it began in.
    ///
    /// Loops in loops that call nothing may do most of a program's work in one call: they begin in the upper tier, unless that takes long.
    /// Functions whose code jumps by tables of addresses, such as interpreters, are not asked for: they are optimized at once.
    fn first(&self, function: FunctionShape) -> FirstTier {
        first(function, SHORT_LOOP, LONG_LOOP)
    }

    /// After how many calls more it is tried again to compile a function better, which has failed so often; nothing: never.
    fn after_failure(&self, failures: u32) -> Option<u32> {
        const FAILURES_MAX: u32 = 3;
        (failures < FAILURES_MAX).then(|| self.threshold().saturating_mul(100_u32.saturating_pow(failures)))
    }

    /// Whether another function may go up, after what was done. If not, it stays where it is for good.
    fn may_promote(&self, spent: &TierStats) -> bool {
        spent.promoting < BUDGET
    }
}

fn first(function: FunctionShape, short: u32, long: u32) -> FirstTier {
    if function.tight_loop_depth > 1 && function.instructions <= short {
        FirstTier::Upper
    } else if function.loop_depth > 0 && function.instructions >= long {
        FirstTier::LowerThenUpper
    } else {
        FirstTier::Lower
    }
}

/// Functions with such loops are waited for up to this size: a few milliseconds.
const SHORT_LOOP: u32 = 200;
/// From this size on a function with loops may take long at each of few calls.
const LONG_LOOP: u32 = 1_000;
/// How long the engine compiles in the background altogether.
const BUDGET: Duration = Duration::from_mins(10);

/// [`TierPolicy`] as .NET has it, and numbers to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCounting {
    threshold: u32,
    quiet: Duration,
    short_loop: u32,
    long_loop: u32,
    budget: Duration,
}

impl CallCounting {
    /// After 30 calls, 100 ms after the last first call; functions with loops in loops that call nothing, and at most 200 instructions, at once.
    pub const fn new() -> Self {
        Self {
            threshold: 30,
            quiet: Duration::from_millis(100),
            short_loop: SHORT_LOOP,
            long_loop: LONG_LOOP,
            budget: BUDGET,
        }
    }

    /// Promotes after so many calls. At least one is counted.
    #[must_use]
    pub const fn with_threshold(self, threshold: u32) -> Self {
        Self { threshold, ..self }
    }

    /// Promotes nothing before no first call was made for so long.
    #[must_use]
    pub const fn with_quiet(self, quiet: Duration) -> Self {
        Self { quiet, ..self }
    }

    /// Has functions with loops in loops that call nothing begin in the upper tier if they have at most `short` instructions. Those with a loop and at least
    /// `long` go up after one call.
    #[must_use]
    pub const fn with_loops(self, short: u32, long: u32) -> Self {
        Self { short_loop: short, long_loop: long, ..self }
    }

    /// Promotes nothing more once that took so long altogether.
    #[must_use]
    pub const fn with_budget(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }
}

impl Default for CallCounting {
    fn default() -> Self {
        Self::new()
    }
}

impl TierPolicy for CallCounting {
    fn threshold(&self) -> u32 {
        self.threshold
    }

    fn quiet(&self) -> Duration {
        self.quiet
    }

    fn first(&self, function: FunctionShape) -> FirstTier {
        first(function, self.short_loop, self.long_loop)
    }

    fn may_promote(&self, spent: &TierStats) -> bool {
        spent.promoting < self.budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_loops_in_loops_are_waited_for_and_long_loops_are_not() {
        let policy = CallCounting::new().with_loops(50, 100);
        let first = |instructions, loop_depth, tight_loop_depth| {
            policy.first(FunctionShape { instructions, loop_depth, tight_loop_depth })
        };
        assert_eq!(first(50, 2, 2), FirstTier::Upper);
        assert_eq!([first(100, 1, 0), first(100, 2, 2)], [FirstTier::LowerThenUpper; 2]);
        assert_eq!(
            [first(50, 2, 1), first(51, 2, 2), first(99, 1, 1), first(5_000, 0, 0)],
            [FirstTier::Lower; 4]
        );
    }

    #[test]
    fn failures_are_tried_again_later_each_time_and_not_for_ever() {
        let calls: Vec<_> = (1..5).map(|failures| CallCounting::new().after_failure(failures)).collect();
        assert_eq!(calls, [Some(3_000), Some(300_000), None, None]);
    }

    #[test]
    fn a_spent_budget_promotes_nothing() {
        let policy = CallCounting::new().with_budget(Duration::from_secs(1));
        let spent = |promoting| TierStats { promoting, ..TierStats::default() };
        assert!(policy.may_promote(&spent(Duration::from_millis(999))));
        assert!(!policy.may_promote(&spent(Duration::from_secs(1))));
    }
}

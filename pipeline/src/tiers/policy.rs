//! What decides when a function is compiled better.

use std::fmt;
use std::time::Duration;

use super::TierStats;

/// What is known of a function before it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionShape {
    /// How many instructions of the IR it has.
    pub instructions: u32,
    /// Whether some of them may run more than once a call.
    pub has_loop: bool,
}

/// A tier: how well code is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Soon there, and slow; its calls are counted.
    Lower,
    /// Optimized, with small callees inlined.
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
/// use uruk_pipeline::tiers::{FunctionShape, Tier, TierPolicy};
///
/// /// Patient with small functions.
/// #[derive(Debug)]
/// struct Patient;
///
/// impl TierPolicy for Patient {
///     fn threshold(&self) -> u32 {
///         1_000
///     }
///     fn first(&self, function: FunctionShape) -> Tier {
///         if function.instructions > 100 { Tier::Upper } else { Tier::Lower }
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

    /// The tier that a function begins in. Code that runs is not replaced, so a loop that is entered once stays in the tier it began in.
    fn first(&self, function: FunctionShape) -> Tier {
        let is_long = function.instructions >= LOOP_INSTRUCTIONS;
        if function.has_loop && is_long { Tier::Upper } else { Tier::Lower }
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

/// Functions with loops begin in the upper tier from this size on.
const LOOP_INSTRUCTIONS: u32 = 1_000;
/// How long the engine compiles in the background altogether.
const BUDGET: Duration = Duration::from_mins(10);

/// [`TierPolicy`] as .NET has it, and numbers to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCounting {
    threshold: u32,
    quiet: Duration,
    loop_instructions: u32,
    budget: Duration,
}

impl CallCounting {
    /// After 30 calls, 100 ms after the last first call; functions with loops and many instructions at once.
    pub const fn new() -> Self {
        Self {
            threshold: 30,
            quiet: Duration::from_millis(100),
            loop_instructions: LOOP_INSTRUCTIONS,
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

    /// Has functions with loops and at least so many instructions begin in the upper tier.
    #[must_use]
    pub const fn with_loop_instructions(self, loop_instructions: u32) -> Self {
        Self { loop_instructions, ..self }
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

    fn first(&self, function: FunctionShape) -> Tier {
        let is_long = function.instructions >= self.loop_instructions;
        if function.has_loop && is_long { Tier::Upper } else { Tier::Lower }
    }

    fn may_promote(&self, spent: &TierStats) -> bool {
        spent.promoting < self.budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_loops_begin_above_and_everything_else_below() {
        let first = |instructions, has_loop| {
            CallCounting::new().with_loop_instructions(50).first(FunctionShape { instructions, has_loop })
        };
        assert_eq!(first(50, true), Tier::Upper);
        assert_eq!([first(49, true), first(5_000, false)], [Tier::Lower; 2]);
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

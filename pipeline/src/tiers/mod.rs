//! Tiers: lazy functions are compiled soon at first, and better once they are called often.
//!
//! ```text
//!  first call ─▶ lower tier ─▶ its calls are counted ─threshold─▶ queue ─▶ promoter: compile better ─▶ publish
//!      └───────▶ upper tier, if the policy says so                         (a thread in the background)
//! ```
//!
//! Calls are counted beside the stub ([`lazy`](crate::lazy)), and not in the code: objects do not change, and a function in the upper tier
//! is called as if there were no tiers. A [`TierPolicy`] decides. Code that runs is not replaced: a frame that was entered stays in its tier.
//!
//! **The thread.** The first call of a function starts it; in a program that has the process for itself, the first function that goes up
//! does. It blocks all signals, and holds a lock of the process while it works: a fork waits for it, and so does a thread that stops it. A
//! child has no such thread, and promotes nothing: functions that are called first there begin in the upper tier.
//!
//! **A count that runs out** may do so in a handler of a signal. It takes no lock that it would have to wait for, and allocates nothing.
//! If the queue is busy or full, the count begins anew.

mod image_body;
mod policy;
mod promoter;

pub use image_body::ImageBody;
pub use policy::{CallCounting, FirstTier, FunctionShape, TierPolicy};

use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uruk_core::{SharedError, SymbolName};
use uruk_recorder::{Entry, Kind, TierEnd};

use promoter::Promoter;

use crate::runtime::background::wait_for_rest;

/// A tier: how well code is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Soon there, and slow.
    Lower,
    /// Optimized, with small callees inlined.
    Upper,
}

/// Counts of compiled functions by tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStats {
    /// Functions that began in the lower tier.
    pub lower: u64,
    /// How long compiling them took.
    pub lower_time: Duration,
    /// Functions that began in the upper tier.
    pub upper: u64,
    /// How long compiling them took.
    pub upper_time: Duration,
    /// Functions that went up.
    pub promoted: u64,
    /// How long that took, failed promotions included.
    pub promoting: Duration,
    /// Promotions that failed.
    pub failed: u64,
    /// Promotions that the policy's budget did not allow.
    pub over_budget: u64,
}

/// The tiers of an engine.
///
/// # Concurrency
/// Cloning it is cheap; all clones are one.
#[derive(Clone)]
pub struct Tiers(Arc<TierState>);

struct TierState {
    policy: Arc<dyn TierPolicy>,
    threshold: u32,
    quiet: Duration,
    began: Instant,
    /// When a function was last compiled because it was called, in nanoseconds since it all began.
    last_first_call: AtomicU64,
    is_on: AtomicBool,
    promoter: Promoter,
    counts: TierCounts,
}

/// Each is for people alone: nothing hangs on it.
#[derive(Default)]
struct TierCounts {
    lower: AtomicU64,
    lower_ns: AtomicU64,
    upper: AtomicU64,
    upper_ns: AtomicU64,
    promoted: AtomicU64,
    promoting_ns: AtomicU64,
    failed: AtomicU64,
    over_budget: AtomicU64,
}

/// The next step for a function whose count has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedOut {
    /// It waits for the promoter, and need not be counted.
    Queued,
    /// So many calls more are counted.
    Again(u32),
}

/// The promoter's order for a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromotionOrder {
    /// Compile it better, for the time of this number. If that fails, so many calls more are counted, or none.
    Attempt { number: u32, after_failure: Option<u32>, uses_pool: bool },
    /// Leave it as it is for good.
    CountNoMore,
}

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromotionEnd {
    Promoted,
    Failed,
    /// As was ordered.
    Refused,
    /// It was removed, or has another body by now.
    Gone,
}

/// A function that may go up.
pub(crate) trait Promote: Send + Sync {
    /// Has it compiled better, if that `is_allowed`, and publishes that.
    fn promote(&self, tiers: &Tiers, is_allowed: bool) -> PromotionEnd;
}

/// A source of better bodies of functions: a compiler that can do more for a function than it did at first.
///
/// [`LazyCallThroughManager::improvable_reexports`](crate::lazy::LazyCallThroughManager::improvable_reexports) makes functions of it.
///
/// # Concurrency
/// First calls ask about a body, on their small stacks, and so does the thread that compiles better. None of the methods may wait for a
/// call.
pub trait Improve: Send + Sync {
    /// Decides which functions go up.
    fn tiers(&self) -> &Tiers;

    /// Whether a body, which was compiled, can be compiled better. Calls of others are not counted.
    fn is_improvable(&self, body: &SymbolName) -> bool;

    /// Whether the first call has it compiled better, and not only many calls.
    fn is_urgent(&self, body: &SymbolName) -> bool;

    /// Defines the better body in the dylib of the body, to be compiled when it is looked up, and gives its name. `None` if it cannot be
    /// wanted any more. `attempt` counts from 1: a failed attempt keeps its name.
    ///
    /// # Errors
    /// Why it cannot be defined. The function stays as it is, and is counted again if the policy says so.
    fn define_better(&self, body: &SymbolName, attempt: u32) -> Result<Option<SymbolName>, SharedError>;

    /// Hears how the attempt ended: the function has its better body, or why not.
    fn note_attempt(&self, _body: &SymbolName, _end: Result<(), &(dyn Error + 'static)>) {}
}

impl Tiers {
    /// Tiers with a policy. Better code is compiled by a thread of their own; if `uses_pool`, by the workers of the session's dispatcher,
    /// once they have nothing more urgent to do.
    pub fn new(policy: Arc<dyn TierPolicy>, uses_pool: bool) -> Self {
        let (threshold, quiet) = (policy.threshold().max(1), policy.quiet());
        Self(Arc::new(TierState {
            policy,
            threshold,
            quiet,
            began: Instant::now(),
            last_first_call: AtomicU64::new(0),
            is_on: AtomicBool::new(true),
            promoter: Promoter::new(uses_pool),
            counts: TierCounts::default(),
        }))
    }

    /// The policy.
    pub fn policy(&self) -> &dyn TierPolicy {
        &*self.0.policy
    }

    /// Whether functions go up. In the child of a fork they do not.
    pub fn is_on(&self) -> bool {
        // Relaxed: a thread that reads an old value compiles in the wrong tier, which does no harm.
        self.0.is_on.load(Ordering::Relaxed) && self.0.promoter.is_here()
    }

    /// Starts no more promotions; a running one is finished. Functions that are called first after that begin in the upper tier.
    ///
    /// # Concurrency
    /// Callable from any thread. Does not wait.
    pub fn stop(&self) {
        self.0.is_on.store(false, Ordering::Relaxed); // as in `is_on`
        self.0.promoter.stop();
    }

    /// The same, and waits for a running promotion.
    ///
    /// # Concurrency
    /// Blocks for as long as one function takes. Not to be called by code that compiles.
    pub fn stop_and_wait(&self) {
        self.stop();
        wait_for_rest();
    }

    /// Statistics so far.
    pub fn stats(&self) -> TierStats {
        let counts = &self.0.counts;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed); // for people
        let time = |counter| Duration::from_nanos(count(counter));
        TierStats {
            lower: count(&counts.lower),
            lower_time: time(&counts.lower_ns),
            upper: count(&counts.upper),
            upper_time: time(&counts.upper_ns),
            promoted: count(&counts.promoted),
            promoting: time(&counts.promoting_ns),
            failed: count(&counts.failed),
            over_budget: count(&counts.over_budget),
        }
    }

    /// How many calls are counted at first.
    pub(crate) fn threshold(&self) -> u32 {
        self.0.threshold
    }

    /// Runs `compile` for a function that is called for the first time, and notes it for the figures and for the policy's quiet.
    pub fn first<R>(&self, tier: Tier, compile: impl FnOnce() -> R) -> R {
        let counts = &self.0.counts;
        let (count, time, end) = match tier {
            Tier::Lower => (&counts.lower, &counts.lower_ns, TierEnd::Lower),
            Tier::Upper => (&counts.upper, &counts.upper_ns, TierEnd::Upper),
        };
        let begun = Instant::now();
        let compiled = compile();
        note(time, end, begun.elapsed());
        count.fetch_add(1, Ordering::Relaxed); // for people
        // Relaxed: a moment, which nothing else hangs on.
        self.0.last_first_call.store(nanoseconds(self.0.began.elapsed()), Ordering::Relaxed);
        compiled
    }

    /// Takes note of a function whose count has run out. In a handler of a signal too.
    pub(crate) fn counted_out<P: Promote + 'static>(&self, function: &Arc<P>) -> CountedOut {
        let shared = &*self.0;
        if !self.is_on() {
            return CountedOut::Again(u32::MAX);
        }
        if self.until_quiet().is_zero() && shared.promoter.push(self, function.clone()) {
            CountedOut::Queued
        } else {
            CountedOut::Again(shared.threshold.saturating_mul(CALLS_MEANWHILE))
        }
    }

    /// How long no function must be called for the first time before one goes up.
    fn until_quiet(&self) -> Duration {
        let shared = &*self.0;
        let last = Duration::from_nanos(shared.last_first_call.load(Ordering::Relaxed)); // as in `first`
        (last + shared.quiet).saturating_sub(shared.began.elapsed())
    }

    /// Has a function promoted after its first call, once there is quiet. If the queue is full, its calls will do that.
    pub(crate) fn promote_soon(&self, function: Arc<dyn Promote>) {
        if self.is_on() {
            self.0.promoter.push(self, function);
        }
    }

    /// Starts the thread if it is missing, at a place where that can do no harm. A program that has the process for itself may never need it,
    /// and is not to find it there sooner.
    pub(crate) fn may_start_thread(&self, is_of_process: bool) {
        if self.is_on() {
            self.0.promoter.start_if_wanted(self, is_of_process);
        }
    }

    /// Promotes one function.
    fn promote(&self, function: &dyn Promote) {
        let counts = &self.0.counts;
        let begun = Instant::now();
        let end = function.promote(self, self.0.policy.may_promote(&self.stats()));
        let (counter, noted) = match end {
            PromotionEnd::Promoted => (Some(&counts.promoted), TierEnd::Promoted),
            PromotionEnd::Failed => (Some(&counts.failed), TierEnd::Failed),
            PromotionEnd::Refused => (Some(&counts.over_budget), TierEnd::OverBudget),
            PromotionEnd::Gone => (None, TierEnd::Gone),
        };
        note(&counts.promoting_ns, noted, begun.elapsed());
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed); // for people
        }
    }

    pub(crate) fn uses_pool(&self) -> bool {
        self.0.promoter.uses_pool()
    }
}

/// How many times the threshold is counted while the program starts: to be told earlier costs more than it helps.
const CALLS_MEANWHILE: u32 = 32;

fn note(sum: &AtomicU64, end: TierEnd, time: Duration) {
    let time = nanoseconds(time);
    sum.fetch_add(time, Ordering::Relaxed); // for people
    uruk_recorder::note(|| Entry::new(Kind::Tiered).with(end as u64, time));
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tiers")
            .field("policy", &self.0.policy)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

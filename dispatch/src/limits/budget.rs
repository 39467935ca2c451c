//! Budget: how much of the workers' time tasks in the background may take.
//!
//! An account in worker time. Each task in the background that runs, and is not blocked, adds to the *debt* for as long as it does;
//! the share pays it back all the time, also while nobody owes anything, up to [`CREDIT`]. None starts while there is debt.
//!
//! ```text
//!  debt   0 ──╮  a task begins                      ╭─ the next one may start
//!             ╰─▶ grows by (1 - rate) each second ──┤ ends ─▶ falls by rate each second
//!                                                   rate = workers * share
//! ```
//!
//! A task that has begun is not stopped, so the share holds over times that are long beside one task: what it took too much is
//! paid back before the next starts. What counts is the time in which a worker is taken, which is processor time as long as
//! there are processors for all threads; where there are not, background work stands back a little more.
//!
//! **Architecture Invariant: no timer, and no worker that waits inside a task.** Whether there is debt is asked where a task of the
//! background is about to be taken. Only who has nothing else to do sleeps until it may be paid, and then looks again.

use std::fmt;
use std::time::{Duration, Instant};

use uruk_core::sync::{Arc, Mutex};

/// What time it is.
pub(crate) type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// See the module.
pub(crate) struct Budget {
    clock: Clock,
    account: Mutex<Account>,
}

/// What the share of one hundredth of a worker is worth in a nanosecond is the unit of all of it.
#[derive(Debug)]
struct Account {
    /// How much is paid back in a nanosecond: hundredths of workers.
    rate: i128,
    /// How many tasks run, since the debt was brought up to date.
    running: i128,
    since: Instant,
    debt: i128,
    /// Nobody asks any more.
    lifted: bool,
}

/// So long the share is put by if it is not used; and so long at most somebody sleeps who waits for debt to be paid.
const CREDIT: Duration = Duration::from_millis(100);
/// Nobody is woken for less.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// What a task adds to the debt in a nanosecond.
const WORKER: i128 = 100;

impl Budget {
    /// A share of `percent` of the time of so many workers.
    pub(crate) fn new(percent: u32, workers: usize, clock: Clock) -> Self {
        let rate = i128::from(percent.max(1)) * workers as i128;
        let account = Account { rate, running: 0, since: clock(), debt: 0, lifted: false };
        Self { clock, account: Mutex::new(account) }
    }

    /// So many more tasks run, or so many fewer.
    pub(super) fn count(&self, change: i128) {
        self.with(|account| account.running += change);
    }

    /// Whether no further task may start now.
    pub(super) fn is_spent(&self) -> bool {
        self.with(|account| account.debt > 0 && !account.lifted)
    }

    /// How long to sleep before it is worth to ask again; no time if it is now.
    pub(super) fn sleep_for(&self) -> Duration {
        self.with(|account| account.sleep_for())
    }

    /// Nothing is held back from now on.
    pub(super) fn lift(&self) {
        self.with(|account| account.lifted = true);
    }

    fn with<R>(&self, operation: impl FnOnce(&mut Account) -> R) -> R {
        // The clock is code of the embedder. Who asks it has a worker's place to give back, and goes on whatever it does.
        let mut now = None;
        let _ = crate::worker::catch(|| now = Some((self.clock)()));
        let mut account = self.account.lock();
        if let Some(now) = now {
            account.bring_up_to(now);
        }
        operation(&mut account)
    }
}

impl Account {
    fn bring_up_to(&mut self, now: Instant) {
        // A clock that another thread has read earlier may be behind.
        let passed = now.saturating_duration_since(self.since);
        self.since += passed;
        let change = (self.running * WORKER - self.rate) * passed.as_nanos() as i128;
        self.debt = (self.debt + change).max(-self.rate * CREDIT.as_nanos() as i128);
    }

    fn sleep_for(&self) -> Duration {
        let falls = self.rate - self.running * WORKER;
        if self.debt <= 0 || self.lifted {
            Duration::ZERO
        } else if falls <= 0 {
            // Until something that runs ends or blocks; that is told, too.
            CREDIT
        } else {
            let nanos = u64::try_from(self.debt / falls).unwrap_or(u64::MAX);
            Duration::from_nanos(nanos).clamp(SLEEP_MIN, CREDIT)
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("account", &self.account).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A budget whose clock says what it is told.
    fn budget(percent: u32, workers: usize) -> (Budget, impl Fn(u32)) {
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = now.clone();
        let passes = move |ms| *now.lock() += ms * MS;
        (Budget::new(percent, workers, Arc::new(move || *clock.lock())), passes)
    }

    #[test]
    fn what_was_taken_is_paid_back_before_the_next_starts() {
        let (budget, passes) = budget(25, 1);
        assert!(!budget.is_spent(), "the first may start");
        budget.count(1);
        passes(30);
        budget.count(-1);
        // 30 ms were taken, of which 7.5 have been paid; 22.5 take 90.
        assert_eq!((budget.is_spent(), budget.sleep_for()), (true, 90 * MS));
        passes(89);
        assert_eq!((budget.is_spent(), budget.sleep_for()), (true, MS));
        passes(1);
        assert_eq!((budget.is_spent(), budget.sleep_for()), (false, Duration::ZERO));
    }

    #[test]
    fn the_share_is_that_of_all_workers() {
        let (budget, passes) = budget(50, 4);
        budget.count(2);
        passes(1000);
        assert!(!budget.is_spent(), "two of four are half");
        budget.count(1);
        passes(10);
        // The third worker's 10 ms, while the three go on.
        assert_eq!((budget.is_spent(), budget.sleep_for()), (true, CREDIT));
        budget.count(-2);
        assert_eq!(budget.sleep_for(), 10 * MS);
    }

    #[test]
    fn what_is_not_used_is_put_by_for_a_while() {
        let (budget, passes) = budget(10, 1);
        passes(60_000);
        budget.count(1);
        passes(11);
        assert!(!budget.is_spent(), "a tenth of 100 ms, and of these 11");
        passes(1);
        assert!(budget.is_spent());
    }

    #[test]
    fn a_long_task_is_paid_back_however_long_it_was() {
        let (budget, passes) = budget(1, 1);
        budget.count(1);
        passes(10_000);
        budget.count(-1);
        assert_eq!(budget.sleep_for(), CREDIT);
        passes(989_999);
        assert!(budget.is_spent());
        passes(1);
        assert!(!budget.is_spent());
    }

    #[test]
    fn nothing_is_held_back_after_the_end() {
        let (budget, passes) = budget(1, 1);
        budget.count(1);
        passes(1000);
        budget.lift();
        assert_eq!((budget.is_spent(), budget.sleep_for()), (false, Duration::ZERO));
    }
}

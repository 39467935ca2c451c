//! How long tasks wait between their dispatch and their start, if anybody wants to know.
//!
//! A task that is wanted more urgently is dispatched again with the higher priority, so the time from *demand* to start is the
//! wait of the demanded one. The other, when its turn comes, finds nothing to do, and counts where it was queued. The turn of a task
//! in a serial queue has waited for as long as the task has.

use std::fmt;
use std::time::Instant;

use uruk_core::Task;
use uruk_core::sync::Arc;

use crate::worker::catch;

use super::Counter;

/// The clock by which waits are measured.
#[derive(Clone)]
pub(crate) struct Clock(pub(crate) Arc<dyn Fn() -> Instant + Send + Sync>);

impl Default for Clock {
    fn default() -> Self {
        Self(Arc::new(Instant::now))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Times in microseconds, in buckets of powers of two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WaitHistogram {
    buckets: [u64; BUCKETS],
    total_us: u64,
}

/// The last bucket begins at 2^30 microseconds, which are eighteen minutes.
const BUCKETS: usize = 32;

impl WaitHistogram {
    /// How many times there are of each size: bucket 0 counts those below a microsecond, bucket `i` those of at least
    /// 2^(`i` - 1) and less than 2^`i` microseconds, and the last one all that are longer.
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// How many times there are in all.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All times together, in microseconds.
    pub fn total_us(&self) -> u64 {
        self.total_us
    }

    /// The end, in microseconds, of the bucket in which that part of all times (0.5 is the median) is reached; nothing if
    /// there are no times, and `u64::MAX` for the last bucket.
    pub fn quantile_us(&self, part: f64) -> Option<u64> {
        let rank = (self.count() as f64 * part.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut counted = 0;
        let reached = self.buckets.iter().position(|&bucket| {
            counted += bucket;
            counted >= rank
        })?;
        Some(if reached == BUCKETS - 1 { u64::MAX } else { 1 << reached })
    }
}

impl Default for WaitHistogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], total_us: 0 }
    }
}

impl fmt::Debug for WaitHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        f.debug_map().entries(filled).finish()
    }
}

/// The counters behind a histogram.
#[derive(Debug)]
pub(crate) struct WaitCounters {
    buckets: [Counter; BUCKETS],
    total_us: Counter,
}

impl WaitCounters {
    /// Counts a time. Few threads meet here: each slot has its own counters.
    pub(crate) fn count(&self, wait_us: u32) {
        let bucket = (u32::BITS - wait_us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].increment();
        self.total_us.add(wait_us.into(), false);
    }

    pub(super) fn add_to(&self, sum: &mut WaitHistogram) {
        for (bucket, counter) in sum.buckets.iter_mut().zip(&self.buckets) {
            *bucket += counter.get();
        }
        sum.total_us += self.total_us.get();
    }
}

impl Default for WaitCounters {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Counter::default()), total_us: Counter::default() }
    }
}

/// Stamps tasks when they are queued. Off by default, because a clock costs as much as a short task.
pub(crate) struct Stopwatch {
    /// And when it was set going.
    clock: Option<(Clock, Instant)>,
}

/// A task in a queue, and when it came there.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) task: Task,
    since: Stamp,
}

/// Microseconds since the pool was made, modulo an hour and more; nothing is said of waits that long. None if the clock did not say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp(Option<u32>);

/// By how much a thread's clock may be behind that of another.
const BEHIND_MAX_US: u32 = 1_000_000;

impl Stopwatch {
    /// Measures by that clock, if by any.
    pub(crate) fn new(clock: Option<Clock>) -> Self {
        Self { clock: clock.map(|clock| (clock.clone(), (clock.0)())) }
    }

    /// To be called where nothing is borrowed: the clock is code of the embedder.
    pub(crate) fn now(&self) -> Stamp {
        Stamp(self.now_us())
    }

    /// How long a task that starts now has waited, in microseconds; nothing if that is not measured.
    pub(crate) fn waited_us(&self, queued: &Queued) -> Option<u32> {
        let waited = self.now_us()?.wrapping_sub(queued.since.0?);
        // Clocks of two threads may differ.
        Some(if waited > u32::MAX - BEHIND_MAX_US { 0 } else { waited })
    }

    /// The time of [`Self::now`], for callers that cannot know a stamp.
    pub(crate) fn now_us(&self) -> Option<u32> {
        let (clock, epoch) = self.clock.as_ref()?;
        let mut read = None;
        // A task is not lost for a clock that panics.
        let _ = catch(|| read = Some((clock.0)().saturating_duration_since(*epoch).as_micros() as u32));
        read
    }
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopwatch").field("measures", &self.clock.is_some()).finish()
    }
}

impl Queued {
    /// One that is queued at `now`.
    pub(crate) fn new(task: Task, now: Stamp) -> Self {
        let since = if now.0.is_some() { Stamp(task.waits_since_us().or(now.0)) } else { now };
        Self { task, since }
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_bucket_of_their_power_of_two() {
        let counters = WaitCounters::default();
        for wait_us in [0, 1, 2, 3, 4, 1023, 1024, u32::MAX] {
            counters.count(wait_us);
        }
        let mut waits = WaitHistogram::default();
        counters.add_to(&mut waits);
        let filled: Vec<_> = waits.buckets().iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(filled, [(0, &1), (1, &1), (2, &2), (3, &1), (10, &1), (11, &1), (31, &1)]);
        assert_eq!((waits.count(), waits.total_us()), (8, 10 + 1023 + 1024 + u64::from(u32::MAX)));
        assert_eq!(waits.quantile_us(0.5), Some(4));
        assert_eq!((waits.quantile_us(0.0), waits.quantile_us(1.0)), (Some(1), Some(u64::MAX)));
        assert_eq!(WaitHistogram::default().quantile_us(0.5), None);
    }
}

//! [`Backoff`]: helpers that end at once are not started over and over.

use std::time::{Duration, Instant};

/// The first pause, and the longest.
const PAUSE_MS: u64 = 10;
const PAUSE_MS_MAX: u64 = 1_000;

/// After so many failures in a row, requests fail until the pause is over.
const FAILURES_MAX: u32 = 6;

/// Starts that have failed one after another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    last: Option<Instant>,
}

impl Backoff {
    /// How long to wait before the next start. Nothing if that is too long, and no helper is to be started now.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        let Some(last) = self.last else { return Some(Duration::ZERO) };
        let pause = PAUSE_MS.saturating_mul(1 << self.failures.saturating_sub(1).min(20)).min(PAUSE_MS_MAX);
        let left = Duration::from_millis(pause).saturating_sub(now.saturating_duration_since(last));
        (left.is_zero() || self.failures < FAILURES_MAX).then_some(left)
    }

    /// A helper was not ready, or ended before its first job.
    pub(super) fn note_failure(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.last = Some(now);
    }

    /// A helper is ready.
    pub(super) fn note_success(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_requests_are_refused_for_a_while() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.pause(now), Some(Duration::ZERO));
        for pause_ms in [10, 20, 40, 80, 160] {
            backoff.note_failure(now);
            assert_eq!(backoff.pause(now), Some(Duration::from_millis(pause_ms)));
        }
        backoff.note_failure(now);
        assert_eq!(backoff.pause(now), None);
        assert_eq!(backoff.pause(now + Duration::from_millis(PAUSE_MS_MAX)), Some(Duration::ZERO));
        (0..100).for_each(|_| backoff.note_failure(now));
        assert_eq!(backoff.pause(now + Duration::from_millis(PAUSE_MS_MAX)), Some(Duration::ZERO));
        backoff.note_success();
        assert_eq!(backoff.pause(now), Some(Duration::ZERO));
    }
}

//! Time as the processor counts it, and how it becomes nanoseconds.
//!
//! Reading the counter takes a third of a call of the system's clock. A ring has a note now and then that ties the two; between two such notes
//! the counter runs evenly, which x86-64 processors of the last fifteen years promise, and the generic timer of AArch64 does.

use std::time::{Duration, Instant};

/// How long the counter is watched when a recording begins. Each ring begins with a note that says its rate better.
const FIRST_LOOK: Duration = Duration::from_micros(2);

/// Fractions of a nanosecond in a rate.
const FRACTION_BITS: u32 = 32;

/// The processor's counter.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The processor's counter.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux lets programs read, and does nothing else.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
    };
    ticks
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) ticks: u64,
    /// Since the recording began.
    pub(crate) nanos: u64,
}

/// Watches the counter for a moment. Gives the beginning by both clocks, and the rate.
pub(crate) fn begin() -> (u64, Instant, u64) {
    let (start_ticks, start) = (ticks(), Instant::now());
    let passed = loop {
        let passed = start.elapsed();
        if passed >= FIRST_LOOK {
            break passed;
        }
    };
    let now = Moment { ticks: ticks(), nanos: passed.as_nanos() as u64 };
    (start_ticks, start, now.rate(start_ticks).unwrap_or(1 << FRACTION_BITS))
}

impl Moment {
    /// Nanoseconds a tick since the beginning, with its fraction.
    pub(crate) fn rate(self, start_ticks: u64) -> Option<u64> {
        let ticks = self.ticks.checked_sub(start_ticks).filter(|&ticks| ticks > 0)?;
        u64::try_from((u128::from(self.nanos) << FRACTION_BITS) / u128::from(ticks)).ok()
    }
}

/// The nanoseconds of so many ticks. Numbers of a foreign file may be too large: then the largest time.
pub(crate) fn nanos(ticks: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(ticks) * u128::from(rate)) >> FRACTION_BITS).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_the_nanoseconds_that_the_rate_was_taken_from() {
        let moment = Moment { ticks: 1_000 + 30_000, nanos: 10_000 };
        let rate = moment.rate(1_000).unwrap();
        assert_eq!(nanos(15_001, rate), 5_000);
        assert_eq!(nanos(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(moment.rate(moment.ticks), None);
    }

    #[test]
    fn a_process_knows_the_rate_of_its_counter_at_once() {
        let (start, _, rate) = begin();
        // From 16 GHz down to 16 MHz. Counters of AArch64 are slow.
        assert!(start > 0 && (1 << FRACTION_BITS >> 4..1 << FRACTION_BITS << 6).contains(&rate), "{rate}");
    }
}

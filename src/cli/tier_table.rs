//! The part of `--stats` on tiers: how many functions began in each, how many went up, and how long that took; and of what was compiled
//! ahead.

use std::fmt;

use uruk::pipeline::lazy::SpeculationStats;
use uruk_recorder::{Sums, TierEnd};

/// The table of tiers; nothing where there are none.
pub(crate) struct TierTable<'a>(pub(crate) &'a Sums);

impl fmt::Display for TierTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tier = |end: TierEnd| self.0.tiers[end as usize];
        if TierEnd::ALL.into_iter().all(|end| tier(end) == Default::default()) {
            return Ok(());
        }
        // Time that was spent in vain was spent all the same.
        let in_vain = [TierEnd::Failed, TierEnd::OverBudget, TierEnd::Gone].map(|end| tier(end).nanos);
        writeln!(f, "{:<20} {:>9} {:>12}", "tier", "functions", "compile ms")?;
        for (name, end, more) in [
            ("not optimized", TierEnd::Lower, 0),
            ("optimized at once", TierEnd::Upper, 0),
            ("optimized later", TierEnd::Promoted, in_vain.iter().sum()),
        ] {
            let millis = (tier(end).nanos + more) as f64 / 1e6;
            writeln!(f, "{name:<20} {:>9} {millis:>12.2}", tier(end).functions)?;
        }
        for (end, what) in
            [(TierEnd::Failed, "failed to be optimized"), (TierEnd::OverBudget, "were over the budget")]
        {
            if tier(end).functions > 0 {
                writeln!(f, "  {} {what}", tier(end).functions)?;
            }
        }
        Ok(())
    }
}

/// The line of what was compiled ahead.
pub(crate) struct AheadLine(pub(crate) SpeculationStats);

impl fmt::Display for AheadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpeculationStats { ahead, used, time, failed, unknown, .. } = self.0;
        write!(f, "compiled ahead: {ahead} functions in {:.2} ms", time.as_secs_f64() * 1e3)?;
        write!(f, ", {used} of them were called")?;
        for (functions, what) in [(failed, "failed"), (unknown, "of the order are unknown")] {
            if functions > 0 {
                write!(f, "; {functions} {what}")?;
            }
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uruk_recorder::TierSum;

    #[test]
    fn what_did_not_happen_is_not_mentioned() {
        let mut sums = Sums::default();
        assert_eq!(TierTable(&sums).to_string(), "");
        let mut count = |end: TierEnd, functions, millis: u64| {
            sums.tiers[end as usize] = TierSum { functions, nanos: millis * 1_000_000 };
            TierTable(&sums).to_string()
        };
        count(TierEnd::Lower, 12, 34);
        let table = count(TierEnd::Promoted, 5, 10);
        let lines: Vec<_> = table.lines().map(str::trim_end).collect();
        assert_eq!(lines[1], "not optimized               12        34.00");
        assert_eq!(lines.len(), 4, "{table}");
        let table = count(TierEnd::Failed, 1, 2);
        assert!(table.contains("optimized later              5        12.00"), "{table}");
        assert!(table.ends_with("  1 failed to be optimized\n"), "{table}");
    }
}

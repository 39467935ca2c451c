//! The part of `--stats` on tiers: how many functions began in each, how many went up, and how long that took; and of what was compiled
//! ahead.

use std::fmt;

use uruk::pipeline::lazy::SpeculationStats;
use uruk::pipeline::tiers::TierStats;

/// The table of tiers.
pub(crate) struct TierTable(pub(crate) TierStats);

impl fmt::Display for TierTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.0;
        writeln!(f, "{:<20} {:>9} {:>12}", "tier", "functions", "compile ms")?;
        for (tier, functions, time) in [
            ("not optimized", stats.lower, stats.lower_time),
            ("optimized at once", stats.upper, stats.upper_time),
            ("optimized later", stats.promoted, stats.promoting),
        ] {
            writeln!(f, "{tier:<20} {functions:>9} {:>12.2}", time.as_secs_f64() * 1e3)?;
        }
        for (functions, what) in
            [(stats.failed, "failed to be optimized"), (stats.over_budget, "were over the budget")]
        {
            if functions > 0 {
                writeln!(f, "  {functions} {what}")?;
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
    use std::time::Duration;

    #[test]
    fn what_did_not_happen_is_not_mentioned() {
        let mut stats = TierStats::default();
        (stats.lower, stats.lower_time, stats.promoted) = (12, Duration::from_millis(34), 5);
        let table = TierTable(stats).to_string();
        let lines: Vec<_> = table.lines().map(str::trim_end).collect();
        assert_eq!(lines[1], "not optimized               12        34.00");
        assert_eq!(lines.len(), 4, "{table}");
        stats.failed = 1;
        assert!(TierTable(stats).to_string().ends_with("  1 failed to be optimized\n"));
    }
}

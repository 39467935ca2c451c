//! How long LLVM's passes took, for `--stats`: by stage, and the passes that took longest.

use std::collections::BTreeMap;
use std::fmt;

use uruk_recorder::{PassSum, Sums};

/// How many passes are shown.
const SHOWN: usize = 10;

/// Two tables; nothing if no pass ran.
pub(crate) struct PassTables<'a>(pub(crate) &'a Sums);

/// The stage and the pass in a name of [`Sums::passes`].
pub(crate) fn parts(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

/// Sums by a part of the name, the longest first.
fn sums_by<'a>(
    passes: &'a BTreeMap<String, PassSum>,
    key: impl Fn(&'a str) -> &'a str,
) -> Vec<(&'a str, PassSum)> {
    let mut sums = BTreeMap::<&str, PassSum>::new();
    for (name, PassSum { runs, nanos }) in passes {
        let sum = sums.entry(key(name)).or_default();
        (sum.runs, sum.nanos) = (sum.runs + runs, sum.nanos + nanos);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.nanos));
    sums
}

impl fmt::Display for PassTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passes = &self.0.passes;
        let whole: u64 = passes.values().map(|sum| sum.nanos).sum();
        if whole == 0 {
            return Ok(());
        }
        let mut table = |title: &str, rows: &[(&str, PassSum)]| {
            writeln!(f, "{title:<32} {:>10} {:>12} {:>7}", "runs", "ms", "share")?;
            rows.iter().try_for_each(|(name, sum)| {
                let (millis, share) = (sum.nanos as f64 / 1e6, sum.nanos as f64 / whole as f64);
                writeln!(f, "{name:<32} {:>10} {millis:>12.2} {:>6.1}%", sum.runs, 100.0 * share)
            })
        };
        table("stage of optimization", &sums_by(passes, |name| parts(name).0))?;
        let by_pass = sums_by(passes, |name| parts(name).1);
        table("pass", &by_pass[..SHOWN.min(by_pass.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_summed_by_stage_and_by_pass() {
        let mut sums = Sums::default();
        assert_eq!(PassTables(&sums).to_string(), "");
        for (name, millis) in [("loop/licm", 30), ("scalar/licm", 20), ("scalar/gvn", 50)] {
            sums.passes.insert(name.to_owned(), PassSum { runs: 2, nanos: millis * 1_000_000 });
        }
        let text = PassTables(&sums).to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["scalar", "4", "70.00", "70.0%"]);
        assert_eq!(lines[2], ["loop", "2", "30.00", "30.0%"]);
        assert_eq!(lines[4], ["gvn", "2", "50.00", "50.0%"]);
        assert_eq!(lines[5], ["licm", "4", "50.00", "50.0%"]);
    }
}

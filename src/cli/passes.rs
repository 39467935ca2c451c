//! How long LLVM's passes took, for `--stats`: by stage, and the passes that took longest.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tracing::Event;
use tracing::field::{Field, Visit};

/// The target of events that say how long a pass took.
pub(crate) const TARGET: &str = "uruk::passes";

/// How many passes are shown.
const SHOWN: usize = 10;

/// Sums by stage and pass.
#[derive(Debug, Default)]
pub(crate) struct PassSums(BTreeMap<(String, String), Sum>);

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    runs: u64,
    time: Duration,
}

impl PassSums {
    /// Adds what an event of [`TARGET`] says.
    pub(crate) fn add(&mut self, event: &Event<'_>) {
        let mut told = Told::default();
        event.record(&mut told);
        let sum = self.0.entry((told.stage, told.pass)).or_default();
        sum.runs += told.runs;
        sum.time += Duration::from_nanos(told.nanoseconds);
    }

    fn by(&self, key: impl Fn(&str, &str) -> String) -> Vec<(String, Sum)> {
        let mut sums = BTreeMap::<String, Sum>::new();
        for ((stage, pass), sum) in &self.0 {
            let total = sums.entry(key(stage, pass)).or_default();
            total.runs += sum.runs;
            total.time += sum.time;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.time));
        sums
    }
}

impl fmt::Display for PassSums {
    /// Two tables; nothing if no pass ran.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole: Duration = self.0.values().map(|sum| sum.time).sum();
        if whole.is_zero() {
            return Ok(());
        }
        let mut table = |title: &str, rows: &[(String, Sum)]| {
            writeln!(f, "{title:<32} {:>10} {:>12} {:>7}", "runs", "ms", "share")?;
            rows.iter().try_for_each(|(name, sum)| {
                let (millis, share) =
                    (sum.time.as_secs_f64() * 1e3, sum.time.as_secs_f64() / whole.as_secs_f64());
                writeln!(f, "{name:<32} {:>10} {millis:>12.2} {:>6.1}%", sum.runs, 100.0 * share)
            })
        };
        table("stage of optimization", &self.by(|stage, _| stage.to_owned()))?;
        let passes = self.by(|_, pass| pass.to_owned());
        table("pass", &passes[..SHOWN.min(passes.len())])
    }
}

/// The fields of one event.
#[derive(Default)]
struct Told {
    stage: String,
    pass: String,
    runs: u64,
    nanoseconds: u64,
}

impl Visit for Told {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "stage" => value.clone_into(&mut self.stage),
            "pass" => value.clone_into(&mut self.pass),
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "runs" => self.runs = value,
            "nanoseconds" => self.nanoseconds = value,
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_summed_by_stage_and_by_pass() {
        let mut sums = PassSums::default();
        assert_eq!(sums.to_string(), "");
        for (stage, pass, millis) in [("loop", "licm", 30), ("scalar", "licm", 20), ("scalar", "gvn", 50)] {
            let key = (stage.to_owned(), pass.to_owned());
            sums.0.insert(key, Sum { runs: 2, time: Duration::from_millis(millis) });
        }
        let text = sums.to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["scalar", "4", "70.00", "70.0%"]);
        assert_eq!(lines[2], ["loop", "2", "30.00", "30.0%"]);
        assert_eq!(lines[4], ["gvn", "2", "50.00", "50.0%"]);
        assert_eq!(lines[5], ["licm", "4", "50.00", "50.0%"]);
    }
}

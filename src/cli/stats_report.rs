//! The reports of `--stats` and `--stats=json`: what was materialized, how long each stage took, and what it costs in memory.
//!
//! A stage is a phase. Its *total* is the time that threads spent inside such phases; its *own* time leaves out phases nested in it, so that
//! own times can be added up, and the share is taken of their sum. Time spent waiting in a lookup is no work: it is shown apart.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use uruk::ImageBodyCounts;
use uruk::pipeline::lazy::SpeculationStats;
use uruk_recorder::{CacheSums, StageSum, Sums, TierEnd};

use super::passes::{self, PassTables};
use super::tier_table::{AheadLine, TierTable};
use super::unit_counts::UnitCounts;

/// The forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportForm {
    /// For people.
    Tables,
    /// An object in one line. `src/README.md` has its keys.
    Json,
}

/// Everything that is reported.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) sums: &'a Sums,
    pub(crate) since_start: Duration,
    /// That entries of the cache could not be stored.
    pub(crate) unstored: Option<String>,
    pub(crate) ahead: Option<SpeculationStats>,
    /// The units of the package that runs.
    pub(crate) image: Option<UnitCounts>,
    /// A report for a signal has none: it is made before.
    pub(crate) has_memory: bool,
    pub(crate) form: ReportForm,
}

/// The memory of the process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    /// Now.
    pub(crate) now_bytes: u64,
    /// At most so far.
    pub(crate) peak_bytes: u64,
}

/// Phases in which a thread waits for others rather than works.
const WAITING: [&str; 3] = ["session.lookup", "lookup.wait", "dispatch.block"];

fn is_wait(stage: &str) -> bool {
    WAITING.contains(&stage)
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            ReportForm::Tables => self.write_tables(f),
            ReportForm::Json => writeln!(f, "{}", self.json()),
        }
    }
}

impl Report<'_> {
    fn write_tables(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = self.sums;
        let Sums { claimed, emitted, ready, failed, lost, .. } = sums;
        write!(f, "materialized {emitted} of {claimed} units claimed: {ready} symbols ready")?;
        if *failed > 0 {
            write!(f, ", {failed} failed")?;
        }
        writeln!(f, "; {:.3} s since start", self.since_start.as_secs_f64())?;
        if let Some(UnitCounts { units, used, rejected, bodies }) = self.image {
            let compiled = self.compiled();
            writeln!(
                f,
                "image: {used} of {units} units used, {rejected} rejected; {compiled} modules compiled"
            )?;
            if bodies.functions > 0 {
                let ImageBodyCounts { functions, better, not_improvable, .. } = bodies;
                writeln!(
                    f,
                    "  bodies of {functions} functions: {better} better by now, {not_improvable} not improvable"
                )?;
            }
        }
        if self.whole() > 0 {
            writeln!(f, "compiled as a whole, and not on call: {} modules; -v names them", self.whole())?;
        }
        write_cache(f, &sums.cache)?;
        self.unstored.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        write_stages(f, sums)?;
        write!(f, "{}{}", PassTables(sums), TierTable(sums))?;
        self.ahead.map_or(Ok(()), |ahead| write!(f, "{}", AheadLine(ahead)))?;
        if *lost > 0 {
            writeln!(f, "{lost} notes were overwritten before they were read: these sums are too small")?;
        }
        match self.has_memory.then(Resident::of_this_process) {
            None => Ok(()),
            Some(Some(resident)) => writeln!(f, "{resident}"),
            Some(None) => writeln!(f, "resident: unknown, /proc/self/status cannot be read"),
        }
    }

    /// How many modules could not be compiled on call.
    fn whole(&self) -> u64 {
        self.sums.stages.get("ir.whole").map_or(0, |stage| stage.count)
    }

    /// How often code was generated.
    fn compiled(&self) -> u64 {
        self.sums.stages.get("ir.codegen").map_or(0, |stage| stage.count)
    }

    fn json(&self) -> Value {
        let sums = self.sums;
        let CacheSums { objects, hits, parts, part_hits, misses } = &sums.cache;
        let stages = sums.stages.iter().map(|(name, StageSum { count, total, own, max })| {
            json!({ "name": name, "is_wait": is_wait(name), "count": count, "total_ns": total, "own_ns": own, "max_ns": max })
        });
        let passes = sums.passes.iter().map(|(name, sum)| {
            let (stage, pass) = passes::parts(name);
            json!({ "stage": stage, "pass": pass, "runs": sum.runs, "ns": sum.nanos })
        });
        let misses = misses
            .iter()
            .map(|miss| json!({ "unit": miss.unit, "entry": miss.entry.text(), "cause": miss.cause }));
        let tier = |end: TierEnd| {
            let sum = sums.tiers[end as usize];
            json!({ "functions": sum.functions, "ns": sum.nanos })
        };
        let ahead = self.ahead.map(|ahead| {
            json!({
                "functions": ahead.ahead, "used": ahead.used, "ns": ahead.time.as_nanos() as u64,
                "failed": ahead.failed, "unknown": ahead.unknown,
            })
        });
        let memory =
            self.has_memory.then(Resident::of_this_process).flatten().map(
                |resident| json!({ "now_bytes": resident.now_bytes, "peak_bytes": resident.peak_bytes }),
            );
        json!({
            "since_start_ns": self.since_start.as_nanos() as u64,
            "units": { "claimed": sums.claimed, "emitted": sums.emitted },
            "symbols": { "ready": sums.ready, "failed": sums.failed },
            "stages": stages.collect::<Vec<_>>(),
            "passes": passes.collect::<Vec<_>>(),
            "cache": {
                "objects": objects, "hits": hits, "parts": parts, "part_hits": part_hits,
                "misses": misses.collect::<Vec<_>>(), "unstored": self.unstored,
            },
            "tiers": {
                "lower": tier(TierEnd::Lower), "upper": tier(TierEnd::Upper), "promoted": tier(TierEnd::Promoted),
                "failed": tier(TierEnd::Failed), "over_budget": tier(TierEnd::OverBudget),
            },
            "whole_modules": self.whole(),
            "ahead": ahead,
            "image": self.image.map(|image| {
                json!({
                    "units": image.units, "used": image.used, "rejected": image.rejected, "compiled": self.compiled(),
                    "bodies": {
                        "functions": image.bodies.functions, "better": image.bodies.better,
                        "not_improvable": image.bodies.not_improvable,
                    },
                })
            }),
            "memory": memory,
            "lost_notes": sums.lost,
        })
    }
}

/// `cache hits: 260/261 (99 %)`, and a line for each miss; nothing without questions.
fn write_cache(f: &mut fmt::Formatter<'_>, cache: &CacheSums) -> fmt::Result {
    let CacheSums { objects, hits, parts, part_hits, misses } = cache;
    if *objects > 0 || !misses.is_empty() {
        // Rounded down: all is all.
        let percent = (hits * 100).checked_div(*objects).unwrap_or(100);
        writeln!(f, "cache hits: {hits}/{objects} ({percent} %)")?;
    }
    if *parts > 0 {
        writeln!(f, "  parts and functions: {part_hits}/{parts} ({} %)", part_hits * 100 / parts)?;
    }
    misses
        .iter()
        .try_for_each(|miss| writeln!(f, "  {}: no {}: {}", miss.unit, miss.entry.text(), miss.cause))
}

/// Stages by own time, longest first; waits below.
fn write_stages(f: &mut fmt::Formatter<'_>, sums: &Sums) -> fmt::Result {
    let (waiting, mut working): (Vec<_>, Vec<_>) = sums.stages.iter().partition(|(name, _)| is_wait(name));
    if working.is_empty() && waiting.is_empty() {
        return Ok(());
    }
    working.sort_by_key(|(_, stage)| std::cmp::Reverse(stage.own));
    let busy: u64 = working.iter().map(|(_, stage)| stage.own).sum();
    let millis = |nanos: u64| nanos as f64 / 1e6;
    writeln!(
        f,
        "{:<20} {:>8} {:>12} {:>12} {:>7} {:>12}",
        "stage", "count", "total ms", "own ms", "share", "max ms"
    )?;
    for (name, StageSum { count, total, own, max }) in working {
        let share = 100.0 * *own as f64 / (busy as f64).max(f64::MIN_POSITIVE);
        let [total, own, max] = [total, own, max].map(|nanos| millis(*nanos));
        writeln!(f, "{name:<20} {count:>8} {total:>12.2} {own:>12.2} {share:>6.1}% {max:>12.2}")?;
    }
    writeln!(f, "{:<20} {:>8} {:>12} {:>12.2}", "busy, all threads", "", "", millis(busy))?;
    for (name, StageSum { count, total, max, .. }) in waiting {
        let (name, total, max) = (format!("({name})"), millis(*total), millis(*max));
        writeln!(f, "{name:<20} {count:>8} {total:>12.2} {:>12} {:>7} {max:>12.2}", "", "")?;
    }
    Ok(())
}

impl Resident {
    /// Asks the operating system, if it can be asked.
    pub(crate) fn of_this_process() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/status").ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kibibytes << 10)
        };
        Some(Self { now_bytes: bytes("VmRSS:")?, peak_bytes: bytes("VmHWM:")? })
    }
}

impl fmt::Display for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [now, peak] = [self.now_bytes, self.peak_bytes].map(|bytes| bytes as f64 / f64::from(1 << 20));
        write!(f, "resident: {now:.1} MiB now, {peak:.1} MiB at most")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(sums: &Sums, form: ReportForm) -> String {
        let (since_start, unstored, ahead, image) = (Duration::from_millis(1500), None, None, None);
        Report { sums, since_start, unstored, ahead, image, has_memory: true, form }.to_string()
    }

    fn stage(millis: u64) -> StageSum {
        let nanos = millis * 1_000_000;
        StageSum { count: 1, total: nanos, own: nanos, max: nanos }
    }

    #[test]
    fn shares_are_of_work_and_waits_stand_apart() {
        let stages = [("ir.codegen", 75), ("ir.optimize", 25), ("session.lookup", 900)];
        let stages = stages.map(|(name, millis)| (name.to_owned(), stage(millis)));
        let mut sums = Sums::default();
        sums.stages = stages.into();
        let table = report(&sums, ReportForm::Tables);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[2].starts_with("ir.codegen") && lines[2].contains(" 75.0%"), "{table}");
        assert!(lines[3].starts_with("ir.optimize") && lines[3].contains(" 25.0%"), "{table}");
        assert!(lines[5].starts_with("(session.lookup)") && !lines[5].contains('%'), "{table}");
    }

    #[test]
    fn nothing_measured_is_no_table() {
        let report = report(&Sums::default(), ReportForm::Tables);
        assert!(
            report.starts_with("materialized 0 of 0 units claimed: 0 symbols ready; 1.500 s since start\n")
        );
        assert!(report.contains("resident: ") && !report.contains("stage"), "{report}");
    }

    #[test]
    fn losses_and_failures_are_said() {
        let mut sums = Sums::default();
        (sums.claimed, sums.emitted, sums.ready, sums.failed, sums.lost) = (2, 1, 3, 1, 7);
        let report = report(&sums, ReportForm::Tables);
        assert!(
            report.starts_with("materialized 1 of 2 units claimed: 3 symbols ready, 1 failed;"),
            "{report}"
        );
        assert!(report.contains("\n7 notes were overwritten"), "{report}");
    }

    #[test]
    fn the_object_is_one_line() {
        let stages = [("ir.codegen".to_owned(), stage(75)), ("lookup.wait".to_owned(), stage(80))];
        let mut sums = Sums::default();
        (sums.claimed, sums.stages) = (2, stages.into());
        let line = report(&sums, ReportForm::Json);
        assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&object["units"]["claimed"], &object["since_start_ns"]),
            (&2.into(), &1_500_000_000.into())
        );
        assert_eq!(object["stages"][0]["own_ns"], 75_000_000);
        assert_eq!((&object["stages"][1]["is_wait"], &object["ahead"]), (&true.into(), &Value::Null));
        assert!(object["memory"]["peak_bytes"].as_u64() > Some(0), "{line}");
    }

    #[test]
    fn resident_memory_is_read_from_the_status_file() {
        let status = "Name:\turuk\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let resident = Resident::parse(status).unwrap();
        assert_eq!(resident, Resident { now_bytes: 1 << 20, peak_bytes: 2 << 20 });
        assert_eq!(resident.to_string(), "resident: 1.0 MiB now, 2.0 MiB at most");
        assert_eq!(Resident::parse("Name:\turuk\n"), None);
    }
}

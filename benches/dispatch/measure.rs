//! Repetitions of two things in turn, and how their figures are told.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::Case;
use crate::measuring::median;
pub(crate) use crate::measuring::{Scale, processor_time};

impl Scale {
    pub(crate) fn repetitions(self) -> usize {
        self.pick(5, 15)
    }
}

/// The time of one repetition, of all its operations together.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) wall: Duration,
    /// Of the whole process.
    pub(crate) cpu: Duration,
}

impl Taken {
    /// Times `region`.
    pub(crate) fn by(region: impl FnOnce()) -> Self {
        let (cpu, begun) = (processor_time(), Instant::now());
        region();
        Self { wall: begun.elapsed(), cpu: processor_time() - cpu }
    }

    /// As if each operation had taken as long as the median one: what latency is, where others have the processor at times.
    pub(crate) fn median(mut each: Vec<Duration>, cpu: Duration) -> Self {
        each.sort_unstable();
        let operations = u32::try_from(each.len()).expect("some thousand at most");
        Self { wall: each[each.len() / 2] * operations, cpu }
    }
}

/// A case's figures in nanoseconds an operation, one for each repetition.
pub(crate) struct Measured {
    /// Distinguishes rows of one case: a parameter and its value.
    pub(crate) parameter: Option<(&'static str, String)>,
    pub(crate) operations: usize,
    wall: Vec<f64>,
    cpu: Vec<f64>,
    beside: Option<Beside>,
    extras: Vec<(&'static str, f64)>,
}

struct Beside {
    name: &'static str,
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

impl Measured {
    /// Measures `ours` alone.
    pub(crate) fn alone(scale: Scale, operations: usize, mut ours: impl FnMut() -> Taken) -> Self {
        let taken: Vec<Taken> = (0..scale.repetitions()).map(|_| ours()).collect();
        Self::of(operations, &taken)
    }

    /// Measures `ours` and `theirs` in turn.
    pub(crate) fn beside(
        name: &'static str,
        scale: Scale,
        operations: usize,
        mut ours: impl FnMut() -> Taken,
        mut theirs: impl FnMut() -> Taken,
    ) -> Self {
        let pairs: (Vec<Taken>, Vec<Taken>) = (0..scale.repetitions()).map(|_| (ours(), theirs())).unzip();
        Self::of(operations, &pairs.0).with_beside(name, &pairs.1)
    }

    /// A measurement made elsewhere.
    pub(crate) fn of(operations: usize, taken: &[Taken]) -> Self {
        let (wall, cpu) = each(operations, taken);
        Self { parameter: None, operations, wall, cpu, beside: None, extras: Vec::new() }
    }

    /// Adds a measurement made elsewhere, in turn with ours and with as many operations.
    pub(crate) fn with_beside(mut self, name: &'static str, taken: &[Taken]) -> Self {
        let (wall, cpu) = each(self.operations, taken);
        self.beside = Some(Beside { name, wall, cpu });
        self
    }

    pub(crate) fn with(mut self, parameter: &'static str, value: impl ToString) -> Self {
        self.parameter = Some((parameter, value.to_string()));
        self
    }

    pub(crate) fn extra(mut self, name: &'static str, value: f64) -> Self {
        self.extras.push((name, value));
        self
    }

    fn ratios(&self) -> Option<Vec<f64>> {
        let beside = self.beside.as_ref()?;
        Some(beside.wall.iter().zip(&self.wall).map(|(theirs, ours)| theirs / ours.max(1e-3)).collect())
    }

    /// The figures as a line.
    pub(crate) fn json(&self, case: &Case) -> String {
        let mut line = format!("{{\"case\":\"{}\"", case.name);
        let mut add =
            |text: std::fmt::Arguments<'_>| line.write_fmt(text).expect("a String takes everything");
        if let Some((name, value)) = &self.parameter {
            add(format_args!(",\"{name}\":\"{value}\""));
        }
        let wall = Summary::of(&self.wall);
        add(format_args!(
            ",\"n\":{},\"threads\":{},\"reps\":{},\"ns_per_op\":{:.1},\"ns_per_op_min\":{:.1},\"ns_per_op_max\":{:.1},\"cpu_ns_per_op\":{:.1}",
            self.operations,
            case.threads,
            self.wall.len(),
            wall.median,
            wall.least,
            wall.most,
            Summary::of(&self.cpu).median,
        ));
        if let (Some(beside), Some(ratios)) = (&self.beside, self.ratios()) {
            let ratio = Summary::of(&ratios);
            add(format_args!(
                ",\"beside\":\"{}\",\"beside_ns_per_op\":{:.1},\"beside_cpu_ns_per_op\":{:.1},\"ratio\":{:.3},\"ratio_min\":{:.3},\"ratio_max\":{:.3}",
                beside.name,
                Summary::of(&beside.wall).median,
                Summary::of(&beside.cpu).median,
                ratio.median,
                ratio.least,
                ratio.most,
            ));
        }
        for (name, value) in &self.extras {
            add(format_args!(",\"{name}\":{value:.3}"));
        }
        line + "}"
    }

    /// The figures as cells of a table.
    pub(crate) fn table_row(&self, case: &Case) -> [String; 8] {
        let parameter = self.parameter.as_ref();
        let parameter = parameter.map_or(String::new(), |(name, value)| format!(" {name}={value}"));
        let wall = Summary::of(&self.wall);
        let dash = || "-".to_owned();
        let (name, theirs, ratio, spread) = match (&self.beside, self.ratios()) {
            (Some(beside), Some(ratios)) => {
                let ratio = Summary::of(&ratios);
                (
                    beside.name.to_owned(),
                    nanos(Summary::of(&beside.wall).median),
                    format!("{:.2}", ratio.median),
                    format!("{:.2}..{:.2}", ratio.least, ratio.most),
                )
            }
            _ => (dash(), dash(), dash(), dash()),
        };
        [
            format!("{}{parameter}", case.name),
            case.threads.to_string(),
            nanos(wall.median),
            format!("{}..{}", nanos(wall.least), nanos(wall.most)),
            name,
            theirs,
            ratio,
            spread,
        ]
    }
}

fn each(operations: usize, taken: &[Taken]) -> (Vec<f64>, Vec<f64>) {
    let each = |time: Duration| time.as_nanos() as f64 / operations as f64;
    taken.iter().map(|taken| (each(taken.wall), each(taken.cpu))).unzip()
}

struct Summary {
    least: f64,
    median: f64,
    most: f64,
}

impl Summary {
    fn of(values: &[f64]) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { least, median: median(values.to_vec()), most }
    }
}

/// A duration that began as nanoseconds, in the unit that suits it.
fn nanos(value: f64) -> String {
    match value {
        small if small < 10_000.0 => format!("{small:.0} ns"),
        middle if middle < 1e7 => format!("{:.1} us", middle / 1e3),
        large => format!("{:.1} ms", large / 1e6),
    }
}

/// Prints rows under a heading, each column as wide as it must be.
pub(crate) fn print_table(rows: &[[String; 8]]) {
    let heading = ["case", "threads", "median", "spread", "beside", "median", "ratio", "spread"];
    let heading = heading.map(str::to_owned);
    let all = || std::iter::once(&heading).chain(rows);
    let widths: [usize; 8] =
        std::array::from_fn(|column| all().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in all() {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("{}", cells.join("  ").trim_end());
    }
}

//! The engine measured case by case as LLVM ORC is, so that two runs can be laid side by side.
//!
//! ```text
//! cargo bench --bench peer -- [--case REGEX] [--scale small|full] [--data DIR] [--modules DIR] [--no-fork] [--list]
//! ```
//!
//! Prints one JSON object a line, a point each. `REGEX` is searched in `case/group/n`. Each point runs in a
//! process of its own, so that its memory and its crashes are its own too; `--no-fork` runs them in this one, for
//! `perf` and valgrind. (Under valgrind `cpu_ms` is zero: it hides the page from which that clock is read.) A point of a
//! group is skipped when it would take too long, judged by how time has grown with `n` between the two before it, or
//! by the square where there is only one.
//!
//! Cases that compile do so with ten modules or, at full scale, two hundred, which `generate.rs` writes as the peer's generator
//! does; with `--data` they are those that this has written to `DIR/ir_small` and `DIR/ir`, with `--modules` any of a folder.
//!
//! Two things differ from the peer, because returning free memory to the system is an unsafe call: figures in
//! bytes are those of a point's first repetition, and `bytes_per_op_ready` includes what the allocator keeps.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]
#![expect(clippy::print_stderr, reason = "a mistake on the command line is told to its author")]

mod definitions;
mod dependences;
#[cfg(feature = "llvm")]
mod end_to_end;
#[cfg(feature = "llvm")]
mod generate;
mod graph;
mod harness;
mod intern;
#[cfg(feature = "llvm")]
mod lazy;
#[cfg(feature = "llvm")]
mod linking;
mod materialize;
#[cfg(feature = "llvm")]
mod modules;
mod parked;
#[cfg(feature = "llvm")]
mod parts;
mod point;
mod ready;
#[cfg(feature = "llvm")]
mod startup;
mod support;

#[path = "../measuring/mod.rs"]
mod measuring;

use std::collections::HashMap;
use std::process::ExitCode;

use regex::Regex;

use harness::Scale;
#[cfg(feature = "llvm")]
use modules::Level;
use point::{Inputs, Point};

const USAGE: &str = "usage: cargo bench --bench peer -- [--case REGEX] [--scale small|full] [--data DIR] [--modules DIR] [--no-fork] [--list]";

/// The options of the command line.
struct Options {
    case: Regex,
    inputs: Inputs,
    list: bool,
    in_process: bool,
    /// The one point to run here: how a process asks for another.
    point: Option<usize>,
    /// The level of the one start to time here.
    #[cfg(feature = "llvm")]
    start: Option<Level>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(options) => {
            run(&options);
            ExitCode::SUCCESS
        }
        Err(mistake) => {
            eprintln!("{mistake}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let all = Regex::new("").map_err(|error| error.to_string())?;
    let mut options = Options {
        case: all,
        inputs: Inputs::default(),
        list: false,
        in_process: false,
        point: None,
        #[cfg(feature = "llvm")]
        start: None,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} wants a value"));
        match argument.as_str() {
            "--case" => options.case = Regex::new(&value()?).map_err(|error| error.to_string())?,
            "--scale" => options.inputs.scale = value()?.parse()?,
            "--data" => options.inputs.data = Some(value()?.into()),
            "--modules" => options.inputs.modules = Some(value()?.into()),
            "--no-fork" => options.in_process = true,
            "--list" => options.list = true,
            "--point" => options.point = Some(value()?.parse().map_err(|error| format!("--point: {error}"))?),
            // How a process asks for another that has done nothing before.
            #[cfg(feature = "llvm")]
            "--start" => {
                let level = value()?;
                options.start =
                    Some(Level::named(&level).ok_or_else(|| format!("--start {level}: O0 or O2"))?);
            }
            // Cargo passes this to every bench.
            "--bench" => {}
            _ => return Err(format!("{argument}: no such option")),
        }
    }
    Ok(options)
}

/// All points, in the peer's order.
fn points(inputs: &Inputs) -> Vec<Point> {
    let scale = inputs.scale;
    let mut points = intern::points(scale);
    points.extend(ready::points(scale));
    points.extend(definitions::absolute_points(scale));
    points.extend(materialize::noop_points(scale));
    points.extend(dependences::points(scale));
    points.extend(materialize::contended_points(scale));
    points.extend(definitions::tracker_points(scale));
    #[cfg(feature = "llvm")]
    {
        points.extend(end_to_end::points(inputs));
        points.extend(linking::points(inputs));
        points.extend(lazy::points(inputs));
        points.extend(startup::points(inputs));
    }
    points
}

fn run(options: &Options) {
    #[cfg(feature = "llvm")]
    if let Some(level) = options.start {
        return startup::tell(level);
    }
    let points = points(&options.inputs);
    if let Some(index) = options.point {
        if let Some(point) = points.get(index) {
            (point.run)();
        }
        return;
    }
    if options.list {
        println!("# Those of the peer's that compile, link or start are there if built with LLVM.");
    }
    let mut growth = Growth::default();
    let mut last: HashMap<&str, Last> = HashMap::new();
    for (index, point) in points.iter().enumerate().filter(|(_, point)| options.case.is_match(&point.id())) {
        if options.list {
            println!("{}", point.id());
        } else if options.in_process {
            (point.run)();
        } else if let Some(reason) =
            last.get(point.group).and_then(|last| too_long(point, last, options.inputs.scale))
        {
            println!("{},\"skipped\":\"{reason}\"}}", point.json_head());
        } else {
            let outcome = point::run_in_a_process(index, &options.inputs);
            print!("{}", outcome.printed);
            if let Some(error) = &outcome.error {
                println!("{},\"error\":\"{error}\"}}", point.json_head());
            }
            if point.grows() {
                let millis = if outcome.error.is_none() { outcome.total_millis() } else { None };
                let exponent = last.get(point.group).and_then(|last| last.exponent(point.n, millis?));
                last.insert(point.group, Last { n: point.n, millis, exponent: exponent.unwrap_or(2.0) });
                growth.note(point, millis);
            }
        }
    }
    growth.report();
}

/// How time grows with `n` within each group, from [`Growth::FROM`] on.
#[derive(Default)]
struct Growth(Vec<OfGroup>);

/// A case, its group, and for each `n` of its points the milliseconds.
type OfGroup = (&'static str, &'static str, Vec<(usize, f64)>);

impl Growth {
    const FROM: usize = 10_000;

    fn note(&mut self, point: &Point, millis: Option<f64>) {
        let Some(millis) = millis.filter(|_| point.n >= Self::FROM) else {
            return;
        };
        match self.0.iter_mut().find(|(_, group, _)| *group == point.group) {
            Some((.., figures)) => figures.push((point.n, millis)),
            None => self.0.push((point.case, point.group, vec![(point.n, millis)])),
        }
    }

    /// A line for each group: the power of `n` by which time grows from the smallest to the largest.
    fn report(&self) {
        for (case, group, figures) in &self.0 {
            let (Some(&(from, few)), Some(&(to, many))) = (figures.first(), figures.last()) else {
                continue;
            };
            if from < to {
                let exponent = (many / few).ln() / (to as f64 / from as f64).ln();
                println!(
                    "{{\"case\":\"{case}\",\"group\":\"{group}\",\"from_n\":{from},\"to_n\":{to},\"time_exponent\":{exponent:.3}}}"
                );
            }
        }
    }
}

/// The last point of a group.
struct Last {
    n: usize,
    /// None if it broke.
    millis: Option<f64>,
    /// The power of `n` by which time is expected to grow from here.
    exponent: f64,
}

impl Last {
    /// The power of `n` by which time has grown from here to the next point; at least one and at most two are credible.
    fn exponent(&self, n: usize, millis: f64) -> Option<f64> {
        let exponent = (millis / self.millis?).ln() / (n as f64 / self.n as f64).ln();
        Some(exponent.clamp(1.0, 2.0))
    }
}

/// Why `point` would take too long, judged by those before it in its group.
fn too_long(point: &Point, last: &Last, scale: Scale) -> Option<String> {
    let &Last { n, millis, exponent } = last;
    let Some(millis) = millis else {
        return Some("the smaller one broke".to_owned());
    };
    let growth = point.n as f64 / n as f64;
    let seconds = millis * growth.powf(exponent) / 1_000.0;
    (seconds > scale.longest_seconds())
        .then(|| format!("extrapolation by the power {exponent:.2}: {seconds:.1} s"))
}

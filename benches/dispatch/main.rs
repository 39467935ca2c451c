//! The scheduler: the cost of a task, the delay until another thread has it, the delay of a demanded unit behind a long queue.
//!
//! ```text
//! cargo bench --bench dispatch -- [--case REGEX] [--scale small|full] [--list] [--help]
//! ```
//!
//! One JSON object a line while it runs, a table at the end. Where a case has something beside it, most often the same on
//! rayon's pool, the two run in turn in each repetition, and `ratio` is the other's time divided by ours: above 1 ours is
//! faster. Figures are medians, with the least and the most of all repetitions beside them; where an operation is a latency
//! (`wake`, `steal`, `first_result`, `raised_result`), a repetition's figure is the median of its operations.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]
#![expect(clippy::print_stderr, reason = "a mistake on the command line is told to its author")]

#[cfg(feature = "llvm")]
mod contexts;
mod first_result;
mod idle;
mod measure;
mod pools;

#[path = "../measuring/mod.rs"]
mod measuring;

use std::process::ExitCode;

use regex::Regex;

use measure::{Measured, Scale};

const HELP: &str = "\
usage: cargo bench --bench dispatch -- [--case REGEX] [--scale small|full] [--list] [--help]

  --case REGEX   only cases of which `case/threads` matches
  --scale        how much is measured: small (some seconds) or full
  --list         names the cases and what an operation of each is

An operation that has another beside it is measured in turn with it; ratio = theirs / ours.";

/// Something to measure.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) threads: usize,
    /// The meaning of one operation.
    pub(crate) operation: &'static str,
    pub(crate) run: Box<dyn Fn(Scale) -> Vec<Measured>>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Command::Help) => println!("{HELP}"),
        Ok(Command::List(cases)) => {
            for case in cases {
                println!("{}/{}: {}", case.name, case.threads, case.operation);
            }
        }
        Ok(Command::Run(cases, scale)) => run(&cases, scale),
        Err(mistake) => {
            eprintln!("{mistake}\n{HELP}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

enum Command {
    Help,
    List(Vec<Case>),
    Run(Vec<Case>, Scale),
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut wanted, mut scale, mut list) = (None, Scale::Small, false);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} wants a value"));
        match argument.as_str() {
            "--case" => wanted = Some(Regex::new(&value()?).map_err(|error| error.to_string())?),
            "--scale" => scale = value()?.parse()?,
            "--list" => list = true,
            "--help" | "-h" => return Ok(Command::Help),
            // Cargo passes this to every bench.
            "--bench" => {}
            _ => return Err(format!("{argument}: no such option")),
        }
    }
    let mut cases = pools::cases();
    cases.extend(first_result::cases());
    cases.extend(idle::cases());
    #[cfg(feature = "llvm")]
    cases.extend(contexts::cases());
    if let Some(wanted) = wanted {
        cases.retain(|case| wanted.is_match(&format!("{}/{}", case.name, case.threads)));
    }
    Ok(if list { Command::List(cases) } else { Command::Run(cases, scale) })
}

fn run(cases: &[Case], scale: Scale) {
    let mut table = Vec::new();
    for case in cases {
        for measured in (case.run)(scale) {
            println!("{}", measured.json(case));
            table.push(measured.table_row(case));
        }
    }
    println!();
    measure::print_table(&table);
}

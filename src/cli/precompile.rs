//! `uruk precompile`: functions that traces list are compiled into a cache.

use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use uruk::core::WithCauses;
use uruk::pipeline::ir::{OptimizationLevel, Partition, PartitionPolicy};
use uruk::pipeline::lazy::CompileTrace;
use uruk::pipeline::runtime::process::ProcessSymbols;
use uruk::pipeline::tiers::CallCounting;
use uruk::{CacheOptions, Jit, JitError, OnCall, Precompiled};

use super::clang::SourceOptions;
use super::observe::{Observers, TraceError};
use super::order::{self, OrderError};
use super::record::{self, RecordError};
use super::run::{RunError, add_file};
use super::stats_report::ReportForm;
use super::values::{cores, level};
use super::{cache, report};

/// `uruk precompile`.
#[derive(Debug, Args)]
pub(crate) struct PrecompileArgs {
    /// Traces, and the files that `uruk run` is to run: all of the program.
    #[arg(value_name = "TRACE|FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// The directory of the cache [default: what URUK_CACHE says in the environment].
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,

    /// Optimization level, as for `uruk run`.
    #[arg(short = 'O', value_name = "0|1|2|3|s|z", default_value = "2", value_parser = level)]
    pub(crate) optimize: OptimizationLevel,

    /// Compile for `uruk run --tiered`: it then begins with the optimized code of the functions.
    #[arg(long)]
    pub(crate) tiered: bool,

    /// How many threads compile [default: the number of cores].
    #[arg(short = 'j', long = "jobs", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,

    /// Load a shared library that the files refer to. Repeatable.
    #[arg(long, value_name = "LIB", action = ArgAction::Append)]
    pub(crate) load: Vec<PathBuf>,

    /// Print what was compiled, and how long each stage took.
    #[arg(long)]
    pub(crate) stats: bool,
}

/// Why functions were not compiled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrecompileError {
    #[error("none of the files is a trace; uruk run --lazy --trace-compile FILE writes one")]
    NoTrace,
    #[error("a trace says what to compile, and no file says of what; name the files of the program too")]
    NoFile,
    #[error("which cache? Name its directory: --cache DIR, or URUK_CACHE=DIR in the environment")]
    NoCache,
    #[error("the cache cannot be used: {0}")]
    Cache(String),
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(transparent)]
    File(#[from] RunError),
    #[error("cannot link the program")]
    Link(#[source] JitError),
    #[error(transparent)]
    Jit(#[from] JitError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Compiles what the traces list, and says how much that was.
pub(crate) fn precompile(args: &PrecompileArgs) -> Result<(), PrecompileError> {
    let (traces, files): (Vec<&PathBuf>, Vec<&PathBuf>) =
        args.files.iter().partition(|path| order::is_trace(path));
    let name = files.first().ok_or(PrecompileError::NoFile)?.display().to_string();
    if traces.is_empty() {
        // One that is not there may have been meant.
        let missing = files.iter().find(|path| !path.exists()).map(|path| order::read_trace(path));
        return Err(missing.and_then(Result::err).map_or(PrecompileError::NoTrace, PrecompileError::Order));
    }
    let mut trace = CompileTrace::default();
    for path in traces {
        trace.merge(order::read_trace(path)?);
    }
    let stats = args.stats.then_some(ReportForm::Tables);
    record::begin_if_read(stats)?;
    let observers = Observers::install(None, stats, false, &name)?;
    let compiled = compile(args, &files, &trace);
    observers.leave_terminal();
    let (compiled, found) = compiled?;
    for (function, error) in &compiled.failed {
        report::warning(&format!("`{function}` cannot be compiled and linked"), error);
    }
    // A reader that has gone misses nothing.
    let _ = writeln!(io::stdout(), "{}", Summary { trace: &trace, compiled: &compiled, found });
    if let Err(error) = observers.finish() {
        report::error(&error);
    }
    Ok(())
}

/// The outcome, and how many functions were in the cache already.
fn compile(
    args: &PrecompileArgs,
    files: &[&PathBuf],
    trace: &CompileTrace,
) -> Result<(Precompiled, u64), PrecompileError> {
    let jit = engine(args)?;
    jit.speculator().compare_sources();
    if let Some(tiers) = jit.tiers() {
        // All compilations from then on are of the upper tier.
        tiers.stop();
    }
    let source = SourceOptions::here(args.optimize);
    for file in files {
        add_file(&jit, Path::new(file), None, source)?;
    }
    let compiled = jit.precompile(trace).map_err(PrecompileError::Link)?;
    let found = jit.cache_stats().map_or(0, |stats| stats.part_hits);
    jit.flush_cache();
    Ok((compiled, found))
}

fn engine(args: &PrecompileArgs) -> Result<Jit, PrecompileError> {
    let process = ProcessSymbols::of_program();
    for library in &args.load {
        process.load_library(library).map_err(JitError::from)?;
    }
    let directory = cache::directory(args.cache.as_deref()).ok_or(PrecompileError::NoCache)?;
    let threads = args.jobs.map_or_else(cores, usize::from);
    let builder = Jit::builder().optimization(args.optimize).threads(threads).process_symbols(process);
    let builder = builder
        .keep_dependants(false)
        .partition(Partition::new(PartitionPolicy::Whole, threads))
        .compile_on_call(OnCall::Function)
        .cache(CacheOptions::directory(directory));
    let builder = if args.tiered { builder.tiers(CallCounting::new()) } else { builder };
    let jit = builder.build()?;
    match jit.cache_refused() {
        Some(refused) => Err(PrecompileError::Cache(WithCauses(refused).to_string())),
        None => Ok(jit),
    }
}

struct Summary<'a> {
    trace: &'a CompileTrace,
    compiled: &'a Precompiled,
    found: u64,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, compiled, found } = self;
        write!(f, "functions in the cache: {}, of which {found} were there before", compiled.functions)?;
        for (count, what) in [
            (compiled.failed.len(), "cannot be compiled and linked"),
            (compiled.stale, "are in no file"),
            (trace.instances, "are code instances, which their host compiles"),
            (trace.unread, "lines are not understood"),
        ] {
            if count > 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        Ok(())
    }
}

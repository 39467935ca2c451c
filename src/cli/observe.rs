//! The observers that `--trace`, `--stats` and a terminal ask for, and their end.
//!
//! `--stats` and the line on a terminal are read from the recording; `--trace` is a subscriber. Without one a span costs one load and a branch.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{DynFilterFn, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use uruk::LoadedImage;
use uruk::pipeline::ir::Dump;
use uruk::pipeline::lazy::Speculator;
use uruk::pipeline::runtime::exit::{flush_streams, on_exit};
use uruk::pipeline::runtime::fatal::{ReportedSignals, report_at_fatal_signals};
use uruk::pipeline::runtime::frames::write_of_signal;
use uruk::trace::{TraceFile, TraceLayer};
use uruk_core::sync::Arc;

use super::progress::Progress;
use super::report;
use super::run::RunError;
use super::stats::Stats;
use super::stats_report::ReportForm;

/// Everything that watches this process.
#[derive(Debug)]
pub(crate) struct Observers {
    trace: Option<(PathBuf, Arc<TraceFile>)>,
    stats: Option<Arc<Stats>>,
    progress: Option<Progress>,
    /// A forked child runs the same exit handlers, and has nothing to report.
    process: u32,
}

/// Why the trace asked for is not, or not whole, in its file.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the trace {}", path.display())]
pub(crate) struct TraceError {
    path: PathBuf,
    source: io::Error,
}

/// Whether this thread still has what the registry of spans keeps for it. A lazy program compiles in its last exit handlers too.
fn is_watched() -> bool {
    struct Here;
    impl Drop for Here {
        fn drop(&mut self) {} // A variable without an end would be there for ever.
    }
    thread_local! {
        static HERE: Here = const { Here };
    }
    HERE.try_with(|_| ()).is_ok()
}

impl Observers {
    /// Begins to watch what was asked for, of a program of that name. Called once, before the session is built, and after the process began to
    /// record: the statistics and the line on a terminal are read from that.
    ///
    /// # Errors
    /// [`TraceError`] if the trace's file cannot be created.
    pub(crate) fn install(
        trace: Option<&Path>,
        stats: Option<ReportForm>,
        backtrace: bool,
        program: &str,
    ) -> Result<Arc<Self>, TraceError> {
        let (trace_layer, trace) = match trace {
            Some(path) => {
                let (layer, file) = TraceLayer::create_of(path, program)
                    .map_err(|source| TraceError { path: path.into(), source })?;
                (Some(layer), Some((path.to_owned(), file)))
            }
            None => (None, None),
        };
        let stats = stats.and_then(|form| {
            Stats::begin(form, report_at_fatal_signals(ReportedSignals::All, write_of_signal))
        });
        if backtrace {
            report_at_fatal_signals(ReportedSignals::Faults, write_of_signal);
        }
        let progress = Progress::on_terminal();
        if trace.is_some() {
            let subscriber = tracing_subscriber::registry()
                .with(Targets::new().with_default(LevelFilter::DEBUG))
                .with(DynFilterFn::new(|_, _| is_watched()))
                .with(trace_layer);
            // It fails if the process has a subscriber already; then that one watches.
            drop(tracing::subscriber::set_global_default(subscriber));
        }
        Ok(Arc::new(Self { trace, stats, progress, process: std::process::id() }))
    }

    /// Notes for the statistics that entries could not be stored.
    pub(crate) fn note_unstored(&self, what: String) {
        if let Some(stats) = &self.stats {
            stats.note_unstored(what);
        }
    }

    /// Has the statistics say what was compiled ahead.
    pub(crate) fn watch_speculation(&self, ahead: Speculator) {
        if let Some(stats) = &self.stats {
            stats.watch_speculation(ahead);
        }
    }

    /// Has the statistics count the units of a package.
    pub(crate) fn watch_image(&self, image: LoadedImage) {
        if let Some(stats) = &self.stats {
            stats.watch_image(image);
        }
    }

    /// Leaves the terminal to the program, or to an error message.
    pub(crate) fn leave_terminal(&self) {
        if let Some(progress) = &self.progress {
            progress.stop();
        }
        if let Some(stats) = &self.stats {
            stats.renew(true);
        }
    }

    /// Completes the trace and prints the statistics to stderr; for the exit hook. Does nothing in a forked child.
    ///
    /// # Errors
    /// [`TraceError`] if the trace is not whole.
    pub(crate) fn finish(&self) -> Result<(), TraceError> {
        if std::process::id() != self.process {
            return Ok(());
        }
        self.leave_terminal();
        if let Some(stats) = &self.stats {
            let report = stats.end();
            flush_streams(); // The table comes after what the program printed.
            // Nothing is left to say if stderr is gone.
            let _ = write!(io::stderr(), "\n{report}");
        }
        match &self.trace {
            Some((path, file)) => file.finish().map_err(|source| TraceError { path: path.clone(), source }),
            None => Ok(()),
        }
    }
}

/// Where everything that is compiled goes. A file that cannot be written is told when the program ends.
pub(super) fn dump(directory: &Path) -> Result<Dump, RunError> {
    let dump = Dump::to(directory)?;
    let (at_exit, process) = (dump.clone(), std::process::id());
    on_exit(move |_| {
        // A forked child says what is its own, if it comes here.
        if let Some(failure) = at_exit.failure().filter(|_| std::process::id() == process) {
            report::warning("the dump is not whole", failure);
        }
    })?;
    Ok(dump)
}

//! The observers that `--trace`, `--stats` and a terminal ask for, and their end.
//!
//! Nothing is watched unasked: without a subscriber a span costs one load and a branch.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{DynFilterFn, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use uruk::pipeline::cache::CacheEvent;
use uruk::pipeline::lazy::Speculator;
use uruk::pipeline::runtime::exit::flush_streams;
use uruk::pipeline::runtime::fatal::{ReportedSignals, report_at_fatal_signals};
use uruk::pipeline::runtime::frames::write_of_signal;
use uruk::pipeline::tiers::Tiers;
use uruk::trace::{TraceFile, TraceLayer};
use uruk_core::SessionEvent;
use uruk_core::sync::Arc;

use super::passes;
use super::progress::{self, Progress};
use super::stats::{Stats, StatsLayer};
use super::verbose;

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

/// Takes a session's events.
pub(crate) type SessionObserver = Arc<dyn Fn(&SessionEvent) + Send + Sync>;

impl Observers {
    /// Begins to watch what was asked for, of a program of that name. Called once, before the session is built.
    ///
    /// # Errors
    /// [`TraceError`] if the trace's file cannot be created.
    pub(crate) fn install(
        trace: Option<&Path>,
        stats: bool,
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
        let (stats_layer, stats) = stats
            .then(|| StatsLayer::new(report_at_fatal_signals(ReportedSignals::All, write_of_signal)))
            .unzip();
        if backtrace {
            report_at_fatal_signals(ReportedSignals::Faults, write_of_signal);
        }
        let (progress_layer, progress) = Progress::on_terminal().unzip();
        if trace.is_some() || stats.is_some() || progress.is_some() {
            // Measuring between LLVM's passes costs them time.
            let passes = if stats.is_some() { LevelFilter::TRACE } else { LevelFilter::OFF };
            let functions = if progress.is_some() { LevelFilter::TRACE } else { LevelFilter::OFF };
            let watched = Targets::new()
                .with_default(LevelFilter::DEBUG)
                .with_target(passes::TARGET, passes)
                .with_target(progress::TARGET, functions);
            let subscriber = tracing_subscriber::registry()
                .with(watched)
                .with(DynFilterFn::new(|_, _| is_watched()))
                .with(stats_layer)
                .with(trace_layer)
                .with(progress_layer);
            // It fails if the process has a subscriber already; then that one watches.
            drop(tracing::subscriber::set_global_default(subscriber));
        }
        Ok(Arc::new(Self { trace, stats, progress, process: std::process::id() }))
    }

    /// The observer of the session's events, if one is wanted.
    pub(crate) fn session_observer(self: &Arc<Self>) -> Option<SessionObserver> {
        if self.stats.is_none() && self.progress.is_none() {
            return None;
        }
        let observers = self.clone();
        Some(Arc::new(move |event| {
            if let Some(stats) = &observers.stats {
                stats.observe(event);
            }
            if let Some(progress) = &observers.progress {
                progress.observe(event);
            }
        }))
    }

    /// The observer of a cache, if one is wanted.
    pub(crate) fn cache_observer(
        self: &Arc<Self>,
        verbosity: u8,
    ) -> Option<impl Fn(&CacheEvent) + Send + Sync + 'static> {
        if self.stats.is_none() && verbosity == 0 {
            return None;
        }
        let observers = self.clone();
        Some(move |event: &CacheEvent| {
            if verbosity > 0 {
                verbose::say(&format!("cache: {event}"));
            }
            if let Some(stats) = &observers.stats {
                stats.observe_cache(event);
            }
        })
    }

    /// Notes for the statistics that entries could not be stored.
    pub(crate) fn note_unstored(&self, what: String) {
        if let Some(stats) = &self.stats {
            stats.note_unstored(what);
        }
    }

    /// Has the statistics say what was compiled in which tier.
    pub(crate) fn watch_tiers(&self, tiers: Tiers) {
        if let Some(stats) = &self.stats {
            stats.watch_tiers(tiers);
        }
    }

    /// Has the statistics say what was compiled ahead.
    pub(crate) fn watch_speculation(&self, ahead: Speculator) {
        if let Some(stats) = &self.stats {
            stats.watch_speculation(ahead);
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
            stats.withdraw();
            flush_streams(); // The table comes after what the program printed.
            // Nothing is left to say if stderr is gone.
            let _ = write!(io::stderr(), "\n{}", stats.report());
        }
        match &self.trace {
            Some((path, file)) => file.finish().map_err(|source| TraceError { path: path.clone(), source }),
            None => Ok(()),
        }
    }
}

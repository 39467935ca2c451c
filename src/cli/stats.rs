//! `--stats`: the sums of what was recorded, printed when the program ends.
//!
//! The report is due at `exit`. For a signal that ends the process it is made again as phases end, unless the last one took too long for that:
//! [`Stats::renew`]. Each time the notes are read that have come since, so that none is overwritten before.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use uruk::LoadedImage;
use uruk::pipeline::lazy::Speculator;
use uruk::pipeline::runtime::fatal::FatalReport;
use uruk_core::sync::{Arc, Mutex};
use uruk_recorder::{Detail, Reader, Sums};

use super::stats_report::{Report, ReportForm};
use super::unit_counts::UnitCounts;

/// The statistics of this process.
#[derive(Debug)]
pub(crate) struct Stats {
    began: Instant,
    form: ReportForm,
    known: Mutex<SumsSoFar>,
    /// That entries of the cache could not be stored, and why.
    unstored: Mutex<Option<String>>,
    ahead: OnceLock<Speculator>,
    image: OnceLock<LoadedImage>,
    fatal: Option<&'static FatalReport>,
}

/// The sums of the notes that were read, and when that was.
#[derive(Debug)]
struct SumsSoFar {
    reader: Reader,
    sums: Sums,
    /// When notes were read last.
    read: Instant,
    /// When the last report was ready, and how long it took.
    ended: Instant,
    took: Duration,
}

/// How often notes are read while phases end. Reading costs the same for each note however often it is done, and the rings are small.
const READ_EVERY: Duration = Duration::from_millis(4);

/// Reports for signals are made in this part of the time at most. Phases end often: with a twentieth, that was what they cost.
const RENEWAL_SHARE: u32 = 100;

impl Stats {
    /// Begins to read this process's recording. `fatal` reports if a signal ends the process. None if nothing is recorded.
    pub(crate) fn begin(form: ReportForm, fatal: Option<&'static FatalReport>) -> Option<Arc<Self>> {
        let now = Instant::now();
        let known = SumsSoFar {
            reader: Reader::new()?,
            sums: Sums::default(),
            read: now,
            ended: now,
            took: Duration::ZERO,
        };
        let (known, unstored, ahead) = (Mutex::new(known), Mutex::new(None), OnceLock::new());
        let image = OnceLock::new();
        let stats = Arc::new(Self { began: now, form, known, unstored, ahead, image, fatal });
        uruk_recorder::ask_for(Detail::Passes);
        stats.renew(true);
        let after = stats.clone();
        uruk_recorder::after_phases(move || after.renew(false));
        Some(stats)
    }

    /// Notes that entries could not be stored.
    pub(crate) fn note_unstored(&self, what: String) {
        *self.unstored.lock() = Some(what);
    }

    /// Has the report say what was compiled ahead.
    pub(crate) fn watch_speculation(&self, ahead: Speculator) {
        // There is one engine.
        _ = self.ahead.set(ahead);
    }

    /// Has the report count the units of a package.
    pub(crate) fn watch_image(&self, image: LoadedImage) {
        // There is one package.
        _ = self.image.set(image);
    }

    /// Reads what is new, and has a signal report what is known now. Unless `must`, either may be put off.
    pub(crate) fn renew(&self, must: bool) {
        // Another thread that has it does the same.
        let Some(mut known) = self.known.try_lock() else { return };
        let now = Instant::now();
        if must || now.duration_since(known.read) >= READ_EVERY {
            known.read();
            known.read = now;
        }
        let begun = Instant::now();
        if must || begun.duration_since(known.ended) >= known.took * RENEWAL_SHARE {
            if let Some(fatal) = self.fatal {
                fatal.set(self.report(&known.sums, false).to_string());
            }
            known.ended = Instant::now();
            known.took = known.ended.duration_since(begun);
        }
    }

    /// The whole report, after which signals report nothing more.
    pub(crate) fn end(&self) -> String {
        if let Some(fatal) = self.fatal {
            fatal.withdraw();
        }
        let mut known = self.known.lock();
        known.read();
        self.report(&known.sums, true).to_string()
    }

    fn report<'a>(&self, sums: &'a Sums, has_memory: bool) -> impl fmt::Display + use<'a> {
        Report {
            sums,
            since_start: self.began.elapsed(),
            unstored: self.unstored.lock().clone(),
            ahead: self.ahead.get().map(Speculator::stats),
            image: self.image.get().map(UnitCounts::of),
            has_memory,
            form: self.form,
        }
    }
}

impl SumsSoFar {
    fn read(&mut self) {
        self.sums.read(&mut self.reader);
    }
}

//! `--stats`: what was materialized, how long each stage took, and what it costs in memory.
//!
//! A stage is a span name. Its *total* is the time that threads spent inside such spans; its *own* time leaves
//! out spans nested in it, so that own times can be added up, and the share is taken of their sum. Time spent
//! waiting in a lookup is no work: it is shown apart.
//!
//! Session events say what was materialized: [`Stats::observe`].
//!
//! The report is due at `exit`. For a signal that ends the process it is made again each time that a thread has ended its outermost span,
//! unless the last one took too long for that: [`Stats::renew`].

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tracing::span::Id;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use uruk::pipeline::cache::{CacheEvent, EntryKind};
use uruk::pipeline::lazy::Speculator;
use uruk::pipeline::runtime::fatal::FatalReport;
use uruk::pipeline::tiers::Tiers;
use uruk_core::sync::atomic::{AtomicU64, Ordering};
use uruk_core::sync::{Arc, Mutex};
use uruk_core::{EventKind, SessionEvent};

use super::passes::{self, PassSums};
use super::tier_table::{AheadLine, TierTable};

/// Adds up the spans of a subscriber in [`Stats`].
#[derive(Debug)]
pub(crate) struct StatsLayer(Arc<Stats>);

/// Sums over everything since the start.
#[derive(Debug)]
pub(crate) struct Stats {
    began: Instant,
    stages: Mutex<BTreeMap<&'static str, Stage>>,
    units_claimed: AtomicU64,
    units_emitted: AtomicU64,
    symbols_ready: AtomicU64,
    symbols_failed: AtomicU64,
    cache: Mutex<Lookups>,
    passes: Mutex<PassSums>,
    tiers: OnceLock<Tiers>,
    ahead: OnceLock<Speculator>,
    fatal: Option<&'static FatalReport>,
    renewal: Mutex<Renewal>,
}

/// When the report for signals was made last, and how long that took.
#[derive(Debug)]
struct Renewal {
    ended: Instant,
    took: Duration,
}

/// Questions to a cache, and its answers.
#[derive(Debug, Default)]
struct Lookups {
    /// How many modules' objects were wanted.
    objects: u64,
    hits: u64,
    /// The same of parts of modules whose objects were missing.
    parts: u64,
    part_hits: u64,
    /// Misses by module, and their causes; of each module once.
    misses: Vec<(std::sync::Arc<str>, EntryKind, String)>,
    /// That entries could not be stored, and why.
    unstored: Option<String>,
}

/// The figures of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stage {
    count: u64,
    total: Duration,
    own: Duration,
    max: Duration,
}

/// The memory of the process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    /// Now.
    pub(crate) now_bytes: u64,
    /// At most so far.
    pub(crate) peak_bytes: u64,
}

/// Spans in which a thread waits for others rather than works.
const WAITING: [&str; 3] = ["session.lookup", "lookup.wait", "dispatch.block"];

/// Reports for signals are made in this part of the time at most.
const RENEWAL_SHARE: u32 = 20;

thread_local! {
    /// How many spans this thread is inside of. No destructor either.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Time spent in spans nested in the one this thread is inside of. No destructor, so it can be read at any time.
    static NESTED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A span that a thread is inside of.
struct Entered {
    at: Instant,
    /// The value of [`NESTED`] for the span around it.
    nested_before: Duration,
}

impl StatsLayer {
    /// A layer and the sums it fills, which `fatal` reports if a signal ends the process.
    pub(crate) fn new(fatal: Option<&'static FatalReport>) -> (Self, Arc<Stats>) {
        let began = Instant::now();
        let stats = Arc::new(Stats {
            began,
            stages: Mutex::default(),
            units_claimed: AtomicU64::new(0),
            units_emitted: AtomicU64::new(0),
            symbols_ready: AtomicU64::new(0),
            symbols_failed: AtomicU64::new(0),
            cache: Mutex::default(),
            passes: Mutex::default(),
            tiers: OnceLock::new(),
            ahead: OnceLock::new(),
            fatal,
            renewal: Mutex::new(Renewal { ended: began, took: Duration::ZERO }),
        });
        stats.renew(true);
        (Self(stats.clone()), stats)
    }
}

impl Stats {
    /// Counts what a session reports.
    pub(crate) fn observe(&self, event: &SessionEvent) {
        self.count(&event.kind);
    }

    /// Counts what a layer has asked a cache for.
    pub(crate) fn observe_cache(&self, event: &CacheEvent) {
        let mut lookups = self.cache.lock();
        if event.kind == EntryKind::Part {
            lookups.parts += 1;
            lookups.part_hits += u64::from(event.found.is_ok());
            return;
        }
        lookups.objects += u64::from(event.kind == EntryKind::Object);
        if event.found.is_ok() {
            lookups.hits += u64::from(event.kind == EntryKind::Object);
            return;
        }
        let miss = (event.unit.clone(), event.kind, event.to_string());
        // That a module's object is missing says more than that its interface is, which comes first.
        match lookups.misses.iter_mut().find(|(unit, kind, _)| *unit == event.unit && *kind != event.kind) {
            Some(known) => *known = miss,
            None => lookups.misses.push(miss),
        }
    }

    /// Notes that entries could not be stored.
    pub(crate) fn note_unstored(&self, what: String) {
        self.cache.lock().unstored = Some(what);
    }

    /// Has the report say what was compiled in which tier.
    pub(crate) fn watch_tiers(&self, tiers: Tiers) {
        // There is one engine.
        _ = self.tiers.set(tiers);
    }

    /// Has the report say what was compiled ahead.
    pub(crate) fn watch_speculation(&self, ahead: Speculator) {
        // As above.
        _ = self.ahead.set(ahead);
    }

    /// Has a signal report what is known now. Unless `must`, it may be put off.
    pub(crate) fn renew(&self, must: bool) {
        let Some(fatal) = self.fatal else { return };
        // Another thread that has it does the same.
        let Some(mut renewal) = self.renewal.try_lock() else { return };
        let begun = Instant::now();
        if must || begun.duration_since(renewal.ended) >= renewal.took * RENEWAL_SHARE {
            fatal.set(self.sums().to_string());
            let ended = Instant::now();
            *renewal = Renewal { ended, took: ended.duration_since(begun) };
        }
    }

    /// Has signals report nothing from here on.
    pub(crate) fn withdraw(&self) {
        if let Some(fatal) = self.fatal {
            fatal.withdraw();
        }
    }

    fn count(&self, kind: &EventKind) {
        let counter = match kind {
            EventKind::Claimed { .. } => &self.units_claimed,
            EventKind::Emitted { .. } => &self.units_emitted,
            EventKind::Ready { .. } => &self.symbols_ready,
            EventKind::Failed { .. } => &self.symbols_failed,
            _ => return,
        };
        // Relaxed: a count for people; nothing hangs on it.
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The report: a paragraph on what was materialized, the stage table, and memory.
    pub(crate) fn report(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| {
            write!(f, "{}", self.sums())?;
            match Resident::of_this_process() {
                Some(resident) => writeln!(f, "{resident}"),
                None => writeln!(f, "resident: unknown, /proc/self/status cannot be read"),
            }
        })
    }

    /// The same without memory.
    fn sums(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| {
            self.write_materialized(f)?;
            write!(f, "{}", self.cache.lock())?;
            write_table(f, &self.stages.lock().clone())?;
            write!(f, "{}", self.passes.lock())?;
            self.tiers.get().map_or(Ok(()), |tiers| write!(f, "{}", TierTable(tiers.stats())))?;
            self.ahead.get().map_or(Ok(()), |ahead| write!(f, "{}", AheadLine(ahead.stats())))
        })
    }

    fn write_materialized(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: as in `count`.
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (claimed, emitted) = (count(&self.units_claimed), count(&self.units_emitted));
        write!(
            f,
            "materialized {emitted} of {claimed} units claimed: {} symbols ready",
            count(&self.symbols_ready)
        )?;
        match count(&self.symbols_failed) {
            0 => {}
            failed => write!(f, ", {failed} failed")?,
        }
        writeln!(f, "; {:.3} s since start", self.began.elapsed().as_secs_f64())
    }

    fn add(&self, name: &'static str, total: Duration, own: Duration) {
        let mut stages = self.stages.lock();
        let stage = stages.entry(name).or_default();
        stage.count += 1;
        stage.total += total;
        stage.own += own;
        stage.max = stage.max.max(total);
    }
}

impl fmt::Display for Lookups {
    /// `cache hits: 260/261 (99 %)`, and a line for each miss; nothing without questions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, hits, parts, part_hits, misses, unstored } = self;
        if *objects > 0 || !misses.is_empty() {
            // Rounded down: all is all.
            let percent = if *objects == 0 { 100 } else { hits * 100 / objects };
            writeln!(f, "cache hits: {hits}/{objects} ({percent} %)")?;
        }
        if *parts > 0 {
            writeln!(f, "  parts and functions: {part_hits}/{parts} ({} %)", part_hits * 100 / parts)?;
        }
        misses.iter().try_for_each(|(_, _, line)| writeln!(f, "  {line}"))?;
        unstored.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for StatsLayer {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let nested_before = NESTED.replace(Duration::ZERO);
            DEPTH.set(DEPTH.get() + 1);
            span.extensions_mut().replace(Entered { at: Instant::now(), nested_before });
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == passes::TARGET {
            self.0.passes.lock().add(event);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let now = Instant::now();
        let Some(span) = context.span(id) else { return };
        let Some(entered) = span.extensions_mut().remove::<Entered>() else { return };
        let total = now.saturating_duration_since(entered.at);
        let own = total.saturating_sub(NESTED.get());
        NESTED.set(entered.nested_before + total);
        self.0.add(span.name(), total, own);
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            drop(span);
            self.0.renew(false);
        }
    }
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
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "resident: {:.1} MiB now, {:.1} MiB at most",
            mebibytes(self.now_bytes),
            mebibytes(self.peak_bytes)
        )
    }
}

/// Stages by own time, longest first; waits below.
fn write_table(f: &mut fmt::Formatter<'_>, stages: &BTreeMap<&'static str, Stage>) -> fmt::Result {
    let (waiting, mut working): (Vec<_>, Vec<_>) =
        stages.iter().partition(|(name, _)| WAITING.contains(*name));
    if working.is_empty() && waiting.is_empty() {
        return Ok(());
    }
    working.sort_by_key(|(_, stage)| std::cmp::Reverse(stage.own));
    let busy: Duration = working.iter().map(|(_, stage)| stage.own).sum();
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    writeln!(
        f,
        "{:<20} {:>8} {:>12} {:>12} {:>7} {:>12}",
        "stage", "count", "total ms", "own ms", "share", "max ms"
    )?;
    for (name, stage) in working {
        let share = 100.0 * stage.own.as_secs_f64() / busy.as_secs_f64().max(f64::MIN_POSITIVE);
        writeln!(
            f,
            "{name:<20} {:>8} {:>12.2} {:>12.2} {share:>6.1}% {:>12.2}",
            stage.count,
            millis(stage.total),
            millis(stage.own),
            millis(stage.max),
        )?;
    }
    writeln!(f, "{:<20} {:>8} {:>12} {:>12.2}", "busy, all threads", "", "", millis(busy))?;
    for (name, stage) in waiting {
        let (total, max) = (millis(stage.total), millis(stage.max));
        writeln!(
            f,
            "{:<20} {:>8} {total:>12.2} {:>12} {:>7} {max:>12.2}",
            format!("({name})"),
            stage.count,
            "",
            ""
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;
    use uruk_core::sync::Arc;

    fn measured(body: impl FnOnce()) -> Arc<Stats> {
        let (layer, stats) = StatsLayer::new(None);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), body);
        stats
    }

    /// Passes time without sleeping.
    fn spend(duration: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < duration {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn own_time_leaves_out_nested_spans() {
        const STEP: Duration = Duration::from_millis(3);
        let stats = measured(|| {
            tracing::debug_span!("outer").in_scope(|| {
                for _ in 0..2 {
                    tracing::debug_span!("inner").in_scope(|| spend(STEP));
                }
                spend(STEP);
            });
        });
        let stages = stats.stages.lock();
        let (outer, inner) = (stages["outer"], stages["inner"]);
        assert_eq!((outer.count, inner.count), (1, 2));
        assert_eq!(inner.own, inner.total);
        assert!(inner.max >= STEP && inner.total >= 2 * STEP);
        assert_eq!(outer.total - inner.total, outer.own, "what is not nested is its own");
    }

    #[test]
    fn shares_are_of_work_and_waits_stand_apart() {
        let stage = |millis| Stage {
            count: 1,
            total: Duration::from_millis(millis),
            own: Duration::from_millis(millis),
            max: Duration::from_millis(millis),
        };
        let stages = BTreeMap::from([
            ("ir.codegen", stage(75)),
            ("ir.optimize", stage(25)),
            ("session.lookup", stage(900)),
        ]);
        let table = fmt::from_fn(|f| write_table(f, &stages)).to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[1].starts_with("ir.codegen") && lines[1].contains(" 75.0%"), "{table}");
        assert!(lines[2].starts_with("ir.optimize") && lines[2].contains(" 25.0%"), "{table}");
        assert!(lines[4].starts_with("(session.lookup)") && !lines[4].contains('%'), "{table}");
    }

    #[test]
    fn nothing_measured_is_no_table() {
        let (_, stats) = StatsLayer::new(None);
        let report = stats.report().to_string();
        assert!(report.starts_with("materialized 0 of 0 units") && !report.contains("stage"), "{report}");
        assert!(report.contains("resident: "), "{report}");
    }

    #[test]
    fn events_are_counted_by_what_they_say() {
        let (_, stats) = StatsLayer::new(None);
        let dylib: Arc<str> = "main".into();
        let symbol = uruk_core::SymbolStringPool::new().intern("f");
        let kinds = [
            EventKind::Claimed { dylib: dylib.clone(), unit: symbol.clone() },
            EventKind::Emitted { unit: symbol.clone() },
            EventKind::Ready { dylib: dylib.clone(), symbol: symbol.clone() },
            EventKind::Failed { dylib, symbol },
            EventKind::Closed,
        ];
        kinds.iter().for_each(|kind| stats.count(kind));
        let report = stats.report().to_string();
        assert!(
            report.starts_with("materialized 1 of 1 units claimed: 1 symbols ready, 1 failed;"),
            "{report}"
        );
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

//! Measuring: repetitions of a timed region, threads released together, and the line that reports them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Latch, thread};

use crate::measuring::processor_time;
pub(crate) use crate::measuring::{Scale, median};

impl Scale {
    pub(crate) fn name(self) -> &'static str {
        self.pick("small", "full")
    }

    /// The scale of a part of a point.
    pub(crate) fn few(self) -> Self {
        Self::Small
    }

    /// Points foreseen to take longer are skipped.
    pub(crate) fn longest_seconds(self) -> f64 {
        self.pick(5.0, 60.0)
    }
}

/// One repetition: the timed region, and other observations.
#[derive(Default)]
pub(crate) struct Sample {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// Its times are not to be counted.
    untimed: bool,
    extras: BTreeMap<&'static str, f64>,
}

impl Sample {
    pub(crate) fn extra(&mut self, name: &'static str, value: f64) {
        self.extras.insert(name, value);
    }

    /// The smaller of two repetitions' figures of that name: what a thread that was preempted adds is not counted.
    pub(crate) fn keep_least(&mut self, name: &'static str, other: &Self) {
        if let (Some(mine), Some(&others)) = (self.extras.get_mut(name), other.extras.get(name)) {
            *mine = mine.min(others);
        }
    }

    /// One that was timed elsewhere.
    #[cfg(feature = "llvm")]
    pub(crate) fn of(wall: Duration, cpu: Duration) -> Self {
        Self { wall, cpu, ..Self::default() }
    }

    /// A figure that was noticed; zero if it was not.
    #[cfg(feature = "llvm")]
    pub(crate) fn figure(&self, name: &'static str) -> f64 {
        self.extras.get(name).copied().unwrap_or(0.0)
    }

    /// The same without its times.
    pub(crate) fn untimed(mut self) -> Self {
        self.untimed = true;
        self
    }

    /// Times `region` as [`Sample::time`] does, and tells its processor time by itself too.
    #[cfg(feature = "llvm")]
    pub(crate) fn part<R>(&mut self, name: &'static str, region: impl FnOnce() -> R) -> R {
        let before = self.cpu;
        let result = self.time(region);
        self.extra(name, millis(self.cpu - before));
        result
    }

    /// Times `region`; several regions add up.
    pub(crate) fn time<R>(&mut self, region: impl FnOnce() -> R) -> R {
        let cpu = processor_time();
        let begun = Instant::now();
        let result = region();
        self.wall += begun.elapsed();
        self.cpu += processor_time() - cpu;
        result
    }
}

/// Repeats `run`, which is told how many repetitions came before: five times at least, unless one is so long that
/// they would take minutes; more while there is time.
pub(crate) fn repeat(scale: Scale, mut run: impl FnMut(usize) -> Sample) -> Vec<Sample> {
    const LEAST: usize = 5;
    let (most, budget, hard) = scale.pick((5, 0.3, 6.0), (15, 3.0, 75.0));
    let begun = Instant::now();
    let mut samples = Vec::new();
    loop {
        samples.push(run(samples.len()));
        let elapsed = begun.elapsed().as_secs_f64();
        let next = elapsed + elapsed / samples.len() as f64;
        if samples.len() >= most || next > hard || (samples.len() >= LEAST && next > budget) {
            return samples;
        }
    }
}

/// Runs `run` on as many fresh threads as there are states, released together; from the first start to the last end.
pub(crate) fn on_threads<S: Send>(states: &mut [S], run: impl Fn(usize, &mut S) + Sync) -> Sample {
    let threads = states.len();
    let arrived = AtomicUsize::new(0);
    let barrier = Latch::new();
    let cpu = processor_time();
    let times: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let (run, arrived, barrier) = (&run, &arrived, &barrier);
        let start = |(index, state)| {
            scope.spawn(move || {
                // Relaxed: the latch orders what comes before the barrier and what comes after.
                if arrived.fetch_add(1, Ordering::Relaxed) + 1 == threads {
                    barrier.open();
                }
                barrier.wait();
                let begun = Instant::now();
                run(index, state);
                (begun, Instant::now())
            })
        };
        let running: Vec<_> = states.iter_mut().enumerate().map(start).collect();
        running.into_iter().map(|thread| thread.join().expect("a measured thread panicked")).collect()
    });
    let cpu = processor_time() - cpu;
    let begun = times.iter().map(|(begun, _)| *begun).min();
    let ended = times.iter().map(|(_, ended)| *ended).max();
    let wall = begun.zip(ended).map_or(Duration::ZERO, |(begun, ended)| ended - begun);
    Sample { wall, cpu, ..Sample::default() }
}

/// The parts of a line besides its figures.
pub(crate) struct Row<'a> {
    pub(crate) case: &'a str,
    /// Parameters, each with its value in JSON.
    pub(crate) parameters: Vec<(&'a str, String)>,
    pub(crate) n: usize,
    pub(crate) threads: i64,
    /// Operations of a repetition, of all threads together.
    pub(crate) operations: usize,
}

impl Row<'_> {
    /// Prints the line.
    pub(crate) fn report(&self, samples: &[Sample]) {
        let timed = || samples.iter().filter(|sample| !sample.untimed);
        let wall: Vec<f64> = timed().map(|sample| sample.wall.as_nanos() as f64).collect();
        let cpu: Vec<f64> = timed().map(|sample| sample.cpu.as_nanos() as f64).collect();
        let least = wall.iter().copied().fold(f64::INFINITY, f64::min);
        let middle = median(wall);
        let operations = self.operations as f64;
        let mut extras: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (name, value) in samples.iter().flat_map(|sample| &sample.extras) {
            extras.entry(name).or_default().push(*value);
        }
        let mut line = format!("{{\"case\":\"{}\"", self.case);
        let mut add =
            |text: std::fmt::Arguments<'_>| line.write_fmt(text).expect("a String takes everything");
        for (name, value) in &self.parameters {
            add(format_args!(",\"{name}\":{value}"));
        }
        add(format_args!(
            ",\"n\":{},\"threads\":{},\"reps\":{},\"ns_per_op\":{:.2},\"ns_per_op_min\":{:.2}",
            self.n,
            self.threads,
            timed().count(),
            middle / operations,
            least / operations,
        ));
        add(format_args!(
            ",\"total_ms\":{:.4},\"total_ms_min\":{:.4},\"cpu_ms\":{:.4},\"rss_mb\":{:.1},\"peak_rss_mb\":{:.1}",
            middle / 1e6,
            least / 1e6,
            median(cpu) / 1e6,
            resident_bytes() / MIB,
            peak_resident_bytes() / MIB,
        ));
        for (name, values) in extras {
            add(format_args!(",\"{name}\":{:.4}", median(values)));
        }
        println!("{line}}}");
    }
}

const MIB: f64 = 1_048_576.0;

/// Milliseconds, as lines say them.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

/// Memory of this process that is resident now.
pub(crate) fn resident_bytes() -> f64 {
    status("VmRSS:")
}

fn peak_resident_bytes() -> f64 {
    status("VmHWM:")
}

/// A figure of `/proc/self/status` in bytes; zero where there is no such file.
fn status(field: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}

/// The generator of names and shapes: small, and the same everywhere.
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number, taken modulo `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

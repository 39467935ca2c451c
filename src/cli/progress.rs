//! A line on the terminal while a program takes long to compile.
//!
//! It appears after a second, on a terminal only, and is gone before the program's first instruction: the terminal is
//! the program's from then on, and the thread that draws has ended. That thread reads what was recorded since it last drew.

use std::fmt;
use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use uruk_core::sync::thread::{self, JoinHandle};
use uruk_core::sync::{Arc, Condvar, Mutex};
use uruk_recorder::{Detail, History, Reader};

/// The thread that draws the line. Dropping it takes the line away.
#[derive(Debug)]
pub(crate) struct Progress {
    end: Arc<End>,
    artist: Mutex<Option<JoinHandle<()>>>,
}

/// Whether the line is to go.
#[derive(Debug, Default)]
struct End {
    has_come: Mutex<bool>,
    comes: Condvar,
}

/// The contents of the line.
struct Line<'a>(&'a History);

/// Steps on the way of a function, in their order.
const STEPS: [&str; 3] = ["simplified", "optimized", "compiled"];

/// A program that is there sooner needs no line.
const SILENCE: Duration = Duration::from_secs(1);

/// Between two drawings: smooth enough, and next to no work.
const TICK: Duration = Duration::from_millis(100);

impl Progress {
    /// Watches, if there is a terminal to draw on, a recording to read, and a thread to draw with.
    pub(crate) fn on_terminal() -> Option<Self> {
        if !stderr().is_terminal() {
            return None;
        }
        let reader = Reader::new()?;
        uruk_recorder::ask_for(Detail::Functions);
        Self::draw_on(ProgressDrawTarget::stderr(), SILENCE, reader)
    }

    fn draw_on(target: ProgressDrawTarget, silence: Duration, reader: Reader) -> Option<Self> {
        let end = Arc::new(End::default());
        let artist = thread::Builder::new().name("uruk-progress".to_owned()).spawn({
            let end = end.clone();
            move || end.draw_until(target, silence, reader)
        });
        Some(Self { end, artist: Mutex::new(Some(artist.ok()?)) })
    }

    /// Takes the line away. On return the terminal is as it was, and the thread has ended.
    pub(crate) fn stop(&self) {
        *self.end.has_come.lock() = true;
        self.end.comes.notify_all();
        let artist = self.artist.lock().take();
        if let Some(artist) = artist {
            // If it panicked there is no line, and nothing else to do about it.
            drop(artist.join());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop();
    }
}

impl End {
    fn draw_until(&self, target: ProgressDrawTarget, silence: Duration, mut reader: Reader) {
        let (begun, mut history, mut target) = (Instant::now(), History::default(), Some(target));
        let mut bar = None;
        // Notes are read during the silence too: they may be overwritten.
        while !self.comes_within(if bar.is_some() { TICK } else { TICK.min(silence) }) {
            history.read(&mut reader);
            if begun.elapsed() >= silence
                && let Some(target) = target.take()
            {
                bar = Some(new_bar(target));
            }
            if let Some(bar) = &bar {
                bar.set_message(Line(&history).to_string());
                bar.tick();
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
    }

    fn comes_within(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut has_come = self.has_come.lock();
        while !*has_come {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            has_come = self.comes.wait_timeout(has_come, left).0;
        }
        *has_come
    }
}

fn new_bar(target: ProgressDrawTarget) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}");
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(style.expect("the template is well formed"));
    bar
}

impl fmt::Display for Line<'_> {
    /// Functions and parts come first: of two units one may take twenty seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = &self.0.sums;
        // A step that all have taken says nothing beside the next one.
        let steps = STEPS.iter().zip(sums.functions).filter(|(_, (_, of))| *of > 0);
        let last = steps.clone().count().saturating_sub(1);
        for (index, (step, (done, of))) in steps.enumerate() {
            if done < of || index == last {
                write!(f, "{done} of {of} functions {step}, ")?;
            }
        }
        let compiled = sums.stages.get("ir.codegen").map_or(0, |stage| stage.count);
        match (compiled, sums.parts) {
            (0, 0) => {}
            (compiled, parts) if compiled <= parts => write!(f, "{compiled} of {parts} parts compiled, ")?,
            (compiled, _) => write!(f, "{compiled} parts and functions compiled, ")?,
        }
        write!(f, "{} of {} units ready", sums.emitted, sums.claimed)?;
        match self.0.under_way() {
            Some((phase, unit)) => write!(f, ", {phase} {unit}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uruk_recorder::{Entry, Kind, Script, ThreadId};

    /// The notes of one thread, one after another.
    struct Notes {
        script: Script,
        thread: ThreadId,
        time: u64,
    }

    impl Notes {
        fn new() -> Self {
            let mut script = Script::new(64, 1);
            let thread = script.thread("worker");
            Self { script, thread, time: 0 }
        }

        fn add(mut self, kind: Kind, name: &str, a: u64, b: u64) -> Self {
            self.time += 1;
            let name = self.script.name(name);
            self.script.note(self.thread, self.time, Entry::new(kind).of(1).named(name).with(a, b));
            self
        }

        fn functions(self, step: u64, done: u64, more: u64) -> Self {
            self.add(Kind::Functions, "a.bc", more << 32 | done, step)
        }

        fn line(self) -> String {
            let mut history = History::default();
            history.read(&mut self.script.reader());
            Line(&history).to_string()
        }
    }

    #[test]
    fn the_line_says_how_far_it_is_and_what_is_under_way() {
        let notes = || {
            let claimed = Notes::new().add(Kind::Claimed, "a.bc", 1, 0).add(Kind::Claimed, "b.bc", 2, 0);
            claimed.add(Kind::Emitted, "a.bc", 1, 3).add(Kind::Begun, "", 2, 0)
        };
        assert_eq!(notes().line(), "1 of 2 units ready");
        let compiled = |notes: Notes| {
            let begun = notes.add(Kind::PhaseBegun, "unit.materialize", 0, 0);
            begun.add(Kind::PhaseBegun, "ir.codegen", 0, 0).add(Kind::PhaseEnded, "ir.codegen", 0, 0)
        };
        let line = "1 parts and functions compiled, 1 of 2 units ready, unit.materialize b.bc";
        assert_eq!(compiled(notes()).line(), line);
        let line = "1 of 4 parts compiled, 1 of 2 units ready, unit.materialize b.bc";
        assert_eq!(compiled(notes().add(Kind::Divided, "b.bc", 4, 0)).line(), line);
    }

    /// A module of 5,000 functions was one step, which took twenty seconds.
    #[test]
    fn functions_are_steps_of_their_own() {
        let simplified =
            |done| Notes::new().functions(0, 0, 5000).functions(1, 0, 5000).functions(0, done, 0);
        let both = "1 of 5000 functions simplified, 0 of 5000 functions optimized, 0 of 0 units ready";
        assert_eq!(simplified(1).line(), both);
        assert_eq!(simplified(5000).line(), "0 of 5000 functions optimized, 0 of 0 units ready");
        let optimized = simplified(5000).functions(1, 5000, 0).functions(2, 0, 40);
        assert_eq!(optimized.line(), "0 of 40 functions compiled, 0 of 0 units ready");
    }

    fn watched(silence: Duration) -> Progress {
        let reader = Script::new(64, 1).reader();
        Progress::draw_on(ProgressDrawTarget::hidden(), silence, reader).unwrap()
    }

    #[test]
    fn a_program_that_is_soon_there_ends_the_silence_early() {
        let progress = watched(Duration::from_secs(3600));
        progress.stop();
        progress.stop();
        assert!(progress.artist.lock().is_none());
    }

    #[test]
    fn dropping_it_ends_its_thread_while_it_draws() {
        let progress = watched(Duration::ZERO);
        let end = Arc::downgrade(&progress.end);
        drop(progress);
        assert!(end.upgrade().is_none(), "the thread holds it as long as it lives");
    }
}

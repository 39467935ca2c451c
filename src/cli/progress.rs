//! A line on the terminal while a program takes long to compile.
//!
//! It appears after a second, on a terminal only, and is gone before the program's first instruction: the terminal is
//! the program's from then on, and the thread that draws has ended.

use std::fmt;
use std::io::{IsTerminal as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use uruk_core::sync::thread::{self, JoinHandle};
use uruk_core::sync::{Arc, Condvar, Mutex};
use uruk_core::{EventKind, SessionEvent};

/// Tells [`Progress`] which stage is under way, from a subscriber's spans.
#[derive(Debug)]
pub(crate) struct ProgressLayer(Arc<Board>);

/// The line, and the thread that draws it. Dropping it takes the line away.
#[derive(Debug)]
pub(crate) struct Progress {
    board: Arc<Board>,
    artist: Mutex<Option<JoinHandle<()>>>,
}

/// The target of events that say how many functions are done.
pub(crate) const TARGET: &str = "uruk::functions";

/// Steps on the way of a function, in their order.
const STEPS: [&str; 3] = ["simplified", "optimized", "compiled"];

/// The contents of the line.
#[derive(Debug, Default)]
struct Board {
    state: Mutex<ProgressState>,
    stopped: Condvar,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ProgressState {
    claimed: u64,
    emitted: u64,
    /// Into how many parts modules were divided.
    parts: u64,
    /// How many parts, functions and undivided modules have machine code.
    compiled: u64,
    /// How many functions have come to each step, and of how many.
    functions: [(u64, u64); STEPS.len()],
    /// The stage that began last, and its unit.
    stage: Option<(&'static str, String)>,
    stopped: bool,
}

/// A program that is there sooner needs no line.
const SILENCE: Duration = Duration::from_secs(1);

/// Between two drawings: smooth enough, and next to no work.
const TICK: Duration = Duration::from_millis(100);

impl Progress {
    /// Watches, if there is a terminal to draw on and a thread to draw with.
    pub(crate) fn on_terminal() -> Option<(ProgressLayer, Self)> {
        if !stderr().is_terminal() {
            return None;
        }
        Self::draw_on(ProgressDrawTarget::stderr(), SILENCE)
    }

    fn draw_on(target: ProgressDrawTarget, silence: Duration) -> Option<(ProgressLayer, Self)> {
        let board = Arc::new(Board::default());
        let artist = thread::Builder::new().name("uruk-progress".to_owned()).spawn({
            let board = board.clone();
            move || board.draw_until_stopped(target, silence)
        });
        let progress = Self { board: board.clone(), artist: Mutex::new(Some(artist.ok()?)) };
        Some((ProgressLayer(board), progress))
    }

    /// Counts what a session reports.
    pub(crate) fn observe(&self, event: &SessionEvent) {
        self.count(&event.kind);
    }

    fn count(&self, kind: &EventKind) {
        match kind {
            EventKind::Claimed { .. } => self.board.state.lock().claimed += 1,
            EventKind::Emitted { .. } => self.board.state.lock().emitted += 1,
            _ => {}
        }
    }

    /// Takes the line away. On return the terminal is as it was, and the thread has ended.
    pub(crate) fn stop(&self) {
        self.board.state.lock().stopped = true;
        self.board.stopped.notify_all();
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

impl Board {
    fn draw_until_stopped(&self, target: ProgressDrawTarget, silence: Duration) {
        let Some(first) = self.wait(silence) else { return };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(
            ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}")
                .expect("the template is well formed"),
        );
        let mut state = first;
        loop {
            bar.set_message(state.to_string());
            bar.tick();
            match self.wait(TICK) {
                Some(next) => state = next,
                None => break,
            }
        }
        bar.finish_and_clear();
    }

    /// The line to draw after `pause`; nothing once the line is to go.
    fn wait(&self, pause: Duration) -> Option<ProgressState> {
        let until = Instant::now() + pause;
        let mut state = self.state.lock();
        while !state.stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(state.clone());
            }
            state = self.stopped.wait_timeout(state, left).0;
        }
        None
    }
}

impl fmt::Display for ProgressState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} units ready", self.emitted, self.claimed)?;
        match (self.compiled, self.parts) {
            (0, 0) => {}
            (compiled, parts) if compiled <= parts => write!(f, ", {compiled} of {parts} parts compiled")?,
            (compiled, _) => write!(f, ", {compiled} parts and functions compiled")?,
        }
        // A step that all have taken says nothing beside the next one.
        let steps = STEPS.iter().zip(self.functions).filter(|(_, (_, of))| *of > 0);
        let last = steps.clone().count().saturating_sub(1);
        for (index, (step, (done, of))) in steps.enumerate() {
            if done < of || index == last {
                write!(f, ", {done} of {of} functions {step}")?;
            }
        }
        match &self.stage {
            Some((stage, unit)) => write!(f, ", {stage} {unit}"),
            None => Ok(()),
        }
    }
}

/// The fields of a span or an event.
#[derive(Default)]
struct ProgressTold {
    unit: String,
    /// Into how many parts it is divided.
    parts: u64,
    /// How far functions have come, how many, and how many there are beside those that were told of before.
    step: String,
    done: u64,
    more: u64,
}

/// The unit that a span is about.
struct Unit(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ProgressLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut told = ProgressTold::default();
        attributes.record(&mut told);
        self.0.state.lock().parts += told.parts;
        if !told.unit.is_empty()
            && let Some(span) = context.span(id)
        {
            span.extensions_mut().insert(Unit(told.unit));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != TARGET {
            return;
        }
        let mut told = ProgressTold::default();
        event.record(&mut told);
        if let Some(step) = STEPS.iter().position(|step| *step == told.step) {
            let (done, of) = &mut self.0.state.lock().functions[step];
            (*done, *of) = (*done + told.done, *of + told.more);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if context.span(&id).is_some_and(|span| span.name() == "ir.codegen") {
            self.0.state.lock().compiled += 1;
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(Unit(unit)) = span.extensions().get() {
            self.0.state.lock().stage = Some((span.name(), unit.clone()));
        }
    }
}

impl Visit for ProgressTold {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "parts" => self.parts = value,
            "done" => self.done = value,
            "more" => self.more = value,
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "unit" => value.clone_into(&mut self.unit),
            "step" => value.clone_into(&mut self.step),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "unit" {
            self.unit = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::level_filters::LevelFilter;
    use tracing_subscriber::layer::SubscriberExt as _;
    use uruk::pipeline::ir::{
        IrCompiler, JitTargetMachineBuilder, OptimizationLevel, OptimizationPipeline, ThreadSafeModule,
    };
    use uruk::pipeline::object::ObjectBuffer;

    fn watched(silence: Duration) -> (ProgressLayer, Progress) {
        Progress::draw_on(ProgressDrawTarget::hidden(), silence).unwrap()
    }

    #[test]
    fn the_line_says_how_far_it_is_and_what_is_under_way() {
        let (layer, progress) = watched(SILENCE);
        let unit = uruk_core::SymbolStringPool::new().intern("a.bc");
        let kinds = [
            EventKind::Claimed { dylib: "main".into(), unit: unit.clone() },
            EventKind::Claimed { dylib: "main".into(), unit: unit.clone() },
            EventKind::Emitted { unit },
        ];
        kinds.iter().for_each(|kind| progress.count(kind));
        assert_eq!(progress.board.state.lock().to_string(), "1 of 2 units ready");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::debug_span!("ir.codegen", unit = %"b.bc").in_scope(|| ());
            tracing::debug_span!("link.fixup", edges = 3).in_scope(|| ());
        });
        let line = "1 of 2 units ready, 1 parts and functions compiled, ir.codegen b.bc";
        assert_eq!(progress.board.state.lock().to_string(), line);
        let (layer, progress) = watched(SILENCE);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::debug_span!("ir.divide", unit = %"b.bc", parts = 4usize).in_scope(|| ());
            tracing::debug_span!("ir.codegen", unit = %"b.bc").in_scope(|| ());
        });
        let line = "0 of 0 units ready, 1 of 4 parts compiled, ir.codegen b.bc";
        assert_eq!(progress.board.state.lock().to_string(), line);
    }

    /// A module of 5,000 functions was one step, which took twenty seconds.
    #[test]
    fn functions_are_steps_of_their_own() {
        let (layer, progress) = watched(SILENCE);
        let functions = |step, done, more| {
            tracing::trace!(target: TARGET, unit = "a.bc", step, done, more, "functions");
            progress.board.state.lock().to_string()
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let begins = |text: &str| format!("0 of 0 units ready, {text}");
            assert_eq!(functions("simplified", 0_u64, 5000_u64), begins("0 of 5000 functions simplified"));
            _ = functions("optimized", 0, 5000);
            let both = begins("1 of 5000 functions simplified, 0 of 5000 functions optimized");
            assert_eq!(functions("simplified", 1, 0), both);
            assert_eq!(functions("simplified", 4999, 0), begins("0 of 5000 functions optimized"));
            _ = functions("optimized", 5000, 0);
            assert_eq!(functions("compiled", 0, 40), begins("0 of 40 functions compiled"));
            assert_eq!(functions("compiled", 40, 0), begins("40 of 40 functions compiled"));
        });
    }

    #[test]
    fn llvm_tells_how_many_functions_are_done() {
        let text = "define i32 @inner(i32 %n) noinline { ret i32 %n } declare void @elsewhere()
            define i32 @outer(i32 %n) { %r = call i32 @inner(i32 %n) ret i32 %r }
            define i32 @other() { %r = call i32 @outer(i32 7) ret i32 %r }";
        let compiler = IrCompiler::new(
            JitTargetMachineBuilder::host().unwrap(),
            OptimizationPipeline::level(OptimizationLevel::O2),
        );
        // The second time, the machine and its passes are there already.
        for _ in 0..2 {
            let (layer, progress) = watched(SILENCE);
            let watched = tracing_subscriber::registry().with(LevelFilter::TRACE).with(layer);
            tracing::subscriber::with_default(watched, || {
                let module =
                    ThreadSafeModule::parse(&ObjectBuffer::new("three.ll", text.as_bytes().to_vec()));
                compiler.compile(module.unwrap()).unwrap();
            });
            assert_eq!(progress.board.state.lock().functions, [(3, 3); 3]);
        }
    }

    #[test]
    fn a_program_that_is_soon_there_ends_the_silence_early() {
        let (_layer, progress) = watched(Duration::from_secs(3600));
        progress.stop();
        progress.stop();
        assert!(progress.artist.lock().is_none());
    }

    #[test]
    fn what_is_drawn_after_the_silence_is_what_is_known_then() {
        let board = Board::default();
        board.state.lock().claimed = 4;
        assert_eq!(board.wait(Duration::ZERO).unwrap().claimed, 4);
        board.state.lock().stopped = true;
        assert_eq!(board.wait(Duration::from_secs(3600)), None);
    }

    #[test]
    fn dropping_it_ends_its_thread_while_it_draws() {
        let (layer, progress) = watched(Duration::ZERO);
        let board = Arc::downgrade(&progress.board);
        drop((layer, progress));
        assert!(board.upgrade().is_none(), "the thread holds the board as long as it lives");
    }
}

//! An expression: compiled at once, run, removed.

use std::time::{Duration, Instant};

use uruk::core::sync::Arc;
use uruk_kaleidoscope::{Definition, Span};

use super::stop::Place;
use super::unit::wrong_in;
use super::{Session, SessionError};

/// The value of an expression, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    /// Its value.
    pub(crate) number: f64,
    /// Until the expression could run.
    pub(crate) compile: Duration,
    /// How many functions it was the first to call.
    pub(crate) first_calls: u64,
    /// Until those could run.
    pub(crate) first_calls_compile: Duration,
    /// In code of the program.
    pub(crate) run: Duration,
}

/// The symbol of the expression that runs.
const EXPRESSION: &str = "$expression";

impl Session {
    /// Compiles an expression, runs it, and gives back what it took.
    pub(super) fn evaluate(&mut self, definition: &Arc<Definition>) -> Result<Value, SessionError> {
        let value = self.call(definition);
        let stopped = self.stop.take();
        if stopped.is_some() {
            self.forget_stop();
        }
        let failures = self.program.take_failures();
        // A call that has failed once would fail again, even if its function has been defined meanwhile: it is made anew at the next call.
        for failure in &failures {
            let name = failure.body.as_str().rsplit_once('$').map_or("", |(name, _)| name);
            let function = self.functions.get(name);
            if let Some(definition) = function.map(|function| function.definition.clone()) {
                self.give_body(&definition)?;
            }
        }
        match (stopped, failures.into_iter().next()) {
            (Some(place), _) => Err(self.stopped(place, definition)),
            (None, Some(failure)) => Err(failure.error),
            (None, None) => value,
        }
    }

    /// Says where an expression was stopped.
    fn stopped(&self, place: Place, expression: &Arc<Definition>) -> SessionError {
        let functions = self.functions.values().map(|function| &function.definition);
        let definition = functions.chain([expression]).find(|definition| place.is_in(definition));
        let definition = definition.unwrap_or(expression);
        let span = Span { start: place.start, end: place.end };
        let name = &definition.prototype.name;
        let of = if name.is_empty() { String::new() } else { format!(" in `{name}`") };
        match place.is_stack_full {
            true => SessionError::StackFull(
                definition
                    .error(span, format!("the stack is full: calls are nested too deep, or without end{of}")),
            ),
            false => SessionError::Interrupted(definition.error(span, format!("interrupted{of}"))),
        }
    }

    fn call(&self, definition: &Arc<Definition>) -> Result<Value, SessionError> {
        let begun = Instant::now();
        let tracker = self.bodies.create_tracker();
        self.add(EXPRESSION, definition, &tracker)?;
        let scope = self.jit.in_tracker(&tracker);
        // SAFETY: `lower` makes a function without parameters of a definition without any, and each answers a number. It is sound to call:
        // what it calls is compiled of the same language, which has no pointers, or is a C function that the program has declared; that such
        // a function takes and gives numbers alone is the promise of who writes `extern`. `stop::stopped` has the type that `lower` says, and
        // the session has a part in what it is given.
        let run = unsafe { scope.get::<extern "C" fn() -> f64>(EXPRESSION) }
            .map_err(|error| wrong_in(&error).unwrap_or(SessionError::Jit(error)))?;
        let (compile, before) = (begun.elapsed(), self.program.work());
        let begun = Instant::now();
        let number = run();
        let elapsed = begun.elapsed();
        let work = self.program.work();
        drop(run);
        tracker.remove().map_err(|error| SessionError::Call(error.to_string()))?;
        let first_calls_compile = work.time - before.time;
        Ok(Value {
            number,
            compile,
            first_calls: work.bodies - before.bodies,
            first_calls_compile,
            run: elapsed.saturating_sub(first_calls_compile),
        })
    }
}

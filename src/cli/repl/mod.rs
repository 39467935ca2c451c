//! `uruk repl`: Kaleidoscope, typed, from a file or from a pipe.
//!
//! Lines are collected until they make items; each item is done before the next line is looked at. So a line that is complete by itself
//! is never continued by the next one. A line that begins with a colon is a command.
//!
//! A session has a thread with a stack of known size, near whose end recursion is stopped. On a terminal control-C stops the expression that runs.
//! A session that reads a file or a pipe ends by it, as other programs do.

mod commands;
mod editor;
mod host;
mod session;
mod typed;

use std::ffi::c_int;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _, Write as _, stdin};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use uruk::core::WithCauses;
use uruk::core::sync::{Arc, thread};
use uruk_kaleidoscope::{Diagnostic, Source, is_blank};

use signal_hook::consts::SIGINT;

use super::args::ReplArgs;
use super::defect;
use session::{Outcome, Session, SessionError, Value};

/// Why a session ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplError {
    #[error("cannot start")]
    Start(#[source] SessionError),
    #[error("{}: cannot be read", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the terminal cannot be used")]
    Terminal(#[source] std::io::Error),
    #[error("the line editor fails again and again")]
    Editor,
    #[error("cannot start the thread of the session")]
    Thread(#[source] std::io::Error),
    #[error("control-C cannot be noticed")]
    Interrupt(#[source] std::io::Error),
}

/// How files may load each other.
const LOADS_MAX: usize = 16;

/// The stack of a session. Its pages are there when they are first used.
const STACK_BYTES: usize = 64 << 20;

/// How much of it is left to what programs call, and to compiling a function that is first called there.
const RESERVE_BYTES: usize = 16 << 20;

/// The name in errors of text that is typed, or comes from a pipe.
const INPUT: &str = "input";

/// Runs a session; the exit code of the command.
pub(crate) fn repl(args: &ReplArgs) -> Result<c_int, ReplError> {
    thread::scope(|scope| {
        let session = thread::Builder::new().name("uruk-repl".to_owned()).stack_size(STACK_BYTES);
        let session = session.spawn_scoped(scope, || run(args)).map_err(ReplError::Thread)?;
        session.join().unwrap_or(Ok(defect::DEFECT))
    })
}

fn run(args: &ReplArgs) -> Result<c_int, ReplError> {
    let mut session = Session::new(args.optimize, &host::FUNCTIONS).map_err(ReplError::Start)?;
    // This variable lies near the beginning of the stack, so the end is a little behind where this puts it.
    let here = std::ptr::from_ref(&session).addr();
    session.set_stack_limit(here - (STACK_BYTES - RESERVE_BYTES));
    let mut repl = Repl::new(session);
    match &args.file {
        Some(file) if file != Path::new("-") => repl.load(file)?,
        None if stdin().is_terminal() => {
            signal_hook::flag::register_usize(SIGINT, repl.session.limit().clone(), Session::EVERYTHING)
                .map_err(ReplError::Interrupt)?;
            editor::edit(&mut repl)?;
            return Ok(0);
        }
        _ => {
            let failed = |source| ReplError::Read { path: INPUT.into(), source };
            repl.read(&INPUT.into(), 1, stdin().lock(), AfterError::GoOn).map_err(failed)?;
        }
    }
    Ok(if repl.has_failed { super::FAILURE } else { 0 })
}

/// A session and what is said of it.
pub(crate) struct Repl {
    session: Session,
    /// Whether each line says how long it took.
    shows_times: bool,
    has_failed: bool,
    /// Whether a file ends here: at a mistake or an interruption, but not where an expression has taken all of the stack.
    ends_file: bool,
    has_quit: bool,
    /// How many files are being loaded, one by another.
    loads: usize,
}

/// Whether what follows a mistake is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterError {
    GoOn,
    Stop,
}

/// How far lines have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fed {
    /// The beginning of something.
    Incomplete,
    /// Whole, and done if that was possible.
    Done,
}

impl Repl {
    fn new(session: Session) -> Self {
        Self { session, shows_times: false, has_failed: false, ends_file: false, has_quit: false, loads: 0 }
    }

    /// Does what a file says, up to the first mistake.
    fn load(&mut self, path: &Path) -> Result<(), ReplError> {
        let failed = |source| ReplError::Read { path: path.to_owned(), source };
        if self.loads == LOADS_MAX {
            return Err(failed(std::io::Error::other("files load each other without end")));
        }
        let file = File::open(path).map_err(failed)?;
        self.loads += 1;
        let name = path.display().to_string().into();
        let read = self.read(&name, 1, BufReader::new(file), AfterError::Stop);
        self.loads -= 1;
        read.map_err(failed)
    }

    /// Does what lines say, the first of which has this number.
    fn read(
        &mut self,
        name: &Arc<str>,
        first: usize,
        lines: impl BufRead,
        after_error: AfterError,
    ) -> std::io::Result<()> {
        let ended_before = std::mem::take(&mut self.ends_file);
        let (mut text, mut first_line) = (String::new(), first);
        for (number, line) in (first..).zip(lines.lines()) {
            let line = line?;
            if text.is_empty() {
                first_line = number;
            }
            let command = self.command_of(&line).filter(|_| text.is_empty());
            let command = command.map(str::to_owned);
            if command.is_none() {
                text += &line;
                text.push('\n');
            }
            let done = defect::guard(|| match &command {
                Some(command) => {
                    self.command(command);
                    Fed::Done
                }
                None => self.feed(name, first_line, &text, false),
            });
            if done.is_none() {
                (self.has_failed, self.ends_file) = (true, true);
            }
            if done != Some(Fed::Incomplete) {
                text.clear();
            }
            if self.has_quit || (self.ends_file && after_error == AfterError::Stop) {
                break;
            }
        }
        if !text.trim_matches(is_blank).is_empty() {
            self.feed(name, first_line, &text, true);
        }
        self.ends_file |= ended_before;
        Ok(())
    }

    /// Does what a text says, unless it is the beginning of something and more may follow.
    fn feed(&mut self, name: &Arc<str>, first_line: usize, text: &str, is_last: bool) -> Fed {
        let source = Arc::new(Source { name: name.clone(), first_line, text: text.to_owned() });
        let begun = Instant::now();
        let items = match self.session.parse(&source) {
            Err(Diagnostic { is_incomplete: true, .. }) if !is_last => return Fed::Incomplete,
            Err(error) => {
                self.say_error(&SessionError::Wrong(error));
                return Fed::Done;
            }
            Ok(items) => items,
        };
        let parse = begun.elapsed();
        for item in items {
            let begun = Instant::now();
            let outcome = self.session.run(item);
            let took = begun.elapsed();
            match outcome {
                Ok(Outcome::Value(value)) => self.say_value(value, parse),
                Ok(Outcome::Defined { name, generation }) if generation > 1 => {
                    host::say(&format!("{name}: generation {generation}"));
                    self.say_times(&format!("parse {parse:.1?}, redefine {took:.1?}"));
                }
                Ok(Outcome::Defined { .. } | Outcome::Declared) => {
                    self.say_times(&format!("parse {parse:.1?}, define {took:.1?}"));
                }
                Err(error) => {
                    self.say_error(&error);
                    break;
                }
            }
        }
        Fed::Done
    }

    fn say_value(&self, value: Value, parse: Duration) {
        let Value { number, compile, first_calls, first_calls_compile, run } = value;
        host::say(&format!("= {}", host::number(number)));
        let first_calls = match first_calls {
            0 => String::new(),
            calls => format!(", {calls} first calls {first_calls_compile:.1?}"),
        };
        self.say_times(&format!("parse {parse:.1?}, compile {compile:.1?}{first_calls}, run {run:.1?}"));
    }

    fn say_times(&self, times: &str) {
        if self.shows_times {
            host::say(&format!("  {times}"));
        }
    }

    fn say_error(&mut self, error: &SessionError) {
        self.has_failed = true;
        self.ends_file |= !matches!(error, SessionError::StackFull(_));
        host::end_line();
        // Nothing is left to say if stderr is gone.
        _ = writeln!(std::io::stderr(), "error: {}", WithCauses(error));
    }
}

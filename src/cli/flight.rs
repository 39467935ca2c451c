//! The flight recorder of `uruk run`: always on, in a file that others find by the number of the process.
//!
//! The file goes when the program ends by `exit`, and stays when it is killed, when the command has a defect, or a lookup has no end.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use uruk::JitError;
use uruk::core::sync::atomic::{AtomicBool, Ordering};
use uruk::core::{LookupError, WithCauses};
use uruk::pipeline::runtime::exit::{ExitError, on_exit};
use uruk::pipeline::runtime::fatal::set_hint;
use uruk_recorder::{Flight, Options, Reader, enable};

use super::args::RunArgs;
use super::record::{self, RecordError};
use super::report;

/// No flight recorder, if it is `0`.
const SWITCH: &str = "URUK_FLIGHT_RECORDER";

static FLIGHT: OnceLock<Flight> = OnceLock::new();

/// Whether the file stays at the end.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// No recording has the name that was given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoFlight {
    #[error(
        "process {process} has left no recording, or `uruk run` recorded elsewhere (--record FILE), or not at all (--no-flight-recorder); a file of that name is ./{process}"
    )]
    Process { process: u32 },
    #[error(
        "no program of this user runs, or was killed, that has a recording; a file of that name is ./{LAST}"
    )]
    None,
}

/// The word for the newest recording.
const LAST: &str = "last";

/// Begins to record: into the file that was asked for, or into the one that is found by the number of this process, or of the one that was the command. Without such a file what
/// is wanted of notes comes from memory.
pub(crate) fn begin(args: &RunArgs, command: Option<u32>) -> Result<(), RecordError> {
    if let Some(file) = &args.record {
        return record::begin(file);
    }
    let options = if args.wants_all_notes() { Options::default() } else { Options::small() };
    if !(args.no_flight_recorder || std::env::var_os(SWITCH).is_some_and(|value| value == "0")) {
        match Flight::begin_for(command.unwrap_or_else(std::process::id), options.clone()) {
            Ok(flight) => return Ok(begun(FLIGHT.get_or_init(|| flight))?),
            Err(error) if args.verbose > 0 => report::warning("there is no flight recorder", &error),
            Err(_) => {}
        }
    }
    if args.wants_all_notes() {
        enable(options)?;
    }
    Ok(())
}

/// Has the file removed behind all that comes later at the end, and named where a signal is reported.
fn begun(flight: &'static Flight) -> Result<(), ExitError> {
    set_hint(text(flight));
    on_exit(move |_| {
        // Relaxed: a flag alone.
        if !IS_KEPT.load(Ordering::Relaxed) {
            flight.remove();
        }
    })
}

/// The notes of this process. None in a forked child, and if nothing is recorded.
pub(crate) fn reader() -> Option<Reader> {
    Reader::new().filter(|reader| reader.process() == std::process::id())
}

/// How to see what happened, of which the file stays from here on. None if there is no file.
pub(crate) fn hint() -> Option<String> {
    let flight = FLIGHT.get()?;
    // Relaxed: a flag alone.
    IS_KEPT.store(true, Ordering::Relaxed);
    Some(text(flight))
}

/// The same, if what an error tells of was no mistake of the input.
pub(crate) fn hint_of(error: &(dyn Error + 'static)) -> Option<String> {
    if is_stuck(error) { hint() } else { None }
}

/// Whether a lookup has no end, or has taken too long.
fn is_stuck(error: &(dyn Error + 'static)) -> bool {
    use LookupError::{DeadlineExceeded, WouldDeadlock};
    let is_stuck = |cause: &(dyn Error + 'static)| {
        // The engine's error passes the causes of a lookup's on, and not the lookup's itself.
        let lookup = match cause.downcast_ref() {
            Some(JitError::Lookup(lookup)) => Some(lookup),
            _ => cause.downcast_ref::<LookupError>(),
        };
        matches!(lookup, Some(WouldDeadlock { .. } | DeadlineExceeded { .. }))
    };
    WithCauses(error).chain().any(is_stuck)
}

fn text(flight: &Flight) -> String {
    format!("to see what happened until then: uruk trace dump {}", flight.path().display())
}

/// The file that a command line names: by itself, by a process, or as the last.
pub(crate) fn file_of(given: &Path) -> Result<PathBuf, NoFlight> {
    let Some(text) = given.to_str() else { return Ok(given.to_owned()) };
    if text == LAST {
        return Flight::newest().ok_or(NoFlight::None);
    }
    match text.parse() {
        Ok(process) => Flight::find(process).ok_or(NoFlight::Process { process }),
        Err(_) => Ok(given.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_without_an_end_is_worth_a_look() {
        let stuck = [
            LookupError::WouldDeadlock { path: [].into() },
            LookupError::DeadlineExceeded { waiting: [].into() },
        ];
        for error in stuck {
            assert!(is_stuck(&Around(JitError::Lookup(error))));
        }
        assert!(!is_stuck(&JitError::Lookup(LookupError::Closed)));
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot link the program")]
    struct Around(#[source] JitError);
}

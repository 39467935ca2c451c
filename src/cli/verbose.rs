//! The output of `-v` on stderr: each unit as it goes through its states; with `-vv` each symbol too.

use std::io::Write as _;

use uruk::JitBuilder;
use uruk::pipeline::cache::CacheEvent;
use uruk_core::sync::Arc;
use uruk_core::{EventKind, SessionEvent};

/// Prints `event` if `verbosity` asks for its kind.
pub(crate) fn print(event: &SessionEvent, verbosity: u8) {
    let line = match &event.kind {
        EventKind::Defined { unit, symbols, .. } => format!("defined {unit}: {} symbols", symbols.len()),
        EventKind::Claimed { unit, .. } => format!("claimed {unit}"),
        EventKind::Resolved { unit } => format!("resolved {unit}"),
        EventKind::Emitted { unit } => format!("emitted {unit}"),
        EventKind::Failed { symbol, .. } => format!("failed `{symbol}`"),
        EventKind::Ready { symbol, .. } if verbosity > 1 => format!("ready `{symbol}`"),
        EventKind::Generating { dylib, generator } if verbosity > 1 => {
            format!("asking {generator} for {dylib}")
        }
        _ => return,
    };
    say(&line);
}

/// Prints what a cache was asked for.
pub(crate) fn print_cache(event: &CacheEvent) {
    say(&format!("cache: {event}"));
}

/// Has an engine tell what it does, and which modules it cannot compile on call.
pub(crate) fn watched(builder: JitBuilder, verbosity: u8) -> JitBuilder {
    builder
        .observer(Arc::new(move |event| print(event, verbosity)))
        .on_whole_module(|module, why| say(&format!("{module} is compiled as a whole: {why}")))
}

/// Prints a line.
pub(crate) fn say(line: &str) {
    // Nothing is left to say if stderr is gone.
    let _ = writeln!(std::io::stderr(), "uruk: {line}");
}

//! Errors cut short: those of units and generators whose own lookups have failed.
//!
//! Each such unit adds itself to the error. A chain of a hundred thousand units makes an error with as many sources, and printing
//! or dropping it takes stack for each.

use std::error::Error;
use std::fmt;

use crate::sync::Arc;
use crate::{Failure, LookupError, SharedError, WithCauses, shared_error};

/// How many failures of others an error may have among its sources.
const FAILURES_MAX: usize = 16;

/// How many sources an error may have at all. An embedder's own error types may hide failures from us that pass through them.
const SOURCES_MAX: usize = 128;

/// How many sources are looked at. An embedder's chain of errors may be longer, or go round in a circle.
const SOURCES_SEEN_MAX: usize = 1024;

/// The replacement of a long chain of errors: the one it began with.
#[derive(Debug)]
struct Cut {
    /// How many errors lay between.
    omitted: usize,
    first: SharedError,
}

/// `error`, or if it tells of many failures what stands for it. Runs code of the embedder, whose errors may be among them.
pub(crate) fn cut_short(error: SharedError) -> SharedError {
    // How many lie above, and what of the sources can be kept: the last failure, or what an earlier cut has kept.
    let (mut above, mut seen, mut failures, mut told) = (0, 0, 0, None);
    for source in WithCauses(&*error).chain().take(SOURCES_SEEN_MAX) {
        seen += 1;
        if let Some(cut) = source.downcast_ref::<Cut>() {
            above += cut.omitted;
            told = Some((above, seen, source));
            continue;
        }
        if tells_of_others(source) {
            (failures, told) = (failures + 1, Some((above, seen, source)));
        }
        above += 1;
    }
    if failures <= FAILURES_MAX && seen <= SOURCES_MAX {
        return error;
    }
    match told.filter(|(_, at, _)| seen - at < SOURCES_MAX / 2) {
        Some((omitted, _, source)) => Arc::new(Cut { omitted, first: shared(source) }),
        // Only the embedder can keep such an error, so its text has to do.
        None => {
            let last = WithCauses(&*error).chain().take(SOURCES_SEEN_MAX).last().map(ToString::to_string);
            let first = shared_error(last.unwrap_or_default());
            Arc::new(Cut { omitted: above.saturating_sub(1), first })
        }
    }
}

/// Whether it is what a lookup is told of a unit or a generator that failed.
fn tells_of_others(error: &(dyn Error + 'static)) -> bool {
    error.is::<Arc<Failure>>()
        || error.is::<Failure>()
        || matches!(error.downcast_ref(), Some(LookupError::Failed(_) | LookupError::Generator { .. }))
}

/// The same as an error of its own.
fn shared(error: &(dyn Error + 'static)) -> SharedError {
    if let Some(failure) = error.downcast_ref::<Arc<Failure>>() {
        return failure.clone();
    }
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return Arc::new(failure.clone());
    }
    if let Some(cut) = error.downcast_ref::<Cut>() {
        return cut.first.clone();
    }
    match error.downcast_ref::<LookupError>() {
        Some(lookup) => Arc::new(lookup.clone()),
        None => shared_error(error.to_string()),
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} more, not listed)", self.omitted)
    }
}

impl Error for Cut {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.first)
    }
}

//! Errors cut short: what units and generators fail with because what they had asked for has failed.
//!
//! Each that does so adds itself to the error. Along a chain of a hundred thousand units that is an error with as many sources, and
//! whoever prints or drops it does that on the stack.

use std::error::Error;
use std::fmt;
use std::iter::successors;

use crate::sync::Arc;
use crate::{Failure, LookupError, SharedError};

/// How many failures of others an error may have among its sources. What the embedder adds to each is its affair.
const FAILURES_MAX: usize = 16;

/// How many sources are looked at. What an embedder makes of errors may be longer, or go round in a circle.
const SOURCES_SEEN_MAX: usize = 1024;

/// What stands for a long chain of errors: the one it began with.
#[derive(Debug)]
struct Cut {
    /// How many errors lay between.
    omitted: usize,
    first: SharedError,
}

/// `error`, or if it tells of many failures what stands for it. Runs code of the embedder, whose errors may be among them.
pub(crate) fn cut_short(error: SharedError) -> SharedError {
    let (mut above, mut failures, mut told) = (0, 0, None);
    for source in sources(&*error).take(SOURCES_SEEN_MAX) {
        if let Some(cut) = source.downcast_ref::<Cut>() {
            above += cut.omitted;
            continue;
        }
        if tells_of_others(source) {
            (failures, told) = (failures + 1, Some((above, source)));
        }
        above += 1;
    }
    let Some((omitted, first)) = told.filter(|_| failures > FAILURES_MAX) else { return error };
    let first = shared(first);
    Arc::new(Cut { omitted, first })
}

/// The error and its sources.
fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    // A shared error is an error too, with the same sources: what it shares is what counts.
    let itself = |error: &'a (dyn Error + 'static)| match error.downcast_ref::<SharedError>() {
        Some(shared) => &**shared as &(dyn Error + 'static),
        None => error,
    };
    successors(Some(itself(error)), move |error| (*error).source().map(itself))
}

/// Whether it is what a lookup is told of a unit or a generator that failed.
fn tells_of_others(error: &(dyn Error + 'static)) -> bool {
    error.is::<Arc<Failure>>()
        || error.is::<Failure>()
        || matches!(error.downcast_ref(), Some(LookupError::Generator { .. }))
}

/// The same as an error of its own.
fn shared(error: &(dyn Error + 'static)) -> SharedError {
    if let Some(failure) = error.downcast_ref::<Arc<Failure>>() {
        return failure.clone();
    }
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return Arc::new(failure.clone());
    }
    match error.downcast_ref::<LookupError>() {
        Some(lookup) => Arc::new(lookup.clone()),
        None => super::shared_error(error.to_string()),
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} more, not listed) {}", self.omitted, self.first)
    }
}

impl Error for Cut {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.first)
    }
}

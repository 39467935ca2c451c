//! Errors cut short: what units and generators fail with because what they had asked for has failed.
//!
//! Each that does so adds itself to the error. Along a chain of a hundred thousand units that is an error with as many sources, and
//! whoever prints or drops it does that on the stack.

use std::error::Error;
use std::fmt;
use std::iter::successors;

use crate::sync::Arc;
use crate::{Failure, LookupError, SharedError};

/// How many sources an error may name, each that of the one before.
const SOURCES_MAX: usize = 32;

/// How many are looked at. What an embedder makes of errors may be longer, or go round in a circle.
const SOURCES_SEEN_MAX: usize = 1024;

/// What stands for a long chain of errors: the one it began with.
#[derive(Debug)]
struct Cut {
    /// How many errors lay between.
    omitted: usize,
    first: SharedError,
}

/// `error`, or if its sources are many what stands for it. Runs code of the embedder, whose errors may be among them.
pub(crate) fn cut_short(error: SharedError) -> SharedError {
    if sources(&*error).nth(SOURCES_MAX).is_none() {
        return error;
    }
    let (mut above, mut told) = (0, None);
    for source in sources(&*error).take(SOURCES_SEEN_MAX) {
        if let Some(cut) = source.downcast_ref::<Cut>() {
            above += cut.omitted;
            continue;
        }
        told = tells(source).map(|first| (above, first)).or(told);
        above += 1;
    }
    let (omitted, first) = told.unwrap_or_else(|| (0, super::shared_error(error.to_string())));
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

/// The error, if it says of what symbol or generator it tells.
fn tells(error: &(dyn Error + 'static)) -> Option<SharedError> {
    if let Some(failure) = error.downcast_ref::<Arc<Failure>>() {
        return Some(failure.clone());
    }
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return Some(Arc::new(failure.clone()));
    }
    let lookup = error.downcast_ref().filter(|error| matches!(error, LookupError::Generator { .. }))?;
    Some(Arc::new(lookup.clone()))
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

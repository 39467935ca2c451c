//! The symbols that a unit missed, found in the error that it fails with.

use std::error::Error;

use crate::sync::Arc;
use crate::{Failure, LookupError, SharedError, SymbolName, WithCauses};

use super::CAUSES_MAX;

/// Symbols that a lookup did not find, for which a unit has failed.
#[derive(Debug)]
pub(crate) struct MissingSymbols {
    /// The dylib whose link order was searched, where that is not the failed unit's own.
    pub(crate) dylib: Option<Arc<str>>,
    pub(crate) symbols: Vec<SymbolName>,
    /// How often generators and link orders had changed when the search began.
    pub(crate) changes: u32,
}

impl MissingSymbols {
    /// The missing symbols among the causes of an error. Runs code of the embedder, whose errors may be among them.
    pub(crate) fn among_causes(error: &SharedError) -> Option<Box<Self>> {
        let mut dylib = None;
        for cause in WithCauses(&**error).chain().take(CAUSES_MAX) {
            if let Some(LookupError::NotFound { symbols, changes, .. }) = cause.downcast_ref() {
                return Some(Box::new(Self { dylib, symbols: symbols.clone(), changes: *changes }));
            }
            if let Some(failure) = failure_in(cause) {
                dylib = Some(failure.dylib.clone());
            }
        }
        None
    }
}

/// The failure of another unit that an error tells of.
pub(crate) fn failure_in<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Failure> {
    if let Some(LookupError::Failed(failure)) = error.downcast_ref() {
        return Some(failure);
    }
    error.downcast_ref::<Arc<Failure>>().map(|failure| &**failure).or_else(|| error.downcast_ref())
}

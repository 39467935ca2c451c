//! Errors of the embedder that many share, and an error with its causes.

use std::error::Error;
use std::fmt;
use std::iter::successors;

use crate::sync::Arc;

/// An error value of the embedder that many queries may share.
pub type SharedError = Arc<dyn Error + Send + Sync>;

/// Makes a shared error of anything the standard library can make an error of: an error, or a message.
pub fn shared_error(error: impl Into<Box<dyn Error + Send + Sync>>) -> SharedError {
    Arc::from(error.into())
}

/// Prints an error and its causes in one line: `what happened: why: why that`.
///
/// Each error of ours says its own sentence, and has what caused it as its [source](Error::source). So printing an error alone
/// leaves the causes out. This prints them all, for a log or an assertion; error reporters such as `anyhow` and `eyre` do the same in
/// several lines.
///
/// ```
/// use uruk_core::{LookupError, WithCauses, shared_error};
///
/// let source = shared_error("the index is torn");
/// let error = LookupError::Generator { dylib: "main".into(), generator: "plugins".into(), source };
/// assert_eq!(error.to_string(), "definition generator `plugins` of dylib `main` failed");
/// let whole = "definition generator `plugins` of dylib `main` failed: the index is torn";
/// assert_eq!(WithCauses(&error).to_string(), whole);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WithCauses<'a>(pub &'a (dyn Error + 'static));

/// Errors of an embedder may go round in a circle.
const CAUSES_MAX: usize = 256;

impl<'a> WithCauses<'a> {
    /// The error, then each of its causes. It does not end if they go round in a circle.
    ///
    /// Each can be asked what it is by `downcast_ref`. A [`SharedError`] stands there as the error that it
    /// shares.
    pub fn chain(self) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
        // A shared error is an error too, with the same sources: what it shares is what counts.
        let itself = |error: &'a (dyn Error + 'static)| match error.downcast_ref::<SharedError>() {
            Some(shared) => &**shared as &(dyn Error + 'static),
            None => error,
        };
        successors(Some(itself(self.0)), move |error| (*error).source().map(itself))
    }
}

impl fmt::Display for WithCauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        self.chain().skip(1).take(CAUSES_MAX).try_for_each(|cause| write!(f, ": {cause}"))
    }
}

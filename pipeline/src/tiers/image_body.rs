//! [`ImageBody`]: where the body of a function of an image comes from by now.

use uruk_core::sync::Arc;

/// The body of a function that an image has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageBody {
    /// It is the image's, and may get better.
    OfImage,
    /// It was compiled from the source, after many calls.
    Better,
    /// It is the image's for good, and why.
    NotImprovable(Arc<str>),
}

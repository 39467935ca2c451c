//! Units of images: where each comes from, and why one was rejected.

use std::fmt;
use std::path::PathBuf;

use uruk_pipeline::image::Rejection;

/// Where a unit of a package comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitState {
    /// Nothing has asked for it, and nothing speaks against it.
    Unused,
    /// Its image is in use.
    Used,
    /// It was rejected: its sources are used, if they are there.
    Rejected(Rejection),
}

/// The unit of a package that has a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FromImage {
    /// The unit.
    pub unit: Box<str>,
    /// Where the unit comes from.
    pub state: UnitState,
}

/// Units of a package that contain code of a definition which is another one now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedefinedUnits {
    /// Those that were not in use. They are rejected.
    pub rejected: Vec<Box<str>>,
    /// Those that are in use. They run the older code until they are removed.
    pub in_use: Vec<Box<str>>,
}

/// A unit of an image was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageEvent {
    /// The image.
    pub image: PathBuf,
    /// The unit.
    pub unit: Box<str>,
    /// Why.
    pub reason: Rejection,
}

/// A unit was rejected, and not all of its sources are at hand.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{rejected}; load the image with its source{}, or build it again", Sources(missing))]
#[non_exhaustive]
pub struct UnitRejected {
    /// The rejection.
    pub rejected: ImageEvent,
    /// The names of the sources that the image was loaded without.
    pub missing: Vec<Box<str>>,
}

/// The names behind the word.
struct Sources<'n>(&'n [Box<str>]);

impl fmt::Display for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() > 1 { "s" } else { "" })?;
        let separators = [" "].into_iter().chain(std::iter::repeat(", "));
        separators.zip(self.0).try_for_each(|(separator, name)| write!(f, "{separator}{name}"))
    }
}

impl fmt::Display for ImageEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} is not used: {}", self.image.display(), self.unit, self.reason)
    }
}

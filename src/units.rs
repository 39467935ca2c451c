//! [`FileUnits`]: a file as a layer gives it to the program.

use std::collections::HashSet;

use uruk_core::{MaterializationUnit, ResourceTracker};
use uruk_pipeline::object::{ObjectBuffer, UnitTraits};

use crate::error::JitError;

/// The units of one file, before they are defined.
pub(crate) struct FileUnits {
    /// Has a place in the order of initialisation.
    pub(crate) unit: Box<dyn MaterializationUnit>,
    pub(crate) traits: UnitTraits,
    /// Stubs, and bodies behind stubs: without a place in that order.
    pub(crate) others: Vec<Box<dyn MaterializationUnit>>,
}

impl FileUnits {
    /// A unit alone.
    pub(crate) fn alone(unit: Box<dyn MaterializationUnit>, traits: UnitTraits) -> Self {
        Self { unit, traits, others: Vec::new() }
    }
}

/// A format of files: the program knows of the layers for it no more than this.
pub(crate) trait FileFormat {
    /// Reads what a file promises.
    fn units(&self, tracker: &ResourceTracker, source: ObjectBuffer) -> Result<FileUnits, JitError>;

    /// The names that a member of an archive defines, where its index does not list them.
    fn names(&self, member: &ObjectBuffer) -> Result<Vec<Box<str>>, JitError>;

    /// The variables to which a member of an archive gives a value that every tentative definition yields to. None of a damaged member.
    fn values(&self, member: &ObjectBuffer) -> HashSet<Box<str>>;
}

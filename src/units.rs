//! [`FileUnits`]: a file as a layer gives it to the program.

use std::collections::HashSet;

use uruk_core::{MaterializationUnit, ResourceTracker, SymbolFlags, SymbolName};
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

    /// How many symbols they define, and the weak ones among these with the names of their units: such a one may yield to another's.
    pub(crate) fn definitions(&self) -> (u64, Vec<(Box<str>, SymbolName)>) {
        let (mut count, mut weak) = (0, Vec::new());
        for unit in std::iter::once(&self.unit).chain(&self.others) {
            let mut interface = unit.interface();
            if let Some(initializer) = interface.initializer.take() {
                interface = interface.with_initializer(initializer);
            }
            for (symbol, flags) in interface.symbols.iter() {
                count += 1;
                if flags.contains(SymbolFlags::WEAK) {
                    weak.push((unit.name().into(), symbol.clone()));
                }
            }
        }
        (count, weak)
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

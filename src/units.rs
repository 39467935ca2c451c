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
        // The place in the order of initialisation has a symbol, which stands instead of the unit's own.
        let (mut count, mut weak) = (1, Vec::new());
        for unit in std::iter::once(&self.unit).chain(&self.others) {
            let mut interface = unit.interface();
            if let Some(own) = interface.initializer.take() {
                interface.symbols.remove(&own);
            }
            count += interface.symbols.len() as u64;
            let is_weak = |(_, flags): &(_, SymbolFlags)| flags.contains(SymbolFlags::WEAK);
            let symbols = interface.symbols.into_iter().filter(is_weak);
            weak.extend(symbols.map(|(symbol, _)| (unit.name().into(), symbol)));
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

#[cfg(test)]
mod tests {
    use uruk_core::{JitDylib, MaterializationInterface, MaterializationResponsibility};

    use super::*;
    use crate::Jit;

    /// Is defined, and never asked for.
    #[derive(Clone)]
    struct Idle(MaterializationInterface);

    impl MaterializationUnit for Idle {
        fn name(&self) -> &str {
            "idle"
        }

        fn interface(&self) -> MaterializationInterface {
            self.0.clone()
        }

        fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
            drop(responsibility);
        }

        fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
    }

    /// The count was one less than what came, so that units of packages were looked through again each time.
    #[test]
    fn as_many_definitions_come_as_are_counted() {
        let jit = Jit::builder().threads(0).build().expect("an engine for this machine");
        let [first, second, start] = ["first", "second", "start"].map(|name| jit.intern(name));
        let of = |name: &SymbolName, flags| {
            MaterializationInterface::new([(name.clone(), flags)].into_iter().collect())
        };
        let plain = of(&first, SymbolFlags::EXPORTED);
        let starts = of(&second, SymbolFlags::EXPORTED | SymbolFlags::WEAK).with_initializer(start);
        for (interface, weak_count) in [(plain, 0), (starts, 1)] {
            let unit = Box::new(Idle(interface));
            let (count, weak) = FileUnits::alone(unit.clone(), UnitTraits::default()).definitions();
            assert_eq!(weak.len(), weak_count);
            let before = jit.session().definition_changes();
            jit.add_unit(unit).expect("the names are new");
            assert_eq!(jit.session().definition_changes() - before, count);
        }
    }
}

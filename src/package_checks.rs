//! [`PackageChecks`]: whether units of a package may be used.
//!
//! ```text
//!   definitions in the session ─look─▶ units with code of replaced ones are rejected ─┐
//!   the host's keys of definitions ───────────────────────────────────────────────────┴─check─▶ used, or rejected
//! ```
//!
//! **Holds.** The host's function and the session's lookups run without the lock of the answers. A unit is rejected by keys that were asked for after
//! the latest answer was taken back.

use std::collections::{BTreeSet, HashMap};

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{JitDylib, SymbolFlags, SymbolName, WeakJitDylib};
use uruk_pipeline::image::{
    ImageFile, ImageReader, Rejection, UnitKey, UnitStage, UnitStages, Unreplaced, Validation,
};

use crate::error::JitError;
use crate::image_options::DefinitionKeys;
use crate::units::FileUnits;

/// The answers about the units of a package, and all that these depend on.
pub(crate) struct PackageChecks {
    file: Arc<ImageFile>,
    /// The dylib of the package.
    pub(crate) dylib: WeakJitDylib,
    definitions: Option<Arc<DefinitionKeys>>,
    pub(crate) units: UnitStages<Validation>,
    /// Comes before the lock of `units`.
    unreplaced: Mutex<Unreplaced>,
}

impl PackageChecks {
    pub(crate) fn new(
        file: Arc<ImageFile>,
        dylib: WeakJitDylib,
        definitions: Option<Arc<DefinitionKeys>>,
        validation: Validation,
    ) -> Self {
        let count = file.reader().packed().len();
        let (units, unreplaced) =
            (UnitStages::new(validation, count), Mutex::new(Unreplaced::none_of(count)));
        Self { file, dylib, definitions, units, unreplaced }
    }

    fn reader(&self) -> &ImageReader {
        self.file.reader()
    }

    /// Validates a unit, and nothing more.
    pub(crate) fn check(&self, unit: u32) -> Result<(), Rejection> {
        self.decide(unit, None)
    }

    /// Marks a unit used, if it is right.
    pub(crate) fn begin_use(&self, unit: u32) -> Result<(), Rejection> {
        self.decide(unit, Some(unit))
    }

    /// Validates a unit, by what the host and the session say of definitions.
    fn decide(&self, unit: u32, used: Option<u32>) -> Result<(), Rejection> {
        let is_rejected = self.units.with(|validation, _| validation.reason(unit).is_some());
        let replaced = if is_rejected { Vec::new() } else { self.replaced_definitions(unit) };
        for (container, definition, image) in replaced {
            let reason = Rejection::Assumption { definition: definition.into(), image, here: None };
            self.units.with(|validation, _| validation.reject(container, reason));
        }
        let names = |validation: &mut Validation| {
            self.definitions.as_ref().map(|_| validation.foreign_of(self.reader(), unit)).unwrap_or_default()
        };
        let keys = |names: BTreeSet<_>| {
            let key_of = |name| Some((name, self.definitions.as_ref()?(name)?));
            names.into_iter().filter_map(key_of).collect::<HashMap<&str, UnitKey>>()
        };
        let check = |validation: &mut Validation, keys: &HashMap<&str, UnitKey>| {
            validation.check(self.reader(), unit, &|name: &str| keys.get(name).copied())
        };
        self.units.decide(used, names, keys, check)
    }

    /// Definitions whose code a unit contains, itself or by way of others, and that the session has from elsewhere than from the image, or that
    /// were removed. Each with the unit that contains its code itself.
    ///
    /// Units that were found to be valid are no exception: their definitions may have been replaced since.
    fn replaced_definitions(&self, unit: u32) -> Vec<(u32, &str, UnitKey)> {
        let Some(dylib) = self.dylib.upgrade() else { return Vec::new() };
        let changes = dylib.session().definition_changes();
        let is_replaced = |name: &str, home: u32| self.is_replaced(&dylib, name, home);
        self.unreplaced.lock().look(self.reader(), unit, changes, is_replaced)
    }

    fn is_replaced(&self, dylib: &JitDylib, name: &str, home: u32) -> bool {
        let (name, was_used) = (dylib.session().intern(name), self.stage(home) == Some(UnitStage::Used));
        let Some(provider) = dylib.unit_providing(&name) else { return was_used };
        let path = self.reader().packed_unit(home).map(|unit| self.file.unit_path(home, unit.name));
        // A weak definition yields to that of the image, when its unit is used.
        let yields = || {
            let flags = dylib.flags([name.clone()]);
            flags.iter().all(|(_, flags)| flags.contains(SymbolFlags::WEAK))
        };
        path.is_none_or(|path| *provider.as_str() != *path) && (was_used || !yields())
    }

    /// Has `define` define the units of the package's own in `dylib`. They replace nothing that the package's units contain.
    pub(crate) fn define(
        &self,
        dylib: &JitDylib,
        own: FileUnits,
        define: impl FnOnce(FileUnits) -> Result<(), JitError>,
    ) -> Result<(), JitError> {
        let changes = || dylib.session().definition_changes();
        let (before, (count, weak)) = (changes(), own.definitions());
        define(own)?;
        let is_own = |(unit, symbol): &(Box<str>, SymbolName)| {
            dylib.unit_providing(symbol).is_some_and(|provider| *provider.as_str() == **unit)
        };
        if weak.iter().all(is_own) {
            self.unreplaced.lock().pass(before, count, changes());
        }
        Ok(())
    }

    pub(crate) fn stage(&self, unit: u32) -> Option<UnitStage> {
        self.units.with(|_, stages| stages.get(unit as usize).copied())
    }

    pub(crate) fn set_stage(&self, unit: u32, stage: UnitStage) {
        self.units.with(|_, stages| {
            if let Some(known) = stages.get_mut(unit as usize) {
                *known = stage;
            }
        });
    }
}

//! [`ObjectMaterializationUnit`]: the symbols of one object, linked when the first of them is wanted.

use std::fmt;
use std::sync::Arc;

use uruk_core::sync::atomic::{AtomicU64, Ordering};
use uruk_core::{
    ExecutionSession, JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    ResourceTracker, SharedError, SymbolFlags, SymbolName,
};

use super::interface::{ObjectInterface, default_version, is_bound_by_linker};
use super::{
    CommonError, CommonExtent, CommonSymbols, ObjectBuffer, ObjectError, ObjectLayer, References, UnitTraits,
};

/// A relocatable object waiting to be linked.
///
/// A definition that yields to another one is no longer promised, which tells the layer below to refer to the
/// other one.
///
/// ORC: `BasicObjectLayerMaterializationUnit`.
#[doc(alias = "BasicObjectLayerMaterializationUnit")]
pub struct ObjectMaterializationUnit {
    object: ObjectBuffer,
    layer: Arc<dyn ObjectLayer>,
    interface: MaterializationInterface,
    commons: Vec<(SymbolName, CommonExtent)>,
    traits: UnitTraits,
}

impl ObjectMaterializationUnit {
    /// Reads the symbols of `object`; `layer` is to link it.
    ///
    /// # Errors
    /// [`ObjectError`] if it is no object for this machine, or a broken one.
    pub fn new(
        session: &ExecutionSession,
        layer: Arc<dyn ObjectLayer>,
        object: ObjectBuffer,
    ) -> Result<Self, ObjectError> {
        let read = ObjectInterface::read(&object)?;
        read.check_architecture(&object, layer.architecture())?;
        let symbols = read.defined.iter().map(|symbol| (symbol.name, symbol.flags));
        let runs_code = read.has_initializers || read.has_finalizers;
        let interface = intern_interface(session, object.name(), symbols, runs_code);
        let commons =
            read.defined.iter().filter_map(|symbol| Some((symbol.common?, session.intern(symbol.name))));
        let commons = commons.map(|(extent, name)| (name, extent)).collect();
        let required = read.undefined.iter().filter(|symbol| !symbol.weak).map(|symbol| symbol.name);
        let required = required.filter(|name| !is_bound_by_linker(name)).map(default_version);
        let traits = UnitTraits {
            shares_sections: read.shares_sections,
            is_passive: read.is_passive(),
            runs_at_start: read.has_initializers,
            references: references(session, &interface, required),
            ..UnitTraits::default()
        };
        layer.announce(&object);
        Ok(Self { object, layer, interface, commons, traits })
    }

    /// Whether its sections may have to lie next to other files' (`__start_X`), which takes linking them
    /// together.
    pub fn shares_sections(&self) -> bool {
        self.traits.shares_sections
    }

    /// The symbols that it promises, and its references, to be changed before it is defined.
    pub(crate) fn promises(&mut self) -> (&mut MaterializationInterface, &mut References) {
        (&mut self.interface, &mut self.traits.references)
    }

    /// The unit's traits for a platform. Its references are given once.
    pub fn take_traits(&mut self) -> UnitTraits {
        let references = std::mem::take(&mut self.traits.references);
        UnitTraits { references, ..self.traits.clone() }
    }

    /// Hands the object's tentative definitions to `commons`, where those of other files meet them. To be
    /// called before the unit is defined; left out, the first file's size is everybody's.
    ///
    /// # Errors
    /// [`CommonError`].
    pub fn share_commons(
        &mut self,
        tracker: &ResourceTracker,
        commons: &CommonSymbols,
    ) -> Result<(), CommonError> {
        for (symbol, extent) in std::mem::take(&mut self.commons) {
            let flags = self.interface.symbols.get(&symbol).copied().unwrap_or_default();
            commons.add(tracker, self.object.name(), &symbol, flags, extent)?;
            self.discard(tracker.dylib(), &symbol);
        }
        Ok(())
    }
}

impl MaterializationUnit for ObjectMaterializationUnit {
    fn name(&self) -> &str {
        self.object.name()
    }

    fn interface(&self) -> MaterializationInterface {
        self.interface.clone()
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.layer.emit(responsibility, self.object);
    }

    fn spare(&self) -> Option<Box<dyn MaterializationUnit>> {
        let Self { object, layer, interface, .. } = self;
        let (object, layer, interface) = (object.clone(), layer.clone(), interface.clone());
        Some(Box::new(Self { object, layer, interface, commons: Vec::new(), traits: UnitTraits::default() }))
    }

    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        self.interface.symbols.remove(symbol);
    }
}

impl fmt::Debug for ObjectMaterializationUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectMaterializationUnit").field("object", &self.object).finish_non_exhaustive()
    }
}

/// Defines the symbols of `object` in `dylib`.
///
/// # Errors
/// [`ObjectError`] if it cannot be read, `DefineError` if the dylib refuses its symbols.
pub fn define_object(
    dylib: &JitDylib,
    layer: &Arc<dyn ObjectLayer>,
    object: ObjectBuffer,
) -> Result<(), SharedError> {
    let unit = ObjectMaterializationUnit::new(dylib.session(), Arc::clone(layer), object)
        .map_err(|error| -> SharedError { Arc::new(error) })?;
    dylib.define(Box::new(unit)).map_err(|error| -> SharedError { Arc::new(error) })
}

/// The interface of a file with these symbols. `runs_code` asks for a symbol that stands for the code it
/// runs before or after the program.
pub(crate) fn intern_interface<'a>(
    session: &ExecutionSession,
    file: &str,
    symbols: impl Iterator<Item = (&'a str, SymbolFlags)>,
    runs_code: bool,
) -> MaterializationInterface {
    let symbols = symbols.map(|(name, flags)| (session.intern(name), flags)).collect();
    let interface = MaterializationInterface::new(symbols);
    if !runs_code {
        return interface;
    }
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: the numbers only have to differ, for files of one name in one dylib.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    interface.with_initializer(session.intern(&format!("<initializers {number} of {file}>")))
}

/// Definitions and needed references of a file with this interface.
pub(crate) fn references<'a>(
    session: &ExecutionSession,
    interface: &MaterializationInterface,
    undefined: impl Iterator<Item = &'a str>,
) -> References {
    let strong = interface.symbols.iter().filter(|(_, flags)| !flags.contains(SymbolFlags::WEAK));
    References {
        defined: strong.map(|(name, _)| name.clone()).collect(),
        undefined: undefined.map(|name| session.intern(name)).collect(),
    }
}

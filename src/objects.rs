//! Objects as units, and the linking that files of all formats share.

use std::collections::HashSet;

use uruk_core::sync::Arc;
use uruk_core::{ResourceTracker, SymbolFlags};
use uruk_pipeline::lazy::{FileLayer, FileStubs, LazyCallThroughManager};
use uruk_pipeline::link::elf::Refs32;
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::object::{
    CommonSymbols, ObjectBuffer, ObjectInterface, ObjectLayer, ObjectMaterializationUnit, ObjectSymbol,
};
use uruk_pipeline::runtime::allocation;

use crate::error::JitError;
use crate::units::{FileFormat, FileUnits};

/// Functions that are compiled when they are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnCall {
    /// Of LLVM IR the function alone; of an object the whole file, since its functions cannot be told apart.
    #[default]
    Function,
    /// The whole file that the function is in. Functions of one file are inlined into each other, and call each other directly.
    Module,
}

/// The layer below all files of a program, and the tables that they share there.
pub(crate) struct Linking {
    pub(crate) layer: Arc<ObjectLinkingLayer>,
    pub(crate) commons: CommonSymbols,
    pub(crate) lazy: LazyCallThroughManager,
    /// Says which functions are compiled when they are called, if any.
    pub(crate) on_call: Option<OnCall>,
}

impl Linking {
    /// The layer, for a layer above that owns its handle.
    pub(crate) fn objects(&self) -> ObjectLinkingLayer {
        ObjectLinkingLayer::clone(&self.layer)
    }

    /// Tells the layer of an object that may be linked later.
    pub(crate) fn announce(&self, object: &ObjectBuffer) {
        self.layer.announce(object);
    }
}

/// Relocatable objects.
pub(crate) struct Objects(pub(crate) Arc<Linking>);

impl FileFormat for Objects {
    fn units(&self, tracker: &ResourceTracker, object: ObjectBuffer) -> Result<FileUnits, JitError> {
        let Self(linking) = self;
        let (dylib, session) = (tracker.dylib(), tracker.dylib().session());
        let stubs = if linking.on_call.is_some() { Stubs::of(&object)? } else { Stubs::NotPutOff };
        let (takes_part, stubs) = (matches!(stubs, Stubs::BeforeStart), stubs.into_file().map(Arc::new));
        let layer: Arc<dyn ObjectLayer> = match &stubs {
            Some(stubs) => Arc::new(FileLayer::new(linking.objects(), stubs.clone())),
            None => linking.layer.clone(),
        };
        let mut unit = ObjectMaterializationUnit::new(session, layer, object)?;
        if let Some(stubs) = &stubs {
            stubs.stand_before(session, &mut unit);
        }
        unit.share_commons(tracker, &linking.commons)?;
        let mut traits = unit.take_traits();
        traits.is_passive &= !takes_part;
        let others = stubs.map(|stubs| linking.lazy.lazy_file(dylib, &stubs)).into_iter().collect();
        Ok(FileUnits { unit: Box::new(unit), traits, others })
    }

    /// An archive's index lists what objects define.
    fn names(&self, _: &ObjectBuffer) -> Result<Vec<Box<str>>, JitError> {
        Ok(Vec::new())
    }

    fn values(&self, member: &ObjectBuffer) -> HashSet<Box<str>> {
        let Ok(object) = ObjectInterface::read(member) else { return HashSet::new() };
        let values = object.defined.iter().filter(|symbol| is_value(symbol.flags));
        values.map(|symbol| symbol.name.into()).collect()
    }
}

/// Whether every tentative definition yields to a definition with these flags.
pub(crate) fn is_value(flags: SymbolFlags) -> bool {
    !flags.intersects(SymbolFlags::WEAK | SymbolFlags::COMMON | SymbolFlags::CALLABLE)
}

/// When an object is linked, if functions wait until they are called.
enum Stubs {
    /// When one of these is called, or something refers to its data.
    File(FileStubs),
    /// As ever.
    NotPutOff,
    /// Before the program runs: it has functions that choose their implementation, or whose kind it does not say, or that are more than a
    /// stub can stand for.
    BeforeStart,
}

impl Stubs {
    fn of(object: &ObjectBuffer) -> Result<Self, JitError> {
        let interface = ObjectInterface::read(object)?;
        let is_function = |symbol: &ObjectSymbol<'_>| symbol.flags.contains(SymbolFlags::CALLABLE);
        if interface.defined.iter().any(|symbol| is_function(symbol) && symbol.code.is_none())
            || interface.is_beyond_stubs(object)
        {
            return Ok(Self::BeforeStart);
        }
        // One that holds addresses in 32 bits is placed by what it refers to.
        let is_placed = Refs32::read(object).needs_low_addresses;
        if is_placed
            || !interface.is_passive()
            || allocates(interface.defined.iter().map(|symbol| symbol.name))
        {
            return Ok(Self::NotPutOff);
        }
        let stubs = FileStubs::of_object(object, &interface);
        Ok(if stubs.is_empty() { Self::NotPutOff } else { Self::File(stubs) })
    }

    fn into_file(self) -> Option<FileStubs> {
        match self {
            Self::File(stubs) => Some(stubs),
            Self::NotPutOff | Self::BeforeStart => None,
        }
    }
}

/// Whether there are functions that the engine itself calls when it compiles: what replaces these must be there before.
pub(crate) fn allocates<'n>(mut names: impl Iterator<Item = &'n str>) -> bool {
    let own: HashSet<&str> = allocation::function_names().collect();
    names.any(|name| own.contains(name))
}

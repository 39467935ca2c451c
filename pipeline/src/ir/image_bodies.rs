//! [`ImageBodies`]: better bodies of functions whose first bodies an image has.
//!
//! ```text
//!   stub f ─▶ body of f in the image        its variables: x
//!      └────▶ better body of f, from the source ──refers to──▶ x in the image
//!                     └──calls──▶ g, local to the file: compiled from the source as well
//! ```
//!
//! The source is read when the first of its functions goes up. Variables are the image's, so there is one of each. Optimization of the image
//! may have taken a local variable apart: then the symbol is not there, or cannot be written, and what needs it is not improved. Local functions may have
//! other parameters in the image. So a better body calls those of the source, which are compiled with it, and one that takes the address of such a function fails.
//!
//! **Holds.** A function that cannot be improved keeps its body in the image, and has one reason.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use uruk_core::sync::Arc;
use uruk_core::{
    AliasMap, AliasTarget, JitDylib, MaterializationInterface, MaterializationUnit, ResourceTracker,
    SharedError, SymbolFlags, SymbolName, TransactionError, WeakJitDylib, WeakResourceTracker, WithCauses,
    shared_error, symbol_aliases,
};

use super::compile::IrCompiler;
use super::error::CompileError;
use super::ffi::symbol_bits;
use super::function_compiler::FunctionCompiler;
use super::lazy_body::BodyInModule;
use super::lazy_module::LazyModule;
use super::module::ThreadSafeModule;
use super::outline::{OutlinedValue, ValuePart};
use crate::lazy::FileStubs;
use crate::linking::ObjectLinkingLayer;
use crate::object::{FileKind, ObjectBuffer};
use crate::tiers::{ImageBody, Improve, Tiers};

/// A variable that is local to a file: its name there, whether it is constant, and its name in the session.
pub type LocalVariable = (Box<str>, bool, SymbolName);

/// The names of an image, for code that is compiled beside it.
pub trait ImageNames: Send + Sync {
    /// Whether the image defines that for others.
    fn has(&self, name: &str) -> bool;

    /// A unit that defines those of the variables that the image has.
    fn variables(&self, variables: Vec<LocalVariable>) -> Option<Box<dyn MaterializationUnit>>;
}

/// The compiler of better bodies.
#[derive(Debug)]
pub struct BetterCompiler {
    /// Compiles functions.
    pub compiler: IrCompiler,
    /// Links them.
    pub layer: ObjectLinkingLayer,
    /// Whether LLVM's verifier runs over functions.
    pub verifies: bool,
}

/// The functions of a unit of an image, with the sources that they were compiled from.
pub struct ImageBodies {
    tiers: Tiers,
    compiler: BetterCompiler,
    names: Box<dyn ImageNames>,
    sources: Vec<ObjectBuffer>,
    dylib: WeakJitDylib,
    /// The owner; without one, the dylib's own tracker is.
    tracker: Option<WeakResourceTracker>,
    functions: FxHashMap<SymbolName, ImageFunction>,
    modules: OnceLock<Result<Vec<LazyModule>, SharedError>>,
}

struct ImageFunction {
    name: Box<str>,
    /// How the attempt ended: nothing, or why there is no better body. Without a lock: first calls look, in children of forks too.
    end: OnceLock<Option<Arc<str>>>,
}

impl ImageFunction {
    fn body(&self) -> ImageBody {
        match self.end.get() {
            None => ImageBody::OfImage,
            Some(None) => ImageBody::Better,
            Some(Some(reason)) => ImageBody::NotImprovable(reason.clone()),
        }
    }
}

/// Why a function has no better body.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BesideImageError {
    /// The source has no such function that can be compiled alone.
    #[error("its source has no function of that name that can be compiled by itself")]
    NoFunction,
    /// The module has to be compiled as a whole.
    #[error("its source has to be compiled as a whole")]
    Whole,
    /// The source cannot be read.
    #[error(transparent)]
    Read(#[from] CompileError),
    /// The definitions around it were refused.
    #[error(transparent)]
    Define(#[from] TransactionError),
}

impl ImageBodies {
    /// Better bodies for the functions of `stubs`, whose bodies are in the dylib. Those belong to `tracker`, or to the dylib without one.
    pub fn new(
        tiers: Tiers,
        compiler: BetterCompiler,
        names: Box<dyn ImageNames>,
        sources: Vec<ObjectBuffer>,
        (dylib, tracker): (&JitDylib, Option<WeakResourceTracker>),
        stubs: &FileStubs,
    ) -> Arc<Self> {
        let session = dylib.session();
        let function = |(name, body): (&str, &str)| {
            let function = ImageFunction { name: name.into(), end: OnceLock::new() };
            (session.intern(body), function)
        };
        Arc::new(Self {
            tiers,
            compiler,
            names,
            sources,
            dylib: dylib.downgrade(),
            tracker,
            functions: stubs.functions().map(function).collect(),
            modules: OnceLock::new(),
        })
    }

    /// The bodies of its functions, by their names.
    pub fn bodies(&self) -> Vec<(Box<str>, ImageBody)> {
        let body = |function: &ImageFunction| (function.name.clone(), function.body());
        self.functions.values().map(body).collect()
    }

    /// The body of a function that has a stub.
    pub fn body(&self, function: &str) -> Option<ImageBody> {
        let known = self.functions.values().find(|known| *known.name == *function)?;
        Some(known.body())
    }

    fn tracker(&self, dylib: &JitDylib) -> ResourceTracker {
        let own = self.tracker.as_ref().and_then(WeakResourceTracker::upgrade);
        own.unwrap_or_else(|| dylib.default_tracker())
    }

    /// The modules of the sources, with all defined that their functions need besides the image.
    fn modules(&self, dylib: &JitDylib) -> Result<&[LazyModule], SharedError> {
        let modules = self.modules.get_or_init(|| {
            let modules: Vec<_> =
                self.sources.iter().map(|source| self.read(source)).collect::<Result<_, _>>()?;
            modules.iter().try_for_each(|module| self.define_around(module, dylib))?;
            Ok(modules)
        });
        modules.as_deref().map_err(Clone::clone)
    }

    fn read(&self, source: &ObjectBuffer) -> Result<LazyModule, SharedError> {
        let read = || {
            let written;
            let bitcode = match FileKind::of(source.bytes()) {
                FileKind::Bitcode => source,
                _ => {
                    written = ThreadSafeModule::parse_assembly(source)?.to_bitcode()?;
                    &written
                }
            };
            let BetterCompiler { compiler, layer, verifies, .. } = &self.compiler;
            let with = |compiler| FunctionCompiler::beside_image(compiler, *verifies);
            let module = LazyModule::read_for(bitcode, compiler, layer.clone(), None, with)?;
            // Sections that files share lie beside each other in the image.
            let module = module.ok().filter(|module| !module.interface().shares_sections);
            module.ok_or(BesideImageError::Whole)
        };
        read().map_err(shared_error)
    }

    /// Defines the image's variables under the names that they have for the module, and functions that the image has not, or has for itself.
    fn define_around(&self, module: &LazyModule, dylib: &JitDylib) -> Result<(), SharedError> {
        let (session, tracker) = (dylib.session(), self.tracker(dylib));
        let mut units: Vec<Box<dyn MaterializationUnit>> = Vec::new();
        // Of several files each may have a variable of one name.
        if let [_] = self.sources[..] {
            units.extend(self.names.variables(variables_of(module, dylib)));
        }
        let functions = functions_around(module, dylib, &*self.names);
        if !functions.is_empty() {
            let is_around = |(_, value): &(u32, &OutlinedValue)| {
                functions.contains_key(&session.intern(&module.called(value)))
            };
            for (number, _) in functions_of(module).filter(is_around) {
                let symbols = [(session.intern(&module.body_of(number)), SymbolFlags::CALLABLE)];
                units.push(body_unit(module, number, 0, symbols.into_iter().collect()));
            }
            // No stubs: a function that is held must not need a source that was removed.
            units.push(symbol_aliases(functions));
        }
        let changes = units
            .into_iter()
            .fold(session.transaction(), |changes, unit| changes.define_with_tracker(unit, &tracker));
        changes.commit().map_err(|refused| shared_error(BesideImageError::Define(refused.error)))
    }
}

fn body_unit(
    module: &LazyModule,
    function: u32,
    attempt: u32,
    symbols: uruk_core::SymbolFlagsMap,
) -> Box<dyn MaterializationUnit> {
    let interface = MaterializationInterface::new(symbols);
    Box::new(BodyInModule { module: module.clone(), function, attempt, interface })
}

/// The functions that can be compiled by themselves.
fn functions_of(module: &LazyModule) -> impl Iterator<Item = (u32, &OutlinedValue)> {
    let outline = module.outline();
    (0..)
        .zip(&outline.values)
        .filter(|(number, value)| value.kind == ValuePart::OnCall && !outline.compiled_once.contains(number))
}

fn variables_of(module: &LazyModule, dylib: &JitDylib) -> Vec<LocalVariable> {
    let against = symbol_bits::CALLABLE | symbol_bits::THREAD_LOCAL;
    let is_local = |value: &&OutlinedValue| {
        value.kind == ValuePart::InData && value.is_local() && value.bits & against == 0
    };
    let variable = |value: &OutlinedValue| {
        let is_constant = value.bits & symbol_bits::NEVER_WRITTEN != 0;
        (value.name.clone(), is_constant, dylib.session().intern(&module.called(value)))
    };
    module.outline().values.iter().filter(is_local).map(variable).collect()
}

/// The functions that are local to a file, or that the image has left out.
fn functions_around(module: &LazyModule, dylib: &JitDylib, image: &dyn ImageNames) -> AliasMap {
    let session = dylib.session();
    let flags: HashMap<&str, SymbolFlags> =
        module.interface().symbols.iter().map(|symbol| (&*symbol.name, symbol.flags)).collect();
    let alias = |(number, value): (u32, &OutlinedValue)| {
        let flags = flags.get(&*value.name).copied().filter(|_| !value.is_local());
        let flags = flags.unwrap_or(SymbolFlags::CALLABLE);
        let source = session.intern(&module.body_of(number));
        (session.intern(&module.called(value)), AliasTarget { source, flags })
    };
    let around = functions_of(module).filter(|(_, value)| value.is_local() || !image.has(&value.name));
    around.map(alias).collect()
}

impl Improve for ImageBodies {
    fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    fn is_improvable(&self, body: &SymbolName) -> bool {
        self.functions.get(body).is_some_and(|function| function.end.get().is_none())
    }

    fn is_urgent(&self, _: &SymbolName) -> bool {
        false
    }

    fn define_better(&self, body: &SymbolName, attempt: u32) -> Result<Option<SymbolName>, SharedError> {
        let (Some(function), Some(dylib)) = (self.functions.get(body), self.dylib.upgrade()) else {
            return Ok(None);
        };
        let found = self.modules(&dylib)?.iter().find_map(|module| {
            let is_it = |(_, value): &(u32, &OutlinedValue)| !value.is_local() && value.name == function.name;
            Some((module, functions_of(module).find(is_it)?.0))
        });
        let (module, number) = found.ok_or_else(|| shared_error(BesideImageError::NoFunction))?;
        let name = dylib.session().intern(&module.better_body_of(number, attempt));
        // An attempt that a redefinition has overtaken has left it behind.
        if !dylib.flags([name.clone()]).is_empty() {
            return Ok(Some(name));
        }
        let symbols = [(name.clone(), SymbolFlags::CALLABLE)].into_iter().collect();
        let unit = body_unit(module, number, attempt, symbols);
        let defined = dylib.define_with_tracker(unit, &self.tracker(&dylib));
        defined.map(|()| Some(name)).map_err(shared_error)
    }

    fn note_attempt(&self, body: &SymbolName, end: Result<(), &(dyn Error + 'static)>) {
        let Some(function) = self.functions.get(body) else { return };
        // The next attempt would fail as well.
        let reason = end.err().map(|error| WithCauses(error).to_string().into());
        function.end.get_or_init(|| reason);
    }
}

impl fmt::Debug for ImageBodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageBodies").field("sources", &self.sources).finish_non_exhaustive()
    }
}

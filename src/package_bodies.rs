//! Functions of a package that may get other bodies: in an engine that compiles functions when they are called, stubs stand before them.
//!
//! ```text
//!   f ─▶ stub of f ─┬─▶ code of f in the image
//!                   ├─▶ a better body, compiled from the source, once f is called often       in tiers
//!                   └─▶ another body                                                         redefined
//! ```
//!
//! In other engines the names of a package lead straight to its code. So they do for a function whose address its unit takes: it has one
//! address. Calls within a unit are direct; they are not counted, and reach no other body.

use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{JitDylib, MaterializationUnit, WeakResourceTracker};
use uruk_pipeline::image::ImageFile;
#[cfg(feature = "llvm")]
use uruk_pipeline::image::{ImageReader, SymbolTraits};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{BetterCompiler, ImageBodies, ImageNames, LocalVariable, OptimizationLevel};
use uruk_pipeline::lazy::FileStubs;
use uruk_pipeline::linking::ImageGenerator;
#[cfg(feature = "llvm")]
use uruk_pipeline::object::FileKind;
use uruk_pipeline::object::ObjectBuffer;
use uruk_pipeline::tiers::{ImageBody, Improve};

use crate::files::Files;
#[cfg(feature = "llvm")]
use crate::files::level_of;
#[cfg(feature = "llvm")]
use crate::modules::Modules;
use crate::objects::allocates;

/// The bodies of the functions of an image, where functions may get other bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageBodyCounts {
    /// Functions for others, in units that are in use.
    pub functions: usize,
    /// Those that were called often, and have a better body by now, which was compiled from the source.
    pub better: usize,
    /// Those that keep the image's body.
    pub not_improvable: usize,
}

/// The functions of a unit that is in use.
pub(crate) struct UnitBodies {
    stubs: Arc<FileStubs>,
    /// Those without a stub.
    direct: Box<[Box<str>]>,
    improving: Improving,
}

enum Improving {
    #[cfg(feature = "llvm")]
    Yes(Arc<ImageBodies>),
    /// None gets a better body, for this reason.
    #[cfg_attr(
        not(feature = "llvm"),
        expect(dead_code, reason = "there are no tiers, so no body is asked for")
    )]
    No(Arc<str>),
}

/// The stubs before the functions of a unit.
pub(crate) struct StubsBefore {
    pub(crate) stubs: Arc<FileStubs>,
    pub(crate) unit: Box<dyn MaterializationUnit>,
    /// Where there are tiers.
    pub(crate) bodies: Option<UnitBodies>,
}

/// Stubs before the functions of a unit of a package; none in an engine whose functions keep their bodies. Better bodies, which are made from
/// its `sources`, belong to the owner or to the dylib.
pub(crate) fn stubs_before(
    files: &Files,
    file: &Arc<ImageFile>,
    unit: u32,
    names: &Arc<ImageGenerator>,
    sources: impl FnOnce() -> Option<Vec<ObjectBuffer>>,
    (dylib, owner): (&JitDylib, Option<WeakResourceTracker>),
) -> Option<StubsBefore> {
    files.linking.on_call?;
    let packed = file.reader().packed_unit(unit)?;
    let mut stubs = FileStubs::of(&file.unit_path(unit, packed.name));
    for function in names.stubbed_functions() {
        stubs.add(function.name, function.body, function.flags);
    }
    if stubs.is_empty() || allocates(stubs.functions().map(|(name, _)| name)) {
        return None;
    }
    let is_direct = |name: &&str| stubs.body(name).is_none();
    let direct = names.functions().filter(is_direct).map(Box::from).collect();
    let stubs = Arc::new(stubs);
    #[cfg(feature = "llvm")]
    let improving =
        files.modules.tiers.as_ref().map(|(_, tiers)| match improvable(files, file.reader(), sources) {
            Ok(sources) => {
                let image = NamesOfUnit { file: file.clone(), names: names.clone() };
                let compiler = better_compiler(&files.modules);
                let owned = (dylib, owner);
                Improving::Yes(ImageBodies::new(
                    tiers.clone(),
                    compiler,
                    Box::new(image),
                    sources,
                    owned,
                    &stubs,
                ))
            }
            Err(reason) => Improving::No(reason.into()),
        });
    #[cfg(not(feature = "llvm"))]
    let (improving, _) = (None, (sources, owner));
    let improve = improving.as_ref().and_then(Improving::bodies);
    let unit = files.linking.lazy.lazy_image(packed.name, dylib, &stubs, improve);
    let bodies = improving.map(|improving| UnitBodies { stubs: stubs.clone(), direct, improving });
    Some(StubsBefore { stubs, unit, bodies })
}

impl Improving {
    fn bodies(&self) -> Option<Arc<dyn Improve>> {
        match self {
            #[cfg(feature = "llvm")]
            Self::Yes(bodies) => Some(bodies.clone()),
            Self::No(_) => None,
        }
    }
}

/// The sources by which functions of an image get better.
///
/// # Errors
/// Why they do not.
#[cfg(feature = "llvm")]
fn improvable(
    files: &Files,
    image: &ImageReader,
    sources: impl FnOnce() -> Option<Vec<ObjectBuffer>>,
) -> Result<Vec<ObjectBuffer>, &'static str> {
    if is_as_good(&files.modules, image) {
        return Err("it was compiled for this processor, at this level or a better one");
    }
    let sources = sources().ok_or("its source is not at hand")?;
    if sources.iter().any(|source| FileKind::of(source.bytes()) == FileKind::Object) {
        return Err("its source is an object");
    }
    Ok(sources)
}

/// Whether the code of an image is as good as what is compiled here.
#[cfg(feature = "llvm")]
fn is_as_good(modules: &Modules, image: &ImageReader) -> bool {
    let best = modules.layer.compiler().pipeline().optimization_level();
    // The levels for small code are in no order with the others.
    let is_level = match (level_of(image), best) {
        (Some(own), Some(best)) => own == best || (own > best && own <= OptimizationLevel::O3),
        _ => false,
    };
    let here = uruk_pipeline::arch::Features::of_this_processor();
    let is_for_here = image.target_here().is_ok_and(|(_, target)| target.declared.contains(here));
    is_level && is_for_here && modules.target.is_host()
}

#[cfg(feature = "llvm")]
fn better_compiler(modules: &Modules) -> BetterCompiler {
    BetterCompiler {
        compiler: modules.layer.compiler().clone(),
        layer: modules.linking.objects(),
        verifies: modules.verifies_ir,
    }
}

/// The names of a unit, and those that its package has for others.
#[cfg(feature = "llvm")]
struct NamesOfUnit {
    file: Arc<ImageFile>,
    names: Arc<ImageGenerator>,
}

#[cfg(feature = "llvm")]
impl ImageNames for NamesOfUnit {
    fn has(&self, name: &str) -> bool {
        let symbol = self.file.reader().lookup(name);
        symbol.is_some_and(|symbol| symbol.traits.contains(SymbolTraits::GLOBAL))
    }

    fn variables(&self, variables: Vec<LocalVariable>) -> Option<Box<dyn MaterializationUnit>> {
        self.names.unit_of_variables(variables.into_iter())
    }
}

/// The reason for which a function without a stub keeps its body.
const DIRECT: &str = "its unit takes its address";

impl UnitBodies {
    /// The body of a function.
    pub(crate) fn body(&self, function: &str) -> Option<ImageBody> {
        if self.stubs.body(function).is_some() {
            return match &self.improving {
                #[cfg(feature = "llvm")]
                Improving::Yes(bodies) => bodies.body(function),
                Improving::No(reason) => Some(ImageBody::NotImprovable(reason.clone())),
            };
        }
        let is_here = self.direct.iter().any(|name| **name == *function);
        is_here.then(|| ImageBody::NotImprovable(DIRECT.into()))
    }
}

impl ImageBodyCounts {
    /// These, and those of a unit.
    pub(crate) fn with(mut self, unit: &UnitBodies) -> Self {
        let stubs = unit.stubs.functions().count();
        self.functions += stubs + unit.direct.len();
        self.not_improvable += unit.direct.len();
        match &unit.improving {
            #[cfg(feature = "llvm")]
            Improving::Yes(bodies) => {
                for (_, body) in bodies.bodies() {
                    match body {
                        ImageBody::Better => self.better += 1,
                        ImageBody::NotImprovable(_) => self.not_improvable += 1,
                        _ => {}
                    }
                }
            }
            Improving::No(_) => self.not_improvable += stubs,
        }
        self
    }
}

/// The end of a sentence that says where the code of a function is.
pub(crate) struct AboutBody(pub(crate) ImageBody);

impl fmt::Display for AboutBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ImageBody::Better => f.write_str(" at first, and now a better body, compiled from its source"),
            ImageBody::NotImprovable(reason) => write!(f, "; it gets no better body: {reason}"),
            _ => f.write_str("; many calls get it a better body"),
        }
    }
}

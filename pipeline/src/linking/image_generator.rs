//! [`ImageGenerator`]: the names of an image, and where each leads.
//!
//! ```text
//!   f ─▶ code of f in the image
//!   f ─▶ stub ─▶ body of f ─▶ code of f in the image        where functions may get other bodies
//! ```
//!
//! **Holds.** A function has one address. If something in the image takes it, no stub stands before it.

use std::collections::HashMap;
use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{
    DefinitionGenerator, DependenceGroup, ExecutorAddr, ExecutorSymbolDef, GenerateRequest, JitDylib,
    LookupRequest, LookupResult, LookupSet, MaterializationInterface, MaterializationResponsibility,
    MaterializationUnit, SearchOrder, SymbolFlags, SymbolFlagsMap, SymbolMap, SymbolName,
    WeakResourceTracker, shared_error,
};

use super::image_names::MappedImage;
use crate::image::{ImageFlags, ImageReader, ImageSymbol, SymbolTraits};
use crate::memory::SegmentKind;

/// Defines the names of an image in its dylib, as lookups ask for them.
pub struct ImageGenerator {
    tables: Arc<MappedImage>,
    name: String,
    /// The owner of the definitions; without one, the dylib's own tracker is.
    tracker: Option<WeakResourceTracker>,
}

/// The unit of some names of an image.
struct NamesUnit {
    tables: Arc<MappedImage>,
    symbols: SymbolFlagsMap,
    /// Names in the session that are not those of the image, with the numbers of its symbols.
    renamed: HashMap<SymbolName, usize>,
}

/// A function of an image that a stub may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StubbedFunction<'i> {
    /// Its name.
    pub name: &'i str,
    /// The first name of its code: functions of one are one function.
    pub body: &'i str,
    /// Its flags.
    pub flags: SymbolFlags,
}

impl ImageGenerator {
    pub(super) fn new(tables: Arc<MappedImage>, name: String, tracker: Option<WeakResourceTracker>) -> Self {
        Self { tables, name, tracker }
    }

    /// Defines those of `names` in `dylib` that the image has, as a lookup would: for symbols that are asked for in another way.
    ///
    /// # Errors
    /// Those of a definition.
    pub fn define<'n>(
        &self,
        dylib: &JitDylib,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(), uruk_core::DefineError> {
        let found = names.filter_map(|name| self.tables.reader.lookup(name));
        let Some(unit) = self.unit_of(dylib, found) else { return Ok(()) };
        match self.tracker.as_ref().and_then(WeakResourceTracker::upgrade) {
            Some(tracker) => dylib.define_with_tracker(unit, &tracker),
            None => dylib.define(unit),
        }
    }

    /// A unit of all names that the image has for others; `None` if there are none. `body_of` gives functions other names: those that the
    /// stubs before them lead to.
    pub fn unit_of_all(
        &self,
        dylib: &JitDylib,
        body_of: impl Fn(&str) -> Option<Box<str>>,
    ) -> Option<Box<dyn MaterializationUnit>> {
        let (session, reader) = (dylib.session(), &self.tables.reader);
        let (mut symbols, mut renamed) = (SymbolFlagsMap::default(), HashMap::new());
        let global = |(_, symbol): &(usize, ImageSymbol<'_>)| symbol.traits.contains(SymbolTraits::GLOBAL);
        for (number, symbol) in reader.symbols().enumerate().filter(global) {
            let name = match body_of(symbol.name) {
                Some(body) => {
                    let body = session.intern(&body);
                    renamed.insert(body.clone(), number);
                    body
                }
                None => session.intern(symbol.name),
            };
            symbols.insert(name, symbol.traits.flags());
        }
        let tables = self.tables.clone();
        (!symbols.is_empty())
            .then(|| Box::new(NamesUnit { tables, symbols, renamed }) as Box<dyn MaterializationUnit>)
    }

    /// The functions that stubs may stand for: none takes their address here. Empty if the image was not built for that.
    pub fn stubbed_functions(&self) -> impl Iterator<Item = StubbedFunction<'_>> {
        let reader = &self.tables.reader;
        let may = reader.flags().contains(ImageFlags::STUBS) && reader.indirect_functions().next().is_none();
        let is_function = move |symbol: &ImageSymbol<'_>| {
            let (needed, against) = (
                SymbolTraits::GLOBAL | SymbolTraits::CALLABLE,
                SymbolTraits::TAKEN | SymbolTraits::ABSOLUTE | SymbolTraits::THREAD_LOCAL,
            );
            may && symbol.traits.contains(needed)
                && !symbol.traits.intersects(against)
                && reader.code().contains(&symbol.address)
        };
        let mut bodies = HashMap::<u64, &str>::new();
        for symbol in reader.symbols().filter(&is_function) {
            let body = bodies.entry(symbol.address).or_insert(symbol.name);
            *body = symbol.name.min(body);
        }
        reader.symbols().filter(is_function).map(move |symbol| StubbedFunction {
            name: symbol.name,
            body: bodies.get(&symbol.address).copied().unwrap_or(symbol.name),
            flags: symbol.traits.flags(),
        })
    }

    /// The functions that the image has for others.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        let needed = SymbolTraits::GLOBAL | SymbolTraits::CALLABLE;
        let functions = self.tables.reader.symbols().filter(move |symbol| symbol.traits.contains(needed));
        functions.map(|symbol| symbol.name)
    }

    /// A unit of variables that are local to the file that the image was made of, under the names that `names` gives them: those that exactly
    /// one symbol is called by, and that are as writable as they say. `None` if there are none.
    pub fn unit_of_variables(
        &self,
        names: impl Iterator<Item = (Box<str>, bool, SymbolName)>,
    ) -> Option<Box<dyn MaterializationUnit>> {
        let reader = &self.tables.reader;
        let mut known = HashMap::<&str, Vec<usize>>::new();
        for (number, symbol) in reader.symbols().enumerate() {
            let against = SymbolTraits::GLOBAL | SymbolTraits::CALLABLE | SymbolTraits::ABSOLUTE;
            if !symbol.traits.intersects(against | SymbolTraits::THREAD_LOCAL) {
                known.entry(symbol.name).or_default().push(number);
            }
        }
        let is_written = |address: u64| {
            reader.segments().iter().any(|segment| {
                let end = segment.address + segment.content_bytes + segment.zero_fill_bytes;
                let is_data = matches!(segment.kind, SegmentKind::Data | SegmentKind::FarData);
                is_data && (segment.address..end).contains(&address)
            })
        };
        let (mut symbols, mut renamed) = (SymbolFlagsMap::default(), HashMap::new());
        for (name, is_constant, in_session) in names {
            let Some([number]) = known.get(&*name).map(Vec::as_slice) else { continue };
            let symbol = reader.symbol_of(*number);
            if symbol.is_some_and(|symbol| is_constant || is_written(symbol.address)) {
                symbols.insert(in_session.clone(), SymbolFlags::empty());
                renamed.insert(in_session, *number);
            }
        }
        let tables = self.tables.clone();
        (!symbols.is_empty())
            .then(|| Box::new(NamesUnit { tables, symbols, renamed }) as Box<dyn MaterializationUnit>)
    }

    fn unit_of<'s>(
        &self,
        dylib: &JitDylib,
        symbols: impl Iterator<Item = ImageSymbol<'s>>,
    ) -> Option<Box<dyn MaterializationUnit>> {
        let session = dylib.session();
        let symbols: SymbolFlagsMap =
            symbols.map(|symbol| (session.intern(symbol.name), symbol.traits.flags())).collect();
        let (tables, renamed) = (self.tables.clone(), HashMap::new());
        (!symbols.is_empty())
            .then(|| Box::new(NamesUnit { tables, symbols, renamed }) as Box<dyn MaterializationUnit>)
    }

    /// The symbol that stands for the image as a whole. When it is Ready, so is all code of the image.
    pub fn anchor(&self) -> &str {
        self.tables.anchor.as_str()
    }

    /// Where a function that the image has for others lies, if its [anchor](Self::anchor) was found Ready at `base`: an image that was loaded from
    /// the same file later has an anchor of that name too.
    ///
    /// # Cost
    /// One probe of the index.
    pub fn function(&self, name: &str, base: ExecutorAddr) -> Option<ExecutorAddr> {
        (base.value() == self.tables.base).then_some(())?;
        let symbol = self.tables.reader.lookup(name)?;
        let is_code = self.tables.reader.code().contains(&symbol.address)
            && !symbol.traits.contains(SymbolTraits::ABSOLUTE);
        is_code.then(|| ExecutorAddr::new(self.tables.base + symbol.address))
    }

    /// The tables of the image.
    pub fn reader(&self) -> &ImageReader {
        &self.tables.reader
    }
}

impl DefinitionGenerator for ImageGenerator {
    fn name(&self) -> &str {
        &self.name
    }

    fn generate(&self, request: GenerateRequest) {
        let names = request.symbols().iter().map(|(name, _)| name.as_str());
        let defined = self.define(request.dylib(), names);
        request.finish(defined.map_err(shared_error));
    }

    fn about(&self, _: &JitDylib, _: &SymbolName, unit: Option<&SymbolName>) -> Option<Box<str>> {
        let path = self.tables.reader.path().display();
        unit.filter(|unit| *unit.as_str() == *self.name)
            .map(|_| format!("its code is that of image {path}").into())
    }
}

impl MaterializationUnit for NamesUnit {
    fn name(&self) -> &str {
        self.tables.reader.path().to_str().unwrap_or("an image")
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new(self.symbols.clone())
    }

    /// The names have their addresses when the image has its own: only then are its thread-local variables known.
    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Self { tables, symbols, renamed } = *self;
        let dylib = responsibility.dylib().clone();
        let whole = LookupSet::one(tables.anchor.clone());
        let request = LookupRequest::new(SearchOrder::of(&dylib), whole).until_resolved();
        let detached = responsibility.detach();
        dylib.session().lookup_async(request, move |answer| {
            let responsibility = detached.attach();
            match answer {
                Ok(found) => emit_names(responsibility, &tables, (&symbols, &renamed), &found),
                Err(error) => responsibility.fail(shared_error(error)),
            }
        });
    }

    fn discard(&mut self, _: &JitDylib, symbol: &SymbolName) {
        self.symbols.remove(symbol);
    }
}

fn emit_names(
    responsibility: MaterializationResponsibility,
    tables: &MappedImage,
    (symbols, renamed): (&SymbolFlagsMap, &HashMap<SymbolName, usize>),
    found: &LookupResult,
) {
    let address = |(name, &flags): (&SymbolName, &SymbolFlags)| {
        let symbol = match renamed.get(name) {
            Some(number) => tables.reader.symbol_of(*number)?,
            None => tables.reader.lookup(name.as_str())?,
        };
        let is_number = symbol.traits.contains(SymbolTraits::ABSOLUTE);
        let address = if is_number { symbol.address } else { tables.base + symbol.address };
        Some((name.clone(), ExecutorSymbolDef::new(ExecutorAddr::new(address), flags)))
    };
    let addresses: SymbolMap = symbols.iter().filter_map(address).collect();
    let resolved = match responsibility.notify_resolved(&addresses) {
        Ok(resolved) => resolved,
        Err(refused) => return drop(refused.fail()),
    };
    let symbols = resolved.symbols().keys().cloned().collect();
    let dependencies = found.dependencies();
    if let Err(refused) = resolved.notify_emitted(vec![DependenceGroup { symbols, dependencies }]) {
        refused.fail();
    }
}

impl fmt::Debug for ImageGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageGenerator").field("image", &self.name).finish_non_exhaustive()
    }
}

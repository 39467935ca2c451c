//! The object linking layer: an object and the responsibility for its symbols in, running code out.
//!
//! The layer carries each object through the typed phases of [`Link`] and speaks to the session at two points: it announces addresses as
//! soon as memory is reserved, so that objects which refer to one another can link, and it emits once the code is fixed up and its pages
//! are final. Between the two it looks up the symbols that the object refers to. That lookup never blocks: the link goes on in its handler,
//! on the worker that runs it.
//!
//! **Architecture Invariant:** every failure drops the value in hand. Memory goes back, and the
//! responsibility fails its symbols with the error as their cause.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{
    ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupRequest, LookupResult, LookupSet,
    MaterializationResponsibility, Resource, SymbolLookupFlags,
};

use super::code::{Code, CodeMap, CodeRemoval, HeldCode, KeepAlive, StubTargets, Stubs};
use super::collected::CollectedObjects;
use super::discarded::discarded_definitions;
use super::failed::{Failed, refused, told_where};
use super::low::LowAddresses;
use super::names;
use super::placements::{NotedTls, TlsPlacements};
use super::publish::{Announced, Functions, announce, fail_all, publish};
use super::share::{LinkedCode, remove_resource};
use crate::arch::Architecture;
use crate::debug::NamedCode;
use crate::executor::{CodeExtent, Executor, TlsReservation};
use crate::guard::GuardDomain;
use crate::link::elf::Refs32;
use crate::link::{Allocated, Link, LinkEnvironment, LinkError, LinkGraph, LinkOptions, parts};
use crate::object::{ObjectBuffer, ObjectLayer};
use crate::platform::section_groups::Part;
use crate::platform::{Platform, WaitingObject};

/// Links objects into the place where an [`Executor`] has them run.
///
/// # Concurrency
/// [`ObjectLayer::emit`] may be called from any number of threads at once; objects are linked
/// independently of one another.
///
/// # Examples
/// ```
/// # #[cfg(not(feature = "llvm"))]
/// # fn main() {}
/// # #[cfg(feature = "llvm")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use uruk_core::{ExecutionSession, LookupRequest, LookupSet};
/// # use uruk_pipeline::ir::{IrCompiler, OptimizationLevel, ThreadSafeModule};
/// use uruk_pipeline::object::ObjectLayer;
/// use uruk_pipeline::linking::ObjectLinkingLayer;
/// use uruk_pipeline::runtime::in_process::InProcessExecutor;
/// use uruk_pipeline::memory::InProcessMemoryManager;
/// use uruk_pipeline::object::{ObjectBuffer, define_object};
/// use uruk_pipeline::platform::Platform;
///
/// # let source = ObjectBuffer::new("answer.o", "define i64 @answer() { ret i64 42 }".as_bytes());
/// # let object = IrCompiler::host(OptimizationLevel::O2)?.compile(ThreadSafeModule::parse(&source)?)?;
/// let memory = Arc::new(InProcessMemoryManager::new()?);
/// let layer: Arc<dyn ObjectLayer> = Arc::new(ObjectLinkingLayer::new(Arc::new(InProcessExecutor::new(memory)), Arc::new(Platform::new())));
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// define_object(&main, &layer, object)?; // Of any compiler; here it defines `answer`.
/// assert!(session.lookup(LookupRequest::along(&main, LookupSet::one(session.intern("answer")))).is_ok());
/// session.close()?;
/// # Ok(())
/// # }
/// ```
///
/// ORC: `ObjectLinkingLayer`.
#[derive(Clone)]
pub struct ObjectLinkingLayer {
    pub(crate) executor: Arc<dyn Executor>,
    pub(super) platform: Arc<Platform>,
    pub(super) placements: Arc<TlsPlacements>,
    pub(super) low: Arc<LowAddresses>,
    pub(super) code: Arc<CodeMap>,
    rename: Option<Arc<RenameOfUnit>>,
    collected: Option<Arc<CollectedObjects>>,
}

/// The name in the program of a name in a unit's object. `None` if it is the same.
type RenameOfUnit = dyn Fn(&MaterializationResponsibility, &str) -> Option<Box<str>> + Send + Sync;

/// An object on its way: laid out, not yet fixed up.
struct PlacedLink {
    tls: Option<(TlsReservation, NotedTls)>,
    link: Link<Allocated>,
    names: NamedCode,
    stubs: Option<Stubs>,
}

impl ObjectLinkingLayer {
    /// A layer that has code run where `executor` says, and tells `platform` about initialisers.
    pub fn new(executor: Arc<dyn Executor>, platform: Arc<Platform>) -> Self {
        let low = Arc::new(LowAddresses::new(executor.clone()));
        let (placements, code) = (Arc::default(), Arc::default());
        Self { executor, platform, placements, low, code, rename: None, collected: None }
    }

    /// Has `objects` note every object that is linked, to link them once more as one.
    #[must_use]
    pub fn with_collected(self, objects: Arc<CollectedObjects>) -> Self {
        Self { collected: Some(objects), ..self }
    }

    /// Where the objects are noted, if they are.
    pub fn collected(&self) -> Option<&Arc<CollectedObjects>> {
        self.collected.as_ref()
    }

    /// Has the names of each object looked up in `rename` before it is linked. `rename` gives the name in the program of a name that is
    /// unique within the object of that responsibility. Units promise, and refer to, the names of the program.
    ///
    /// So no counter has to be in an object to tell it from others, and a cache finds it in the next process. See [`LinkGraph::rename`].
    #[must_use]
    pub fn with_rename(
        self,
        rename: impl Fn(&MaterializationResponsibility, &str) -> Option<Box<str>> + Send + Sync + 'static,
    ) -> Self {
        Self { rename: Some(Arc::new(rename)), ..self }
    }

    /// Entries below 2 GiB for functions and variables that lie elsewhere.
    pub fn low_addresses(&self) -> &Arc<LowAddresses> {
        &self.low
    }

    /// Makes the symbols of `responsibility` from a graph that was [built](LinkGraph::builder) in memory.
    ///
    /// References of the graph are looked up in the order of the responsibility's dylib. `__start_X` and `__stop_X` mean the sections of
    /// this graph alone. As with an [object](ObjectLayer::emit), a definition that the responsibility does not cover lost against another
    /// one.
    ///
    /// # Concurrency
    /// Never blocks. The link goes on where the addresses of the references are found.
    ///
    /// # Cost
    /// One copy of the contents.
    pub fn emit_graph(&self, responsibility: MaterializationResponsibility, graph: LinkGraph<'_>) {
        let graph = self.rename(&responsibility, graph);
        self.link(vec![responsibility], graph, None, Vec::new());
    }

    /// Links an object that `change` changes first. The values to `keep` are dropped after the code.
    pub(crate) fn emit_changed<'g>(
        &self,
        responsibility: MaterializationResponsibility,
        object: &'g ObjectBuffer,
        keep: Option<KeepAlive>,
        change: impl FnOnce(LinkGraph<'g>) -> Result<LinkGraph<'g>, LinkError>,
    ) {
        let graph = parts::parse(object).and_then(change);
        let keeps = keep.map(|cells| Stubs { targets: Arc::default(), cells });
        let graph = graph.and_then(|graph| self.rename(&responsibility, graph));
        self.link(vec![responsibility], graph, keeps, vec![object.clone()]);
    }

    /// Links an object, with all that it shares sections with.
    pub(crate) fn emit_waiting(&self, responsibility: MaterializationResponsibility, object: WaitingObject) {
        let layer = self.clone();
        self.platform
            .section_groups()
            .arrive((responsibility, object), move |parts| layer.link_objects(parts));
    }

    /// The same for a graph of stubs, which lead on to other code when they are called.
    pub(crate) fn emit_stubs(
        &self,
        responsibility: MaterializationResponsibility,
        graph: LinkGraph<'_>,
        stubs: Stubs,
    ) {
        self.link(vec![responsibility], Ok(graph), Some(stubs), Vec::new());
    }

    /// Keeps the code at `address` mapped, and all that it refers to, directly or through other code. Nothing if the address is not in
    /// what this layer has linked.
    ///
    /// Code that is reached by a pointer that was handed over at run time is not seen, and code that had been removed before is not held.
    ///
    /// # Concurrency
    /// Never blocks. The code of a symbol that is Ready before the call and still the same definition after it is held.
    ///
    /// # Cost
    /// Linear in what is held: a step for each piece of code; and for each of its references, the first time since code came or went.
    pub fn hold(&self, address: ExecutorAddr) -> Option<HeldCode> {
        self.code.hold(address)
    }

    pub(crate) fn is_of_process(&self) -> bool {
        self.platform.is_of_process()
    }

    /// The same, without what is behind `stubs`, whose holders hold it. Nothing if the process is the program's: code stays to the end.
    pub(crate) fn hold_before(&self, address: ExecutorAddr, stubs: &StubTargets) -> Option<HeldCode> {
        if self.is_of_process() { None } else { self.code.hold_before(address, stubs) }
    }

    /// The code at `address`, without what it refers to, and the cells of its stubs; nothing if there are no stubs.
    pub(crate) fn hold_stubs(&self, address: ExecutorAddr) -> Option<(HeldCode, KeepAlive)> {
        Some((self.code.hold_alone(address)?, self.code.cells_at(address)?))
    }

    /// The threads that run code of this layer, as far as they say so: what is removed stays until they have passed.
    pub fn guards(&self) -> &GuardDomain {
        &self.code.guards
    }

    /// The addresses outside of it that the code at `address` refers to.
    pub(crate) fn references_of(&self, address: ExecutorAddr) -> Vec<ExecutorAddr> {
        self.code.references_of(address)
    }

    /// The cells of the stubs at `address`, as [`emit_stubs`](Self::emit_stubs) was given them.
    pub(crate) fn cells_at(&self, address: ExecutorAddr) -> Option<KeepAlive> {
        self.code.cells_at(address)
    }

    /// Removes a resource of a tracker, for [`ResourceTracker::remove_by`](uruk_core::ResourceTracker::remove_by): code that was linked
    /// here as `removal` says, anything else as [`Resource::remove`] does.
    ///
    /// # Errors
    /// Those of [`Resource::remove`].
    pub fn remove_resource(
        resource: Box<dyn Resource>,
        removal: CodeRemoval<'_>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        remove_resource(resource, removal)
    }

    /// Links objects into one block of memory and makes their symbols.
    fn link_objects(&self, parts: Vec<Part<WaitingObject>>) {
        let (responsibilities, objects): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let graphs =
            responsibilities.iter().zip(&objects).map(|(responsibility, WaitingObject { object, names })| {
                let graph = parts::parse(object)?;
                let graph = names.iter().try_fold(graph, |graph, names| graph.rename(&**names))?;
                self.rename(responsibility, graph)
            });
        let graph = one_graph(graphs.collect());
        self.link(
            responsibilities,
            graph,
            None,
            objects.iter().map(|waiting| waiting.object.clone()).collect(),
        );
    }

    fn rename<'a>(
        &self,
        responsibility: &MaterializationResponsibility,
        graph: LinkGraph<'a>,
    ) -> Result<LinkGraph<'a>, LinkError> {
        match &self.rename {
            Some(rename) => graph.rename(&|name| rename(responsibility, name)),
            None => Ok(graph),
        }
    }

    fn link(
        &self,
        responsibilities: Vec<MaterializationResponsibility>,
        graph: Result<LinkGraph<'_>, LinkError>,
        stubs: Option<Stubs>,
        sources: Vec<ObjectBuffer>,
    ) {
        let graph = graph.map_err(Failed::from);
        let placed = match graph.and_then(|graph| self.begin(&responsibilities, graph, stubs, sources)) {
            Ok(placed) => placed,
            Err(error) => return fail_all(responsibilities, error),
        };
        let announced = announce(responsibilities, &placed.link);
        let Some(dylib) = announced.first().map(|first| first.responsibility.dylib().clone()) else { return };
        let session = dylib.session().clone();
        // Not by an order of names: the lookup would rarely find all of them Ready, and reads the order itself.
        let request = LookupRequest::along(&dylib, external_symbols(&placed.link, &dylib)).until_resolved();
        let detached: Vec<_> = announced.into_iter().map(Announced::detach).collect();
        let layer = self.clone();
        session.lookup_async(request, move |answer| {
            let announced: Vec<_> = detached.into_iter().map(Announced::attach).collect();
            let duties = |announced: Vec<Announced>| announced.into_iter().map(|part| part.responsibility);
            let found = match answer {
                Ok(found) => found,
                Err(error) => return fail_all(duties(announced), told_where(&placed.link, error)),
            };
            match layer.complete(placed, &found, &dylib) {
                Ok((code, functions)) => publish(code, functions, &found, announced, &layer.platform),
                Err(error) => fail_all(duties(announced), error),
            }
        });
    }

    /// Allocates; the addresses of all definitions are known afterwards.
    fn begin(
        &self,
        responsibilities: &[MaterializationResponsibility],
        graph: LinkGraph<'_>,
        stubs: Option<Stubs>,
        sources: Vec<ObjectBuffer>,
    ) -> Result<PlacedLink, Failed> {
        graph.check_architecture(self.executor.architecture())?;
        let discarded = discarded_definitions(responsibilities, &graph);
        if let Some(collected) = &self.collected {
            collected.add(responsibilities, &sources, &discarded, &self.platform);
        }
        let is_wanted_low = |name: &str| self.low.is_wanted(name);
        let options = LinkOptions {
            is_discarded: &|name| discarded.contains(name),
            is_wanted_low: self.low.is_needed().then_some(&is_wanted_low),
            ..LinkOptions::default()
        };
        let mut link = Link::new(graph, &options)?.allocate(self.executor.memory())?;
        let tls = self.placements.place(&mut link, &*self.executor)?;
        let names = names::of_link(&link, &sources, stubs.is_some());
        Ok(PlacedLink { tls, link, names, stubs })
    }

    /// Resolves, fixes up, and publishes; the code can run afterwards, once what it needs can.
    /// Gives what each object wants to be run.
    fn complete(
        &self,
        placed: PlacedLink,
        found: &LookupResult,
        dylib: &JitDylib,
    ) -> Result<(Arc<Code>, Vec<Functions>), Failed> {
        let environment = LinkEnvironment {
            tls_placement: &|descriptor| {
                self.placements.get(descriptor).or_else(|| self.executor.tls_placement(descriptor))
            },
            tls_distance: &|variable| self.executor.tls_distance(variable),
            entries: self.executor.entries(),
        };
        let PlacedLink { tls, link, names, stubs } = placed;
        let definition = |name: &str| found.get(&dylib.session().intern(name));
        let mut low_entries = HashMap::new();
        for name in link.low_externals() {
            if let Some(function) = definition(name)
                && let Some(entry) =
                    self.low.entry_of(&function).map_err(|error| refused(error, LOW_ENTRIES))?
            {
                low_entries.insert(Box::<str>::from(name), entry);
            }
        }
        let mut refers_to: Vec<_> = link
            .externals()
            .filter_map(|(name, _)| definition(name).map(|definition| definition.address))
            .collect();
        refers_to.sort_unstable();
        refers_to.dedup();
        let find = |name: &str| {
            let found = definition(name)?;
            // All the object's references go to the entry, so that they agree on where the function is.
            let address = low_entries.get(name).map_or(found.address, |entry| entry.address());
            Some(ExecutorSymbolDef { address, ..found })
        };
        let objects = link.graph().objects.len();
        let (memory, linked) = link.resolve(find, environment)?.fix()?.into_parts();
        let mut functions: Vec<_> = (0..objects).map(|_| Functions::default()).collect();
        for (object, initializers) in functions.iter_mut().zip(linked.initializers) {
            object.initializers = initializers;
        }
        for (object, descriptor) in linked.indirect_functions {
            functions[object.index()].indirect.push(descriptor);
        }
        let mut actions = linked.actions;
        actions.is_stubs = stubs.is_some();
        let ranges = linked.ranges.clone();
        actions.names = Some(NamedCode { dylib: dylib.name().into(), ranges, ..names });
        let extent = |home| CodeExtent { home, ranges: linked.ranges.clone() };
        actions.end = self.platform.home(dylib).map(extent);
        let (reservation, noted) = tls.unzip();
        let bytes = memory.bytes().total_bytes();
        let published = self.executor.publish(memory, reservation, actions);
        let code = LinkedCode {
            _tls: noted,
            bytes,
            published: published.map_err(|error| refused(error, &linked.name))?,
            _low_entries: low_entries.into_values().collect(),
        };
        let code = Code::new(code, linked.ranges, refers_to.into(), stubs, &self.code);
        Ok((code, functions))
    }
}

impl ObjectLayer for ObjectLinkingLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer) {
        self.emit_waiting(responsibility, WaitingObject { object, names: None });
    }

    fn architecture(&self) -> Architecture {
        self.executor.architecture()
    }

    fn announce(&self, object: &ObjectBuffer) {
        self.low.announce(&Refs32::read(object));
    }
}

impl fmt::Debug for ObjectLinkingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectLinkingLayer").field("platform", &self.platform).finish_non_exhaustive()
    }
}

/// The graph of one object, or of several.
fn one_graph(graphs: Result<Vec<LinkGraph<'_>>, LinkError>) -> Result<LinkGraph<'_>, LinkError> {
    match <[_; 1]>::try_from(graphs?) {
        Ok([only]) => Ok(only),
        Err(several) => LinkGraph::merge(several),
    }
}

fn external_symbols(link: &Link<Allocated>, dylib: &JitDylib) -> LookupSet {
    let session = dylib.session();
    link.externals()
        .map(|(name, weak)| {
            let flags = if weak {
                SymbolLookupFlags::WeaklyReferencedSymbol
            } else {
                SymbolLookupFlags::RequiredSymbol
            };
            (session.intern(name), flags)
        })
        .collect()
}

/// The name under which errors speak of entries of functions.
const LOW_ENTRIES: &str = "entries of functions below 2 GiB";

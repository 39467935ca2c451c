//! The object linking layer: an object and the responsibility for its symbols in, running code out.
//!
//! The layer carries each object through the typed phases of [`Link`] and speaks to the session at two
//! points: it announces addresses as soon as memory is reserved, so that objects which refer to one
//! another can link, and it emits once the code is fixed up and its pages are final. Between the two it
//! asks for the addresses of what the object refers to; that lookup never blocks: the link goes on in its
//! handler, on whichever worker runs it.
//!
//! **Architecture Invariant:** every failure drops the value in hand. Memory goes back, and the
//! responsibility fails its symbols with the error as their cause.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{
    DependenceGroup, Detached, ExecutorSymbolDef, JitDylib, LookupRequest, LookupResult, LookupSet,
    MaterializationResponsibility, ResolvedResponsibility, Resource, SharedError, SymbolLookupFlags,
    SymbolMap,
};

use super::graph::{Binding, LinkGraph, Location, SymbolId};
use super::low::{LowAddresses, LowEntry};
use super::placements::{PlacedTls, TlsPlacements};
use super::section_groups::{Part, SectionGroups};
use super::{Allocated, Initializers, Link, LinkEnvironment, LinkError, LinkOptions, elf};
use crate::layer::ObjectLayer;
use crate::memory::{MemoryError, MemoryManager};
use crate::object::{CloseReferences, ObjectBuffer};
use crate::platform::Platform;
use crate::runtime::tls::{TlsError, TlsResolvers, distance_from_thread_pointer};
use crate::runtime::unwind::UnwindError;
use crate::runtime::{ifunc, unwind};

/// Links objects into this process.
///
/// # Concurrency
/// [`ObjectLayer::emit`] may be called from any number of threads at once; objects are linked
/// independently of one another.
///
/// Source: ORC `ObjectLinkingLayer`.
#[derive(Clone)]
pub struct ObjectLinkingLayer {
    memory: Arc<dyn MemoryManager>,
    platform: Arc<Platform>,
    placements: Arc<TlsPlacements>,
    groups: Arc<SectionGroups>,
    low: Arc<LowAddresses>,
}

/// An object on its way: laid out, not yet fixed up.
struct Placed {
    link: Link<Allocated>,
    tls: Option<PlacedTls>,
}

impl ObjectLinkingLayer {
    /// A layer that places code in `memory` and tells `platform` about initialisers.
    pub fn new(memory: Arc<dyn MemoryManager>, platform: Arc<Platform>) -> Self {
        let low = Arc::new(LowAddresses::new(memory.clone()));
        Self { memory, platform, placements: Arc::default(), groups: Arc::default(), low }
    }

    /// What stands below 2 GiB for functions and variables that lie elsewhere.
    pub fn low_addresses(&self) -> &Arc<LowAddresses> {
        &self.low
    }

    /// Links objects into one block of memory and makes their symbols.
    fn link(&self, parts: Vec<Part>) {
        let placed = match self.begin(&parts) {
            Ok(placed) => placed,
            Err(error) => {
                return fail_all(parts.into_iter().map(|(responsibility, _)| responsibility), &error);
            }
        };
        let Some(resolved) = announce(parts, &placed.link) else { return };
        let Some(first) = resolved.first() else { return };
        let dylib = first.dylib().clone();
        let session = dylib.session().clone();
        let request =
            LookupRequest::new(dylib.link_order(), external_symbols(&placed.link, &dylib)).until_resolved();
        let detached: Vec<_> = resolved.into_iter().map(ResolvedResponsibility::detach).collect();
        let layer = self.clone();
        session.lookup_async(request, move |answer| {
            let resolved: Vec<_> = detached.into_iter().map(Detached::attach).collect();
            let found = match answer {
                Ok(found) => found,
                Err(error) => return fail_all(resolved, &error),
            };
            match layer.complete(placed, &found, &resolved) {
                Ok(code) => publish(code, &found, resolved),
                Err(error) => fail_all(resolved, &error),
            }
        });
    }

    /// Parses and allocates; the addresses of all definitions are known afterwards.
    fn begin(&self, parts: &[Part]) -> Result<Placed, LayerError> {
        let graphs = parts.iter().map(|(_, object)| elf::parse(object.name(), object.bytes()));
        let graph = match <[_; 1]>::try_from(graphs.collect::<Result<Vec<_>, _>>()?) {
            Ok([only]) => only,
            Err(several) => LinkGraph::merge(several)?,
        };
        let discarded = discarded_definitions(parts, &graph);
        let is_wanted_low = |name: &str| self.low.is_wanted(name);
        let options = LinkOptions {
            is_discarded: &|name| discarded.contains(name),
            is_wanted_low: self.low.is_needed().then_some(&is_wanted_low),
            ..LinkOptions::default()
        };
        let mut link = Link::new(graph, &options)?.allocate(&*self.memory)?;
        let tls = self.placements.place(&mut link)?;
        Ok(Placed { link, tls })
    }

    /// Resolves, fixes up, finalizes, and makes the code known to the process; it can run afterwards, once
    /// what it needs can.
    fn complete(
        &self,
        placed: Placed,
        found: &LookupResult,
        responsibilities: &[ResolvedResponsibility],
    ) -> Result<LinkedCode, LayerError> {
        let intern = |name: &str| responsibilities.first().map(|first| first.session().intern(name));
        let environment = LinkEnvironment {
            tls_placement: &|descriptor| self.placements.get(descriptor),
            tls_distance: &|variable| distance_from_thread_pointer(variable.into()),
            tls_resolvers: TlsResolvers::of_process(),
            ifunc_thunk: ifunc::lazy_thunk(),
        };
        let Placed { link, tls } = placed;
        let mut low_entries = HashMap::new();
        for name in link.low_externals() {
            if let Some(function) = intern(name).and_then(|symbol| found.get(&symbol))
                && let Some(entry) = self.low.entry_of(&function)?
            {
                low_entries.insert(Box::<str>::from(name), entry);
            }
        }
        let find = |name: &str| {
            let found = found.get(&intern(name)?)?;
            // All the object's references go to the entry, so that they agree on where the function is.
            let address = low_entries.get(name).map_or(found.address, |entry| entry.address());
            Some(ExecutorSymbolDef { address, ..found })
        };
        let linked = link.resolve(find, environment)?.fix()?.into_linked();
        if let (Some(placed), Some((image, _))) = (&tls, linked.tls) {
            placed.initialize(image);
        }
        // Objects linked together keep their places among all others.
        for (responsibility, object) in responsibilities.iter().zip(&linked.initializers) {
            if let Some(symbol) = responsibility.initializer_symbol() {
                let Initializers { preinitializers, initializers, finalizers } = object;
                self.platform.record(symbol, preinitializers, initializers, finalizers);
            }
        }
        self.platform.record_indirect_functions(&linked.indirect_functions);
        let table = linked.unwind.map(|table| unwind::register(table.code, table.eh_frame_hdr));
        let low_entries = low_entries.into_values().collect();
        Ok(LinkedCode {
            _unwind: table.transpose()?,
            _tls: tls,
            _memory: linked.alloc,
            _low_entries: low_entries,
        })
    }
}

impl ObjectLayer for ObjectLinkingLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer) {
        let parts = self.groups.arrive((responsibility, object), &self.platform);
        if !parts.is_empty() {
            self.link(parts);
        }
    }

    fn announce(&self, object: &ObjectBuffer) {
        self.low.announce(&CloseReferences::read(object));
    }
}

impl fmt::Debug for ObjectLinkingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectLinkingLayer").field("platform", &self.platform).finish_non_exhaustive()
    }
}

/// Tells the session the addresses of what each unit promised. `None` if it refused one of them.
fn announce(parts: Vec<Part>, link: &Link<Allocated>) -> Option<Vec<ResolvedResponsibility>> {
    let mut resolved = Vec::with_capacity(parts.len());
    for (responsibility, _) in parts {
        let addresses = promised_addresses(&responsibility, link);
        match responsibility.notify_resolved(&addresses) {
            Ok(announced) => resolved.push(announced),
            Err(refused) => {
                let error = refused.fail();
                fail_all(resolved, &error);
                return None; // The parts not yet announced fail as they are dropped.
            }
        }
    }
    Some(resolved)
}

/// Hands the code to the first unit's tracker and tells the session that it is there.
fn publish(code: LinkedCode, found: &LookupResult, responsibilities: Vec<ResolvedResponsibility>) {
    if let Some(first) = responsibilities.first()
        && let Err(error) = first.add_resource(Box::new(code))
    {
        return fail_all(responsibilities, &error);
    }
    for responsibility in responsibilities {
        let symbols = responsibility.symbols().keys().cloned().collect();
        let group = DependenceGroup { symbols, dependencies: found.dependencies() };
        if let Err(refused) = responsibility.notify_emitted(vec![group]) {
            refused.fail();
        }
    }
}

/// Fails every duty with the same cause.
fn fail_all<R: Failing, E>(responsibilities: impl IntoIterator<Item = R>, error: &E)
where
    E: Error + Clone + Send + Sync + 'static,
{
    let error: SharedError = Arc::new(error.clone());
    for responsibility in responsibilities {
        responsibility.fail_with(error.clone());
    }
}

/// What can be failed: a duty in either of its steps.
trait Failing {
    fn fail_with(self, error: SharedError);
}

impl Failing for MaterializationResponsibility {
    fn fail_with(self, error: SharedError) {
        self.fail(error);
    }
}

impl Failing for ResolvedResponsibility {
    fn fail_with(self, error: SharedError) {
        self.fail(error);
    }
}

/// The definitions of objects that belong to somebody else.
///
/// What an object defines beyond its unit's promise is either of two things. An exported symbol, or one
/// that the dylib defines elsewhere, lost against another definition: references go there, as a static
/// linker would have it. A hidden symbol that nobody else defines came up during code generation (the
/// personality reference of exception tables is one) and stays local to the object.
fn discarded_definitions(parts: &[Part], graph: &LinkGraph<'_>) -> HashSet<Box<str>> {
    let (mut discarded, mut hidden) = (HashSet::default(), Vec::new());
    let Some((first, _)) = parts.first() else { return discarded };
    for (name, exported) in global_definitions(graph) {
        let symbol = first.session().intern(name);
        if parts.iter().any(|(responsibility, _)| responsibility.symbols().contains_key(&symbol)) {
            continue;
        }
        if exported {
            discarded.insert(name.into());
        } else {
            hidden.push(symbol);
        }
    }
    if !hidden.is_empty() {
        let elsewhere = first.dylib().flags(hidden);
        discarded.extend(elsewhere.into_iter().map(|(name, _)| name.as_str().into()));
    }
    discarded
}

/// What other objects could refer to by name, and whether other dylibs could.
fn global_definitions<'g>(graph: &'g LinkGraph<'_>) -> impl Iterator<Item = (&'g str, bool)> {
    graph.symbols().iter().enumerate().filter_map(|(index, symbol)| {
        let is_definition = matches!(symbol.location(), Location::Block(..) | Location::Absolute(_));
        let is_global = is_definition && symbol.binding() != Binding::Local;
        is_global.then(|| (graph.symbol_name(SymbolId::of(index)), symbol.is_exported()))
    })
}

/// The addresses of what the unit promised, with the flags it promised them with.
fn promised_addresses(responsibility: &MaterializationResponsibility, link: &Link<Allocated>) -> SymbolMap {
    let session = responsibility.session();
    link.definitions()
        .filter_map(|(name, definition)| {
            let symbol = session.intern(name);
            let flags = *responsibility.symbols().get(&symbol)?;
            Some((symbol, ExecutorSymbolDef::new(definition.address, flags)))
        })
        .collect()
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

/// Why a link failed.
#[derive(Clone, Debug, thiserror::Error)]
enum LayerError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    ThreadLocal(#[from] TlsError),
    #[error(transparent)]
    Unwind(#[from] UnwindError),
    #[error("no memory for entries of functions below 2 GiB")]
    LowEntries(#[from] MemoryError),
}

/// What one object occupies in the process. Fields drop in order: first nobody can find the code any
/// more, then its memory goes.
struct LinkedCode {
    _unwind: Option<unwind::UnwindRegistration>,
    _tls: Option<PlacedTls>,
    _memory: crate::memory::FinalizedAlloc,
    _low_entries: Vec<Arc<LowEntry>>,
}

impl Resource for LinkedCode {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

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

use std::error::Error;
use std::fmt;

use rustc_hash::FxHashSet;
use uruk_core::sync::Arc;
use uruk_core::{
    DependenceGroup, ExecutorSymbolDef, JitDylib, LookupRequest, LookupResult, LookupSet,
    MaterializationResponsibility, ResolvedResponsibility, Resource, SymbolLookupFlags, SymbolMap,
};

use super::graph::{Binding, LinkGraph, Location, SymbolId};
use super::placements::{PlacedTls, TlsPlacements};
use super::{Allocated, Link, LinkEnvironment, LinkError, LinkOptions, elf};
use crate::layer::ObjectLayer;
use crate::memory::MemoryManager;
use crate::object::ObjectBuffer;
use crate::platform::Platform;
use crate::runtime::tls::TlsError;
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
}

/// An object on its way: laid out, not yet fixed up.
struct Placed {
    link: Link<Allocated>,
    tls: Option<PlacedTls>,
}

impl ObjectLinkingLayer {
    /// A layer that places code in `memory` and tells `platform` about initialisers.
    pub fn new(memory: Arc<dyn MemoryManager>, platform: Arc<Platform>) -> Self {
        Self { memory, platform, placements: Arc::default() }
    }

    /// Parses and allocates; the addresses of all definitions are known afterwards.
    fn begin(
        &self,
        responsibility: &MaterializationResponsibility,
        object: &ObjectBuffer,
    ) -> Result<Placed, LayerError> {
        let graph = elf::parse(object.name(), object.bytes())?;
        let discarded = discarded_definitions(responsibility, &graph);
        let options =
            LinkOptions { is_discarded: &|name| discarded.contains(name), ..LinkOptions::default() };
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
        responsibility: &ResolvedResponsibility,
    ) -> Result<LinkedCode, LayerError> {
        let session = responsibility.session();
        let environment = LinkEnvironment {
            tls_placement: &|descriptor| self.placements.get(descriptor),
            ifunc_thunk: ifunc::lazy_thunk(),
            // `begin` has placed the image.
            register_tls: &mut |_| Err(Arc::new(TlsError::Exhausted { limit: 0 })),
        };
        let Placed { link, tls } = placed;
        let linked = link.resolve(|name| found.get(&session.intern(name)), environment)?.fix()?.into_linked();
        if let Some(symbol) = responsibility.initializer_symbol() {
            self.platform.record(symbol, &linked.preinitializers, &linked.initializers, &linked.finalizers);
        }
        let unwind =
            linked.unwind.map(|table| unwind::register(table.code, table.eh_frame_hdr)).transpose()?;
        Ok(LinkedCode { _unwind: unwind, _tls: tls, _memory: linked.alloc })
    }
}

impl ObjectLayer for ObjectLinkingLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer) {
        let placed = match self.begin(&responsibility, &object) {
            Ok(placed) => placed,
            Err(error) => return responsibility.fail(Arc::new(error)),
        };
        drop(object);
        let addresses = promised_addresses(&responsibility, &placed.link);
        let resolved = match responsibility.notify_resolved(&addresses) {
            Ok(resolved) => resolved,
            Err(refused) => {
                refused.fail();
                return;
            }
        };

        let dylib = resolved.dylib().clone();
        let session = dylib.session().clone();
        let request =
            LookupRequest::new(dylib.link_order(), external_symbols(&placed.link, &dylib)).until_resolved();
        let detached = resolved.detach();
        let layer = self.clone();
        session.lookup_async(request, move |answer| {
            let resolved = detached.attach();
            let found = match answer {
                Ok(found) => found,
                Err(error) => return resolved.fail(Arc::new(error)),
            };
            match layer.complete(placed, &found, &resolved) {
                Ok(code) => publish(code, &found, resolved),
                Err(error) => resolved.fail(Arc::new(error)),
            }
        });
    }
}

impl fmt::Debug for ObjectLinkingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectLinkingLayer").field("platform", &self.platform).finish_non_exhaustive()
    }
}

/// Hands the code to the unit's tracker and tells the session that it is there.
fn publish(code: LinkedCode, found: &LookupResult, responsibility: ResolvedResponsibility) {
    if let Err(error) = responsibility.add_resource(Box::new(code)) {
        return responsibility.fail(Arc::new(error));
    }
    let symbols = responsibility.symbols().keys().cloned().collect();
    let group = DependenceGroup { symbols, dependencies: found.dependencies() };
    if let Err(refused) = responsibility.notify_emitted(vec![group]) {
        refused.fail();
    }
}

/// The definitions of the object that belong to somebody else.
///
/// What the object defines beyond its unit's promise is either of two things. An exported symbol, or one
/// that the dylib defines elsewhere, lost against another definition: references go there, as a static
/// linker would have it. A hidden symbol that nobody else defines came up during code generation (the
/// personality reference of exception tables is one) and stays local to the object.
fn discarded_definitions(
    responsibility: &MaterializationResponsibility,
    graph: &LinkGraph<'_>,
) -> FxHashSet<Box<str>> {
    let session = responsibility.session();
    let (mut discarded, mut hidden) = (FxHashSet::default(), Vec::new());
    for (name, exported) in global_definitions(graph) {
        let symbol = session.intern(name);
        if responsibility.symbols().contains_key(&symbol) {
            continue;
        }
        if exported {
            discarded.insert(name.into());
        } else {
            hidden.push(symbol);
        }
    }
    if !hidden.is_empty() {
        discarded
            .extend(responsibility.dylib().flags(hidden).into_iter().map(|(name, _)| name.as_str().into()));
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
}

/// What one object occupies in the process. Fields drop in order: first nobody can find the code any
/// more, then its memory goes.
struct LinkedCode {
    _unwind: Option<unwind::UnwindRegistration>,
    _tls: Option<PlacedTls>,
    _memory: crate::memory::FinalizedAlloc,
}

impl Resource for LinkedCode {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

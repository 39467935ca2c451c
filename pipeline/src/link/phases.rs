//! The phases of a link, each a type that only the one before it can make.
//!
//! | phase | what holds | made by |
//! |---|---|---|
//! | [`Built`] | what belongs to others is gone; tables and stubs are counted | [`Link::new`] |
//! | [`Allocated`] | every definition has its address; the object's bytes are no longer needed | [`Link::allocate`] |
//! | [`Resolved`] | every reference has its address | [`Link::resolve`] |
//! | [`Fixed`] | contents are final and protected | [`Link::fix`] |

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use super::error::{LinkError, Site, UndefinedSymbol};
use super::got_plt::{self, GotPlt};
use super::graph::{Binding, LinkGraph, Location, SymbolId};
use super::ifunc::{self, IndirectFunctions};
use super::layout::{self, Layout, Place, Segment};
use super::prune;
use super::section_bounds::{self, SectionBounds};
use super::tls::{self, Tls, TlsImage, TlsPlacement};
use crate::memory::{FinalizedAlloc, InFlightAlloc, MemoryManager, SegmentKind, SegmentRequest};

/// A link, in one of its phases.
///
/// Source: JITLink `JITLinkerBase`, whose three continuations are the steps between the phases.
#[derive(Debug)]
pub struct Link<Phase> {
    pub(super) phase: Phase,
}

/// What the owner of an object decides about its link.
#[expect(missing_debug_implementations, reason = "closures have no useful Debug")]
pub struct LinkOptions<'o> {
    /// Whether a definition of the object does not count, because another unit defines the name.
    pub is_discarded: &'o dyn Fn(&str) -> bool,
    /// Whether `__start_X` and `__stop_X` mean the sections `X` of this graph, if it has any. If not, they are
    /// left to the lookup.
    pub binds_section_bounds: bool,
}

impl Default for LinkOptions<'_> {
    fn default() -> Self {
        Self { is_discarded: &|_| false, binds_section_bounds: true }
    }
}

/// What the process side does for a link.
#[expect(missing_debug_implementations, reason = "closures have no useful Debug")]
pub struct LinkEnvironment<'e> {
    /// Registers the graph's thread-local image; called once if there is one. The contents of the image are
    /// final only when the link is fixed; nobody asks for them before.
    pub register_tls: &'e mut dyn FnMut(TlsImage) -> Result<TlsPlacement, Arc<dyn Error + Send + Sync>>,
    /// What the descriptor at an address says, for objects that reach a hidden thread-local variable of another
    /// object by its offset in their common module. `None` if the address is unknown.
    pub tls_placement: &'e dyn Fn(ExecutorAddr) -> Option<TlsPlacement>,
    /// Where the first call of an indirect function goes; what that must do stands in `ifunc.rs`.
    pub ifunc_thunk: ExecutorAddr,
}

/// What is known before memory is allocated, apart from the graph.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) got_plt: GotPlt,
    pub(super) tls: Tls,
    pub(super) ifuncs: IndirectFunctions,
    bounds: SectionBounds,
    externals: Vec<SymbolId>,
}

/// Pruned and planned; the contents are still the object's.
#[derive(Debug)]
pub struct Built<'a> {
    graph: LinkGraph<'a>,
    plan: Plan,
}

impl<'a> Link<Built<'a>> {
    /// Drops what `options` discard and finds out which tables and stubs the graph needs.
    ///
    /// # Errors
    /// [`LinkError::Object`] if the graph refers to a section that does not take part.
    ///
    /// # Cost
    /// Linear in symbols and edges.
    pub fn new(mut graph: LinkGraph<'a>, options: &LinkOptions<'_>) -> Result<Self, LinkError> {
        prune::prune(&mut graph, options.is_discarded);
        let bounds = section_bounds::collect(&mut graph, options.binds_section_bounds);
        bind_got_base(&mut graph);
        layout::set_great_zero_fill_aside(&mut graph);
        let externals = externals(&graph)?;
        let plan = Plan {
            got_plt: got_plt::plan(&graph),
            tls: tls::plan(&graph),
            ifuncs: ifunc::plan(&graph),
            bounds,
            externals,
        };
        Ok(Self { phase: Built { graph, plan } })
    }

    /// The graph as it will be linked.
    pub fn graph(&self) -> &LinkGraph<'a> {
        &self.phase.graph
    }

    /// Gives everything its address and copies the contents to their memory.
    ///
    /// # Errors
    /// [`LinkError::Memory`] if the manager refuses; [`LinkError::Object`] if the sizes cannot be real.
    ///
    /// # Cost
    /// One copy of the contents. Zero fill is neither touched nor copied.
    pub fn allocate(self, memory: &dyn MemoryManager) -> Result<Link<Allocated>, LinkError> {
        let Built { graph, plan } = self.phase;
        let span =
            tracing::debug_span!("link.allocate", unit = graph.name(), size_bytes = tracing::field::Empty);
        let _entered = span.enter();
        let layout = layout::lay_out(&graph, &plan.bounds, &plan.got_plt, &plan.tls, &plan.ifuncs)
            .map_err(|_| graph.too_large("the sizes of the sections add up to more than an address space"))?;
        let (requests, indices) = requests(&layout);
        span.record("size_bytes", requests.iter().map(|request| request.content_bytes).sum::<usize>());
        let owner = graph.name();
        let mut alloc = memory
            .allocate(&owner, &requests)
            .map_err(|source| LinkError::Memory { object: owner.as_str().into(), source })?;
        // A symbol may sit in a segment without bytes; it is then as near as the others.
        let mut bases = [if requests.is_empty() { 0 } else { alloc.address(0).value() }; Segment::COUNT];
        for segment in Segment::ALL {
            if let Some(index) = indices[segment as usize] {
                bases[segment as usize] = alloc.address(index).value();
                copy_contents(&graph, &layout, segment, alloc.working(index));
            }
        }
        let graph = graph.without_contents();
        Ok(Link { phase: Allocated { graph, plan, layout, alloc, indices, bases } })
    }
}

/// Laid out in memory of its own. Independent of the object, and can be sent to another thread.
#[derive(Debug)]
pub struct Allocated {
    pub(super) graph: LinkGraph<'static>,
    pub(super) plan: Plan,
    pub(super) layout: Layout,
    pub(super) alloc: InFlightAlloc,
    /// Which of the allocation's segments each of ours is; empty ones are not asked for.
    pub(super) indices: [Option<usize>; Segment::COUNT],
    pub(super) bases: [u64; Segment::COUNT],
}

impl Link<Allocated> {
    /// The graph being linked; its contents are in their memory by now.
    pub fn graph(&self) -> &LinkGraph<'static> {
        &self.phase.graph
    }

    /// Every name the graph defines beyond its own use, hidden ones included.
    pub fn definitions(&self) -> impl Iterator<Item = (&str, ExecutorSymbolDef)> {
        let graph = &self.phase.graph;
        graph.symbols.iter().enumerate().filter_map(move |(index, symbol)| {
            let id = SymbolId::of(index);
            let is_defined = match symbol.location {
                Location::Block(block, _) => graph.blocks[block.index()].live,
                Location::Absolute(_) => true,
                _ => false,
            };
            if !is_defined || symbol.binding == Binding::Local {
                return None;
            }
            let address = ExecutorAddr::new(self.phase.address(id)?);
            Some((graph.symbol_name(id), ExecutorSymbolDef::new(address, graph.flags(id))))
        })
    }

    /// Every name the graph refers to and does not define, and whether it may stay undefined.
    pub fn externals(&self) -> impl ExactSizeIterator<Item = (&str, bool)> {
        let graph = &self.phase.graph;
        self.phase
            .plan
            .externals
            .iter()
            .map(|id| (graph.symbol_name(*id), graph.symbols[id.index()].binding == Binding::Weak))
    }

    /// Where the sections whose name is a C identifier lie.
    pub fn section_ranges(&self) -> Vec<SectionRange> {
        self.phase.section_ranges()
    }

    /// Gives every reference the address that `lookup` answers; weak ones without an answer become null.
    ///
    /// # Errors
    /// [`LinkError::Undefined`] with all names that have no answer; [`LinkError::TlsModule`] if the image cannot be
    /// registered.
    pub fn resolve(
        self,
        lookup: impl Fn(&str) -> Option<ExecutorSymbolDef>,
        environment: LinkEnvironment<'_>,
    ) -> Result<Link<Resolved>, LinkError> {
        let allocated = self.phase;
        let span = tracing::debug_span!("link.resolve", symbols = allocated.plan.externals.len());
        let _entered = span.enter();
        let graph = &allocated.graph;
        let mut addresses = vec![0; graph.symbols.len()];
        let mut thread_local = vec![false; graph.symbols.len()];
        for index in 0..graph.symbols.len() {
            let id = SymbolId::of(index);
            addresses[index] = allocated.address(id).unwrap_or(0);
            thread_local[index] = graph.is_thread_local(id);
        }
        let mut missing = Vec::new();
        let mut foreign_tls = FxHashMap::default();
        for &id in &allocated.plan.externals {
            match lookup(graph.symbol_name(id)) {
                Some(definition) => {
                    addresses[id.index()] = definition.address.value();
                    thread_local[id.index()] = definition.flags.contains(SymbolFlags::THREAD_LOCAL);
                    if allocated.plan.tls.foreign.contains(&id)
                        && let Some(placement) = (environment.tls_placement)(definition.address)
                    {
                        foreign_tls.insert(id, placement);
                    }
                }
                None if graph.symbols[id.index()].binding == Binding::Weak => {}
                None => missing.push(id),
            }
        }
        if !missing.is_empty() {
            return Err(LinkError::Undefined { symbols: undefined(graph, &missing).into() });
        }
        let image = allocated.tls_image();
        let tls = match image {
            Some(image) => {
                let register = environment.register_tls;
                let placement = register(image)
                    .map_err(|source| LinkError::TlsModule { object: graph.name().into(), source })?;
                Some(placement)
            }
            None => None,
        };
        let ifunc_thunk = environment.ifunc_thunk.value();
        Ok(Link { phase: Resolved { allocated, addresses, thread_local, foreign_tls, tls, ifunc_thunk } })
    }
}

/// Every address is known.
#[derive(Debug)]
pub struct Resolved {
    pub(super) allocated: Allocated,
    /// Of each symbol.
    pub(super) addresses: Vec<u64>,
    /// Whether each symbol is thread-local; for references, as their definition says.
    pub(super) thread_local: Vec<bool>,
    /// Thread-local variables of other objects that are reached by their offset.
    pub(super) foreign_tls: FxHashMap<SymbolId, TlsPlacement>,
    /// The placement of the graph's own image.
    pub(super) tls: Option<TlsPlacement>,
    pub(super) ifunc_thunk: u64,
}

impl Link<Resolved> {
    /// Applies every edge, fills the tables, and hands the memory to its protection.
    ///
    /// # Errors
    /// [`LinkError::OutOfRange`] if a value does not fit its field; [`LinkError::ThreadLocal`] if an edge and its target
    /// disagree on what is thread-local; [`LinkError::Memory`] if the memory cannot be protected.
    ///
    /// # Cost
    /// One pass over the edges.
    pub fn fix(mut self) -> Result<Link<Fixed>, LinkError> {
        let span = tracing::debug_span!("link.fixup", edges = self.phase.allocated.graph.edges.len());
        let _entered = span.enter();
        let initializers = self.phase.write()?;
        let Allocated { graph, layout, bases, .. } = &self.phase.allocated;
        let code = bases[Segment::Code as usize];
        let unwind = (!graph.frames.is_empty()).then(|| UnwindTable {
            code: code..code + layout.extents[Segment::Code as usize].content_bytes,
            eh_frame_hdr: bases[Segment::ReadOnly as usize] + layout.eh_frame_hdr,
        });
        let tls = self.phase.allocated.tls_image().zip(self.phase.tls);
        let section_ranges = self.phase.allocated.section_ranges();
        let sizes = LinkSizes::of(layout);
        let owner = graph.name();
        let alloc = self
            .phase
            .allocated
            .alloc
            .finalize()
            .map_err(|source| LinkError::Memory { object: owner.into(), source })?;
        let linked = Linked {
            alloc,
            unwind,
            tls,
            preinitializers: initializers.preinitializers,
            initializers: initializers.initializers,
            finalizers: initializers.finalizers,
            section_ranges,
            sizes,
        };
        Ok(Link { phase: Fixed { linked } })
    }
}

/// Ready to run, once everything it depends on is.
#[derive(Debug)]
pub struct Fixed {
    linked: Linked,
}

impl Link<Fixed> {
    /// What came out.
    pub fn into_linked(self) -> Linked {
        self.phase.linked
    }
}

/// A linked graph.
#[derive(Debug)]
pub struct Linked {
    /// The memory; dropping it unmaps the code.
    pub alloc: FinalizedAlloc,
    /// How exceptions find their way through the code.
    pub unwind: Option<UnwindTable>,
    /// The thread-local image and where it was placed.
    pub tls: Option<(TlsImage, TlsPlacement)>,
    /// Functions that run before all initializers of the program, in order.
    pub preinitializers: Vec<ExecutorAddr>,
    /// Functions that run before the program, first to last: by priority, lower first, then in order.
    pub initializers: Vec<(u16, ExecutorAddr)>,
    /// Functions that run after the program, *last to first*.
    pub finalizers: Vec<(u16, ExecutorAddr)>,
    /// Where the sections whose name is a C identifier lie.
    pub section_ranges: Vec<SectionRange>,
    /// How much memory went where.
    pub sizes: LinkSizes,
}

/// Unwind information of a linked graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindTable {
    /// The code it covers.
    pub code: Range<u64>,
    /// The sorted index, which begins with the distance to `.eh_frame`.
    pub eh_frame_hdr: u64,
}

/// The extent of all sections of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionRange {
    /// The sections' name.
    pub name: Box<str>,
    /// First address, and one past the last.
    pub range: Range<u64>,
}

/// Bytes by segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSizes {
    /// Code and stubs.
    pub code_bytes: u64,
    /// Constants, unwind tables and thread-local images.
    pub read_only_bytes: u64,
    /// Writable data and the global offset table.
    pub data_bytes: u64,
    /// Writable data that starts as zero.
    pub zero_fill_bytes: u64,
}

impl LinkSizes {
    fn of(layout: &Layout) -> Self {
        let extent = |segment: Segment| layout.extents[segment as usize];
        let (data, large) = (extent(Segment::Data), extent(Segment::LargeData));
        Self {
            code_bytes: extent(Segment::Code).content_bytes,
            read_only_bytes: extent(Segment::ReadOnly).content_bytes,
            data_bytes: data.content_bytes + large.content_bytes,
            zero_fill_bytes: data.zero_fill_bytes + large.zero_fill_bytes,
        }
    }
}

impl Allocated {
    /// The address of a symbol that the graph itself places; for a thread-local variable that of its descriptor, if it has one.
    pub(super) fn address(&self, id: SymbolId) -> Option<u64> {
        let symbol = &self.graph.symbols[id.index()];
        if let Some(stub) = self.plan.ifuncs.get(id) {
            let offset = self.layout.ifunc_stubs + stub * ifunc::STUB_BYTES;
            return Some(self.at(Place { segment: Segment::Code, offset }));
        }
        if self.graph.is_thread_local(id) {
            let index = self.plan.tls.descriptors.get(id)?;
            let offset = self.layout.tls_descriptors + index * tls::DESCRIPTOR_BYTES;
            return Some(self.at(Place { segment: Segment::ReadOnly, offset }));
        }
        match symbol.location {
            Location::Block(block, offset) => {
                Some(self.at(self.layout.places[block.index()]).wrapping_add(offset))
            }
            Location::Absolute(value) => Some(value),
            Location::GotBase => Some(self.got()),
            Location::SectionStart(group) => Some(self.at(self.layout.bounds[group as usize].0)),
            Location::SectionStop(group) => {
                let (start, end) = self.layout.bounds[group as usize];
                Some(self.at(Place { offset: end, ..start }))
            }
            Location::Undefined | Location::NotLoaded => None,
        }
    }

    pub(super) fn at(&self, place: Place) -> u64 {
        self.bases[place.segment as usize].wrapping_add(place.offset)
    }

    pub(super) fn got(&self) -> u64 {
        self.at(Place { segment: Segment::Data, offset: self.layout.got })
    }

    pub(super) fn tls_image(&self) -> Option<TlsImage> {
        let tls = self.layout.tls?;
        Some(TlsImage {
            address: ExecutorAddr::new(self.at(Place { segment: Segment::ReadOnly, offset: tls.image })),
            image_bytes: tls.image_bytes,
            total_bytes: tls.total_bytes,
            align: 1 << tls.align_log2,
        })
    }

    fn section_ranges(&self) -> Vec<SectionRange> {
        let groups = self.plan.bounds.groups.iter().zip(&self.layout.bounds);
        groups
            .map(|(group, &(start, end))| SectionRange {
                name: group.name.clone(),
                range: self.at(start)..self.at(Place { offset: end, ..start }),
            })
            .collect()
    }
}

/// Binds the conventional name of the table, by which assembly refers to it.
fn bind_got_base(graph: &mut LinkGraph<'_>) {
    for index in 0..graph.symbols.len() {
        let symbol = &graph.symbols[index];
        if symbol.location == Location::Undefined && graph.text(symbol.name) == "_GLOBAL_OFFSET_TABLE_" {
            graph.symbols[index].location = Location::GotBase;
        }
    }
}

/// The undefined symbols that something refers to, in the order of their first reference.
fn externals(graph: &LinkGraph<'_>) -> Result<Vec<SymbolId>, LinkError> {
    let mut seen = vec![false; graph.symbols.len()];
    let mut externals = Vec::new();
    for (id, _) in graph.live_blocks() {
        for edge in graph.edges(id) {
            let target = edge.target.index();
            if seen[target] || edge.kind.ignores_target() {
                continue;
            }
            seen[target] = true;
            match graph.symbols[target].location {
                Location::Undefined => externals.push(edge.target),
                Location::NotLoaded => {
                    let name = graph.symbol_name(edge.target);
                    let what = format!("refers to `{name}`, which lies in a section that is not loaded");
                    return Err(LinkError::Object {
                        site: Box::new(graph.site(id, edge.offset)),
                        what: what.into(),
                    });
                }
                _ => {}
            }
        }
    }
    Ok(externals)
}

fn undefined(graph: &LinkGraph<'_>, missing: &[SymbolId]) -> Vec<UndefinedSymbol> {
    let mut sites: FxHashMap<SymbolId, Site> = FxHashMap::default();
    let mut wanted: rustc_hash::FxHashSet<SymbolId> = missing.iter().copied().collect();
    for (id, _) in graph.live_blocks() {
        for edge in graph.edges(id) {
            if wanted.remove(&edge.target) {
                sites.insert(edge.target, graph.site(id, edge.offset));
            }
        }
    }
    missing
        .iter()
        .filter_map(|id| {
            Some(UndefinedSymbol { symbol: graph.symbol_name(*id).into(), site: sites.remove(id)? })
        })
        .collect()
}

/// What to ask the manager for, and which request belongs to which segment.
fn requests(layout: &Layout) -> (Vec<SegmentRequest>, [Option<usize>; Segment::COUNT]) {
    let mut requests = Vec::with_capacity(Segment::COUNT);
    let mut indices = [None; Segment::COUNT];
    for segment in Segment::ALL {
        let extent = layout.extents[segment as usize];
        if extent.content_bytes + extent.zero_fill_bytes == 0 {
            continue;
        }
        indices[segment as usize] = Some(requests.len());
        requests.push(SegmentRequest {
            kind: match segment {
                Segment::Code => SegmentKind::Code,
                Segment::ReadOnly => SegmentKind::ReadOnly,
                Segment::Data | Segment::LargeData => SegmentKind::Data,
            },
            content_bytes: extent.content_bytes as usize,
            zero_fill_bytes: extent.zero_fill_bytes as usize,
            align: 1 << extent.align_log2,
        });
    }
    (requests, indices)
}

fn copy_contents(graph: &LinkGraph<'_>, layout: &Layout, segment: Segment, working: &mut [u8]) {
    for &id in &layout.contents[segment as usize] {
        let content = graph.content(id);
        let start = layout.places[id.index()].offset as usize;
        working[start..start + content.len()].copy_from_slice(content);
    }
}

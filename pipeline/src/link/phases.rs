//! The phases of a link, each a type that only the one before it can make.
//!
//! | phase | guarantee | made by |
//! |---|---|---|
//! | [`Built`] | definitions of other units are gone; tables and stubs are counted | [`Link::new`] |
//! | [`Allocated`] | every definition has its address; the object's bytes are no longer needed | [`Link::allocate`] |
//! | [`Resolved`] | every reference has its address | [`Link::resolve`] |
//! | [`Fixed`] | contents are final | [`Link::fix`] |

use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use super::error::{LinkError, UndefinedSymbol};
use super::fixup;
use super::graph::{Binding, LinkGraph, Location, SymbolId};
use super::layout::{self, Layout, Segment};
use super::placed::Placed;
use super::plan::{self, Plan};
use super::resolution::Resolution;
use super::terms::{LinkEnvironment, LinkOptions, LinkSizes, Linked, SectionRange};
use super::tls::{self, Need};
use crate::executor::{Actions, TlsImage, TlsPlacement, TlsShape};
use crate::memory::{InFlightAlloc, MemoryManager};

/// A link, in one of its phases.
///
/// JITLink: `JITLinkerBase`, whose three continuations are the steps between the phases.
#[derive(Debug)]
pub struct Link<Phase> {
    pub(super) phase: Phase,
}

/// Pruned and planned; the contents are still the object's.
#[derive(Debug)]
pub struct Built<'a> {
    graph: LinkGraph<'a>,
    plan: Plan,
}

impl<'a> Link<Built<'a>> {
    /// Renames as `options` say, drops what they discard, and finds out which tables and stubs the graph needs.
    ///
    /// # Errors
    /// [`LinkError::Object`] if the graph refers to a section that does not take part; those of [`LinkGraph::rename`].
    ///
    /// # Cost
    /// Linear in symbols and edges.
    pub fn new(mut graph: LinkGraph<'a>, options: &LinkOptions<'_>) -> Result<Self, LinkError> {
        if let Some(rename) = options.rename {
            graph = graph.rename(rename)?;
        }
        let plan = plan::plan(&mut graph, options)?;
        Ok(Self { phase: Built { graph, plan } })
    }

    /// The graph as it will be linked.
    pub fn graph(&self) -> &LinkGraph<'a> {
        &self.phase.graph
    }

    /// Gives everything its address and copies the contents to their memory.
    ///
    /// # Errors
    /// [`LinkError::Memory`] if the manager refuses; [`LinkError::Object`] if the sizes cannot be real, or if no thread could
    /// have the thread-local variables.
    ///
    /// # Cost
    /// One copy of the contents. Zero fill and padding are neither touched nor copied.
    pub fn allocate(self, memory: &dyn MemoryManager) -> Result<Link<Allocated>, LinkError> {
        let Built { graph, plan } = self.phase;
        let phase =
            uruk_core::phase!("link.allocate", unit = graph.name(), size_bytes = tracing::field::Empty);
        let inside = uruk_core::inside(phase);
        let Plan { bounds, got_plt, tls, ifuncs, is_rebasable, first, .. } = &plan;
        let layout = layout::lay_out(&graph, bounds, got_plt, tls, ifuncs, *is_rebasable, first)
            .map_err(|_| graph.too_large("the sizes of the sections add up to more than an address space"))?;
        tls::check_size(&graph, layout.tls.as_ref())?;
        let (requests, indices) = layout::requests(&layout);
        let content_bytes: usize = requests.iter().map(|request| request.content_bytes).sum();
        if let Some(span) = inside.span() {
            span.record("size_bytes", content_bytes);
        }
        let owner = graph.name();
        let alloc = match plan.low.is_low {
            true => memory.allocate_low(&owner, &requests),
            false => memory.allocate(&owner, &requests),
        };
        let mut alloc =
            alloc.map_err(|source| LinkError::Memory { object: owner.as_str().into(), source })?;
        // A symbol may sit in a segment without bytes; it is then as near as the others.
        let mut bases = [if requests.is_empty() { 0 } else { alloc.address(0).value() }; Segment::COUNT];
        for segment in Segment::ALL {
            if let Some(index) = indices[segment as usize] {
                bases[segment as usize] = alloc.address(index).value();
                layout::written_runs(&graph, &layout, segment).for_each(|run| alloc.will_write(index, run));
                layout::copy_contents(&graph, &layout, segment, alloc.working(index));
            }
        }
        let graph = graph.without_contents();
        Ok(Link {
            phase: Allocated {
                placed: Box::new(Placed {
                    name: owner.into(),
                    graph,
                    plan,
                    layout,
                    indices,
                    bases,
                    tls: None,
                }),
                alloc,
            },
        })
    }
}

/// Laid out in memory of its own. Independent of the object, and can be sent to another thread.
#[derive(Debug)]
pub struct Allocated {
    placed: Box<Placed>,
    alloc: InFlightAlloc,
}

impl Link<Allocated> {
    /// The graph being linked; its contents are in their memory by now.
    pub fn graph(&self) -> &LinkGraph<'static> {
        &self.phase.placed.graph
    }

    pub(super) fn placed(&self) -> &Placed {
        &self.phase.placed
    }

    /// Every name the graph defines beyond its own use, hidden ones included.
    pub fn definitions(&self) -> impl Iterator<Item = (&str, ExecutorSymbolDef)> {
        let graph = &self.phase.placed.graph;
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
            let address = ExecutorAddr::new(self.phase.placed.address(id)?);
            Some((graph.symbol_name(id), ExecutorSymbolDef::new(address, graph.flags(id))))
        })
    }

    /// The address of a symbol in a block that is there.
    pub(crate) fn address_of(&self, symbol: SymbolId) -> Option<ExecutorAddr> {
        let placed = &self.phase.placed;
        match placed.graph.symbols[symbol.index()].location {
            Location::Block(block, _) if placed.graph.blocks[block.index()].live => {
                placed.address(symbol).map(ExecutorAddr::new)
            }
            _ => None,
        }
    }

    /// Every name the graph refers to and does not define, and whether it may stay undefined.
    pub fn externals(&self) -> impl ExactSizeIterator<Item = (&str, bool)> {
        let graph = &self.phase.placed.graph;
        self.phase
            .placed
            .plan
            .externals
            .iter()
            .map(|id| (graph.symbol_name(*id), graph.symbols[id.index()].binding == Binding::Weak))
    }

    /// The references to those of the [externals](Self::externals) that are missing according to `is_missing`.
    ///
    /// # Cost
    /// Linear in the edges; for the first 16 symbols, in the symbols too.
    pub fn undefined(&self, is_missing: impl Fn(&str) -> bool) -> Vec<UndefinedSymbol> {
        let Placed { graph, plan, .. } = &*self.phase.placed;
        let missing = plan.externals.iter().copied().filter(|id| is_missing(graph.symbol_name(*id)));
        plan::undefined(graph, &missing.collect::<Vec<_>>())
    }

    /// Of the [externals](Self::externals), those that the graph holds the address of in 32 bits.
    pub fn low_externals(&self) -> impl Iterator<Item = &str> {
        let Placed { graph, plan, .. } = &*self.phase.placed;
        plan.low.externals.iter().map(|id| graph.symbol_name(*id))
    }

    /// Where the sections whose name is a C identifier lie.
    pub fn section_ranges(&self) -> Vec<SectionRange> {
        self.phase.placed.section_ranges()
    }

    /// The graph's thread-local variables, if it has some.
    pub fn tls_shape(&self) -> Option<TlsShape> {
        let TlsImage { image_bytes, total_bytes, align, .. } = self.phase.placed.tls_image()?;
        let needs_static = self.phase.placed.plan.tls.own_distance == Some(Need::Required);
        Some(TlsShape { image_bytes, total_bytes, align, needs_static })
    }

    /// Says where the image is placed; to be called before the link is resolved if there is an image, and before the
    /// definitions are announced: a reference to a hidden variable of another object needs its placement as soon as
    /// its address.
    pub fn place_tls(&mut self, placement: TlsPlacement) {
        self.phase.placed.tls = Some(placement);
    }

    /// Where each descriptor of the graph lies and what it will say, once the image is placed.
    pub fn tls_descriptors(&self) -> Vec<(ExecutorAddr, TlsPlacement)> {
        let Some(own) = self.phase.placed.tls else { return Vec::new() };
        let symbols = self.phase.placed.plan.tls.descriptors.symbols().iter();
        let descriptors = symbols.filter_map(|symbol| {
            let offset = own.offset.wrapping_add(self.phase.placed.image_offset(*symbol));
            Some((ExecutorAddr::new(self.phase.placed.address(*symbol)?), TlsPlacement { offset, ..own }))
        });
        descriptors.collect()
    }

    /// Gives every reference the address that `lookup` answers; weak ones without an answer become null.
    ///
    /// # Errors
    /// [`LinkError::Undefined`] with all names that have no answer; [`LinkError::TlsNotPlaced`] if the graph has a
    /// thread-local image that [`Link::place_tls`] has not placed.
    pub fn resolve(
        self,
        lookup: impl Fn(&str) -> Option<ExecutorSymbolDef>,
        environment: LinkEnvironment<'_>,
    ) -> Result<Link<Resolved>, LinkError> {
        let Allocated { placed, alloc } = self.phase;
        let phase = uruk_core::phase!("link.resolve", symbols = placed.plan.externals.len());
        let _inside = uruk_core::inside(phase);
        let mut resolution = Resolution::of_own_symbols(&placed, &environment);
        let graph = &placed.graph;
        let mut missing = Vec::new();
        for &id in &placed.plan.externals {
            match lookup(graph.symbol_name(id)) {
                Some(definition) => {
                    resolution.addresses[id.index()] = definition.address.value();
                    resolution.thread_local[id.index()] =
                        definition.flags.contains(SymbolFlags::THREAD_LOCAL);
                    resolution.callable[id.index()] = definition.flags.contains(SymbolFlags::CALLABLE);
                    resolution.find_variable(&placed.plan.tls, &environment, id, definition.address);
                }
                None if graph.symbols[id.index()].binding == Binding::Weak => {
                    // As the dynamic linker has it.
                    resolution.distances.insert(id, Ok(0));
                }
                None => missing.push(id),
            }
        }
        resolution.find_module(&placed.plan.tls, &environment);
        if !missing.is_empty() {
            return Err(LinkError::Undefined {
                symbols: plan::undefined(graph, &missing).into(),
                source: None,
            });
        }
        if placed.tls.is_none() && placed.tls_image().is_some() {
            return Err(LinkError::TlsNotPlaced { object: graph.name().into() });
        }
        Ok(Link { phase: Resolved { placed, resolution, alloc } })
    }
}

/// Every address is known.
#[derive(Debug)]
pub struct Resolved {
    placed: Box<Placed>,
    resolution: Resolution,
    alloc: InFlightAlloc,
}

impl Link<Resolved> {
    /// Applies every edge and fills the tables.
    ///
    /// # Errors
    /// [`LinkError::OutOfRange`] if a value does not fit its field; [`LinkError::ThreadLocal`] if an edge and its target
    /// disagree on what is thread-local; [`LinkError::Object`] if a function that is to run before or after the program
    /// is no code.
    ///
    /// # Cost
    /// One pass over the edges.
    pub fn fix(self) -> Result<Link<Fixed>, LinkError> {
        let Resolved { placed, resolution, mut alloc } = self.phase;
        let phase = uruk_core::phase!("link.fixup", edges = placed.graph.edges.len());
        let _inside = uruk_core::inside(phase);
        let (initializers, rebases) = fixup::write(&placed, &resolution, &mut alloc)?;
        let linked = Linked {
            ranges: placed.ranges(),
            actions: Actions { tls: placed.tls_image(), unwind: placed.unwind_table(), ..Actions::default() },
            initializers,
            indirect_functions: placed.ifunc_descriptors(),
            section_ranges: placed.section_ranges(),
            sizes: LinkSizes::of(&placed.layout),
            rebases,
            name: placed.name,
        };
        Ok(Link { phase: Fixed { memory: alloc, linked } })
    }
}

/// Ready to run, once everything it depends on is.
#[derive(Debug)]
pub struct Fixed {
    memory: InFlightAlloc,
    linked: Linked,
}

impl Link<Fixed> {
    /// The result: memory that is filled and not yet protected, and all else that there is to know.
    pub fn into_parts(self) -> (InFlightAlloc, Linked) {
        (self.phase.memory, self.phase.linked)
    }
}

impl LinkSizes {
    fn of(layout: &Layout) -> Self {
        let extent = |segment: Segment| layout.extents[segment as usize];
        let (data, large) = (extent(Segment::Data), extent(Segment::LargeData));
        let great = extent(Segment::GreatZeroFill);
        Self {
            code_bytes: extent(Segment::Code).content_bytes,
            read_only_bytes: extent(Segment::ReadOnly).content_bytes,
            data_bytes: data.content_bytes + large.content_bytes,
            zero_fill_bytes: data.zero_fill_bytes + great.zero_fill_bytes + large.zero_fill_bytes,
        }
    }
}

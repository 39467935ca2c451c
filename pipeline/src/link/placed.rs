//! A graph whose every part has its address: the arithmetic between offsets and addresses.

use std::ops::Range;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

use super::got_plt;
use super::graph::{BlockId, Edge, LinkGraph, Location, ObjectId, SymbolId};
use super::ifunc;
use super::layout::{Layout, Place, Segment};
use super::plan::Plan;
use super::terms::SectionRange;
use super::tls;
use crate::arch::IfuncParts;
use crate::executor::{TlsImage, TlsPlacement, UnwindTable};

/// A graph in its memory. The bytes themselves are the allocation's.
#[derive(Debug)]
pub(super) struct Placed {
    /// The names of its objects.
    pub(super) name: Box<str>,
    pub(super) graph: LinkGraph<'static>,
    pub(super) plan: Plan,
    pub(super) layout: Layout,
    /// Which of the allocation's segments each of ours is; empty ones are not asked for.
    pub(super) indices: [Option<usize>; Segment::COUNT],
    pub(super) bases: [u64; Segment::COUNT],
    /// The placement of the graph's own thread-local image, once it is known.
    pub(super) tls: Option<TlsPlacement>,
}

/// Where a symbol that the graph places lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// In the graph's memory, wherever that is.
    In(Place),
    /// At this address.
    At(u64),
}

impl Placed {
    /// The address of a symbol that the graph itself places; for a thread-local variable that of its descriptor, if it has one.
    pub(super) fn address(&self, id: SymbolId) -> Option<u64> {
        self.spot(id).map(|spot| match spot {
            Spot::In(place) => self.at(place),
            Spot::At(address) => address,
        })
    }

    /// The place of such a symbol.
    pub(super) fn spot(&self, id: SymbolId) -> Option<Spot> {
        let symbol = &self.graph.symbols[id.index()];
        if let Some(stub) = self.plan.ifuncs.get(id) {
            let offset = self.layout.ifunc_stubs + stub * self.graph.arch.ifunc_stub_bytes();
            return Some(Spot::In(Place { segment: Segment::Code, offset }));
        }
        if self.graph.is_thread_local(id) && symbol.location != Location::TlsModuleBase {
            let index = self.plan.tls.descriptors.get(id)?;
            let offset = self.layout.tls_descriptors + index * tls::DESCRIPTOR_BYTES;
            return Some(Spot::In(Place { segment: Segment::ReadOnly, offset }));
        }
        let place = match symbol.location {
            Location::Block(block, offset) => {
                let place = self.layout.places[block.index()];
                Place { offset: place.offset.wrapping_add(offset), ..place }
            }
            Location::Absolute(value) => return Some(Spot::At(value)),
            Location::GotBase => Place { segment: Segment::Data, offset: self.layout.got },
            Location::DsoHandle => Place { segment: Segment::ReadOnly, offset: self.layout.dso_handle },
            Location::TlsModuleBase => {
                let offset = self.layout.tls_descriptors + self.plan.tls.module_descriptor()?;
                Place { segment: Segment::ReadOnly, offset }
            }
            Location::SectionStart(group) => self.layout.bounds[group as usize].0,
            Location::SectionStop(group) => {
                let (start, end) = self.layout.bounds[group as usize];
                Place { offset: end, ..start }
            }
            Location::Undefined | Location::NotLoaded => return None,
        };
        Some(Spot::In(place))
    }

    pub(super) fn at(&self, place: Place) -> u64 {
        self.bases[place.segment as usize].wrapping_add(place.offset)
    }

    /// The addresses of the segments that there are.
    pub(super) fn ranges(&self) -> Arc<[Range<u64>]> {
        let segments = Segment::ALL.iter().filter(|&&segment| self.indices[segment as usize].is_some());
        let range = |&segment: &Segment| {
            let extent = self.layout.extents[segment as usize];
            let start = self.bases[segment as usize];
            start..start.saturating_add(extent.content_bytes).saturating_add(extent.zero_fill_bytes)
        };
        segments.map(range).collect()
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

    /// The offset of a variable of the graph in the graph's image.
    pub(super) fn image_offset(&self, symbol: SymbolId) -> u64 {
        let Location::Block(block, offset) = self.graph.symbols[symbol.index()].location else { return 0 };
        let image = self.layout.tls.map_or(0, |tls| tls.image);
        self.layout.places[block.index()].offset.wrapping_sub(image).wrapping_add(offset)
    }

    /// The address of the descriptor of the graph's thread-local module as a whole.
    pub(super) fn module_descriptor(&self) -> Option<u64> {
        let offset = self.layout.tls_descriptors + self.plan.tls.module_descriptor()?;
        Some(self.at(Place { segment: Segment::ReadOnly, offset }))
    }

    pub(super) fn section_ranges(&self) -> Vec<SectionRange> {
        let groups = self.plan.bounds.groups.iter().zip(&self.layout.bounds);
        groups
            .map(|(group, &(start, end))| SectionRange {
                name: group.name.clone(),
                range: self.at(start)..self.at(Place { offset: end, ..start }),
            })
            .collect()
    }

    /// The graph's code, with its stubs.
    pub(super) fn code(&self) -> Range<u64> {
        let code = self.bases[Segment::Code as usize];
        code..code + self.layout.extents[Segment::Code as usize].content_bytes
    }

    pub(super) fn unwind_table(&self) -> Option<UnwindTable> {
        // A function that cannot be reached may have frame information and no bytes. Nothing is found in it.
        (!self.graph.frames.is_empty() && !self.code().is_empty()).then(|| UnwindTable {
            code: self.code(),
            eh_frame_hdr: self.at(Place { segment: Segment::ReadOnly, offset: self.layout.eh_frame_hdr }),
        })
    }

    /// Where the pointer to a symbol lies.
    pub(super) fn entry(&self, symbol: SymbolId) -> Option<u64> {
        let index = self.plan.got_plt.entries.get(symbol)?;
        let offset = self.layout.got + index * got_plt::ENTRY_BYTES;
        Some(self.at(Place { segment: Segment::Data, offset }))
    }

    /// Where the pointer to what a `lea` computes lies.
    pub(super) fn pointer(&self, edge: &Edge) -> Option<u64> {
        let index =
            self.plan.got_plt.pointers.get(edge.target, self.graph.arch.pointed_offset(edge.addend))?;
        let offset = self.layout.pointers + index * got_plt::ENTRY_BYTES;
        Some(self.at(Place { segment: Segment::Data, offset }))
    }

    pub(super) fn stub(&self, symbol: SymbolId) -> Option<u64> {
        let index = self.plan.got_plt.stubs.get(symbol)?;
        let offset = self.layout.stubs + index * self.graph.arch.stub_bytes();
        Some(self.at(Place { segment: Segment::Code, offset }))
    }

    /// Where a variable's distance from the thread pointer lies.
    pub(super) fn distance_entry(&self, symbol: SymbolId) -> Option<u64> {
        let index = self.plan.tls.distances.get(symbol)?;
        let offset = self.layout.tls_distances + index * got_plt::ENTRY_BYTES;
        Some(self.at(Place { segment: Segment::Data, offset }))
    }

    /// Where the detour of the load at `offset` lies.
    pub(super) fn detour(&self, block: BlockId, offset: u64) -> Option<u64> {
        let index = self.plan.tls.detours.get(block, offset)?;
        let offset = self.layout.tls_detours + index * self.graph.arch.detour_bytes();
        Some(self.at(Place { segment: Segment::Code, offset }))
    }

    /// Where a variable's pair of resolver and argument lies.
    pub(super) fn resolver_pair(&self, symbol: SymbolId) -> Option<u64> {
        let index = self.plan.tls.resolvers.get(symbol)?;
        let offset = self.layout.tls_resolvers + index * tls::RESOLVER_BYTES;
        Some(self.at(Place { segment: Segment::Data, offset }))
    }

    /// The descriptor of each function that chooses its implementation, with the object it belongs to.
    pub(super) fn ifunc_descriptors(&self) -> Vec<(ObjectId, ExecutorAddr)> {
        let resolvers = self.plan.ifuncs.resolvers.iter().zip(0..);
        let descriptors = resolvers.filter_map(|(resolver, index)| {
            let Location::Block(block, _) = self.graph.symbols[resolver.index()].location else {
                return None;
            };
            let object = self.graph.section_of(block).object;
            Some((object, ExecutorAddr::new(self.ifunc_parts(index).descriptor)))
        });
        descriptors.collect()
    }

    pub(super) fn ifunc_parts(&self, index: u64) -> IfuncParts {
        let at = |segment, offset| self.at(Place { segment, offset });
        IfuncParts {
            stub: at(Segment::Code, self.layout.ifunc_stubs + index * self.graph.arch.ifunc_stub_bytes()),
            slot: at(Segment::Data, self.layout.ifunc_slots + index * ifunc::SLOT_BYTES),
            descriptor: at(
                Segment::ReadOnly,
                self.layout.ifunc_descriptors + index * ifunc::DESCRIPTOR_BYTES,
            ),
            thunk: at(Segment::ReadOnly, self.layout.thunk),
        }
    }
}

//! Where everything goes: five segments, each with its blocks and the tables the linker adds.
//!
//! ```text
//!  code        16 bytes of nothing | functions of an order | functions | stubs | stubs of indirect functions | detours
//!  constants   read-only data | .eh_frame_hdr | .eh_frame, terminator | thread-local image | descriptors | thunk
//!              | `__dso_handle`
//!  data        GOT | pointers | slots of indirect functions | distances | resolvers | data || zero fill
//!  great zeros zero fill of great size, smallest first
//!  large data  data of the large code model || its zero fill
//! ```
//! The first three lie within reach of each other. The code reaches the start of the fourth, and so all of its variables
//! but what comes after 2 GiB of others; it is a segment of its own so that it does not push the rest out of reach. The
//! last may lie anywhere. Nearly all graphs are without the last two.
//!
//! A graph that is to be moved has its words with addresses together: data with addresses comes right behind the tables, constants with
//! addresses right before the thread-local image. So few pages are written when it has its place.
//!
//! Code may read the bytes before a function whose address it has (`-fsanitize=function`). So nothing begins where the pages do.
//!
//! Only offsets are decided here; the memory manager decides on addresses.

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::eh_frame;
use super::got_plt::{self, GotPlt};
use super::graph::{Block, BlockId, LinkGraph, Location, SectionRole};
use super::ifunc::{self, IndirectFunctions};
use super::section_bounds::SectionBounds;
use super::tls::{self, Tls};
use crate::executor::BEFORE_CODE_BYTES;
use crate::memory::{SegmentKind, SegmentRequest};

/// Zero fill of this size is kept away from data that small displacements must reach.
const GREAT_ZERO_FILL_BYTES: u64 = 64 << 20;

/// A part of the graph's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Code,
    ReadOnly,
    Data,
    GreatZeroFill,
    LargeData,
}

impl Segment {
    pub(super) const ALL: [Self; 5] =
        [Self::Code, Self::ReadOnly, Self::Data, Self::GreatZeroFill, Self::LargeData];
    pub(super) const COUNT: usize = Self::ALL.len();
}

/// A place in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: Segment,
    pub(super) offset: u64,
}

/// The extent of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) content_bytes: u64,
    pub(super) zero_fill_bytes: u64,
    pub(super) align_log2: u8,
}

/// The thread-local image. Its zero fill has offsets like the rest but no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TlsLayout {
    /// Offset in the constants.
    pub(super) image: u64,
    pub(super) image_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) align_log2: u8,
}

/// All offsets.
#[derive(Debug)]
pub(super) struct Layout {
    /// Where each block is; meaningless for blocks that were dropped.
    pub(super) places: Vec<Place>,
    /// The blocks with contents, by segment.
    pub(super) contents: [Vec<BlockId>; Segment::COUNT],
    pub(super) extents: [Extent; Segment::COUNT],
    /// In code.
    pub(super) stubs: u64,
    pub(super) ifunc_stubs: u64,
    pub(super) tls_detours: u64,
    /// In data.
    pub(super) got: u64,
    pub(super) pointers: u64,
    pub(super) ifunc_slots: u64,
    pub(super) tls_distances: u64,
    pub(super) tls_resolvers: u64,
    /// In constants.
    pub(super) eh_frame_hdr: u64,
    pub(super) eh_frame: u64,
    pub(super) tls_descriptors: u64,
    pub(super) ifunc_descriptors: u64,
    pub(super) thunk: u64,
    pub(super) dso_handle: u64,
    pub(super) tls: Option<TlsLayout>,
    /// Start and end of each group of named sections.
    pub(super) bounds: Vec<(Place, u64)>,
}

/// The obstacle of a layout: the sizes of an object that cannot be real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Marks zero fill that is to be kept out of the way.
pub(super) fn set_great_zero_fill_aside(graph: &mut LinkGraph<'_>) {
    for section in &mut graph.sections {
        if section.role == SectionRole::ZeroFill && section.size >= GREAT_ZERO_FILL_BYTES {
            section.role = SectionRole::GreatZeroFill;
        }
    }
}

/// Blocks that come after others.
#[derive(Debug, Default)]
struct Later {
    frames: Vec<BlockId>,
    /// Those with contents, and those without.
    tls_blocks: [Vec<BlockId>; 2],
    zero_fill: Vec<(BlockId, Segment)>,
    great: Vec<(BlockId, Segment)>,
}

/// Gives everything its offset.
pub(super) fn lay_out(
    graph: &LinkGraph<'_>,
    bounds: &SectionBounds,
    got_plt: &GotPlt,
    tls: &Tls,
    ifuncs: &IndirectFunctions,
    is_rebasable: bool,
    first: &[BlockId],
) -> Result<Layout, TooLarge> {
    let mut writer = Writer::new(graph);
    writer.sets_addresses_apart = is_rebasable;
    // The table comes first, so that it does not move away from the code when the data is large.
    let got = writer.reserve(Segment::Data, got_plt.entries.len() * got_plt::ENTRY_BYTES, 3);
    let pointers = writer.reserve(Segment::Data, got_plt.pointers.len() * got_plt::ENTRY_BYTES, 3);
    let ifunc_slots = writer.reserve(Segment::Data, ifuncs.count() * ifunc::SLOT_BYTES, 3);
    let tls_distances = writer.reserve(Segment::Data, tls.distances.len() * got_plt::ENTRY_BYTES, 3);
    let tls_resolvers = writer.reserve(Segment::Data, tls.resolvers.len() * tls::RESOLVER_BYTES, 3);
    writer.add_apart(Segment::Data, bounds);

    // Nothing stands before a function without bytes.
    if graph.live_blocks().any(|(id, block)| block.size > 0 && graph.section_of(id).role == SectionRole::Code)
    {
        writer.reserve(Segment::Code, BEFORE_CODE_BYTES, 4);
    }
    let first = first.iter().copied().filter(|block| !bounds.contains(graph.blocks[block.index()].section));
    let first: Vec<BlockId> = first.collect();
    first.iter().for_each(|block| writer.add(Segment::Code, *block));
    let first = first.into_iter().collect();
    let Later { frames, tls_blocks, zero_fill, mut great } = writer.add_plain_contents(bounds, &first);
    let mut ends = vec![(Place { segment: Segment::Data, offset: 0 }, 0); bounds.groups.len()];
    for (group, ends) in bounds.groups.iter().zip(&mut ends).filter(|(group, _)| !group.role.is_zero_fill()) {
        *ends = writer.add_group(segment_of(group.role), &group.blocks);
    }

    let stubs = writer.reserve(Segment::Code, got_plt.stubs.len() * graph.arch.stub_bytes(), 3);
    let ifunc_stubs = writer.reserve(Segment::Code, ifuncs.count() * graph.arch.ifunc_stub_bytes(), 3);
    let tls_detours = writer.reserve(Segment::Code, tls.detours.len() * graph.arch.detour_bytes(), 3);

    let has_frames = !graph.frames.is_empty();
    let header_bytes = if has_frames { eh_frame::header_bytes(graph.frames.len()) } else { 0 };
    let eh_frame_hdr = writer.reserve(Segment::ReadOnly, header_bytes, 2);
    let eh_frame = writer.reserve(Segment::ReadOnly, 0, 3);
    frames.iter().for_each(|block| writer.add(Segment::ReadOnly, *block));
    let terminator_bytes = if frames.is_empty() { 0 } else { eh_frame::TERMINATOR_BYTES };
    // Memory starts as zero, and so the terminator needs no writing.
    writer.reserve(Segment::ReadOnly, terminator_bytes, 0);
    writer.add_apart(Segment::ReadOnly, bounds);
    let tls_layout = writer.add_tls(&tls_blocks);
    let tls_descriptors = writer.reserve(Segment::ReadOnly, tls.descriptor_bytes(), 3);
    let ifunc_descriptors = writer.reserve(Segment::ReadOnly, ifuncs.count() * ifunc::DESCRIPTOR_BYTES, 3);
    let thunk_bytes = if ifuncs.count() == 0 { 0 } else { ifunc::THUNK_BYTES };
    let thunk = writer.reserve(Segment::ReadOnly, thunk_bytes, 3);

    let dso_handle = writer.reserve_dso_handle();
    writer.end_contents();
    great.sort_by_key(|(id, _)| graph.blocks[id.index()].size);
    for (block, segment) in zero_fill.into_iter().chain(great) {
        writer.place(segment, block);
    }
    for (group, ends) in bounds.groups.iter().zip(&mut ends).filter(|(group, _)| group.role.is_zero_fill()) {
        *ends = writer.add_zero_group(segment_of(group.role), &group.blocks);
    }
    let extents = writer.extents()?;
    Ok(Layout {
        places: writer.places,
        contents: writer.contents,
        extents,
        stubs,
        ifunc_stubs,
        tls_detours,
        got,
        pointers,
        ifunc_slots,
        tls_distances,
        tls_resolvers,
        eh_frame_hdr,
        eh_frame,
        tls_descriptors,
        ifunc_descriptors,
        thunk,
        dso_handle,
        tls: tls_layout,
        bounds: ends,
    })
}

const fn segment_of(role: SectionRole) -> Segment {
    match role {
        SectionRole::Code => Segment::Code,
        SectionRole::ReadOnly | SectionRole::EhFrame | SectionRole::TlsData | SectionRole::TlsZeroFill => {
            Segment::ReadOnly
        }
        SectionRole::Data | SectionRole::ZeroFill => Segment::Data,
        SectionRole::GreatZeroFill => Segment::GreatZeroFill,
        SectionRole::LargeData | SectionRole::LargeZeroFill => Segment::LargeData,
    }
}

/// The segments as they grow. Sums saturate: a saturated one is refused at the end.
struct Writer<'g, 'a> {
    graph: &'g LinkGraph<'a>,
    places: Vec<Place>,
    contents: [Vec<BlockId>; Segment::COUNT],
    cursors: [u64; Segment::COUNT],
    contents_end: [u64; Segment::COUNT],
    align_log2: [u8; Segment::COUNT],
    /// Whether blocks that hold addresses are added on their own.
    sets_addresses_apart: bool,
}

impl<'g, 'a> Writer<'g, 'a> {
    fn new(graph: &'g LinkGraph<'a>) -> Self {
        Self {
            graph,
            places: vec![Place { segment: Segment::Code, offset: 0 }; graph.blocks.len()],
            contents: Default::default(),
            cursors: [0; Segment::COUNT],
            contents_end: [0; Segment::COUNT],
            align_log2: [0; Segment::COUNT],
            sets_addresses_apart: false,
        }
    }

    /// Adds the blocks with contents that nothing has to come before, but for those of named sections and the first ones. Gives the others.
    fn add_plain_contents(&mut self, bounds: &SectionBounds, first: &FxHashSet<BlockId>) -> Later {
        let mut later = Later::default();
        for (id, block) in self.graph.live_blocks() {
            match self.graph.sections[block.section.index()].role {
                SectionRole::EhFrame => later.frames.push(id),
                SectionRole::TlsData => later.tls_blocks[0].push(id),
                SectionRole::TlsZeroFill => later.tls_blocks[1].push(id),
                _ if bounds.contains(block.section) || first.contains(&id) => {}
                SectionRole::ZeroFill => later.zero_fill.push((id, Segment::Data)),
                SectionRole::GreatZeroFill => later.great.push((id, Segment::GreatZeroFill)),
                SectionRole::LargeZeroFill => later.zero_fill.push((id, Segment::LargeData)),
                role if self.is_apart(id, segment_of(role)) => {}
                role => self.add(segment_of(role), id),
            }
        }
        later
    }

    /// Adds the blocks of a segment that hold addresses, if these are added on their own.
    fn add_apart(&mut self, segment: Segment, bounds: &SectionBounds) {
        let graph = self.graph;
        for (id, block) in graph.live_blocks() {
            let role = graph.sections[block.section.index()].role;
            let is_plain = matches!(role, SectionRole::ReadOnly | SectionRole::Data);
            let is_here = is_plain && segment_of(role) == segment && !bounds.contains(block.section);
            if is_here && self.is_apart(id, segment) {
                self.add(segment, id);
            }
        }
    }

    /// Whether a plain block is added on its own, because it holds addresses.
    fn is_apart(&self, id: BlockId, segment: Segment) -> bool {
        let pointer = self.graph.arch.pointer();
        self.sets_addresses_apart
            && matches!(segment, Segment::ReadOnly | Segment::Data)
            && self.graph.edges(id).iter().any(|edge| edge.kind == pointer)
    }

    fn reserve(&mut self, segment: Segment, size: u64, align_log2: u8) -> u64 {
        let index = segment as usize;
        let start = aligned(self.cursors[index], align_log2);
        self.cursors[index] = start.saturating_add(size);
        self.align_log2[index] = self.align_log2[index].max(align_log2);
        start
    }

    fn place(&mut self, segment: Segment, id: BlockId) {
        let Block { size, align_log2, .. } = self.graph.blocks[id.index()];
        let offset = self.reserve(segment, size, align_log2);
        self.places[id.index()] = Place { segment, offset };
    }

    fn add(&mut self, segment: Segment, id: BlockId) {
        self.place(segment, id);
        self.contents[segment as usize].push(id);
    }

    fn add_group(&mut self, segment: Segment, blocks: &[BlockId]) -> (Place, u64) {
        let start = self.group_start(segment, blocks);
        blocks.iter().for_each(|block| self.add(segment, *block));
        (Place { segment, offset: start }, self.cursors[segment as usize])
    }

    fn add_zero_group(&mut self, segment: Segment, blocks: &[BlockId]) -> (Place, u64) {
        let start = self.group_start(segment, blocks);
        blocks.iter().for_each(|block| self.place(segment, *block));
        (Place { segment, offset: start }, self.cursors[segment as usize])
    }

    fn group_start(&mut self, segment: Segment, blocks: &[BlockId]) -> u64 {
        let align_log2 = blocks.first().map_or(0, |block| self.graph.blocks[block.index()].align_log2);
        self.reserve(segment, 0, align_log2)
    }

    fn add_tls(&mut self, [data, zero_fill]: &[Vec<BlockId>; 2]) -> Option<TlsLayout> {
        let align_log2 =
            data.iter().chain(zero_fill).map(|block| self.graph.blocks[block.index()].align_log2).max()?;
        let image = self.reserve(Segment::ReadOnly, 0, align_log2);
        data.iter().for_each(|block| self.add(Segment::ReadOnly, *block));
        let image_end = self.cursors[Segment::ReadOnly as usize];
        let mut end = image_end;
        for id in zero_fill {
            let block = &self.graph.blocks[id.index()];
            let offset = aligned(end, block.align_log2);
            end = offset.saturating_add(block.size);
            self.places[id.index()] = Place { segment: Segment::ReadOnly, offset };
        }
        Some(TlsLayout { image, image_bytes: image_end - image, total_bytes: end - image, align_log2 })
    }

    /// Zero, as memory is from the start.
    fn reserve_dso_handle(&mut self) -> u64 {
        let is_wanted = self.graph.symbols.iter().any(|symbol| symbol.location == Location::DsoHandle);
        self.reserve(Segment::ReadOnly, if is_wanted { 8 } else { 0 }, 3)
    }

    fn end_contents(&mut self) {
        self.contents_end = self.cursors;
    }

    fn extents(&self) -> Result<[Extent; Segment::COUNT], TooLarge> {
        /// User addresses end at 47 bits.
        const BYTES_MAX: u64 = 1 << 47;
        if self.cursors.iter().any(|end| *end > BYTES_MAX) {
            return Err(TooLarge);
        }
        Ok(Segment::ALL.map(|segment| {
            let index = segment as usize;
            Extent {
                content_bytes: self.contents_end[index],
                zero_fill_bytes: self.cursors[index] - self.contents_end[index],
                align_log2: self.align_log2[index],
            }
        }))
    }
}

fn aligned(offset: u64, align_log2: u8) -> u64 {
    offset.checked_next_multiple_of(1 << align_log2).unwrap_or(u64::MAX)
}

/// The requests to the memory manager, and the number of each segment's request.
pub(super) fn requests(layout: &Layout) -> (Vec<SegmentRequest>, [Option<usize>; Segment::COUNT]) {
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
                Segment::Data | Segment::GreatZeroFill => SegmentKind::Data,
                Segment::LargeData => SegmentKind::FarData,
            },
            content_bytes: extent.content_bytes as usize,
            zero_fill_bytes: extent.zero_fill_bytes as usize,
            align: 1 << extent.align_log2,
        });
    }
    (requests, indices)
}

/// The parts of a segment that contents are copied to, where they are long enough for it to matter: blocks that lie
/// close together as one. The rest is padding, or too little to announce.
pub(super) fn written_runs(
    graph: &LinkGraph<'_>,
    layout: &Layout,
    segment: Segment,
) -> impl Iterator<Item = Range<usize>> {
    const GAP_BYTES_MAX: usize = 64 << 10;
    const RUN_BYTES_MIN: usize = 64 << 10;
    let worth_it = layout.extents[segment as usize].content_bytes >= RUN_BYTES_MIN as u64;
    let blocks: &[BlockId] = if worth_it { &layout.contents[segment as usize] } else { &[] };
    let mut places = blocks.iter().map(|id| {
        let start = layout.places[id.index()].offset as usize;
        start..start + graph.blocks[id.index()].size as usize
    });
    let mut next = places.next();
    let runs = std::iter::from_fn(move || {
        let mut run = next.take()?;
        for place in places.by_ref() {
            if place.start > run.end + GAP_BYTES_MAX {
                next = Some(place);
                break;
            }
            run.end = run.end.max(place.end);
        }
        Some(run)
    });
    runs.filter(|run| run.len() >= RUN_BYTES_MIN)
}

/// Copies the contents of a segment's blocks to their places.
pub(super) fn copy_contents(graph: &LinkGraph<'_>, layout: &Layout, segment: Segment, working: &mut [u8]) {
    for &id in &layout.contents[segment as usize] {
        let content = graph.content(id);
        let start = layout.places[id.index()].offset as usize;
        working[start..start + content.len()].copy_from_slice(content);
    }
}

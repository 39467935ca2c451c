//! The graph of stubs: what it contains before it is linked.

use uruk_core::SymbolName;

use crate::arch::x86_64::kinds;
use crate::link::graph::{Edge, SectionRole};
use crate::link::{LinkError, LinkGraph};
use crate::runtime::call_through::{
    CallThroughDescriptor, Counted, CountingDescriptor, Destination, STUB_NUMBER,
};
use crate::runtime::ifunc;

/// What the sections of stubs contain, before it is linked.
pub(super) struct Contents {
    stubs: Vec<u8>,
    /// Counting parts, if there are any, and cold parts.
    cold: Vec<u8>,
    kind: StubKind,
    slots: Vec<u8>,
    calls: Vec<u8>,
    descriptors: Vec<u8>,
    thunk: [u8; 8],
    /// Where the table of a group is.
    root: [u8; 8],
    frames: [u8; 64],
}

/// What the stubs of a unit do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StubKind {
    Plain,
    /// Their calls may be counted.
    Counting,
    /// They jump through one table.
    Group,
}

/// `jmp *slot(%rip)`, and ten bytes that nobody reaches. Eight stubs in a line of the cache are more jumps than the processor can foresee
/// there: with stubs of 8 bytes, calls that cycle over 1,000 functions took 9 ns more than without stubs; with these they take 4 more.
///
/// In four of the ten stands the number of its cell.
const STUB: [u8; 16] = [0xff, 0x25, 0, 0, 0, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];
/// There are conventions in which any register has an argument, so `%r11` is kept where no signal handler writes:
///
/// ```text
///   mov %r11, -8(%rsp);   mov root(%rip), %r11;   mov 8*number(%r11), %r11
///   mov %r11, -16(%rsp);  mov -8(%rsp), %r11;     jmp *-16(%rsp)
/// ```
const GROUP_STUB: [u8; 48] = {
    let mut stub = [0xcc; 48];
    let (mut at, code) = (
        0,
        [
            0x4c, 0x89, 0x5c, 0x24, 0xf8, 0x4c, 0x8b, 0x1d, 0, 0, 0, 0, 0x4d, 0x8b, 0x9b, 0, 0, 0, 0, 0x4c,
            0x89, 0x5c, 0x24, 0xf0, 0x4c, 0x8b, 0x5c, 0x24, 0xf8, 0xff, 0x64, 0x24, 0xf0,
        ],
    );
    while at < code.len() {
        stub[at] = code[at];
        at += 1;
    }
    stub
};
/// Where in a group's stub it says where the root is.
const GROUP_STUB_ROOT: u64 = 8;
/// Where in a group's stub it says which word of the table it jumps through.
const GROUP_STUB_OFFSET: usize = 15;
/// `call *thunk(%rip)`, how far away the descriptor is, and six bytes that nobody reaches.
const COLD: [u8; 16] = [0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];

/// `decl calls(%rip); jz cold; jmp *body(%rip)`, and 14 bytes that nobody reaches.
const COUNTING: [u8; 32] = [
    0xff, 0x0d, 0, 0, 0, 0, 0x0f, 0x84, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
];

/// Call frame information: in stubs and cold parts the stack is as it was when they were called.
///
/// ```text
///   0  common entry: the frame lies 8 bytes above the stack pointer, and begins with the return address
///  24  entry of all stubs: 28 back to 0, where they begin, how long they are
///  44  entry of all counting and cold parts: 48 back to 0, the same
/// ```
#[rustfmt::skip]
const FRAMES: [u8; 64] = [
    20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
    16, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    16, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
/// Where the entries say where the code begins. How long it is stands behind that.
const FRAMES_STUBS: u64 = 32;
const FRAMES_COLD: u64 = 52;

impl StubKind {
    fn stub(self) -> &'static [u8] {
        match self {
            Self::Plain | Self::Counting => &STUB,
            Self::Group => &GROUP_STUB,
        }
    }
}

fn stubs(count: usize, kind: StubKind) -> Vec<u8> {
    let (at, unit) = match kind {
        StubKind::Plain | StubKind::Counting => (STUB_NUMBER, 1),
        StubKind::Group => (GROUP_STUB_OFFSET, 8),
    };
    let mut stubs = kind.stub().repeat(count);
    for (number, stub) in (0_u32..).step_by(unit).zip(stubs.chunks_exact_mut(kind.stub().len())) {
        stub[at..][..4].copy_from_slice(&number.to_le_bytes());
    }
    stubs
}

fn frames(stubs: &[u8], cold: &[u8]) -> [u8; 64] {
    let mut frames = FRAMES;
    for (at, code) in [(FRAMES_STUBS, stubs), (FRAMES_COLD, cold)] {
        // A graph of more than 2 GiB is refused anyway.
        let bytes = u32::try_from(code.len()).unwrap_or(u32::MAX);
        frames[at as usize + 4..][..4].copy_from_slice(&bytes.to_le_bytes());
    }
    frames
}

impl Contents {
    /// What stubs of `cells` need, with what counts their calls if these count.
    pub(super) fn new(cells: &[Box<dyn Destination>], kind: StubKind) -> Self {
        let counts = kind == StubKind::Counting;
        let (stubs, counted) = (stubs(cells.len(), kind), if counts { cells.len() } else { 0 });
        let cold = [COUNTING.repeat(counted), COLD.repeat(cells.len())].concat();
        let frames = frames(&stubs, &cold);
        let descriptors = if counts {
            cells.iter().flat_map(CountingDescriptor::bytes).collect()
        } else {
            cells.iter().flat_map(CallThroughDescriptor::bytes).collect()
        };
        Self {
            stubs,
            cold,
            kind,
            slots: vec![0; 8 * cells.len()],
            calls: vec![0; Counted::BYTES as usize * counted],
            descriptors,
            thunk: ifunc::lazy_thunk().value().to_le_bytes(),
            root: [0; 8],
            frames,
        }
    }

    /// The graph of stubs, each of which has these `names`, in the order of the cells.
    pub(super) fn graph<'n>(
        &self,
        names: impl Iterator<Item = &'n Vec<SymbolName>>,
    ) -> Result<LinkGraph<'_>, LinkError> {
        let mut graph = LinkGraph::builder("<lazy reexports>");
        let stubs = graph.block(".text", SectionRole::Code, &self.stubs, 16);
        let cold = graph.block(".text.unlikely", SectionRole::Code, &self.cold, 32);
        let slots = graph.block(".data.slots", SectionRole::Data, &self.slots, 8);
        let descriptors = graph.block(".data.descriptors", SectionRole::Data, &self.descriptors, 8);
        let thunk = graph.block(".rodata", SectionRole::ReadOnly, &self.thunk, 8);
        let thunk = graph.define_local("thunk", thunk, 0);
        let [first_stub, first_cold] = [stubs, cold].map(|block| graph.define_local("first", block, 0));
        let of = |offset, target| Edge { offset, kind: kinds::DELTA_32, target, addend: 0 };
        graph.unwind_table(&self.frames, &[of(FRAMES_STUBS, first_stub), of(FRAMES_COLD, first_cold)]);
        let near = |offset, target| Edge { offset, kind: kinds::DELTA_32, target, addend: -4 };
        let pointer = |offset, target| Edge { offset, kind: kinds::POINTER_64, target, addend: 0 };
        let root = (self.kind == StubKind::Group).then(|| {
            let root = graph.block(".data.root", SectionRole::Data, &self.root, 8);
            let table = graph.define_local("table", slots, 0);
            graph.edge(root, pointer(0, table));
            graph.define_local("root", root, 0)
        });
        let (counts, stub_bytes) = (self.kind == StubKind::Counting, self.kind.stub().len() as u64);
        let calls = counts.then(|| graph.block(".data.calls", SectionRole::Data, &self.calls, 16));
        let descriptor_bytes = if counts { CountingDescriptor::BYTES } else { CallThroughDescriptor::BYTES };
        let counting_bytes = if counts { COUNTING.len() as u64 } else { 0 };
        let first_cold = self.calls.len() as u64 / Counted::BYTES * counting_bytes;
        for (index, names) in (0..).zip(names) {
            let at = index * descriptor_bytes;
            for name in names {
                graph.define(name.as_str(), stubs, index * stub_bytes);
            }
            let cold_at = first_cold + index * COLD.len() as u64;
            let slot = graph.define_local("slot", slots, index * 8);
            let unbound = graph.define_local("unbound", cold, cold_at);
            let descriptor = graph.define_local("descriptor", descriptors, at);
            let ignored = graph.define_local("ignored", descriptors, at + CallThroughDescriptor::IGNORED);
            let (operand_at, operand) = root.map_or((2, slot), |root| (GROUP_STUB_ROOT, root));
            graph.edge(stubs, near(index * stub_bytes + operand_at, operand));
            graph.edge(cold, near(cold_at + 2, thunk));
            graph.edge(cold, of(cold_at + 6, descriptor));
            graph.edge(slots, pointer(index * 8, unbound));
            graph.edge(descriptors, pointer(at + CallThroughDescriptor::IGNORED_SLOT, ignored));
            graph.edge(descriptors, pointer(at + CallThroughDescriptor::SLOT, slot));
            let stub = pointer(at + CallThroughDescriptor::STUB, first_stub);
            graph.edge(descriptors, Edge { addend: (index * stub_bytes).cast_signed(), ..stub });
            if let Some(calls) = calls {
                let (counting_at, counted_at) = (index * counting_bytes, index * Counted::BYTES);
                let counting = graph.define_local("counting", cold, counting_at);
                let counted = graph.define_local("counted", calls, counted_at);
                let left = graph.define_local("left", calls, counted_at + Counted::CALLS);
                graph.edge(cold, near(counting_at + 2, left));
                graph.edge(cold, near(counting_at + 8, unbound));
                graph.edge(cold, near(counting_at + 14, counted));
                graph.edge(descriptors, pointer(at + CountingDescriptor::COUNTED, counted));
                graph.edge(descriptors, pointer(at + CountingDescriptor::COUNTING, counting));
            }
        }
        graph.build()
    }
}

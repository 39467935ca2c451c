//! The graph of stubs: its contents before it is linked.

use uruk_core::SymbolName;

use crate::arch::{Architecture, CodeField, CodeTemplate, FieldTarget};
use crate::executor::RuntimeEntries;
use crate::link::graph::{Edge, SectionRole, SymbolId};
use crate::link::{LinkError, LinkGraph};
use crate::runtime::call_through::{
    CallThroughDescriptor, CountWords, CountingDescriptor, NamedCells, StubTable,
};

/// The contents of the sections of stubs, before the link.
pub(super) struct Contents {
    arch: Architecture,
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

/// The kind of a unit's stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StubKind {
    Plain,
    /// Their calls may be counted.
    Counting,
    /// They jump through one table.
    Group,
}

impl StubKind {
    fn template(self, arch: Architecture) -> CodeTemplate {
        let templates = arch.lazy_templates();
        match self {
            Self::Plain | Self::Counting => templates.slot_stub,
            Self::Group => templates.group_stub,
        }
    }

    fn descriptor_bytes(self) -> u64 {
        match self {
            Self::Counting => CountingDescriptor::BYTES,
            Self::Plain | Self::Group => CallThroughDescriptor::BYTES,
        }
    }
}

/// The table of stubs, and they.
fn stubs(count: usize, kind: StubKind, arch: Architecture) -> Vec<u8> {
    let code = kind.template(arch).code;
    let mut stubs = code.repeat(count);
    if kind == StubKind::Group {
        for (offset, stub) in (0_u32..).step_by(8).zip(stubs.chunks_exact_mut(code.len())) {
            arch.write_table_offset(stub, offset);
        }
    }
    let table = StubTable::bytes(count, code.len() as u32, kind.descriptor_bytes());
    [&table[..], &stubs].concat()
}

/// The edge of a field in code that stands at `at` in its block.
fn field(at: u64, field: CodeField, target: SymbolId) -> Edge {
    let CodeField { offset, kind, addend } = field;
    Edge { offset: at + offset, kind, target, addend }
}

impl Contents {
    /// Contents for stubs of `cells` on processors of an architecture, with counting parts if their kind counts.
    pub(super) fn new(
        cells: &NamedCells,
        kind: StubKind,
        arch: Architecture,
        entries: RuntimeEntries,
    ) -> Self {
        let (templates, counts) = (arch.lazy_templates(), kind == StubKind::Counting);
        let (stubs, counted) = (stubs(cells.len(), kind, arch), if counts { cells.len() } else { 0 });
        let cold =
            [templates.counting.code.repeat(counted), templates.cold.code.repeat(cells.len())].concat();
        let frames = templates.frames_of(stubs.len() - StubTable::BYTES as usize, cold.len());
        let descriptors = if counts {
            CountingDescriptor::bytes(cells.id(), entries.counted_call).repeat(cells.len())
        } else {
            CallThroughDescriptor::bytes(cells.id(), entries.first_call).repeat(cells.len())
        };
        Self {
            arch,
            stubs,
            cold,
            kind,
            slots: vec![0; 8 * cells.len()],
            calls: vec![0; CountWords::BYTES as usize * counted],
            descriptors,
            thunk: entries.ifunc_thunk.value().to_le_bytes(),
            root: [0; 8],
            frames,
        }
    }

    /// The graph of stubs, each of which has these `names`, in the order of the cells.
    pub(super) fn graph<'n>(
        &self,
        names: impl Iterator<Item = &'n Vec<SymbolName>>,
    ) -> Result<LinkGraph<'_>, LinkError> {
        let (arch, templates) = (self.arch, self.arch.lazy_templates());
        let mut graph = LinkGraph::builder("<lazy reexports>").of_architecture(arch);
        let stubs = graph.block(".text", SectionRole::Code, &self.stubs, 16);
        let cold = graph.block(".text.unlikely", SectionRole::Code, &self.cold, 32);
        let slots = graph.block(".data.slots", SectionRole::Data, &self.slots, 8);
        let descriptors = graph.block(".data.descriptors", SectionRole::Data, &self.descriptors, 8);
        let thunk = graph.block(".rodata", SectionRole::ReadOnly, &self.thunk, 8);
        let thunk = graph.define_local("thunk", thunk, 0);
        let stub_table = graph.define_local("stubs", stubs, 0);
        let first_stub = graph.define_local("first", stubs, StubTable::BYTES);
        let first_cold = graph.define_local("first", cold, 0);
        let [stubs_begin, cold_begins] = templates.frames_begin();
        let begins = [field(0, stubs_begin, first_stub), field(0, cold_begins, first_cold)];
        graph.unwind_table(&self.frames, &begins);
        let kind = arch.pointer();
        let pointer = |offset, target| Edge { offset, kind, target, addend: 0 };
        let root = (self.kind == StubKind::Group).then(|| {
            let root = graph.block(".data.root", SectionRole::Data, &self.root, 8);
            let table = graph.define_local("table", slots, 0);
            graph.edge(root, pointer(0, table));
            let root = graph.define_local("root", root, 0);
            graph.edge(stubs, pointer(StubTable::ROOT, root));
            root
        });
        let first_descriptor = graph.define_local("descriptors", descriptors, 0);
        graph.edge(stubs, pointer(StubTable::DESCRIPTORS, first_descriptor));
        let (stub_template, counts) = (self.kind.template(arch), self.kind == StubKind::Counting);
        let stub_bytes = stub_template.code.len() as u64;
        let calls = counts.then(|| graph.block(".data.calls", SectionRole::Data, &self.calls, 16));
        let descriptor_bytes = self.kind.descriptor_bytes();
        let counting_bytes = if counts { templates.counting.code.len() as u64 } else { 0 };
        let first_cold = self.calls.len() as u64 / CountWords::BYTES * counting_bytes;
        for (index, names) in (0..).zip(names) {
            let (at, stub_at) = (index * descriptor_bytes, StubTable::BYTES + index * stub_bytes);
            for name in names {
                graph.define(name.as_str(), stubs, stub_at);
            }
            let cold_at = first_cold + index * templates.cold.code.len() as u64;
            let slot = graph.define_local("slot", slots, index * 8);
            let unbound = graph.define_local("unbound", cold, cold_at);
            let descriptor = graph.define_local("descriptor", descriptors, at);
            let ignored = graph.define_local("ignored", descriptors, at + CallThroughDescriptor::IGNORED);
            let counted = calls.map(|calls| graph.define_local("counted", calls, index * CountWords::BYTES));
            let target = |of: FieldTarget| match of {
                FieldTarget::Word => root.unwrap_or(slot),
                FieldTarget::Thunk => thunk,
                FieldTarget::Descriptor => descriptor,
                FieldTarget::Cold => unbound,
                FieldTarget::Counted => counted.expect("counting parts have words"),
            };
            let mut place = |block, at, template: CodeTemplate| {
                for &(of, of_template) in template.fields {
                    graph.edge(block, field(at, of_template, target(of)));
                }
            };
            place(stubs, stub_at, stub_template);
            place(cold, cold_at, templates.cold);
            let counting_at = index * counting_bytes;
            if counts {
                place(cold, counting_at, templates.counting);
            }
            graph.edge(slots, pointer(index * 8, unbound));
            graph.edge(descriptors, pointer(at + CallThroughDescriptor::IGNORED_SLOT, ignored));
            graph.edge(descriptors, pointer(at + CallThroughDescriptor::SLOT, slot));
            graph.edge(descriptors, pointer(at + CallThroughDescriptor::TABLE, stub_table));
            graph.edge(descriptors, pointer(at + CallThroughDescriptor::UNBOUND, unbound));
            let stub = pointer(at + CallThroughDescriptor::STUB, first_stub);
            graph.edge(descriptors, Edge { addend: (index * stub_bytes).cast_signed(), ..stub });
            if let Some(counted) = counted {
                let counting = graph.define_local("counting", cold, counting_at);
                graph.edge(descriptors, pointer(at + CountingDescriptor::COUNTED, counted));
                graph.edge(descriptors, pointer(at + CountingDescriptor::COUNTING, counting));
            }
        }
        graph.build()
    }
}

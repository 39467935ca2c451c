//! The last step: every edge is applied, every table filled, in the working view of the memory.
//!
//! Which address an edge takes is decided here, knowing all of them: the symbol itself where it can be reached, its
//! stub or its entry in the table where not.

use super::eh_frame;
use super::error::LinkError;
use super::got_plt;
use super::graph::{BlockId, Edge, Location, SymbolId};
use super::ifunc;
use super::initializers::{self, Initializers};
use super::layout::{Place, Segment};
use super::phases::Resolved;
use super::relax;
use super::tls::{self, TlsPlacement};
use super::x86_64::{self, EdgeKind, Operands, Overflow};

impl Resolved {
    /// Writes everything; what is left is to protect the memory.
    pub(super) fn write(&mut self) -> Result<Initializers, LinkError> {
        let mut initializers = Initializers::default();
        for segment in Segment::ALL {
            let Some(index) = self.allocated.indices[segment as usize] else { continue };
            // The working memory is borrowed from the allocation, everything else from its neighbours.
            let fixer = Fixer {
                graph: &self.allocated.graph,
                plan: &self.allocated.plan,
                layout: &self.allocated.layout,
                bases: &self.allocated.bases,
                addresses: &self.addresses,
                thread_local: &self.thread_local,
                foreign_tls: &self.foreign_tls,
                tls: self.tls,
                ifunc_thunk: self.ifunc_thunk,
            };
            let working = self.allocated.alloc.working(index);
            fixer.apply_edges(segment, working)?;
            match segment {
                Segment::Code => fixer.write_stubs(working)?,
                Segment::ReadOnly => {
                    fixer.write_frame_index(working)?;
                    fixer.write_descriptors(working);
                    initializers = initializers::read(fixer.graph, fixer.layout, working);
                }
                Segment::Data => fixer.write_table(working),
                Segment::LargeData => {}
            }
        }
        Ok(initializers)
    }
}

/// Everything the fixups read.
struct Fixer<'l> {
    graph: &'l super::graph::LinkGraph<'static>,
    plan: &'l super::phases::Plan,
    layout: &'l super::layout::Layout,
    bases: &'l [u64; Segment::COUNT],
    addresses: &'l [u64],
    thread_local: &'l [bool],
    foreign_tls: &'l rustc_hash::FxHashMap<SymbolId, TlsPlacement>,
    tls: Option<TlsPlacement>,
    ifunc_thunk: u64,
}

/// An edge on its way into its field.
struct Work<'e> {
    block: BlockId,
    edge: &'e Edge,
    operands: Operands,
}

impl Fixer<'_> {
    fn apply_edges(&self, segment: Segment, working: &mut [u8]) -> Result<(), LinkError> {
        for &id in &self.layout.contents[segment as usize] {
            let edges = self.graph.edges(id);
            if edges.is_empty() {
                continue;
            }
            let place = self.layout.places[id.index()];
            let start = place.offset as usize;
            let bytes = &mut working[start..start + self.graph.blocks[id.index()].size as usize];
            let address = self.at(place);
            for edge in edges {
                let operands = Operands {
                    place: address + edge.offset,
                    target: self.addresses[edge.target.index()],
                    addend: edge.addend,
                    got: self.at(Place { segment: Segment::Data, offset: self.layout.got }),
                };
                self.apply_edge(bytes, Work { block: id, edge, operands })?;
            }
        }
        Ok(())
    }

    fn apply_edge(&self, bytes: &mut [u8], mut work: Work<'_>) -> Result<(), LinkError> {
        let Edge { kind, target, .. } = *work.edge;
        self.check_thread_local(&work)?;
        match kind {
            EdgeKind::Branch32 => self.apply_or_reach_through_stub(bytes, &work),
            EdgeKind::Delta32 | EdgeKind::TlsDescriptorDelta32 => self.apply_or_rescue(bytes, &work),
            EdgeKind::GotEntryDelta32Relaxable => self.apply_table_access(bytes, work),
            EdgeKind::GotEntryDelta32
            | EdgeKind::GotEntryDelta64
            | EdgeKind::GotEntryOffset32
            | EdgeKind::GotEntryOffset64 => {
                work.operands.target = self.entry(target).unwrap_or(0);
                self.apply(bytes, &work)
            }
            EdgeKind::TlsModuleDelta32 => {
                self.own_module(&work)?;
                let offset = self.plan.tls.module_descriptor().unwrap_or(0) + self.layout.tls_descriptors;
                work.operands.target = self.at(Place { segment: Segment::ReadOnly, offset });
                self.apply(bytes, &work)
            }
            EdgeKind::TlsOffset32 | EdgeKind::TlsOffset64 => {
                work.operands.target = self.module_offset(&work)?;
                self.apply(bytes, &work)
            }
            EdgeKind::Size32 | EdgeKind::Size64 => {
                work.operands.target = self.size(&work)?;
                self.apply(bytes, &work)
            }
            _ => self.apply(bytes, &work),
        }
    }

    fn apply(&self, bytes: &mut [u8], work: &Work<'_>) -> Result<(), LinkError> {
        x86_64::apply(&mut bytes[work.edge.offset as usize..], work.edge.kind, &work.operands)
            .map_err(|overflow| self.out_of_range(work, overflow))
    }

    /// A call goes straight to its function if that can be reached, else through the stub.
    fn apply_or_reach_through_stub(&self, bytes: &mut [u8], work: &Work<'_>) -> Result<(), LinkError> {
        let field = &mut bytes[work.edge.offset as usize..];
        let Err(overflow) = x86_64::apply(field, work.edge.kind, &work.operands) else { return Ok(()) };
        let Some(stub) = self.stub(work.edge.target) else { return Err(self.out_of_range(work, overflow)) };
        let operands = Operands { target: stub, ..work.operands };
        x86_64::apply(field, work.edge.kind, &operands).map_err(|overflow| self.out_of_range(work, overflow))
    }

    /// A distance that is too long is saved if its instruction is a branch or a `lea`.
    fn apply_or_rescue(&self, bytes: &mut [u8], work: &Work<'_>) -> Result<(), LinkError> {
        let offset = work.edge.offset as usize;
        let Err(overflow) = x86_64::apply(&mut bytes[offset..], work.edge.kind, &work.operands) else {
            return Ok(());
        };
        if self.stub(work.edge.target).is_some() && relax::is_branch(bytes, offset, work.edge.addend) {
            return self.apply_or_reach_through_stub(bytes, work);
        }
        if let Some(pointer) = self.pointer(work.edge) {
            let end = work.operands.place.wrapping_add_signed(-relax::END_OF_INSTRUCTION);
            if relax::load_pointer(bytes, offset, pointer.wrapping_sub(end).cast_signed()) {
                return Ok(());
            }
        }
        Err(self.out_of_range(work, overflow))
    }

    /// An access through the table becomes direct if the instruction allows it and the symbol can be reached.
    fn apply_table_access(&self, bytes: &mut [u8], mut work: Work<'_>) -> Result<(), LinkError> {
        let distance = work.edge.kind.value(&work.operands);
        let is_place = work.operands.target != 0;
        if is_place && relax::access_directly(bytes, work.edge.offset as usize, work.edge.addend, distance) {
            return Ok(());
        }
        work.operands.target = self.entry(work.edge.target).unwrap_or(0);
        self.apply(bytes, &work)
    }

    fn check_thread_local(&self, work: &Work<'_>) -> Result<(), LinkError> {
        let Edge { kind, target, .. } = *work.edge;
        let is_thread_local = self.thread_local[target.index()];
        let either = kind.ignores_target() || matches!(kind, EdgeKind::Size32 | EdgeKind::Size64);
        if kind.is_thread_local() == is_thread_local || either {
            return Ok(());
        }
        Err(self.thread_local(
            work,
            if is_thread_local { "is a thread-local variable" } else { "is not a thread-local variable" },
        ))
    }

    fn thread_local(&self, work: &Work<'_>, what: &'static str) -> LinkError {
        LinkError::ThreadLocal {
            site: Box::new(self.graph.site(work.block, work.edge.offset)),
            kind: work.edge.kind.name(),
            symbol: self.graph.symbol_name(work.edge.target).into(),
            what,
        }
    }

    /// The module whose start stands for all the variables that the graph reaches by offset.
    fn own_module(&self, work: &Work<'_>) -> Result<u64, LinkError> {
        let foreign = || self.plan.tls.foreign.iter().find_map(|symbol| self.foreign_tls.get(symbol));
        match (self.tls, foreign()) {
            (Some(own), _) | (None, Some(&own)) => Ok(own.module),
            (None, None) => Err(self.thread_local(work, ELSEWHERE)),
        }
    }

    fn module_offset(&self, work: &Work<'_>) -> Result<u64, LinkError> {
        let target = work.edge.target;
        if let Location::Block(..) = self.graph.symbols[target.index()].location {
            return Ok(self.tls.map_or(0, |own| own.offset) + self.image_offset(target));
        }
        match self.foreign_tls.get(&target) {
            Some(placement) if placement.module == self.own_module(work)? => Ok(placement.offset),
            _ => Err(self.thread_local(work, ELSEWHERE)),
        }
    }

    /// The offset of a variable of the graph in the graph's image.
    fn image_offset(&self, symbol: SymbolId) -> u64 {
        let Location::Block(block, offset) = self.graph.symbols[symbol.index()].location else { return 0 };
        let image = self.layout.tls.map_or(0, |tls| tls.image);
        self.layout.places[block.index()].offset.wrapping_sub(image).wrapping_add(offset)
    }

    fn size(&self, work: &Work<'_>) -> Result<u64, LinkError> {
        let symbol = &self.graph.symbols[work.edge.target.index()];
        if symbol.location != Location::Undefined {
            return Ok(symbol.size);
        }
        Err(LinkError::UnsupportedRelocation {
            site: Box::new(self.graph.site(work.block, work.edge.offset)),
            kind: work.edge.kind.name().into(),
            symbol: self.graph.symbol_name(work.edge.target).into(),
            advice: "; only the object that defines it knows its size",
        })
    }

    /// Where the pointer to a symbol lies.
    fn entry(&self, symbol: SymbolId) -> Option<u64> {
        let index = self.plan.got_plt.entries.get(symbol)?;
        let offset = self.layout.got + index * got_plt::ENTRY_BYTES;
        Some(self.at(Place { segment: Segment::Data, offset }))
    }

    /// Where the pointer to what a `lea` computes lies.
    fn pointer(&self, edge: &Edge) -> Option<u64> {
        let index = self.plan.got_plt.pointers.get(edge.target, got_plt::pointed_offset(edge.addend))?;
        let offset = self.layout.pointers + index * got_plt::ENTRY_BYTES;
        Some(self.at(Place { segment: Segment::Data, offset }))
    }

    fn stub(&self, symbol: SymbolId) -> Option<u64> {
        let index = self.plan.got_plt.stubs.get(symbol)?;
        let offset = self.layout.stubs + index * got_plt::STUB_BYTES;
        Some(self.at(Place { segment: Segment::Code, offset }))
    }

    fn at(&self, place: Place) -> u64 {
        self.bases[place.segment as usize].wrapping_add(place.offset)
    }

    fn out_of_range(&self, work: &Work<'_>, overflow: Overflow) -> LinkError {
        let Edge { kind, target, offset, .. } = *work.edge;
        let is_external = self.graph.symbols[target.index()].location == Location::Undefined;
        let advice = match kind {
            EdgeKind::Pointer32 | EdgeKind::Pointer32Signed if work.operands.target > u64::from(u32::MAX) => {
                "; the object was built without position-independent code: recompile it with -fPIC"
            }
            EdgeKind::Delta32 if is_external => {
                "; recompile the object with -fPIC, so that it goes through the global offset table"
            }
            EdgeKind::Delta32 => "; recompile the object with -mcmodel=large, or with less static data",
            _ => "",
        };
        LinkError::OutOfRange {
            site: Box::new(self.graph.site(work.block, offset)),
            kind: kind.name(),
            symbol: self.graph.symbol_name(target).into(),
            target: uruk_core::ExecutorAddr::new(work.operands.target),
            value: overflow.value,
            bits: overflow.bits,
            signed: overflow.signed,
            advice,
        }
    }
}

const ELSEWHERE: &str = "is a thread-local variable of another module, but is reached as one of this object's (the \
                         local-dynamic model, which hidden visibility implies); recompile with default visibility, or \
                         link the two objects as one";

/// The tables the linker adds.
impl Fixer<'_> {
    fn write_table(&self, working: &mut [u8]) {
        let table = &mut working[self.layout.got as usize..];
        for (entry, symbol) in table.chunks_exact_mut(8).zip(self.plan.got_plt.entries.symbols()) {
            entry.copy_from_slice(&self.addresses[symbol.index()].to_le_bytes());
        }
        let pointers = &mut working[self.layout.pointers as usize..];
        for (pointer, (symbol, offset)) in
            pointers.chunks_exact_mut(8).zip(self.plan.got_plt.pointers.targets())
        {
            let address = self.addresses[symbol.index()].wrapping_add_signed(*offset);
            pointer.copy_from_slice(&address.to_le_bytes());
        }
        let slots = &mut working[self.layout.ifunc_slots as usize..];
        for (index, slot) in (0..self.plan.ifuncs.count()).zip(slots.chunks_exact_mut(8)) {
            let first_call = self.ifunc_parts(index).stub + ifunc::FIRST_CALL_OFFSET;
            slot.copy_from_slice(&first_call.to_le_bytes());
        }
    }

    fn write_stubs(&self, working: &mut [u8]) -> Result<(), LinkError> {
        let stubs = &mut working[self.layout.stubs as usize..];
        for (stub, symbol) in
            stubs.chunks_exact_mut(got_plt::STUB_BYTES as usize).zip(self.plan.got_plt.stubs.symbols())
        {
            let address = self.stub(*symbol).unwrap_or(0);
            let entry = self.entry(*symbol).unwrap_or(0);
            got_plt::write_stub(stub, address, entry)
                .map_err(|value| self.stub_out_of_range(*symbol, entry, value))?;
        }
        let stubs = &mut working[self.layout.ifunc_stubs as usize..];
        for (index, stub) in
            (0..self.plan.ifuncs.count()).zip(stubs.chunks_exact_mut(ifunc::STUB_BYTES as usize))
        {
            let parts = self.ifunc_parts(index);
            let symbol = self.plan.ifuncs.resolvers[index as usize];
            ifunc::write_stub(stub, parts)
                .map_err(|value| self.stub_out_of_range(symbol, parts.slot, value))?;
        }
        Ok(())
    }

    fn ifunc_parts(&self, index: u64) -> ifunc::Parts {
        let at = |segment, offset| self.at(Place { segment, offset });
        ifunc::Parts {
            stub: at(Segment::Code, self.layout.ifunc_stubs + index * ifunc::STUB_BYTES),
            slot: at(Segment::Data, self.layout.ifunc_slots + index * ifunc::SLOT_BYTES),
            descriptor: at(
                Segment::ReadOnly,
                self.layout.ifunc_descriptors + index * ifunc::DESCRIPTOR_BYTES,
            ),
            thunk: at(Segment::ReadOnly, self.layout.thunk),
        }
    }

    fn stub_out_of_range(&self, symbol: SymbolId, target: u64, value: i64) -> LinkError {
        let object = self.graph.symbols[symbol.index()].object;
        let site = super::error::Site {
            object: self.graph.objects[object.index()].clone(),
            section: "stub".into(),
            offset: 0,
        };
        LinkError::OutOfRange {
            site: Box::new(site),
            kind: "stub",
            symbol: self.graph.symbol_name(symbol).into(),
            target: uruk_core::ExecutorAddr::new(target),
            value,
            bits: 32,
            signed: true,
            advice: "; the memory manager placed data out of reach of the code",
        }
    }

    fn write_descriptors(&self, working: &mut [u8]) {
        let mut put = |offset: u64, words: [u64; 2]| {
            let bytes = &mut working[offset as usize..offset as usize + tls::DESCRIPTOR_BYTES as usize];
            bytes[..8].copy_from_slice(&words[0].to_le_bytes());
            bytes[8..].copy_from_slice(&words[1].to_le_bytes());
        };
        let own = self.tls.unwrap_or(TlsPlacement { module: 0, offset: 0 });
        for (index, symbol) in (0..).zip(self.plan.tls.descriptors.symbols()) {
            let offset = own.offset + self.image_offset(*symbol);
            put(self.layout.tls_descriptors + index * tls::DESCRIPTOR_BYTES, [own.module, offset]);
        }
        if let Some(descriptor) = self.plan.tls.module_descriptor() {
            let foreign = self.plan.tls.foreign.iter().find_map(|symbol| self.foreign_tls.get(symbol));
            let module = self.tls.or(foreign.copied()).map_or(0, |placement| placement.module);
            put(self.layout.tls_descriptors + descriptor, [module, 0]);
        }
        for (index, symbol) in (0..).zip(&self.plan.ifuncs.resolvers) {
            let resolver = match self.graph.symbols[symbol.index()].location {
                Location::Block(block, offset) => self.at(self.layout.places[block.index()]) + offset,
                _ => 0,
            };
            let parts = self.ifunc_parts(index);
            put(self.layout.ifunc_descriptors + index * ifunc::DESCRIPTOR_BYTES, [parts.slot, resolver]);
        }
        if self.plan.ifuncs.count() > 0 {
            let start = self.layout.thunk as usize;
            working[start..start + 8].copy_from_slice(&self.ifunc_thunk.to_le_bytes());
        }
    }

    fn write_frame_index(&self, working: &mut [u8]) -> Result<(), LinkError> {
        if self.graph.frames.is_empty() {
            return Ok(());
        }
        let mut entries = Vec::with_capacity(self.graph.frames.len());
        for frame in &self.graph.frames {
            let edge = &self.graph.edges[frame.function as usize];
            let function = self.addresses[edge.target.index()].wrapping_add_signed(edge.addend);
            entries
                .push(eh_frame::Entry { function, record: self.at(self.layout.places[frame.block.index()]) });
        }
        let at = |offset| self.at(Place { segment: Segment::ReadOnly, offset });
        let start = self.layout.eh_frame_hdr as usize;
        let header = &mut working[start..start + eh_frame::header_bytes(entries.len()) as usize];
        eh_frame::write_header(header, at(self.layout.eh_frame_hdr), at(self.layout.eh_frame), &mut entries)
            .map_err(|(value, target)| {
                let frame = self.graph.frames[0].block;
                LinkError::OutOfRange {
                    site: Box::new(self.graph.site(frame, 0)),
                    kind: "index of call frames",
                    symbol: self.graph.name().into(),
                    target: uruk_core::ExecutorAddr::new(target),
                    value,
                    bits: 32,
                    signed: true,
                    advice: "; the memory manager placed code out of reach of its unwind tables",
                }
            })
    }
}

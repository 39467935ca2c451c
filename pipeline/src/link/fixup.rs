//! The last step: every edge is applied, every table filled, in the working view of the memory.
//!
//! Which address an edge takes is decided here, knowing all of them: the symbol itself where it can be reached, its
//! stub or its entry in the table where not.

use uruk_core::ExecutorAddr;

use super::error::LinkError;
use super::graph::{BlockId, Edge, Location};
use super::initializers;
use super::layout::Segment;
use super::placed::Placed;
use super::rebase::{Notes, RebaseTarget, Rebases, TlsFact};
use super::resolution::Resolution;
use super::tables;
use crate::arch::{Architecture, Class, FarForm, Operands, Overflow};
use crate::executor::Initializers;
use crate::memory::InFlightAlloc;

/// Writes everything; afterwards the memory is only to be protected.
pub(super) fn write(
    placed: &Placed,
    resolution: &Resolution,
    alloc: &mut InFlightAlloc,
) -> Result<(Vec<Initializers>, Option<Rebases>), LinkError> {
    let notes = Notes::new(placed);
    let fixer = Fixer { placed, resolution, notes: &notes };
    for segment in Segment::ALL {
        let Some(index) = placed.indices[segment as usize] else { continue };
        let working = alloc.working(index);
        fixer.apply_edges(segment, working)?;
        match segment {
            Segment::Code => tables::write_stubs(placed, working)?,
            Segment::ReadOnly => {
                tables::write_frame_index(placed, resolution, working)?;
                tables::write_descriptors(placed, resolution, &notes, working);
            }
            Segment::Data => {
                tables::write_pointers(placed, resolution, &notes, working);
                tables::write_thread_locals(placed, resolution, &notes, working);
            }
            Segment::GreatZeroFill | Segment::LargeData => {}
        }
    }
    let constants = placed.indices[Segment::ReadOnly as usize];
    let constants: &[u8] = constants.map_or(&[], |index| alloc.working(index));
    Ok((initializers::read(placed, resolution, constants)?, notes.take()))
}

/// Everything the fixups read.
struct Fixer<'l> {
    placed: &'l Placed,
    resolution: &'l Resolution,
    notes: &'l Notes<'l>,
}

/// An edge on its way into its field.
struct Work<'e> {
    block: BlockId,
    edge: &'e Edge,
    operands: Operands,
}

impl Fixer<'_> {
    fn apply_edges(&self, segment: Segment, working: &mut [u8]) -> Result<(), LinkError> {
        for &id in &self.placed.layout.contents[segment as usize] {
            let edges = self.placed.graph.edges(id);
            if edges.is_empty() {
                continue;
            }
            let place = self.placed.layout.places[id.index()];
            let start = place.offset as usize;
            let bytes = &mut working[start..start + self.placed.graph.blocks[id.index()].size as usize];
            let address = self.placed.at(place);
            for edge in edges {
                let operands = Operands {
                    place: address + edge.offset,
                    target: self.resolution.addresses[edge.target.index()],
                    addend: edge.addend,
                    got: self.placed.got(),
                };
                self.apply_edge(bytes, Work { block: id, edge, operands })?;
            }
        }
        Ok(())
    }

    fn apply_edge(&self, bytes: &mut [u8], mut work: Work<'_>) -> Result<(), LinkError> {
        let Edge { kind, target, .. } = *work.edge;
        self.check_thread_local(&work)?;
        match kind.class() {
            Class::Direct | Class::LowAddress | Class::GotBase => {}
            Class::Branch => return self.apply_or_reach_through_stub(bytes, &work),
            Class::Near | Class::TlsDescriptor => return self.apply_or_rescue(bytes, &work),
            Class::GotEntry => return self.apply_table_access(bytes, work),
            Class::TlsDistanceEntry => return self.apply_distance_load(bytes, work),
            Class::TlsModule => {
                self.own_module(&work)?;
                work.operands.target = self.placed.module_descriptor().unwrap_or(0);
            }
            Class::TlsOffset => work.operands.target = self.module_offset(&work)?,
            Class::TlsDistance => work.operands.target = self.distance(&work)?.cast_unsigned(),
            Class::TlsResolver => {
                if self.placed.graph.symbols[target.index()].location == Location::TlsModuleBase {
                    self.own_module(&work)?;
                }
                work.operands.target = self.placed.resolver_pair(target).unwrap_or(0);
            }
            Class::Size => work.operands.target = self.size(&work)?,
        }
        self.apply(bytes, &work)
    }

    fn arch(&self) -> Architecture {
        self.placed.graph.arch
    }

    fn apply(&self, bytes: &mut [u8], work: &Work<'_>) -> Result<(), LinkError> {
        self.encode(bytes, work).map_err(|overflow| self.out_of_range(work, overflow))
    }

    fn encode(&self, bytes: &mut [u8], work: &Work<'_>) -> Result<(), Overflow> {
        let Edge { kind, offset, addend, .. } = *work.edge;
        self.arch().encode(kind, &work.operands, &mut bytes[offset as usize..])?;
        if self.notes.are_taken() {
            let block = self.placed.layout.places[work.block.index()];
            self.notes.field(block.segment, block.offset + offset, kind, self.origin(work), addend);
        }
        Ok(())
    }

    /// Where the value of a field comes from, for a graph that may be moved.
    fn origin(&self, work: &Work<'_>) -> RebaseTarget {
        let Edge { kind, target, .. } = *work.edge;
        match kind.class() {
            Class::TlsOffset => self.notes.tls(TlsFact::Offset, target),
            Class::TlsDistance => self.notes.tls(TlsFact::Distance, target),
            Class::Size => RebaseTarget::Fixed(work.operands.target),
            Class::GotEntry | Class::TlsDistanceEntry | Class::TlsResolver => {
                self.notes.address(Segment::Data, work.operands.target)
            }
            Class::TlsModule => self.notes.address(Segment::ReadOnly, work.operands.target),
            Class::Direct
            | Class::LowAddress
            | Class::GotBase
            | Class::Near
            | Class::Branch
            | Class::TlsDescriptor => self.notes.symbol(target),
        }
    }

    /// A call goes straight to its function if that can be reached, else through the stub.
    fn apply_or_reach_through_stub(&self, bytes: &mut [u8], work: &Work<'_>) -> Result<(), LinkError> {
        let Edge { kind, target, offset, .. } = *work.edge;
        let stub = self.placed.stub(target);
        if stub.is_none() || self.notes.moves_along(target) {
            let Err(overflow) = self.encode(bytes, work) else { return Ok(()) };
            if stub.is_none() {
                return Err(self.out_of_range(work, overflow));
            }
        }
        let operands = Operands { target: stub.unwrap_or(0), ..work.operands };
        let field = &mut bytes[offset as usize..];
        self.arch().encode(kind, &operands, field).map_err(|overflow| self.out_of_range(work, overflow))
    }

    /// A distance that is too long is saved if its instruction has another form.
    fn apply_or_rescue(&self, bytes: &mut [u8], work: &Work<'_>) -> Result<(), LinkError> {
        if self.notes.moves_along(work.edge.target) && self.encode(bytes, work).is_ok() {
            return Ok(());
        }
        let (offset, Operands { place, addend, .. }) = (work.edge.offset as usize, work.operands);
        match self.arch().far_form(bytes, offset, addend) {
            Some(FarForm::Stub) => return self.apply_or_reach_through_stub(bytes, work),
            Some(FarForm::Pointer) => {
                if let Some(pointer) = self.placed.pointer(work.edge)
                    && self.arch().load_pointer(bytes, offset, place, pointer)
                {
                    return Ok(());
                }
            }
            None => {}
        }
        self.apply(bytes, work)
    }

    /// An access through the table becomes direct if the instruction allows it and the symbol can be reached.
    fn apply_table_access(&self, bytes: &mut [u8], mut work: Work<'_>) -> Result<(), LinkError> {
        let Edge { kind, target, offset, .. } = *work.edge;
        let is_place = work.operands.target != 0 && self.notes.moves_along(target);
        if is_place && self.arch().access_directly(kind, bytes, offset as usize, &work.operands) {
            return Ok(());
        }
        work.operands.target = self.placed.entry(target).unwrap_or(0);
        self.apply(bytes, &work)
    }

    /// A distance is loaded from the table if there is one; if not, the instruction may take a detour.
    fn apply_distance_load(&self, bytes: &mut [u8], mut work: Work<'_>) -> Result<(), LinkError> {
        let Edge { target, offset, .. } = *work.edge;
        let Err(refused) = self.distance(&work) else {
            work.operands.target = self.placed.distance_entry(target).unwrap_or(0);
            return self.apply(bytes, &work);
        };
        let detour = self.placed.detour(work.block, offset).ok_or_else(|| refused.clone())?;
        if self.arch().write_detour_jump(bytes, offset as usize, work.operands.place, detour) {
            return Ok(());
        }
        Err(refused)
    }

    fn check_thread_local(&self, work: &Work<'_>) -> Result<(), LinkError> {
        let Edge { kind, target, .. } = *work.edge;
        let is_thread_local = self.resolution.thread_local[target.index()];
        let either = kind.ignores_target() || kind.class() == Class::Size;
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
            site: Box::new(self.placed.graph.site(work.block, work.edge.offset)),
            kind: self.arch().kind_name(work.edge.kind),
            symbol: self.placed.graph.symbol_name(work.edge.target).into(),
            what,
        }
    }

    fn own_module(&self, work: &Work<'_>) -> Result<u64, LinkError> {
        self.resolution.module.ok_or_else(|| self.thread_local(work, ELSEWHERE))
    }

    fn module_offset(&self, work: &Work<'_>) -> Result<u64, LinkError> {
        let target = work.edge.target;
        if let Location::Block(..) = self.placed.graph.symbols[target.index()].location {
            let start = self.placed.tls.map_or(0, |own| own.offset);
            return Ok(start.wrapping_add(self.placed.image_offset(target)));
        }
        match self.resolution.foreign_tls.get(&target) {
            Some(placement) if placement.module == self.own_module(work)? => Ok(placement.offset),
            _ => Err(self.thread_local(work, ELSEWHERE)),
        }
    }

    /// The variable's distance from the thread pointer, which is the same on every thread.
    fn distance(&self, work: &Work<'_>) -> Result<i64, LinkError> {
        let Edge { kind, target, offset, .. } = *work.edge;
        self.resolution.distance(self.placed, target).map_err(|reason| LinkError::StaticTls {
            site: Box::new(self.placed.graph.site(work.block, offset)),
            kind: self.arch().kind_name(kind),
            symbol: self.placed.graph.symbol_name(target).into(),
            model: if kind.class() == Class::TlsDistance { "local-exec" } else { "initial-exec" },
            reason,
        })
    }

    fn size(&self, work: &Work<'_>) -> Result<u64, LinkError> {
        let symbol = &self.placed.graph.symbols[work.edge.target.index()];
        if symbol.location != Location::Undefined {
            return Ok(symbol.size);
        }
        Err(LinkError::UnsupportedRelocation {
            site: Box::new(self.placed.graph.site(work.block, work.edge.offset)),
            kind: self.arch().kind_name(work.edge.kind).into(),
            symbol: self.placed.graph.symbol_name(work.edge.target).into(),
            advice: "; only the object that defines it knows its size",
        })
    }

    fn out_of_range(&self, work: &Work<'_>, overflow: Overflow) -> LinkError {
        let Edge { kind, target, offset, .. } = *work.edge;
        let is_external = self.placed.graph.symbols[target.index()].location == Location::Undefined;
        let advice = match kind.class() {
            _ if overflow.value % i64::from(overflow.unit) != 0 => {
                "; the field counts in units of the instruction's access, and the symbol is not aligned to them"
            }
            Class::Branch if !is_external && self.placed.stub(target).is_none() => {
                "; the object has more code than its branches reach over: split it"
            }
            Class::LowAddress if work.operands.target > u64::from(u32::MAX) => {
                "; the object was built without position-independent code: recompile it with -fPIC"
            }
            Class::Near if is_external => {
                "; recompile the object with -fPIC, so that it goes through the global offset table"
            }
            Class::Near => {
                "; recompile the object with -mcmodel=large, with -fdata-sections, or with less static data"
            }
            _ => "",
        };
        LinkError::OutOfRange {
            site: Box::new(self.placed.graph.site(work.block, offset)),
            kind: self.arch().kind_name(kind),
            symbol: self.placed.graph.symbol_name(target).into(),
            target: ExecutorAddr::new(work.operands.target),
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

//! The tables that the linker adds to a graph, written when all addresses are known.

use uruk_core::ExecutorAddr;

use super::eh_frame;
use super::error::{LinkError, Site};
use super::graph::{Location, SymbolId};
use super::ifunc;
use super::layout::{Place, Segment};
use super::placed::Placed;
use super::rebase::{Notes, RebaseTarget, RuntimeEntry, TlsFact};
use super::resolution::Resolution;
use super::tls;
use crate::executor::{TlsPlacement, TlsResolvers};

/// Fills the global offset table, the pointers beside it, and the slots of indirect functions.
pub(super) fn write_pointers(
    placed: &Placed,
    resolution: &Resolution,
    notes: &Notes<'_>,
    working: &mut [u8],
) {
    let at = |table: u64| (table..).step_by(8);
    let table = &mut working[placed.layout.got as usize..];
    let entries = table.chunks_exact_mut(8).zip(placed.plan.got_plt.entries.symbols());
    for ((entry, symbol), at) in entries.zip(at(placed.layout.got)) {
        entry.copy_from_slice(&resolution.addresses[symbol.index()].to_le_bytes());
        if notes.are_taken() {
            notes.word(Segment::Data, at, notes.symbol(*symbol), 0);
        }
    }
    let pointers = &mut working[placed.layout.pointers as usize..];
    let pointers = pointers.chunks_exact_mut(8).zip(placed.plan.got_plt.pointers.targets());
    for ((pointer, (symbol, offset)), at) in pointers.zip(at(placed.layout.pointers)) {
        let address = resolution.addresses[symbol.index()].wrapping_add_signed(*offset);
        pointer.copy_from_slice(&address.to_le_bytes());
        if notes.are_taken() {
            notes.word(Segment::Data, at, notes.symbol(*symbol), *offset);
        }
    }
    let slots = &mut working[placed.layout.ifunc_slots as usize..];
    for (index, slot) in (0..placed.plan.ifuncs.count()).zip(slots.chunks_exact_mut(8)) {
        let first_call = placed.ifunc_parts(index).stub + placed.graph.arch.ifunc_first_call();
        slot.copy_from_slice(&first_call.to_le_bytes());
        let at = placed.layout.ifunc_slots + index * ifunc::SLOT_BYTES;
        notes.word(Segment::Data, at, notes.address(Segment::Code, first_call), 0);
    }
}

/// Fills the tables of thread-local variables that are reached without a call of `__tls_get_addr`.
pub(super) fn write_thread_locals(
    placed: &Placed,
    resolution: &Resolution,
    notes: &Notes<'_>,
    working: &mut [u8],
) {
    let distances = &mut working[placed.layout.tls_distances as usize..];
    let entries = distances.chunks_exact_mut(8).zip(placed.plan.tls.distances.symbols());
    for ((entry, symbol), at) in entries.zip((placed.layout.tls_distances..).step_by(8)) {
        // Without a distance there is an edge to this entry, which has been refused.
        let distance = resolution.distance(placed, *symbol).unwrap_or(0);
        entry.copy_from_slice(&distance.to_le_bytes());
        if notes.are_taken() {
            notes.word(Segment::Data, at, notes.tls(TlsFact::Distance, *symbol), 0);
        }
    }
    let resolvers = &mut working[placed.layout.tls_resolvers as usize..];
    let pairs = resolvers.chunks_exact_mut(tls::RESOLVER_BYTES as usize);
    let starts = (placed.layout.tls_resolvers..).step_by(tls::RESOLVER_BYTES as usize);
    for ((pair, symbol), at) in pairs.zip(placed.plan.tls.resolvers.symbols()).zip(starts) {
        let TlsResolvers { fixed, dynamic, absent } = resolution.tls_resolvers;
        let descriptor = resolution.addresses[symbol.index()];
        let (function, argument) = match resolution.distance(placed, *symbol) {
            _ if descriptor == 0 => (absent, 0),
            // Elsewhere the distance may be another on each thread.
            Ok(distance) if !notes.are_taken() => (fixed, distance.cast_unsigned()),
            _ => (dynamic, descriptor),
        };
        if notes.are_taken() {
            let entry = if descriptor == 0 { RuntimeEntry::TlsAbsent } else { RuntimeEntry::TlsDynamic };
            notes.word(Segment::Data, at, RebaseTarget::Entry(entry), 0);
            notes.word(Segment::Data, at + 8, notes.symbol(*symbol), 0);
        }
        pair[..8].copy_from_slice(&function.value().to_le_bytes());
        pair[8..].copy_from_slice(&argument.to_le_bytes());
    }
}

/// Writes the stubs.
pub(super) fn write_stubs(placed: &Placed, working: &mut [u8]) -> Result<(), LinkError> {
    let arch = placed.graph.arch;
    let stubs = &mut working[placed.layout.stubs as usize..];
    for (stub, symbol) in
        stubs.chunks_exact_mut(arch.stub_bytes() as usize).zip(placed.plan.got_plt.stubs.symbols())
    {
        let address = placed.stub(*symbol).unwrap_or(0);
        let entry = placed.entry(*symbol).unwrap_or(0);
        arch.write_stub(stub, address, entry)
            .map_err(|value| stub_out_of_range(placed, *symbol, entry, value))?;
    }
    let stubs = &mut working[placed.layout.ifunc_stubs as usize..];
    for (index, stub) in
        (0..placed.plan.ifuncs.count()).zip(stubs.chunks_exact_mut(arch.ifunc_stub_bytes() as usize))
    {
        let parts = placed.ifunc_parts(index);
        let symbol = placed.plan.ifuncs.resolvers[index as usize];
        arch.write_ifunc_stub(stub, parts)
            .map_err(|value| stub_out_of_range(placed, symbol, parts.slot, value))?;
    }
    let detours = &mut working[placed.layout.tls_detours as usize..];
    let detours = detours.chunks_exact_mut(arch.detour_bytes() as usize);
    for (detour, site) in detours.zip(placed.plan.tls.detours.sites()) {
        let address = placed.detour(site.block, site.offset).unwrap_or(0);
        let pair = placed.resolver_pair(site.symbol).unwrap_or(0);
        let place = placed.at(placed.layout.places[site.block.index()]) + site.offset;
        arch.write_detour(detour, address, site.load, pair, place)
            .map_err(|value| stub_out_of_range(placed, site.symbol, pair, value))?;
    }
    Ok(())
}

fn stub_out_of_range(placed: &Placed, symbol: SymbolId, target: u64, value: i64) -> LinkError {
    let object = placed.graph.symbols[symbol.index()].object;
    let site =
        Site { object: placed.graph.objects[object.index()].clone(), section: "stub".into(), offset: 0 };
    LinkError::OutOfRange {
        site: Box::new(site),
        kind: "stub",
        symbol: placed.graph.symbol_name(symbol).into(),
        target: ExecutorAddr::new(target),
        value,
        bits: 32,
        signed: true,
        advice: "; the memory manager placed data out of reach of the code",
    }
}

/// Writes the descriptors of thread-local variables and of indirect functions, and the pointer to the thunk.
pub(super) fn write_descriptors(
    placed: &Placed,
    resolution: &Resolution,
    notes: &Notes<'_>,
    working: &mut [u8],
) {
    let mut put = |offset: u64, words: [u64; 2], targets: [RebaseTarget; 2]| {
        notes.word(Segment::ReadOnly, offset, targets[0], 0);
        notes.word(Segment::ReadOnly, offset + 8, targets[1], 0);
        let bytes = &mut working[offset as usize..offset as usize + tls::DESCRIPTOR_BYTES as usize];
        bytes[..8].copy_from_slice(&words[0].to_le_bytes());
        bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    };
    let own = placed.tls.unwrap_or(TlsPlacement { module: 0, offset: 0 });
    for (index, symbol) in (0..).zip(placed.plan.tls.descriptors.symbols()) {
        let offset = own.offset.wrapping_add(placed.image_offset(*symbol));
        let targets = [TlsFact::Module, TlsFact::Offset].map(|fact| notes.tls(fact, *symbol));
        put(placed.layout.tls_descriptors + index * tls::DESCRIPTOR_BYTES, [own.module, offset], targets);
    }
    if let Some(descriptor) = placed.plan.tls.module_descriptor() {
        let module = match resolution.foreign_tls.keys().min() {
            Some(foreign) if placed.tls.is_none() => notes.tls(TlsFact::Module, *foreign),
            _ => RebaseTarget::OwnTls(TlsFact::Module, 0),
        };
        let words = [resolution.module.unwrap_or(0), 0];
        put(placed.layout.tls_descriptors + descriptor, words, [module, RebaseTarget::Fixed(0)]);
    }
    for (index, symbol) in (0..).zip(&placed.plan.ifuncs.resolvers) {
        let resolver = match placed.graph.symbols[symbol.index()].location {
            Location::Block(block, offset) => placed.at(placed.layout.places[block.index()]) + offset,
            _ => 0,
        };
        let parts = placed.ifunc_parts(index);
        let targets = [notes.address(Segment::Data, parts.slot), notes.address(Segment::Code, resolver)];
        let at = placed.layout.ifunc_descriptors + index * ifunc::DESCRIPTOR_BYTES;
        put(at, [parts.slot, resolver], targets);
    }
    if placed.plan.ifuncs.count() > 0 {
        let start = placed.layout.thunk as usize;
        working[start..start + 8].copy_from_slice(&resolution.ifunc_thunk.to_le_bytes());
        let thunk = RebaseTarget::Entry(RuntimeEntry::IfuncThunk);
        notes.word(Segment::ReadOnly, placed.layout.thunk, thunk, 0);
    }
}

/// Writes the sorted index of call frames.
pub(super) fn write_frame_index(
    placed: &Placed,
    resolution: &Resolution,
    working: &mut [u8],
) -> Result<(), LinkError> {
    if placed.graph.frames.is_empty() {
        return Ok(());
    }
    let mut entries = Vec::with_capacity(placed.graph.frames.len());
    for frame in &placed.graph.frames {
        let edge = &placed.graph.edges[frame.function as usize];
        let function = resolution.addresses[edge.target.index()].wrapping_add_signed(edge.addend);
        entries
            .push(eh_frame::Entry { function, record: placed.at(placed.layout.places[frame.block.index()]) });
    }
    let at = |offset| placed.at(Place { segment: Segment::ReadOnly, offset });
    let start = placed.layout.eh_frame_hdr as usize;
    let header = &mut working[start..start + eh_frame::header_bytes(entries.len()) as usize];
    eh_frame::write_header(header, at(placed.layout.eh_frame_hdr), at(placed.layout.eh_frame), &mut entries)
        .map_err(|(value, target)| {
            let frame = placed.graph.frames[0].block;
            LinkError::OutOfRange {
                site: Box::new(placed.graph.site(frame, 0)),
                kind: "index of call frames",
                symbol: placed.graph.name().into(),
                target: ExecutorAddr::new(target),
                value,
                bits: 32,
                signed: true,
                advice: "; the memory manager placed code out of reach of its unwind tables",
            }
        })
}

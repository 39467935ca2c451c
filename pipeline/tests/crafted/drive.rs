//! Takes a file as far as it goes: everything but running what comes out.

use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};
use uruk_pipeline::executor::{NotStatic, RuntimeEntries, TlsPlacement};
use uruk_pipeline::link::{
    Link, LinkEnvironment, LinkError, LinkGraph, LinkOptions, Linked,
    elf::{self, Refs32},
};
use uruk_pipeline::memory::{FinalizedAlloc, InProcessMemoryManager, MemoryManager};
use uruk_pipeline::object::{ArchiveIndex, ObjectBuffer, ObjectError, ObjectInterface};

/// All readers of objects.
pub(crate) fn parse(file: &[u8]) {
    let graph = elf::parse("crafted.o", file);
    let buffer = ObjectBuffer::new("crafted.o", file.to_vec());
    let interface = ObjectInterface::read(&buffer);
    assert!(Refs32::read(&buffer).names.len() <= file.len() / 24);
    let error = graph.as_ref().err().map(ToString::to_string);
    assert!(error.is_none_or(|error| error.starts_with("crafted.o")), "errors name the file");
    if let Ok(interface) = interface {
        assert!(interface.defined.len() + interface.undefined.len() <= file.len() / 24);
    }
    if let Ok(graph) = graph {
        assert!(graph.sections().len() + graph.blocks().len() <= file.len());
    }
}

/// Links each file alone, with and without discarded definitions, and all of them as one; `memory` is empty afterwards.
pub(crate) fn link(files: &[&[u8]], memory: &InProcessMemoryManager) {
    for file in files {
        for discard in [false, true] {
            if let Ok(graph) = elf::parse("crafted.o", file) {
                // Most are refused, some link; both are right.
                drop(link_graph(graph, discard, memory));
            }
        }
    }
    let graphs: Result<Vec<_>, _> = files.iter().map(|file| elf::parse("crafted.o", file)).collect();
    if let Ok(merged) = graphs.and_then(LinkGraph::merge) {
        drop(link_graph(merged, false, memory));
    }
    assert_eq!(memory.usage().allocations, 0, "memory that nobody owns");
}

fn link_graph(
    graph: LinkGraph<'_>,
    discard: bool,
    memory: &InProcessMemoryManager,
) -> Result<FinalizedAlloc, LinkError> {
    const OWN: TlsPlacement = TlsPlacement { module: 77, offset: 0x100 };
    let options =
        LinkOptions { is_discarded: &|name| discard && name.len() % 2 == 0, ..LinkOptions::default() };
    let mut allocated = Link::new(graph, &options)?.allocate(memory)?;
    allocated.place_tls(OWN);
    assert!(allocated.tls_descriptors().len() < usize::MAX);
    assert!(allocated.definitions().all(|(name, _)| name.len() < usize::MAX));
    assert!(allocated.section_ranges().iter().all(|section| section.range.start <= section.range.end));
    let near = memory.reserved_range().start.value();
    let lookup = |name: &str| {
        let flags = match name {
            "variable_elsewhere" | "elsewhere" => SymbolFlags::EXPORTED | SymbolFlags::THREAD_LOCAL,
            "function_elsewhere" => SymbolFlags::EXPORTED | SymbolFlags::CALLABLE,
            _ => SymbolFlags::EXPORTED,
        };
        Some(ExecutorSymbolDef::new(ExecutorAddr::new(elsewhere(name, near)), flags))
    };
    let environment = LinkEnvironment {
        tls_placement: &|_| Some(OWN),
        tls_distance: &|_| if discard { Err(NotStatic::Unknown) } else { Ok(-64) },
        entries: RuntimeEntries { ifunc_thunk: ExecutorAddr::new(0x1234_5678), ..RuntimeEntries::default() },
    };
    let (memory, linked) = allocated.resolve(lookup, environment)?.fix()?.into_parts();
    let memory = memory.finalize().expect("memory can be protected");
    check_calls(&linked, &memory, near);
    Ok(memory)
}

/// Functions that are called before or after a program are code: of the graph, or the one function of others.
fn check_calls(linked: &Linked, memory: &FinalizedAlloc, near: u64) {
    // The code is the first segment of an allocation, if there is any.
    let start = if linked.sizes.code_bytes > 0 { memory.address(0).value() } else { 0 };
    let code = start..start + linked.sizes.code_bytes;
    let of_others = ["function_elsewhere"].map(|name| elsewhere(name, near));
    for object in &linked.initializers {
        let ordered = object.initializers.iter().chain(&object.finalizers).map(|(_, function)| function);
        for function in ordered.chain(&object.preinitializers) {
            let address = function.value();
            assert!(code.contains(&address) || of_others.contains(&address), "{address:#x} is no code");
        }
    }
}

/// Where the symbols of others lie: some near, some out of reach.
fn elsewhere(name: &str, near: u64) -> u64 {
    if name.len().is_multiple_of(3) { 0x1000_0000 } else { near + name.len() as u64 }
}

/// Reads an archive, and every member of it as an object.
pub(crate) fn archive(file: &[u8]) {
    let archive = ObjectBuffer::new("crafted.a", file.to_vec());
    let read =
        ArchiveIndex::read_with::<ObjectError>(&archive, |member| Ok(vec![member.name().as_ref().into()]));
    let Ok(index) = read else { return };
    assert!(index.members().len() * 60 <= file.len() && index.symbol_count() <= file.len());
    for member in index.members() {
        parse_member(member.contents());
    }
    for name in ["f", "g", "main", ""] {
        assert!(index.member_defining(name).is_none_or(|position| position < index.members().len()));
    }
}

fn parse_member(member: &ObjectBuffer) {
    if let Ok(interface) = ObjectInterface::read(member) {
        assert!(interface.defined.len() <= member.size_bytes() / 24);
    }
}

//! Objects that are linked together: what that costs is in proportion to all of them, however many they are.
//!
//! Each object once went through the definitions of all, and depended on all that any of them refers to. 2,000 objects of a few
//! kilobytes took minutes in a debug build.
//!
//! Memory is counted by the allocator of this binary.

use crate::crafted::*;
use crate::link_support::linking::Linking;
use allocation_counter::measure;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags, absolute_symbols};
use uruk_pipeline::object::{ObjectBuffer, ObjectMaterializationUnit};

const REFERENCES: usize = 8;

fn external(file: usize, index: usize) -> String {
    format!("file_{file}_needs_{index}")
}

/// A function, and an element of the section that all share. The element points to symbols without other references.
fn sharing(file: usize) -> Vec<u8> {
    let mut object = Object { sections: Vec::new(), symbols: Vec::new(), shared_names: Vec::new() };
    let code = object.section(Section::new(".text", PROGBITS, ALLOC | EXEC, b"\xc3").aligned(16));
    let things = Section::new("things", PROGBITS, ALLOC | WRITE, &[0; 8 * REFERENCES]).aligned(8);
    let things = object.section(things);
    object.symbol(Symbol { size: 1, ..Symbol::new(&*format!("function_{file}"), GLOBAL, FUNC, code) });
    let mut relocations = Vec::new();
    for index in 0..REFERENCES {
        const POINTER: u32 = 1;
        let symbol = object.symbol(Symbol::new(&*external(file, index), GLOBAL, NOTYPE, 0));
        relocations.push((8 * index as u64, symbol, POINTER, 0));
    }
    object.section(Section::relocations(things.into(), &relocations));
    object.write()
}

/// How many bytes of heap linking so many files together takes, all allocations added up, and how many the files have.
fn heap_of_group(files: usize) -> (u64, usize) {
    let linking = Linking::new();
    let needed = (0..files).flat_map(|file| (0..REFERENCES).map(move |index| external(file, index)));
    let somewhere = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED);
    let needed = needed.map(|name| (linking.session.intern(&name), somewhere));
    linking.dylib.define(absolute_symbols(needed.collect())).expect("new names");
    let mut file_bytes = 0;
    for file in 0..files {
        let object = ObjectBuffer::new(&*format!("{file}.o"), sharing(file));
        file_bytes += object.size_bytes();
        let unit = ObjectMaterializationUnit::new(&linking.session, linking.layer.clone(), object);
        let initializer = linking.declare("file", true);
        linking.define(linking.file_of(unit.expect("an object"), initializer));
    }
    let used = measure(|| assert!(linking.find("function_0").is_some()));
    assert_eq!(linking.allocations(), 1, "they are one piece");
    (used.bytes_total, file_bytes)
}

#[test]
fn files_that_are_linked_together_take_memory_in_proportion_to_all_of_them() {
    const HEAP_FACTOR: u64 = 40;
    let (heap_bytes, file_bytes) = heap_of_group(600);
    assert!(
        heap_bytes < HEAP_FACTOR * file_bytes as u64,
        "{heap_bytes} bytes of heap for files of {file_bytes}"
    );
}

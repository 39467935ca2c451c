//! Crafted files: what they cost stays in proportion to their size, and nothing in them that is no code is called.
//!
//! Each test here is of a file that once did something else. 1.1 MB whose symbols shared a long name took 3.9 GB and 23
//! seconds; 648 bytes with a large alignment had a gigabyte of padding filled with pages; 584 bytes made each thread
//! allocate 32 TB, which ended the host; 592 bytes had data called as a resolver.
//!
//! Memory is counted by the allocator of this binary and by the memory manager.

use crate::crafted::*;
use crate::link_support::{Externals, external, failure, link};
use allocation_counter::measure;
use uruk_core::{ExecutorSymbolDef, SymbolFlags};
use uruk_pipeline::link::elf::{self, Refs32};
use uruk_pipeline::link::{Link, LinkGraph, LinkOptions};
use uruk_pipeline::memory::{InProcessMemoryManager, MemoryManager};
use uruk_pipeline::object::{ArchiveIndex, ObjectBuffer, ObjectError, ObjectInterface};

/// The heap that a file may take at most, in multiples of its size, all allocations of its link added up. A section of
/// 65 bytes becomes a header, a block, a place and a name.
const HEAP_FACTOR: u64 = 40;

/// Does `action` on the file and fails if that allocates out of proportion.
#[track_caller]
fn in_proportion<T>(file: &[u8], action: impl FnOnce(&[u8]) -> T) -> T {
    let mut result = None;
    let used = measure(|| result = Some(action(file)));
    let allowed = HEAP_FACTOR * file.len() as u64 + 100_000;
    assert!(used.bytes_total < allowed, "{} bytes of heap for a file of {}", used.bytes_total, file.len());
    result.expect("the action ran")
}

/// Parses and plans the object, which must work.
#[track_caller]
fn plans(file: &[u8]) {
    in_proportion(file, |file| {
        let graph = elf::parse("crafted.o", file).expect("it can be parsed");
        Link::new(graph, &LinkOptions::default()).expect("it can be planned");
    });
}

/// Both readers of objects refuse the file, with a message that contains `why`. A third says nothing of what is wrong.
#[track_caller]
fn refused(file: &[u8], why: &str) {
    let error = in_proportion(file, |file| elf::parse("crafted.o", file).expect_err("refused").to_string());
    assert!(error.contains(why) && error.starts_with("crafted.o"), "{}", &error[..error.len().min(300)]);
    let object = ObjectBuffer::new("crafted.o", file.to_vec());
    in_proportion(file, |_| Refs32::read(&object).names.len());
    let error = in_proportion(file, |_| ObjectInterface::read(&object).expect_err("refused").to_string());
    assert!(error.contains(why) && error.starts_with("crafted.o"), "{}", &error[..error.len().min(300)]);
}

const MEGABYTE: usize = 1 << 20;

fn with_symbols(binding: u8, section: u16, apart: u32) -> Vec<u8> {
    with_symbols_to_be(binding, section, apart).write()
}

fn with_symbols_to_be(binding: u8, section: u16, apart: u32) -> Object {
    let mut object = Object::with_main();
    object.shared_names = vec![b'x'; MEGABYTE];
    for index in 0..4000 {
        object.symbol(Symbol::new(1 + apart * index, binding, NOTYPE, section));
    }
    object
}

#[test]
fn local_names_that_overlap_are_kept_once() {
    for apart in [0, 1] {
        plans(&with_symbols(LOCAL, 1, apart));
    }
}

#[test]
fn names_of_definitions_that_overlap_are_refused() {
    for apart in [0, 1] {
        refused(&with_symbols(GLOBAL, 1, apart), "its names overlap");
    }
}

#[test]
fn names_of_references_that_overlap_are_refused() {
    refused(&with_symbols(GLOBAL, 0, 1), "its names overlap");
    let mut object = with_symbols_to_be(GLOBAL, 0, 1);
    let relocations: Vec<_> = (2..4000).map(|symbol| (0, symbol, 10, 0)).collect();
    object.section(Section::relocations(1, &relocations));
    refused(&object.write(), "its names overlap");
    // A local reference makes no sense, and would be looked up all the same.
    let error = elf::parse("crafted.o", &with_symbols(LOCAL, 0, 1)).expect_err("refused").to_string();
    assert!(error.contains("its names overlap"), "{error}");
}

#[test]
fn names_of_sections_that_overlap_are_refused() {
    let mut object = Object::with_main();
    object.section(Section::new(&"s".repeat(MEGABYTE), PROGBITS, ALLOC, b"1"));
    for index in 0..4000 {
        // The first name of the table is `.text`.
        object.section(Section { name: Name::At(8 + index), ..Section::new("", PROGBITS, ALLOC, b"2") });
    }
    refused(&object.write(), "its names overlap");
}

#[test]
fn signatures_of_groups_that_overlap_are_refused() {
    let mut object = Object::with_main();
    object.shared_names = vec![b'x'; MEGABYTE];
    let symbol = object.symbol(Symbol::new(1, LOCAL, NOTYPE, 1));
    for _ in 0..4000 {
        object.section(Section::group(symbol, &[]));
    }
    let error = elf::parse("crafted.o", &object.write()).expect_err("refused").to_string();
    assert!(error.contains("its names overlap"), "{error}");
}

#[test]
fn the_ends_of_names_may_be_shared_as_tools_do() {
    let mut object = Object::with_main();
    let name = "_ZN".to_owned() + &"f".repeat(200);
    let text = object.section(Section::new(&format!(".text.{name}"), PROGBITS, ALLOC | EXEC, b"\xc3"));
    object.symbol(Symbol::new(&*name, GLOBAL, FUNC, text));
    object.symbol(Symbol::new(1 + 5 + 5, GLOBAL, FUNC, text));
    let file = object.write();
    plans(&file);
    let interface_of = ObjectBuffer::new("crafted.o", file);
    assert_eq!(ObjectInterface::read(&interface_of).expect("an object").defined.len(), 3);
}

/// An object whose section 2 has `contents`, and `count` sections made by `again` with the same contents.
fn with_shared(first: Section, count: usize, again: impl Fn(Section) -> Section) -> Vec<u8> {
    let mut object = Object::with_main();
    let number = object.section(first.clone());
    for _ in 0..count {
        object.section(again(first.clone()).sharing(number.into()));
    }
    object.write()
}

#[test]
fn sections_that_share_their_contents_are_refused() {
    let constants = Section::new(".rodata", PROGBITS, ALLOC, &vec![0x90; MEGABYTE]);
    refused(&with_shared(constants, 1500, |section| section), "sections overlap");
    let frame: Vec<u8> = [4, 0, 0, 0, 0, 0, 0, 0].repeat(100_000);
    let frames = Section::new(".eh_frame", PROGBITS, ALLOC, &frame).aligned(8);
    refused(&with_shared(frames, 100, |section| section), "sections overlap");
    let relocations = Section::relocations(1, &vec![(0, 1, 1, 0); 20_000]);
    refused(&with_shared(relocations, 400, |section| section), "sections overlap");
    let group = Section::group(1, &vec![1; 200_000]);
    refused(&with_shared(group, 300, |section| section), "sections overlap");
}

#[test]
fn a_section_is_in_one_group_at_most() {
    // 100,000 frames that are in a group 100,000 times would be looked at as often.
    let mut object = Object::with_main();
    let frames = [4, 0, 0, 0, 0, 0, 0, 0].repeat(100_000);
    let frames = object.section(Section::new(".eh_frame", PROGBITS, ALLOC, &frames).aligned(8));
    object.section(Section::group(1, &vec![frames.into(); 100_000]));
    let error = elf::parse("crafted.o", &object.write()).expect_err("refused").to_string();
    assert!(error.contains("is in a group already"), "{error}");
}

#[test]
fn padding_is_neither_copied_nor_touched() {
    for (flags, align) in
        [(ALLOC, 1 << 29), (ALLOC | EXEC, 1 << 29), (ALLOC | WRITE, 1 << 29), (ALLOC, 1 << 16)]
    {
        let mut object = Object::with_main();
        object.section(Section::new(".a", PROGBITS, flags, b"1"));
        object.section(Section::new(".b", PROGBITS, flags, b"\xc3").aligned(align));
        let memory = InProcessMemoryManager::new().expect("address space");
        let file = object.write();
        let graph = elf::parse("crafted.o", &file).expect("it can be parsed");
        let link = Link::new(graph, &LinkOptions::default()).expect("it can be planned");
        let link = link.allocate(&memory).expect("there is room for the padding");
        let usage = memory.usage();
        let resident = usage.code.resident_bytes + usage.read_only.resident_bytes + usage.data.resident_bytes;
        assert!(resident < MEGABYTE as u64, "{resident} bytes in memory for a file of {}", file.len());
        drop(link);
    }
}

#[test]
fn long_contents_between_paddings_arrive() {
    let mut object = Object::with_main();
    let long: Vec<u8> = (0..300_000_u32).map(|index| ((index * 7) >> 3) as u8).collect();
    for (index, align) in [1, 1 << 20, 1 << 4, 1 << 22].into_iter().enumerate() {
        let section = object.section(Section::new(".long", PROGBITS, ALLOC, &long).aligned(align));
        object.symbol(Symbol::new(&*format!("long{index}"), GLOBAL, OBJECT, section));
    }
    let program = link(&object.write(), &Externals::new()).expect("it links");
    for index in 0..4 {
        assert_eq!(program.bytes(&format!("long{index}"), long.len()), long, "{index}");
    }
}

#[test]
fn thread_local_variables_have_a_bound() {
    let thread_local = |section: Section| {
        let mut object = Object::with_main();
        let number = object.section(section);
        object.symbol(Symbol::new("variable", GLOBAL, TLS_VARIABLE, number));
        object.write()
    };
    let zeros = |size| Section::new(".tbss", NOBITS, ALLOC | WRITE | TLS, b"").aligned(8).sized(size);
    let error = failure(&thread_local(zeros(1 << 45)), &Externals::new()).to_string();
    assert!(error.contains(".tbss") && error.contains("35184372088832 bytes of thread-local"), "{error}");
    assert!(error.contains("2147483648 at most"), "{error}");
    let values = Section::new(".tdata", PROGBITS, ALLOC | WRITE | TLS, b"abcd").aligned(1 << 30);
    let error = failure(&thread_local(values), &Externals::new()).to_string();
    assert!(error.contains(".tdata") && error.contains("2097152 are possible at most"), "{error}");
    link(&thread_local(zeros(1 << 31)), &Externals::new()).expect("as much as is allowed");
}

#[test]
fn the_bound_holds_for_merged_objects_together() {
    let mut object = Object::with_main();
    object.symbols[0].binding = LOCAL;
    object.section(Section::new(".tbss", NOBITS, ALLOC | WRITE | TLS, b"").sized(3 << 29));
    let file = object.write();
    let graphs = ["a.o", "b.o"].map(|name| elf::parse(name, &file).expect("it can be parsed"));
    let merged = LinkGraph::merge(graphs).expect("nothing is defined twice");
    let memory = InProcessMemoryManager::new().expect("address space");
    let link = Link::new(merged, &LinkOptions::default()).expect("it can be planned");
    let error = link.allocate(&memory).expect_err("too much together").to_string();
    assert!(error.contains("3221225472 with those of other sections"), "{error}");
}

#[test]
fn a_resolver_that_is_no_code_is_refused() {
    let mut object = Object::with_main();
    let data = object.section(Section::new(".data", PROGBITS, ALLOC | WRITE, &[0; 8]).aligned(8));
    object.symbol(Symbol::new("chosen", GLOBAL, IFUNC, data));
    let error = failure(&object.write(), &Externals::new()).to_string();
    assert!(error.contains("`chosen`") && error.contains(".data+0x0"), "{error}");
    let mut object = Object::with_main();
    object.symbol(Symbol { value: 3, ..Symbol::new("at_the_end", GLOBAL, IFUNC, 1) });
    let error = failure(&object.write(), &Externals::new()).to_string();
    assert!(error.contains("`at_the_end`"), "{error}");
}

/// An object whose `.init_array` has one entry: `word`, relocated against symbol 2 if there is a section for it.
fn with_initializer(word: u64, target: Option<(u8, u16)>) -> Vec<u8> {
    const POINTER: u32 = 1;
    let mut object = Object::with_main();
    object.section(Section::new(".data", PROGBITS, ALLOC | WRITE, &[0; 8]).aligned(8));
    let array = Section::new(".init_array", INIT_ARRAY, ALLOC | WRITE, &word.to_le_bytes()).aligned(8);
    let array = object.section(array);
    if let Some((kind, section)) = target {
        let symbol = object.symbol(Symbol::new("initializer", GLOBAL, kind, section));
        object.section(Section::relocations(array.into(), &[(0, symbol, POINTER, word.cast_signed())]));
    }
    object.write()
}

#[test]
fn an_initializer_that_is_no_code_is_refused() {
    let at = |flags| ExecutorSymbolDef { flags, ..external(0x1000) };
    let function = Externals::from([("initializer".into(), at(SymbolFlags::CALLABLE))]);
    let data = Externals::from([("initializer".into(), at(SymbolFlags::EXPORTED))]);
    let (undefined, text, data_section, absolute) = (0, 1, 2, 0xfff1);
    link(&with_initializer(0, Some((FUNC, text))), &data).expect("its own function");
    link(&with_initializer(0, Some((NOTYPE, undefined))), &function).expect("somebody's function");
    link(&with_initializer(u64::MAX, None), &data).expect("the mark at the start of old lists");
    let wrong = [
        (with_initializer(0x1234, None), &function, "0x1234"),
        (with_initializer(0, Some((FUNC, data_section))), &function, "initializer"),
        (with_initializer(5, Some((NOTYPE, absolute))), &function, "initializer"),
        (with_initializer(0, Some((NOTYPE, undefined))), &data, "initializer"),
        (with_initializer(8, Some((NOTYPE, undefined))), &function, "initializer"),
    ];
    for (file, externals, what) in wrong {
        let error = failure(&file, externals).to_string();
        assert!(error.contains(".init_array+0x0") && error.contains(what), "{error}");
    }
}

#[test]
fn only_what_lies_in_code_can_be_called() {
    let mut object = Object::with_main();
    let data = object.section(Section::new(".data", PROGBITS, ALLOC | WRITE, &[0; 8]));
    object.symbol(Symbol::new("in_data", GLOBAL, FUNC, data));
    object.symbol(Symbol::new("number", GLOBAL, FUNC, 0xfff1));
    let file = object.write();
    let buffer = ObjectBuffer::new("crafted.o", file.clone());
    let interface = ObjectInterface::read(&buffer).expect("an object");
    let program = link(&file, &Externals::new()).expect("it links");
    for symbol in interface.defined {
        let callable = symbol.name == "main";
        assert_eq!(symbol.flags.contains(SymbolFlags::CALLABLE), callable, "{}", symbol.name);
        let flags = program.definitions[symbol.name].flags;
        assert_eq!(flags.contains(SymbolFlags::CALLABLE), callable, "{}", symbol.name);
    }
}

/// Reads the archive, in proportion; answers how many members and symbols there are.
#[track_caller]
fn read_archive(file: &[u8]) -> Result<(usize, usize), ObjectError> {
    let archive = ObjectBuffer::new("crafted.a", file.to_vec());
    in_proportion(file, |_| {
        let index = ArchiveIndex::read(&archive)?;
        Ok((index.members().len(), index.symbol_count()))
    })
}

#[test]
fn members_that_share_a_long_name_are_refused() {
    let names = [vec![b'x'; MEGABYTE], b"/\n".to_vec()].concat();
    let mut members: Vec<(&[u8], &[u8])> = vec![(b"//", &names)];
    members.extend(vec![(&b"/0"[..], &b""[..]); 4000]);
    let error = read_archive(&archive(&members)).expect_err("refused").to_string();
    assert!(error.contains("its names overlap"), "{error}");
}

#[test]
fn archive_symbols_that_share_a_long_name_are_refused() {
    let mut table = (4000_u32 * 8).to_le_bytes().to_vec();
    (0..4000_u32).for_each(|index| table.extend([index.to_le_bytes(), 8_u32.to_le_bytes()].concat()));
    table.extend((MEGABYTE as u32 + 1).to_le_bytes());
    table.extend(vec![b'x'; MEGABYTE]);
    table.push(0);
    let error = read_archive(&archive(&[(b"__.SYMDEF", &table)])).expect_err("refused").to_string();
    assert!(error.contains("its names overlap"), "{error}");
}

/// Entries of the table were once followed to wherever they pointed, and what was there was read as a header, with the
/// long name that it names.
#[test]
fn entries_of_the_symbol_table_lead_to_members_or_nowhere() {
    const ENTRIES: u32 = 40_000;
    let names = [vec![b'y'; 4 * MEGABYTE], b"/\n".to_vec()].concat();
    let header = &archive(&[(b"/0", b"")])[8..];
    let (table_bytes, names_bytes) = (4 + ENTRIES as usize * 6, names.len());
    let first_inside = 8 + 60 + table_bytes + 60 + names_bytes + 60;
    let mut table = ENTRIES.to_be_bytes().to_vec();
    table.extend((0..ENTRIES).flat_map(|index| (first_inside as u32 + 60 * index).to_be_bytes()));
    table.extend(b"x\0".repeat(ENTRIES as usize));
    let file = archive(&[(b"/", &table), (b"//", &names), (b"member/", &header.repeat(ENTRIES as usize))]);
    assert_eq!(read_archive(&file).expect("the entries are stale"), (1, 0));
}

#[test]
fn counts_that_lie_are_refused() {
    for table in [&[0xff; 4][..], &[0, 0, 0, 9, 0, 0, 0, 8, b'x', 0]] {
        assert!(read_archive(&archive(&[(b"/", table)])).is_err());
    }
    assert!(read_archive(&archive(&[(b"__.SYMDEF", &[0xff; 8])])).is_err());
    assert!(read_archive(b"<bigaf>\n").is_err());
}

//! The shape of the result: pruning, merging, section bounds, unwind tables, initialisers, zero fill.

use crate::link_support::*;
use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};
use uruk_core::SymbolFlags;
use uruk_pipeline::link::{LinkError, LinkGraph, LinkOptions, elf};

fn parse<'a>(name: &str, object: &'a [u8]) -> LinkGraph<'a> {
    elf::parse(name, object).unwrap_or_else(|error| panic!("{error}"))
}

/// Links with the named definitions discarded.
fn link_without(object: &[u8], discarded: &[&str], externals: &Externals) -> Program {
    let options = LinkOptions { is_discarded: &|name| discarded.contains(&name), ..LinkOptions::default() };
    link_graph(parse("test.o", object), externals, &options).unwrap_or_else(|error| panic!("{error}"))
}

const INLINE: &str = "
    struct Base { virtual int f() { return 1; } virtual ~Base() {} };
    inline int shared(int x) { static int calls; return x + ++calls; }
    template<int N> int numbered() { return N; }
    __attribute__((weak)) int weakly() { return 5; }
    extern \"C\" int run() { Base base; Base *volatile pointer = &base; return shared(1) + numbered<7>() + weakly() + pointer->f(); }
";

fn cpp_externals() -> Externals {
    // Nothing of these is called here.
    [
        "_ZTVN10__cxxabiv117__class_type_infoE",
        "_ZdlPvm",
        "__gxx_personality_v0",
        "_Unwind_Resume",
        "__stack_chk_fail",
    ]
    .into_iter()
    .map(|name| (name.to_owned(), external(0x1000)))
    .collect()
}

#[test]
fn a_group_that_another_unit_has_goes_as_a_whole_with_its_frames() {
    for tool in cpp_compilers() {
        let object = compile(tool, "cpp", INLINE, &["-fPIC", "-O0"]);
        let all = link_without(&object, &[], &cpp_externals());
        let mut externals = cpp_externals();
        let names = ["_Z6sharedi", "_ZZ6sharediE5calls", "_Z8numberedILi7EEiv"];
        for name in names {
            assert!(all.definitions[name].flags.contains(SymbolFlags::WEAK), "{name}");
            externals.insert(name.to_owned(), all.definitions[name]);
        }
        let pruned = link_without(&object, &names, &externals);
        assert!(pruned.linked.sizes.code_bytes < all.linked.sizes.code_bytes, "{tool:?}");
        assert_eq!(frames(&pruned).len() + 2, frames(&all).len(), "{tool:?}");
        for name in names {
            assert!(!pruned.definitions.contains_key(name), "{name}");
        }
    }
}

#[test]
fn a_discarded_weak_function_is_called_where_it_counts() {
    let object = compile(
        CC,
        "c",
        "__attribute__((weak)) int f(void) { return 1; } int run(void) { return f(); }",
        &["-fPIC"],
    );
    assert_eq!(link_without(&object, &[], &Externals::new()).call("run") as u32, 1);
    let other = compile(CC, "c", "int f(void) { return 2; }", &["-fPIC"]);
    let other = link(&other, &Externals::new()).expect("links");
    let externals = Externals::from([("f".to_owned(), other.definitions["f"])]);
    assert_eq!(link_without(&object, &["f"], &externals).call("run") as u32, 2);
}

#[test]
fn a_discarded_block_stays_while_something_that_stays_refers_to_it() {
    let source = "
        .section .text.f, \"ax\"
        .weak f
        f: inner: movl $9, %eax
        ret
        .text
        .globl run, direct
        run: jmp f@PLT
        direct: jmp inner";
    let externals = Externals::from([("f".to_owned(), external(0x1000))]);
    let program = link_without(&assemble(source), &["f"], &externals);
    assert_eq!(program.call("direct") as u32, 9);
}

#[test]
fn definitions_say_what_they_are() {
    let source = "
        int variable = 1; int tentative; __attribute__((visibility(\"hidden\"))) int hidden = 2;
        __attribute__((visibility(\"protected\"))) int guarded = 3; void function(void) {} static int local = 4; int *use = &local;";
    let object = compile(CC, "c", source, &["-fPIC", "-fcommon"]);
    let program = link(&object, &Externals::new()).expect("links");
    let flags = |name: &str| program.definitions[name].flags;
    assert_eq!(flags("variable"), SymbolFlags::EXPORTED);
    assert_eq!(flags("tentative"), SymbolFlags::EXPORTED | SymbolFlags::COMMON);
    assert_eq!(flags("hidden"), SymbolFlags::empty());
    assert_eq!(flags("guarded"), SymbolFlags::EXPORTED);
    assert_eq!(flags("function"), SymbolFlags::EXPORTED | SymbolFlags::CALLABLE);
    assert!(!program.definitions.contains_key("local"));
}

/// The functions of the unwind index, checked against the records it leads to.
fn frames(program: &Program) -> Vec<(u64, u64)> {
    let table = program.linked.actions.unwind.as_ref().expect("unwind information");
    let window = 1 << 16;
    let hdr_bytes = bytes_at(table.eh_frame_hdr, 12);
    let count = u32::from_le_bytes(hdr_bytes[8..12].try_into().expect("four bytes"));
    let hdr_bytes = bytes_at(table.eh_frame_hdr, 12 + 8 * count as usize);
    let bases = BaseAddresses::default().set_eh_frame_hdr(table.eh_frame_hdr);
    let hdr = EhFrameHdr::new(&hdr_bytes, LittleEndian).parse(&bases, 8).expect("a valid index");
    let gimli::Pointer::Direct(start) = hdr.eh_frame_ptr() else { panic!("a direct pointer") };
    let end = program.code.address(1).value() + program.linked.sizes.read_only_bytes;
    let bytes = bytes_at(start, (end - start).min(window) as usize);
    let section = EhFrame::new(&bytes, LittleEndian);
    let bases = bases.set_eh_frame(start).set_text(table.code.start);
    let mut entries = section.entries(&bases);
    let mut found = Vec::new();
    while let Some(entry) = entries.next().expect("well-formed records") {
        if let gimli::CieOrFde::Fde(partial) = entry {
            let fde = partial.parse(EhFrame::cie_from_offset).expect("its common entry");
            assert!(table.code.contains(&fde.initial_address()));
            let searched = hdr.table().expect("a table").fde_for_address(
                &section,
                &bases,
                fde.initial_address(),
                EhFrame::cie_from_offset,
            );
            assert_eq!(searched.expect("found by bisection").initial_address(), fde.initial_address());
            found.push((fde.initial_address(), fde.initial_address() + fde.len()));
        }
    }
    found.sort_unstable();
    assert_eq!(found.len(), count as usize);
    found
}

#[test]
fn the_unwind_index_finds_every_function_in_every_code_model() {
    let source = "int a(int x) { return x; } int b(int x) { return a(x) + 1; } static int c(int x) { return b(x); } int d(int x) { return c(x); }";
    for tool in compilers() {
        for flags in [&["-fPIC"][..], &["-fPIC", "-mcmodel=large"], &["-fPIC", "-ffunction-sections"]] {
            let program = link(&compile(tool, "c", source, flags), &Externals::new()).expect("links");
            let frames = frames(&program);
            assert_eq!(frames.len(), 4, "{tool:?} {flags:?}");
            for name in ["a", "b", "d"] {
                assert!(frames.iter().any(|(start, _)| *start == program.address(name)), "{name}");
            }
        }
    }
}

#[test]
fn initialisers_come_by_priority_and_old_lists_backwards() {
    let source = "
        .text
        .globl a, b, c, d, e
        a: nop
        b: nop
        c: nop
        d: nop
        e: nop
        .section .init_array, \"aw\", @init_array
        .quad a, 0, b
        .section .init_array.101, \"aw\", @init_array
        .quad c
        .section .ctors.65433, \"aw\"
        .quad -1, d, e, 0
        .section .preinit_array, \"aw\", @preinit_array
        .quad e
        .section .fini_array, \"aw\", @fini_array
        .quad a, b
        .section .dtors, \"aw\"
        .quad c, d";
    let program = link(&assemble(source), &Externals::new()).expect("links");
    let named = |list: &[(i32, uruk_core::ExecutorAddr)]| {
        list.iter()
            .map(|(priority, address)| {
                let (name, _) =
                    program.definitions.iter().find(|(_, it)| it.address == *address).expect("defined");
                (*priority, name.as_str())
            })
            .map(|(priority, name)| format!("{priority}{name}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(named(&program.linked.initializers[0].initializers), "101c 102e 102d 65535a 65535b");
    // Run from the back: c, d of the old list, then b, a.
    assert_eq!(named(&program.linked.initializers[0].finalizers), "65535a 65535b 65535d 65535c");
    assert_eq!(program.linked.initializers[0].preinitializers, [program.definitions["e"].address]);
}

#[test]
fn the_ends_of_named_sections_are_bound_over_all_merged_objects() {
    let part = |number: u32| {
        let source = format!(
            "__attribute__((section(\"things\"), used)) static long thing{number} = {number};
             extern long __start_things[], __stop_things[];
             long sum{number}(void) {{ long s = 0; for (long *p = __start_things; p < __stop_things; p++) s += *p; return s; }}"
        );
        compile(CC, "c", &source, &["-fPIC", "-O1"])
    };
    let objects = [part(1), part(20), part(300)];
    let graph = parse("0.o", &objects[0]);
    assert_eq!((graph.named_sections(), graph.wanted_section_bounds()), (vec!["things"], vec!["things"]));
    let alone = link(&objects[0], &Externals::new()).expect("links");
    assert_eq!(alone.call("sum1"), 1);
    let merged = LinkGraph::merge(
        objects.iter().enumerate().map(|(index, object)| parse(&format!("{index}.o"), object)),
    );
    let program =
        link_graph(merged.expect("merges"), &Externals::new(), &LinkOptions::default()).expect("links");
    assert_eq!((program.call("sum1"), program.call("sum300")), (321, 321));
    let [range] = program.linked.section_ranges.as_slice() else { panic!("one name") };
    assert_eq!((&*range.name, range.range.end - range.range.start), ("things", 24));
    let left_open = LinkOptions { binds_section_bounds: false, ..LinkOptions::default() };
    let error =
        link_graph(parse("0.o", &objects[0]), &Externals::new(), &left_open).err().expect("not bound");
    assert!(error.to_string().contains("__start_things"), "{error}");
}

#[test]
fn merged_objects_are_bound_as_a_static_linker_binds_them() {
    let first = "int tentative; extern int value; __attribute__((weak)) int weak(void) { return 1; }
        __attribute__((visibility(\"hidden\"))) extern __thread int shared;
        int run(void) { tentative++; return value + weak() * 10 + tentative * 100; } int get(void) { return shared; }";
    let second = "int tentative = 4; int value = 3; int weak(void) { return 2; }
        __attribute__((visibility(\"hidden\"))) __thread int shared = 6;";
    let objects = [first, second].map(|source| compile(CC, "c", source, &["-fPIC", "-fcommon"]));
    let merged = LinkGraph::merge([parse("a.o", &objects[0]), parse("b.o", &objects[1])]).expect("merges");
    let externals = Externals::from([("__tls_get_addr".to_owned(), external(0x1000))]);
    let program = link_graph(merged, &externals, &LinkOptions::default()).expect("links");
    assert_eq!(program.call("run") as u32, 3 + 20 + 500);

    let twice = LinkGraph::merge([parse("a.o", &objects[1]), parse("b.o", &objects[1])]);
    match twice {
        Err(LinkError::Duplicate { first, second, .. }) => assert_eq!((&*first, &*second), ("a.o", "b.o")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn merged_groups_keep_one_instance() {
    let other = INLINE.replace("run()", "run2()");
    for tool in cpp_compilers() {
        let objects = [INLINE, &other].map(|source| compile(tool, "cpp", source, &["-fPIC", "-O0"]));
        let alone = link(&objects[0], &cpp_externals()).expect("links");
        let merged =
            LinkGraph::merge([parse("a.o", &objects[0]), parse("b.o", &objects[1])]).expect("merges");
        let program = link_graph(merged, &cpp_externals(), &LinkOptions::default()).expect("links");
        // New are `run2`, and the weak function where it shares a section with it.
        let new = frames(&program).len() - frames(&alone).len();
        assert!((1..=2).contains(&new), "{tool:?}: {new}");
        // The counter of calls is one: 2 + 7 + 5 + 1, then one more.
        assert_eq!((program.call("run") as u32, program.call("run2") as u32), (15, 16), "{tool:?}");
    }
}

#[test]
fn gigabytes_of_zeros_cost_nothing() {
    let source = "
        .bss
        .globl small
        small: .zero 64
        .section .lbss, \"awl\", @nobits
        .globl huge
        huge: .zero 0x200000000
        .text
        .globl run
        run: movabsq $huge, %rax
        movq $7, 4096(%rax)
        movabsq $huge+0x1ffffffff, %rcx
        movzbl (%rcx), %eax
        incl small(%rip)
        movl small(%rip), %eax
        ret";
    let program = link(&assemble(source), &Externals::new()).expect("links");
    assert_eq!(program.call("run") as u32, 1);
    assert_eq!(program.linked.sizes.zero_fill_bytes, 0x2_0000_0000 + 64);
    assert!(program.code.resident().data_bytes < 1 << 20);
}

#[test]
fn a_great_array_of_the_small_model_does_not_push_the_table_away() {
    let source = "char great[3l << 30]; extern int outside; long run(void) { great[1] = 1; return outside + great[1]; }";
    let value = 41_i32;
    let externals = Externals::from([("outside".to_owned(), external(&raw const value as u64))]);
    for tool in compilers() {
        let program = link(&compile(tool, "c", source, &["-fPIC"]), &externals).expect("links");
        assert_eq!(program.call("run"), 42, "{tool:?}");
    }
}

#[test]
fn an_object_without_anything_links() {
    let program = link(&assemble(""), &Externals::new()).expect("links");
    assert!(program.definitions.is_empty() && program.linked.actions.unwind.is_none());
}

#[test]
fn more_sections_than_a_symbol_can_number() {
    use std::fmt::Write as _;
    let mut source = String::new();
    for index in 0..0xff10 {
        writeln!(source, ".section .text.f{index}, \"ax\"\n.globl f{index}\nf{index}: ret")
            .expect("a string");
    }
    writeln!(source, ".data\n.globl last\nlast: .quad f65295").expect("a string");
    let program = link(&assemble(&source), &Externals::new()).expect("links");
    assert_eq!(program.word("last"), program.address("f65295"));
}

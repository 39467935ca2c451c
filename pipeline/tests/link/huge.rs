//! Objects with more zeros than a small displacement spans, of the small code model: they link where they link natively.

use crate::link_support::*;
use uruk_pipeline::link::{LinkError, LinkOptions, elf};

const FORMS: [&[&str]; 4] =
    [&["-O0", "-fPIE"], &["-O2", "-fPIE"], &["-O0", "-fPIC"], &["-O2", "-fPIC", "-fvisibility=hidden"]];

#[test]
fn a_static_array_of_three_gibibytes_is_reached_directly() {
    let source = "
        static char huge[3ul << 30];
        static long table[] = { 1, 2, 3 };
        static const char text[] = \"abc\";
        unsigned long run(void) {
            volatile char *end = huge + sizeof huge - 1;
            huge[5] = 7; huge[6] += 2; *end += 3; table[1]++;
            return huge[5] + huge[6] * 10 + *end * 100 + huge[7] * 1000 + table[1] * 10000 + (text[2] - 'a') * 100000;
        }";
    for tool in compilers() {
        for flags in FORMS {
            let program = link(&compile(tool, "c", source, flags), &Externals::new());
            let program = program.unwrap_or_else(|error| panic!("{tool:?} {flags:?}: {error}"));
            assert_eq!(program.call("run"), 7 + 20 + 300 + 30_000 + 200_000, "{tool:?} {flags:?}");
            assert_eq!(program.call("run"), 7 + 40 + 600 + 40_000 + 200_000, "{tool:?} {flags:?}");
        }
    }
}

#[test]
fn two_arrays_of_one_and_a_half_gibibytes_are_reached_directly() {
    let source = "
        static char first[3ul << 29], second[3ul << 29];
        unsigned long run(void) {
            first[1] += 1; second[2] += 2;
            volatile char *ends[] = { first + sizeof first - 1, second + sizeof second - 1 };
            *ends[0] += 3; *ends[1] += 4;
            return first[1] + second[2] * 10 + *ends[0] * 100 + *ends[1] * 1000 + (first[2] | second[1]);
        }";
    for tool in compilers() {
        for sections in ["-fno-data-sections", "-fdata-sections"] {
            for flags in FORMS {
                let flags = [flags, &[sections]].concat();
                let program = link(&compile(tool, "c", source, &flags), &Externals::new());
                let program = program.unwrap_or_else(|error| panic!("{tool:?} {flags:?}: {error}"));
                assert_eq!(program.call("run"), 4321, "{tool:?} {flags:?}");
            }
        }
    }
}

const NEIGHBOURS: &str = "
    static char huge[3ul << 30];
    static char large[1ul << 30];
    int small;
    static int tiny;
    unsigned long run(void) {
        huge[5] += 1; large[6] += 2; small += 3; tiny += 4;
        return huge[5] + large[6] * 10 + small * 100 + tiny * 1000;
    }";

/// Each variable with a section of its own is placed by its size, in any order in the object.
#[test]
fn small_variables_beside_a_huge_one_are_reached_where_each_has_its_section() {
    for tool in compilers() {
        for flags in FORMS {
            let flags = [flags, &["-fdata-sections"]].concat();
            let program = link(&compile(tool, "c", NEIGHBOURS, &flags), &Externals::new());
            let program = program.unwrap_or_else(|error| panic!("{tool:?} {flags:?}: {error}"));
            assert_eq!(program.call("run"), 4321, "{tool:?} {flags:?}");
        }
    }
}

/// In one section they lie as the compiler put them; where that is behind the huge one, the native linker refuses too.
#[test]
fn what_lies_behind_a_huge_variable_in_its_section_is_an_error_that_says_what_to_do() {
    let source = "
        .bss
        huge: .zero 0xc0000000
        small: .zero 4
        .text
        .globl run
        run: movl huge(%rip), %eax
        movl small(%rip), %eax
        ret";
    let error = failure(&assemble(source), &Externals::new());
    assert!(matches!(error, LinkError::OutOfRange { .. }), "{error}");
    assert!(error.to_string().contains("-fdata-sections"), "{error}");
}

/// An object that lies far from the others cannot use their pointer to the personality routine, nor they its.
#[test]
fn unwind_tables_refer_to_pointers_of_their_own_object() {
    let source = "
        .globl run
        run:
        .cfi_startproc
        .cfi_personality 0x9b, DW.ref.routine
        ret
        .cfi_endproc
        .hidden DW.ref.routine
        .weak DW.ref.routine
        .section .data.DW.ref.routine, \"awG\", @progbits, DW.ref.routine, comdat
        .balign 8
        .type DW.ref.routine, @object
        .size DW.ref.routine, 8
        DW.ref.routine: .quad routine
        .bss
        huge: .zero 0xc0000000";
    let object = assemble(source);
    let externals: Externals = [("routine".into(), external(0x1234))].into();
    let graph = elf::parse("second.o", &object).expect("parses");
    let options = LinkOptions { is_discarded: &|name| name == "DW.ref.routine", ..LinkOptions::default() };
    let program = link_graph(graph, &externals, &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(!program.definitions.contains_key("DW.ref.routine"));
    assert!(program.linked.actions.unwind.is_some());
}

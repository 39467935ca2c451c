//! Objects that linkers accept and that look odd: each of them was once refused.

use crate::link_support::*;
use uruk_pipeline::link::LinkError;

/// A function of which the compiler knows that it is never reached has frame information and not one byte. An object of
/// nothing else was refused, as its code is an empty range.
#[test]
fn a_function_without_bytes_links() {
    let source = "
        .text
        .globl never
        .type never, @function
        never: .cfi_startproc
        .cfi_endproc";
    let program = link(&assemble(source), &Externals::new()).expect("links");
    assert!(program.definitions.contains_key("never") && program.linked.actions.unwind.is_none());

    let behind_another =
        format!("{source}\n.section .text.a, \"ax\"\nother: .cfi_startproc\n ret\n.cfi_endproc");
    let program = link(&assemble(&behind_another), &Externals::new()).expect("links");
    assert!(program.linked.actions.unwind.is_some());
}

/// Assembly names places before and behind a section, as bases of tables. Such a symbol was refused.
#[test]
fn a_symbol_outside_its_section_is_an_address() {
    let source = "
        .globl table, before, after, far, uses
        .set before, table - 8
        .set after, table + 64
        .set far, table + 0x100000000
        .data
        table: .quad 7
        uses: .quad before + 8, after - 64, far
        .text
        .globl run
        run: movq before+8(%rip), %rax
        addq after-64(%rip), %rax
        ret";
    let program = link(&assemble(source), &Externals::new()).expect("links");
    let table = program.address("table");
    assert_eq!(program.address("before"), table - 8);
    assert_eq!(program.address("after"), table + 64);
    let uses = program.address("uses");
    assert_eq!([0, 8, 16].map(|offset| word_at(uses + offset)), [table, table, table + 0x1_0000_0000]);
    assert_eq!(program.call("run"), 14);
}

/// A function that is called while a program is linked must be code of the object, so there the section's end is one.
#[test]
fn a_function_that_chooses_lies_in_its_section() {
    let source = "
        .globl chosen
        .type chosen, @gnu_indirect_function
        .set chosen, .Ltext + 64
        .text
        .Ltext: ret";
    match failure(&assemble(source), &Externals::new()) {
        LinkError::Object { what, .. } => {
            assert!(what.contains("its value 0x40 lies beyond the 0x1 bytes"), "{what}")
        }
        other => panic!("{other}"),
    }
}

/// clang's coverage mapping defines hidden variables in a section that is not loaded. The unit promised them and had no
/// address for them. A linked file has them at their offset in the section.
#[test]
fn what_is_not_loaded_has_its_offset_for_an_address() {
    let source = "
        .section notes, \"\", @progbits
        .zero 24
        .globl noted
        .type noted, @object
        noted: .long 1
        inner: .long 2
        .data
        .globl pointers
        pointers: .quad noted, inner + 1, notes";
    let program = link(&assemble(source), &Externals::new()).expect("links");
    assert_eq!(program.address("noted"), 24);
    let pointers = program.address("pointers");
    assert_eq!([0, 8, 16].map(|offset| word_at(pointers + offset)), [24, 29, 0]);
}

/// Fragments of code in `.init` and `.fini` (Debian's libcrypto.a has one) were refused. Each becomes a function.
#[test]
fn a_fragment_of_code_becomes_a_function() {
    for align in [0, 2, 4, 6] {
        let source = format!(
            "
            .section .init, \"ax\", @progbits
            .p2align {align}
            addq $1, count(%rip)
            .section .fini, \"ax\", @progbits
            addq $10, count(%rip)
            .section .init_array, \"aw\", @init_array
            .quad constructor
            .text
            nop
            .globl constructor
            constructor: ret
            .data
            .globl count
            count: .quad 0"
        );
        let program = link(&assemble(&source), &Externals::new()).expect("links");
        let [object] = &program.linked.initializers[..] else { panic!("one object") };
        let [(-1, init), (65535, constructor)] = object.initializers[..] else { panic!("{object:?}") };
        let [(-1, fini)] = object.finalizers[..] else { panic!("{object:?}") };
        assert_eq!(constructor.value(), program.address("constructor"));
        for (function, count) in [(init, 1), (fini, 11)] {
            // SAFETY: the fragment takes nothing, gives nothing, and is whole.
            let function: extern "C" fn() = unsafe { std::mem::transmute(function.to_ptr::<u8>()) };
            function();
            assert_eq!(program.word("count"), count, "aligned to 2^{align}");
        }
    }
}

/// The C library's own first and last fragment would end or unbalance the function around them.
#[test]
fn the_ends_of_the_fragments_are_not_taken_from_the_c_library() {
    let start = ".section .init, \"ax\", @progbits\n .globl _init\n _init: subq $8, %rsp";
    let end = ".section .fini, \"ax\", @progbits\n addq $8, %rsp\n ret";
    for (source, file) in [(start, "crti.o"), (end, "crtn.o")] {
        let error = failure(&assemble(source), &Externals::new()).to_string();
        assert!(error.contains(&format!("{file}; leave that object out")), "{error}");
    }
}

//! Each relocation once with a value that fits and, where its field has an end, once with one that does not.
//!
//! The inputs are assembled by the system's assembler. External symbols stand where the test puts them; nothing
//! is called.

use crate::link_support::*;
use uruk_pipeline::link::LinkError;

/// Too far away from any linked code for 32 bits.
const FAR: u64 = 0x1000_0000;

fn at(name: &str, address: u64) -> Externals {
    Externals::from([(name.to_owned(), external(address))])
}

fn linked(source: &str, externals: &Externals) -> Program {
    link(&assemble(source), externals).unwrap_or_else(|error| panic!("{source}\n{error}"))
}

/// The 32-bit displacement `offset` bytes into `name`, as the address it leads to.
fn displaced(program: &Program, name: &str, offset: u64) -> u64 {
    let field = program.address(name) + offset;
    let displacement = i32::from_le_bytes(bytes_at(field, 4).try_into().expect("four bytes"));
    (field + 4).wrapping_add_signed(displacement.into())
}

fn assert_out_of_range(source: &str, externals: &Externals, kind_wanted: &str, bits_wanted: u8) -> String {
    let error = failure(&assemble(source), externals);
    match &error {
        LinkError::OutOfRange { kind, bits, symbol, site, .. } => {
            assert_eq!((*kind, *bits), (kind_wanted, bits_wanted), "{error}");
            assert_eq!((&**symbol, &*site.object), ("x", "test.o"), "{error}");
        }
        other => panic!("{source}\n{other}"),
    }
    error.to_string()
}

#[test]
fn r_x86_64_64() {
    let program = linked(".data\n.globl a\na: .quad x+5", &at("x", u64::MAX - 10));
    assert_eq!(program.word("a"), u64::MAX - 5);
}

#[test]
fn r_x86_64_32() {
    let source = ".data\n.globl a\na: .long x+5\n.long 0";
    assert_eq!(linked(source, &at("x", 0xffff_fff0)).word("a"), 0xffff_fff5);
    assert_out_of_range(source, &at("x", 0xffff_fffb), "R_X86_64_32", 32);
    let message = assert_out_of_range(source, &at("x", 0x7fff_0000_0000), "R_X86_64_32", 32);
    assert!(message.contains("-fPIC") && message.contains(".data+0x0"), "{message}");
    // Definitions of the object itself lie low with it.
    let program = linked(".data\n.globl a, x\na: .long x+5\n.bss\nx: .skip 8", &Externals::new());
    assert_eq!(program.word("a"), program.address("x") + 5);
    assert_out_of_range(
        ".data\n.globl a, x\na: .long x-0x7fffffff\n.long x-0x80000000\nx: .long 1",
        &Externals::new(),
        "R_X86_64_32",
        32,
    );
}

#[test]
fn r_x86_64_32s() {
    let source = ".text\n.globl a\na: movq $x-1, %rax";
    let program = linked(source, &at("x", 0x7fff_fff0));
    assert_eq!(program.bytes("a", 7), [0x48, 0xc7, 0xc0, 0xef, 0xff, 0xff, 0x7f]);
    linked(source, &at("x", 0xffff_ffff_8000_0001));
    assert_out_of_range(source, &at("x", 0x8000_0001), "R_X86_64_32S", 32);
    // Definitions of the object itself lie low with it.
    let program = linked(".text\n.globl a, x\na: movq $x+5, %rax\nx: ret", &Externals::new());
    assert_eq!(program.bytes("a", 7)[3..], (program.address("x") as u32 + 5).to_le_bytes());
    let below = ".text\n.globl a, x\na: movq $x-0x7fffffff, %rax\nx: ret";
    assert!(linked(below, &Externals::new()).bytes("a", 7)[6] >= 0x80);
    assert_out_of_range(".globl x\nmovq $x+0x7fffffff, %rax\nx: ret", &Externals::new(), "R_X86_64_32S", 32);
}

#[test]
fn r_x86_64_16_and_8() {
    let source = ".data\n.globl a\na: .word x\n.byte 0xaa";
    assert_eq!(linked(source, &at("x", 0xfffe)).bytes("a", 3), [0xfe, 0xff, 0xaa]);
    assert_eq!(linked(source, &at("x", -2_i64 as u64)).bytes("a", 3), [0xfe, 0xff, 0xaa]);
    assert_out_of_range(source, &at("x", 0x1_0000), "R_X86_64_16", 16);
    let source = ".data\n.globl a\na: .byte x\n.byte 0xaa";
    assert_eq!(linked(source, &at("x", 0xfe)).bytes("a", 2), [0xfe, 0xaa]);
    assert_out_of_range(source, &at("x", 0x100), "R_X86_64_8", 8);
}

#[test]
fn r_x86_64_pc64() {
    let program = linked(".data\n.globl a\na: .quad x+3-.", &at("x", FAR));
    assert_eq!(program.address("a").wrapping_add(program.word("a")), FAR + 3);
}

#[test]
fn r_x86_64_pc32() {
    let source = ".text\n.globl a, x\na: movl x+4(%rip), %eax\n.data\nx: .quad 1, 2";
    let program = linked(source, &Externals::new());
    assert_eq!(displaced(&program, "a", 2), program.address("x") + 4);
    let message = assert_out_of_range(".text\nmovl x(%rip), %eax", &at("x", FAR), "R_X86_64_PC32", 32);
    assert!(message.contains("-fPIC"), "{message}");
}

#[test]
fn r_x86_64_pc16_and_pc8() {
    let near = ".text\n.globl a\na: .word x-.\nnop\n.section .text.x, \"ax\"\nx: ret";
    let program = linked(near, &Externals::new());
    assert!(program.bytes("a", 2) < vec![0x80, 0x00]);
    assert_out_of_range(".data\n.word x-.", &at("x", FAR), "R_X86_64_PC16", 16);
    linked(".text\n.byte x-.\n.section .text.x, \"ax\"\nx: ret", &Externals::new());
    assert_out_of_range(".data\n.byte x-.", &at("x", FAR), "R_X86_64_PC8", 8);
}

#[test]
fn r_x86_64_plt32() {
    let source = ".text\n.globl a\na: call x@PLT";
    let program = linked(source, &at("x", FAR));
    let stub = displaced(&program, "a", 1);
    assert_eq!(bytes_at(stub, 2), [0xff, 0x25], "a far function is called through a stub");
    let displacement = i32::from_le_bytes(bytes_at(stub + 2, 4).try_into().expect("four bytes"));
    assert_eq!(word_at((stub + 6).wrapping_add_signed(displacement.into())), FAR);
    let near = linked(&format!("{source}\n.section .text.x, \"ax\"\n.globl x\nx: ret"), &Externals::new());
    assert_eq!(displaced(&near, "a", 1), near.address("x"), "a near one is called directly");
}

/// A field that is too far away even from what the linker places next to it: by four gibibytes in either direction.
fn assert_far_field_is_refused(kind: &str, definition: &str, externals: &Externals) {
    for addend in ["+0x100000000", "-0x100000000"] {
        let source = format!(".text\nnop\n.reloc ., {kind}, x{addend}\n.long 0\n{definition}");
        let message = assert_out_of_range(&source, externals, kind, 32);
        assert!(message.contains("test.o: .text+0x1: ") && message.contains("32 signed bits"), "{message}");
    }
}

#[test]
fn r_x86_64_plt32_overflows() {
    assert_far_field_is_refused("R_X86_64_PLT32", ".globl x\nx: ret", &Externals::new());
    // The stub is too far away too.
    assert_far_field_is_refused("R_X86_64_PLT32", "", &at("x", FAR));
}

#[test]
fn branches_with_r_x86_64_pc32_reach_far_functions_too() {
    // Old assemblers wrote PC32 for calls.
    let source = ".text\n.globl a\na: .byte 0xe8\n.long x-.-4\n.byte 0x0f, 0x84\n.long x-.-4";
    let program = linked(source, &at("x", FAR));
    let stub = displaced(&program, "a", 1);
    assert_eq!(bytes_at(stub, 2), [0xff, 0x25]);
    assert_eq!(displaced(&program, "a", 7), stub);
}

#[test]
fn the_address_of_a_far_variable_is_loaded_from_the_table() {
    // gcc's code for position-independent executables: a `lea` that counts on a copy relocation.
    let program = linked(".text\n.globl a\na: leaq x(%rip), %r9", &at("x", FAR));
    assert_eq!(program.bytes("a", 3), [0x4c, 0x8b, 0x0d], "the lea is a mov now");
    assert_eq!(word_at(displaced(&program, "a", 3)), FAR);
    let program = linked(".text\n.globl a\na: leaq x+16(%rip), %rax", &at("x", FAR));
    assert_eq!(word_at(displaced(&program, "a", 3)), FAR + 16);
}

#[test]
fn r_x86_64_gotpcrel() {
    // No suffix X: the instruction must stay.
    let source = ".text\n.globl a\na: movq x@GOTPCREL(%rip), %rax\n.data\n.globl x\nx: .quad 0";
    let object = compile(CC, "s", source, &["-Wa,-mrelax-relocations=no"]);
    let program = link(&object, &Externals::new()).expect("links");
    assert_eq!(program.bytes("a", 3), [0x48, 0x8b, 0x05]);
    assert_eq!(word_at(displaced(&program, "a", 3)), program.address("x"));
}

#[test]
fn r_x86_64_gotpcrel_overflows() {
    assert_far_field_is_refused("R_X86_64_GOTPCREL", ".data\n.globl x\nx: .quad 0", &Externals::new());
    assert_far_field_is_refused("R_X86_64_GOTPCREL", "", &at("x", FAR));
    assert_far_field_is_refused("R_X86_64_GOTPCRELX", "", &at("x", FAR));
}

#[test]
fn r_x86_64_gotpcrelx_and_rex_gotpcrelx() {
    let source = ".text\n.globl a, b, c, d, e
        a: movq x@GOTPCREL(%rip), %rax
        b: movl x@GOTPCREL(%rip), %eax
        c: call *x@GOTPCREL(%rip)
        d: jmp *x@GOTPCREL(%rip)
        e: cmpq x@GOTPCREL(%rip), %rax";
    let far = linked(source, &at("x", FAR));
    for (name, offset) in [("a", 3), ("b", 2), ("c", 2), ("d", 2), ("e", 3)] {
        assert_eq!(word_at(displaced(&far, name, offset)), FAR, "{name} goes through the table");
    }
    let near = linked(&format!("{source}\n.section .text.x, \"ax\"\n.globl x\nx: ret"), &Externals::new());
    let x = near.address("x");
    assert_eq!((near.bytes("a", 3), displaced(&near, "a", 3)), (vec![0x48, 0x8d, 0x05], x));
    assert_eq!((near.bytes("b", 2), displaced(&near, "b", 2)), (vec![0x8d, 0x05], x));
    assert_eq!((near.bytes("c", 2), displaced(&near, "c", 2)), (vec![0x67, 0xe8], x));
    assert_eq!((near.bytes("d", 1), displaced(&near, "d", 1)), (vec![0xe9], x));
    assert_eq!(near.bytes("d", 6)[5], 0x90);
    assert_eq!(word_at(displaced(&near, "e", 3)), x, "a comparison cannot be rewritten");
}

#[test]
fn r_x86_64_code_4_gotpcrelx() {
    // APX registers: a two-byte REX prefix. The system's assembler does not know them, so the type is patched in.
    let source =
        ".text\n.globl a\na: .byte 0xd5, 0x48, 0x8b, 0x05\n.reloc ., R_X86_64_REX_GOTPCRELX, x-4\n.long 0
        .data\n.globl x\nx: .quad 0";
    let mut object = assemble(source);
    let found = object.windows(4).rposition(|window| window == 42_u32.to_le_bytes()).expect("the type");
    object[found..found + 4].copy_from_slice(&43_u32.to_le_bytes());
    let program = link(&object, &Externals::new()).expect("links");
    assert_eq!(program.bytes("a", 4), [0xd5, 0x48, 0x8d, 0x05]);
    assert_eq!(displaced(&program, "a", 4), program.address("x"));
}

/// A table is found through the distance from a field that every use in the large model starts from.
const LARGE: &str = ".text\n.globl a, base
    base: movabsq $_GLOBAL_OFFSET_TABLE_-base, %rbx
    a: ";

fn table(program: &Program) -> u64 {
    program.address("base").wrapping_add(word_at(program.address("base") + 2))
}

#[test]
fn r_x86_64_gotpc64_with_got64_and_gotplt64() {
    let program =
        linked(&format!("{LARGE} movabsq $x@GOT, %rax\n.globl b\nb: .quad x@GOTPLT"), &at("x", FAR));
    let offset = word_at(program.address("a") + 2);
    assert_eq!(word_at(table(&program) + offset), FAR);
    assert_eq!(word_at(table(&program) + program.word("b")), FAR);
}

#[test]
fn r_x86_64_gotoff64() {
    let program = linked(&format!("{LARGE} movabsq $x@GOTOFF, %rax"), &at("x", FAR));
    assert_eq!(table(&program).wrapping_add(word_at(program.address("a") + 2)), FAR);
}

#[test]
fn r_x86_64_pltoff64() {
    let program = linked(&format!("{LARGE} movabsq $x@PLTOFF, %rax"), &at("x", FAR));
    assert_eq!(table(&program).wrapping_add(word_at(program.address("a") + 2)), FAR);
}

#[test]
fn r_x86_64_gotpcrel64() {
    let program = linked(".text\n.globl a\na: .reloc ., R_X86_64_GOTPCREL64, x\n.quad 0", &at("x", FAR));
    let field = program.address("a");
    assert_eq!(word_at(field.wrapping_add(word_at(field))), FAR);
}

#[test]
fn r_x86_64_got32() {
    let program = linked(&format!("{LARGE} movq x@GOT(%rbx), %rax"), &at("x", FAR));
    let offset = i32::from_le_bytes(bytes_at(program.address("a") + 3, 4).try_into().expect("four bytes"));
    assert_eq!(word_at(table(&program).wrapping_add_signed(offset.into())), FAR);
    let source = ".text\n.reloc ., R_X86_64_GOT32, x+0x7fffffff\n.reloc .+8, R_X86_64_GOT32, y\n.quad 0, 0";
    let externals = Externals::from([("x".into(), external(FAR)), ("y".into(), external(FAR))]);
    // The first entry's offset is 0, which leaves room for exactly this addend.
    linked(source, &externals);
    let source = ".text\n.reloc ., R_X86_64_GOT32, x+0x80000000\n.quad 0";
    assert_out_of_range(source, &externals, "R_X86_64_GOT32", 32);
}

#[test]
fn r_x86_64_gotpc32() {
    let program = linked(
        ".text\n.globl a\na: leaq _GLOBAL_OFFSET_TABLE_(%rip), %rbx\nmovq x@GOTPCREL(%rip), %rax",
        &at("x", FAR),
    );
    assert_eq!(word_at(displaced(&program, "a", 3)), FAR, "the first entry is the start of the table");
    for addend in ["+0x100000000", "-0x100000000"] {
        let source = format!(".text\n.reloc ., R_X86_64_GOTPC32, _GLOBAL_OFFSET_TABLE_{addend}\n.long 0");
        let error = failure(&assemble(&source), &Externals::new());
        assert!(
            matches!(error, LinkError::OutOfRange { kind: "R_X86_64_GOTPC32", bits: 32, signed: true, .. }),
            "{error}"
        );
    }
}

/// A thread-local variable `x`, 8 bytes into its object's image.
const VARIABLE: &str =
    "\n.section .tdata, \"awT\", @progbits\n.quad 1\n.globl x\n.type x, @object\n.size x, 8\nx: .quad 2";

/// The two words of the descriptor that a displacement `offset` bytes into `name` leads to.
fn descriptor(program: &Program, name: &str, offset: u64) -> (u64, u64) {
    let descriptor = displaced(program, name, offset);
    (word_at(descriptor), word_at(descriptor + 8))
}

#[test]
fn r_x86_64_tlsgd() {
    let program =
        linked(&format!(".text\n.globl a\na: leaq x@TLSGD(%rip), %rdi{VARIABLE}"), &Externals::new());
    assert_eq!(program.bytes("a", 3), [0x48, 0x8d, 0x3d], "the descriptor is near");
    assert_eq!(descriptor(&program, "a", 3), (MODULE.module, MODULE.offset + 8));
    assert_far_field_is_refused("R_X86_64_TLSGD", VARIABLE, &Externals::new());
}

#[test]
fn r_x86_64_tlsld() {
    let program =
        linked(&format!(".text\n.globl a\na: leaq x@TLSLD(%rip), %rdi{VARIABLE}"), &Externals::new());
    assert_eq!(descriptor(&program, "a", 3), (MODULE.module, 0));
    assert_far_field_is_refused("R_X86_64_TLSLD", VARIABLE, &Externals::new());
}

#[test]
fn r_x86_64_size32_and_size64() {
    let source = ".data\n.globl a, x\na: .quad x@SIZE\n.long x@SIZE+1\n.long 0\n.type x, @object\nx: .zero 24\n.size x, 24";
    let program = linked(source, &Externals::new());
    assert_eq!((program.word("a"), word_at(program.address("a") + 8)), (24, 25));
    let source = ".data\n.globl x\n.long x@SIZE\nx:\n.size x, 0x100000000";
    assert_out_of_range(source, &Externals::new(), "R_X86_64_SIZE32", 32);
    let error = failure(&assemble(".data\n.quad x@SIZE"), &at("x", FAR));
    assert!(matches!(error, LinkError::UnsupportedRelocation { .. }), "{error}");
}

#[test]
fn r_x86_64_none_needs_nothing() {
    linked(".text\n.reloc ., R_X86_64_NONE, nobody\nret", &Externals::new());
}

#[test]
fn relocations_of_linked_files_are_refused() {
    let error = failure(&assemble(".data\n.reloc ., R_X86_64_RELATIVE, x\n.quad 0"), &Externals::new());
    assert!(error.to_string().contains("R_X86_64_RELATIVE"), "{error}");
}

#[test]
fn undefined_weak_symbols_are_null_in_every_form() {
    let source = ".weak x\n.text\n.globl a, b, c, d, e
        a: movq x@GOTPCREL(%rip), %rax
        b: leaq x(%rip), %rax
        c: call x@PLT
        d: call *x@GOTPCREL(%rip)
        .data\ne: .quad x";
    let program = linked(source, &Externals::new());
    assert_eq!(word_at(displaced(&program, "a", 3)), 0);
    assert_eq!(word_at(displaced(&program, "b", 3)), 0);
    assert_eq!(bytes_at(displaced(&program, "c", 1), 2), [0xff, 0x25]);
    assert_eq!(word_at(displaced(&program, "d", 2)), 0);
    assert_eq!(program.word("e"), 0);
    let narrow = linked(".weak x\n.data\n.globl a\na: .long x, -1", &Externals::new());
    assert_eq!(narrow.bytes("a", 4), [0; 4]);
}

#[test]
fn absolute_symbols_are_numbers() {
    let source = ".globl x, a\n.set x, 0x1234\n.data\na: .quad x\n.text\nmovl $x, %eax";
    let program = linked(source, &Externals::new());
    assert_eq!(program.word("a"), 0x1234);
    assert!(program.definitions["x"].flags.contains(uruk_core::SymbolFlags::ABSOLUTE));
}

#[test]
fn undefined_symbols_are_listed_with_the_places_that_need_them() {
    let error = failure(&assemble(".text\nnop\ncall here@PLT\n.data\n.quad there"), &Externals::new());
    let message = error.to_string();
    assert!(message.contains("`here` (needed at test.o: .text+0x2)"), "{message}");
    assert!(message.contains("`there` (needed at test.o: .data+0x0)"), "{message}");
}

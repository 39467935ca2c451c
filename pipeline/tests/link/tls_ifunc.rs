//! Thread-local variables and indirect functions: descriptors, images, stubs.

use crate::link_support::*;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};
use uruk_pipeline::executor::{RuntimeEntries, TlsPlacement};
use uruk_pipeline::link::{Link, LinkError, LinkOptions, elf};
use uruk_pipeline::memory::InProcessMemoryManager;

fn thread_local(address: u64) -> ExecutorSymbolDef {
    ExecutorSymbolDef::new(ExecutorAddr::new(address), SymbolFlags::THREAD_LOCAL | SymbolFlags::EXPORTED)
}

/// The descriptor that the `lea` with a displacement at `field` leads to.
fn descriptor(field: u64) -> (u64, u64) {
    let displacement = i32::from_le_bytes(bytes_at(field, 4).try_into().expect("four bytes"));
    let address = (field + 4).wrapping_add_signed(displacement.into());
    (word_at(address), word_at(address + 8))
}

const VARIABLES: &str = "
    .section .tdata, \"awT\", @progbits
    .globl first, second
    .balign 8
    .type first, @object
    .type second, @object
    first: .quad 11
    second: .quad 22
    .section .tbss, \"awT\", @nobits
    .globl third
    .balign 64
    .type third, @object
    third: .zero 8
    fourth: .zero 8
    .text
";

#[test]
fn a_definition_is_known_by_its_descriptor() {
    let program = link(&assemble(VARIABLES), &Externals::new()).expect("links");
    for (name, offset) in [("first", 0), ("second", 8), ("third", 64)] {
        assert_eq!(program.word(name), MODULE.module, "{name}");
        assert_eq!(word_at(program.address(name) + 8), MODULE.offset + offset, "{name}");
        assert!(program.definitions[name].flags.contains(SymbolFlags::THREAD_LOCAL));
    }
    let image = program.linked.actions.tls.expect("an image");
    assert_eq!((image.image_bytes, image.total_bytes, image.align), (16, 80, 64));
    assert_eq!(image.address.value() % 64, 0);
    assert_eq!((word_at(image.address.value()), word_at(image.address.value() + 8)), (11, 22));
}

#[test]
fn r_x86_64_tlsgd() {
    let source = format!(
        "{VARIABLES}
        .globl a, b
        a: .byte 0x66
        leaq second@TLSGD(%rip), %rdi
        b: .byte 0x66
        leaq fourth@TLSGD(%rip), %rdi"
    );
    let program = link(&assemble(&source), &Externals::new()).expect("links");
    assert_eq!(descriptor(program.address("a") + 4), (MODULE.module, MODULE.offset + 8));
    assert_eq!(descriptor(program.address("b") + 4), (MODULE.module, MODULE.offset + 72));
}

#[test]
fn r_x86_64_tlsgd_of_a_far_variable_loads_the_descriptors_address() {
    let source = ".text\n.globl a\na: .byte 0x66\nleaq x@TLSGD(%rip), %rdi";
    let externals = Externals::from([("x".to_owned(), thread_local(0x1000))]);
    let program = link(&assemble(source), &externals).expect("links");
    let start = program.address("a");
    assert_eq!(bytes_at(start, 4), [0x66, 0x48, 0x8b, 0x3d], "the lea is a mov now");
    let displacement = i32::from_le_bytes(bytes_at(start + 4, 4).try_into().expect("four bytes"));
    assert_eq!(word_at((start + 8).wrapping_add_signed(displacement.into())), 0x1000);

    let other = ".text\n.reloc ., R_X86_64_TLSGD, x-4\n.long 0";
    let error = failure(&assemble(other), &externals);
    assert!(matches!(error, LinkError::OutOfRange { kind: "R_X86_64_TLSGD", .. }), "{error}");
}

#[test]
fn r_x86_64_tlsld_with_dtpoff32_and_dtpoff64() {
    let source = format!(
        "{VARIABLES}
        .globl a, b, c
        a: leaq third@TLSLD(%rip), %rdi
        b: leaq third@DTPOFF(%rax), %rcx
        c: movabsq $fourth@DTPOFF, %rcx"
    );
    let program = link(&assemble(&source), &Externals::new()).expect("links");
    assert_eq!(descriptor(program.address("a") + 3), (MODULE.module, 0));
    assert_eq!(bytes_at(program.address("b") + 3, 4), (MODULE.offset as u32 + 64).to_le_bytes());
    assert_eq!(word_at(program.address("c") + 2), MODULE.offset + 72);
}

#[test]
fn r_x86_64_dtpoff32_overflows() {
    let source = ".section .tbss, \"awT\", @nobits\nx: .zero 0x7ffffff0\ny: .zero 8\n.text\n.long y@DTPOFF";
    let error = failure(&assemble(source), &Externals::new());
    assert!(matches!(error, LinkError::OutOfRange { kind: "R_X86_64_DTPOFF32", .. }), "{error}");
}

#[test]
fn hidden_variables_of_the_same_module_are_reached_by_offset_and_others_refused() {
    let source = ".text\n.globl a, b\na: leaq x@TLSLD(%rip), %rdi\nb: leaq x@DTPOFF(%rax), %rcx";
    // The tests' process side knows one descriptor, at 0x5000.
    let known = Externals::from([("x".to_owned(), thread_local(0x5000))]);
    let program = link(&assemble(source), &known).expect("links");
    assert_eq!(descriptor(program.address("a") + 3), (MODULE.module, 0));
    assert_eq!(bytes_at(program.address("b") + 3, 4), 0x40_u32.to_le_bytes());
    let unknown = Externals::from([("x".to_owned(), thread_local(0x6000))]);
    let error = failure(&assemble(source), &unknown);
    assert!(error.to_string().contains("recompile with default visibility"), "{error}");
}

#[test]
fn a_module_is_placed_before_its_variables_are_announced() {
    let memory = InProcessMemoryManager::new().expect("address space");
    let object = assemble(VARIABLES);
    let graph = elf::parse("placed.o", &object).expect("parses");
    let built = Link::new(graph, &LinkOptions::default()).expect("builds");
    let mut allocated = built.allocate(&memory).expect("fits");
    assert!(
        allocated.tls_shape().is_some_and(|shape| shape.total_bytes == 80)
            && allocated.tls_descriptors().is_empty()
    );
    allocated.place_tls(TlsPlacement { module: 5, offset: 0x1000 });
    let second = allocated.definitions().find(|(name, _)| *name == "second").expect("defined").1.address;
    let said = allocated.tls_descriptors();
    assert!(said.contains(&(second, TlsPlacement { module: 5, offset: 0x1008 })), "{said:?}");
    let environment = uruk_pipeline::link::LinkEnvironment::default();
    let (_memory, linked) =
        allocated.resolve(|_| None, environment).and_then(|link| link.fix()).expect("links").into_parts();
    assert_eq!((word_at(second.value()), word_at(second.value() + 8)), (5, 0x1008));
    assert!(linked.actions.tls.is_some(), "an image");
}

#[test]
fn edges_and_targets_must_agree_on_what_is_thread_local() {
    let ordinary = format!("{VARIABLES} .quad first");
    assert!(matches!(failure(&assemble(&ordinary), &Externals::new()), LinkError::ThreadLocal { .. }));
    let source = ".text\n.byte 0x66\nleaq x@TLSGD(%rip), %rdi";
    let error = failure(&assemble(source), &Externals::from([("x".to_owned(), external(0x1000))]));
    assert!(error.to_string().contains("is not a thread-local variable"), "{error}");
    let source = ".text\nmovq x@GOTPCREL(%rip), %rdi";
    let error = failure(&assemble(source), &Externals::from([("x".to_owned(), thread_local(0x1000))]));
    assert!(error.to_string().contains("is a thread-local variable"), "{error}");
}

#[test]
fn compiled_thread_local_code_links_in_every_model() {
    let source = "
        __thread int first = 3; static __thread long second; extern __thread int x;
        __attribute__((visibility(\"hidden\"))) __thread char third;
        long run(void) { return first + second++ + x + third; }";
    let externals = Externals::from([
        ("x".to_owned(), thread_local(0x1000)),
        ("__tls_get_addr".to_owned(), external(0x2000)),
    ]);
    for tool in compilers() {
        for flags in
            [&["-fPIC"][..], &["-fPIC", "-O2"], &["-fPIC", "-fno-plt"], &["-fPIC", "-mcmodel=large", "-O2"]]
        {
            let object = compile(tool, "c", source, flags);
            if let Err(error) = link(&object, &externals) {
                panic!("{tool:?} {flags:?}: {error}");
            }
        }
    }
}

const INDIRECT: &str = "
    .text
    .globl chosen, alias, pointer, calls, resolver
    .type chosen, @gnu_indirect_function
    .type alias, @gnu_indirect_function
    .type resolver, @function
    resolver:
    chosen:
    alias: leaq answer(%rip), %rax
        nop # A resolver that does nothing but answer is not asked.
        ret
    answer: leaq (%rdi,%rsi), %rax
        ret
    calls: subq $8, %rsp
        movl $40, %edi
        movl $2, %esi
        call chosen@PLT
        movl $1000, %esi
        movq %rax, %rdi
        movq chosen@GOTPCREL(%rip), %rax
        call *%rax
        addq $8, %rsp
        ret
    .data
    pointer: .quad chosen";

#[test]
fn an_indirect_function_has_one_address_and_a_slot_that_starts_at_its_resolver() {
    let program = link(&assemble(INDIRECT), &Externals::new()).expect("links");
    let stub = program.address("chosen");
    assert_eq!((program.word("pointer"), program.address("alias")), (stub, stub));
    assert_ne!(program.address("resolver"), stub);
    let follow = |field: u64| {
        let displacement = i32::from_le_bytes(bytes_at(field, 4).try_into().expect("four bytes"));
        (field + 4).wrapping_add_signed(displacement.into())
    };
    assert_eq!(bytes_at(stub, 2), [0xff, 0x25]);
    let slot = follow(stub + 2);
    assert_eq!(word_at(slot), stub + 8, "the slot starts with the first-call sequence");
    assert_eq!(bytes_at(stub + 8, 2), [0xff, 0x15]);
    assert_eq!(word_at(follow(stub + 10)), THUNK);
    // The distance to the descriptor counts from its own start, the place where the call would return.
    let descriptor = follow(stub + 14) - 4;
    assert_eq!((word_at(descriptor), word_at(descriptor + 8)), (slot, program.address("resolver")));
}

#[test]
fn an_indirect_function_with_one_answer_is_that_function() {
    let text = INDIRECT.replace("        nop # A resolver that does nothing but answer is not asked.\n", "");
    let text = text.replace("answer: ", ".globl answer\n.type answer, @function\nanswer: ");
    let program = link(&assemble(&text), &Externals::new()).expect("links");
    let answer = program.address("answer");
    assert_eq!((program.address("chosen"), program.address("alias")), (answer, answer));
    assert_eq!(program.word("pointer"), answer);
    assert_ne!(program.address("resolver"), answer);
}

/// A thunk that keeps the registers that the tests' functions use.
const LAZY_THUNK: &str = "
    .text
    .globl thunk
    thunk:
        popq %r11
        movslq (%r11), %rax
        addq %rax, %r11
        pushq %rdi
        pushq %rsi
        pushq %r11
        call *8(%r11)
        popq %r11
        popq %rsi
        popq %rdi
        movq (%r11), %r11
        movq %rax, (%r11)
        jmp *%rax";

#[test]
fn an_indirect_function_is_resolved_by_its_first_call() {
    let thunk = link(&assemble(LAZY_THUNK), &Externals::new()).expect("links");
    let memory = InProcessMemoryManager::new().expect("address space");
    let object = assemble(INDIRECT);
    let graph = elf::parse("indirect.o", &object).expect("parses");
    let allocated =
        Link::new(graph, &LinkOptions::default()).and_then(|link| link.allocate(&memory)).expect("fits");
    let calls = allocated.definitions().find(|(name, _)| *name == "calls").expect("defined").1.address;
    let resolved = allocated.resolve(
        |_| None,
        uruk_pipeline::link::LinkEnvironment {
            entries: RuntimeEntries {
                ifunc_thunk: ExecutorAddr::new(thunk.address("thunk")),
                ..RuntimeEntries::default()
            },
            ..Default::default()
        },
    );
    let (filled, _) = resolved.and_then(|link| link.fix()).expect("links").into_parts();
    let _code = filled.finalize().expect("memory can be protected");
    // SAFETY: the function has this signature, and its memory lives to the end of the test.
    let calls: extern "C" fn() -> u64 = unsafe { std::mem::transmute(calls.to_ptr::<u8>()) };
    assert_eq!(calls(), 1042);
    assert_eq!(calls(), 1042);
}

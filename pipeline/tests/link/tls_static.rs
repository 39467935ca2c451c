//! Thread-local variables at a fixed distance from the thread pointer, and through TLS descriptors: what each relocation
//! stores, what it cannot, and who refuses it.
//!
//! Compilers emit the first for executables, which is what they think they compile for unless told otherwise. All of it
//! used to be refused by its number; now it depends on where the variable is.

use crate::link_support::*;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};
use uruk_pipeline::executor::{NotStatic, RuntimeEntries, TlsPlacement, TlsResolvers};
use uruk_pipeline::link::{Link, LinkEnvironment, LinkError, LinkOptions, elf};
use uruk_pipeline::memory::{FinalizedAlloc, InProcessMemoryManager};

/// Where the tests' process side has the graph's own module, and a library's.
const OWN: TlsPlacement = TlsPlacement { module: 1, offset: 0x40 };
const LIBRARY: TlsPlacement = TlsPlacement { module: 2, offset: 0x18 };
/// Of a module that each thread has elsewhere.
const DYNAMIC: TlsPlacement = TlsPlacement { module: 3, offset: 0x20 };
/// How far the modules are from the thread pointer.
const OWN_DISTANCE: i64 = -0x1000;
const LIBRARY_DISTANCE: i64 = -0x3000;

const RESOLVERS: TlsResolvers = TlsResolvers {
    fixed: ExecutorAddr::new(0x1111),
    dynamic: ExecutorAddr::new(0x2222),
    absent: ExecutorAddr::new(0x3333),
};

/// The descriptors that the externals stand for.
const LIBRARY_DESCRIPTOR: u64 = 0x5000;
const DYNAMIC_DESCRIPTOR: u64 = 0x6000;

fn distance(variable: TlsPlacement) -> Result<i64, NotStatic> {
    let offset = variable.offset.cast_signed();
    match variable.module {
        1 => Ok(OWN_DISTANCE + offset),
        2 => Ok(LIBRARY_DISTANCE + offset),
        _ => Err(NotStatic::LoadedLater),
    }
}

fn externals() -> Externals {
    let flags = SymbolFlags::THREAD_LOCAL | SymbolFlags::EXPORTED;
    let at = |address| ExecutorSymbolDef::new(ExecutorAddr::new(address), flags);
    Externals::from([
        ("library".to_owned(), at(LIBRARY_DESCRIPTOR)),
        ("dynamic".to_owned(), at(DYNAMIC_DESCRIPTOR)),
    ])
}

/// Links `source` with the graph's own image at `own`, and returns what is at each definition.
fn link_at(own: TlsPlacement, source: &str) -> Result<Found, LinkError> {
    let memory = InProcessMemoryManager::new().expect("address space");
    let object = assemble(source);
    let graph = elf::parse("test.o", &object)?;
    let mut link = Link::new(graph, &LinkOptions::default())?.allocate(&memory)?;
    link.place_tls(own);
    let definitions = link.definitions().map(|(name, def)| (name.to_owned(), def.address.value())).collect();
    let environment = LinkEnvironment {
        tls_placement: &|descriptor| match descriptor.value() {
            LIBRARY_DESCRIPTOR => Some(LIBRARY),
            DYNAMIC_DESCRIPTOR => Some(DYNAMIC),
            _ => None,
        },
        tls_distance: &distance,
        entries: RuntimeEntries { tls_resolvers: RESOLVERS, ..RuntimeEntries::default() },
    };
    let externals = externals();
    let (filled, _) = link.resolve(|name| externals.get(name).copied(), environment)?.fix()?.into_parts();
    let code = filled.finalize().expect("memory can be protected");
    Ok(Found { definitions, _code: code, _memory: memory })
}

struct Found {
    definitions: std::collections::HashMap<String, u64>,
    _code: FinalizedAlloc,
    _memory: InProcessMemoryManager,
}

impl Found {
    fn signed(&self, name: &str, field: u64) -> i64 {
        let bytes = bytes_at(self.definitions[name] + field, 4);
        i32::from_le_bytes(bytes.try_into().expect("four bytes")).into()
    }

    /// The two words that the displacement at `field` leads to.
    fn words(&self, name: &str, field: u64) -> (u64, u64) {
        let end = self.definitions[name] + field + 4;
        let address = end.wrapping_add_signed(self.signed(name, field));
        (word_at(address), word_at(address + 8))
    }

    fn word(&self, name: &str, field: u64) -> i64 {
        let end = self.definitions[name] + field + 4;
        word_at(end.wrapping_add_signed(self.signed(name, field))).cast_signed()
    }
}

const VARIABLES: &str = "
    .section .tdata, \"awT\", @progbits
    .globl first
    .balign 8
    .type first, @object
    first: .quad 11
    second: .quad 22
    .section .tbss, \"awT\", @nobits
    .balign 8
    third: .zero 16
    .data
    .globl distances
    distances: .quad second@TPOFF
    .quad library@TPOFF + 1
    .text
    .globl a, b, c, d, e
";

/// Where the variables of [`VARIABLES`] are.
const FIRST: i64 = OWN_DISTANCE + 0x40;
const SECOND: i64 = FIRST + 8;
const THIRD: i64 = FIRST + 16;

#[test]
fn r_x86_64_tpoff32_and_tpoff64() {
    let source = format!(
        "{VARIABLES}
        a: movq %fs:first@TPOFF, %rax
        b: leaq third@TPOFF+8(%rcx), %rax
        c: movq $library@TPOFF, %rax"
    );
    let found = link_at(OWN, &source).expect("links");
    assert_eq!(found.signed("a", 5), FIRST);
    assert_eq!(found.signed("b", 3), THIRD + 8);
    assert_eq!(found.signed("c", 3), LIBRARY_DISTANCE + 0x18);
    let distances = found.definitions["distances"];
    assert_eq!(word_at(distances).cast_signed(), SECOND);
    assert_eq!(word_at(distances + 8).cast_signed(), LIBRARY_DISTANCE + 0x19);
}

#[test]
fn r_x86_64_tpoff32_overflows() {
    let source = format!("{VARIABLES} a: movq %fs:first@TPOFF-0x7fffffff, %rax");
    let error = link_at(OWN, &source).err().expect("too far");
    assert!(matches!(error, LinkError::OutOfRange { kind: "R_X86_64_TPOFF32", bits: 32, .. }), "{error}");
}

#[test]
fn r_x86_64_gottpoff_shares_an_entry_for_a_variable() {
    let source = format!(
        "{VARIABLES}
        a: movq first@GOTTPOFF(%rip), %rax
        b: addq library@GOTTPOFF(%rip), %r12
        c: movq library@GOTTPOFF(%rip), %rcx"
    );
    let found = link_at(OWN, &source).expect("links");
    assert_eq!(found.word("a", 3), FIRST);
    assert_eq!(found.word("b", 3), LIBRARY_DISTANCE + 0x18);
    assert_eq!(found.signed("b", 3) - found.signed("c", 3), 7, "one entry, seven bytes later");
}

#[test]
fn fields_that_hold_no_distance_to_a_table_overflow() {
    for kind in ["R_X86_64_GOTTPOFF", "R_X86_64_GOTPC32_TLSDESC"] {
        // The table may lie on either side of the code, so that one of the two is too far.
        let errors = ["+0x7fffffff", "-0x80000000"].map(|addend| {
            link_at(OWN, &format!("{VARIABLES} a: .reloc ., {kind}, first{addend}\n.long 0")).err()
        });
        let error = errors.into_iter().flatten().next().expect("too far");
        assert!(matches!(error, LinkError::OutOfRange { kind: found, .. } if found == kind), "{error}");
    }
}

/// Assemblers need not keep the pieces of the sequence together, nor use `%rax` for the first.
#[test]
fn r_x86_64_gotpc32_tlsdesc_makes_a_pair_and_the_call_stays() {
    let source = format!(
        "{VARIABLES}
        a: leaq first@TLSDESC(%rip), %rcx
        nop
        movq %rcx, %rax
        b: call *first@TLSCALL(%rax)
        c: leaq library@TLSDESC(%rip), %rax
        d: leaq dynamic@TLSDESC(%rip), %r15"
    );
    let found = link_at(OWN, &source).expect("links");
    assert_eq!(found.words("a", 3), (RESOLVERS.fixed.value(), FIRST.cast_unsigned()));
    assert_eq!(bytes_at(found.definitions["b"], 2), [0xff, 0x10]);
    let library = LIBRARY_DISTANCE + 0x18;
    assert_eq!(found.words("c", 3), (RESOLVERS.fixed.value(), library.cast_unsigned()));
    assert_eq!(found.words("d", 3), (RESOLVERS.dynamic.value(), DYNAMIC_DESCRIPTOR));

    // The same graph, and its own variables are not at one distance: the resolver finds them as `__tls_get_addr` does.
    let found =
        link_at(DYNAMIC, &source.replace("distances: .quad second@TPOFF", "distances:")).expect("links");
    let (resolver, argument) = found.words("a", 3);
    assert_eq!(resolver, RESOLVERS.dynamic.value());
    assert_eq!((word_at(argument), word_at(argument + 8)), (DYNAMIC.module, DYNAMIC.offset));
}

/// gcc and clang reach several variables of one object from the start of its module.
#[test]
fn descriptors_of_the_module_as_a_whole() {
    let source = "
        .section .tdata, \"awT\", @progbits
        .quad 1
        second: .quad 22
        .text
        .globl a, b
        a: leaq _TLS_MODULE_BASE_@TLSDESC(%rip), %rax
        call *_TLS_MODULE_BASE_@TLSCALL(%rax)
        b: movq %fs:second@DTPOFF(%rax), %rcx";
    let found = link_at(OWN, source).expect("links");
    assert_eq!(found.words("a", 3), (RESOLVERS.fixed.value(), OWN_DISTANCE.cast_unsigned()));
    assert_eq!(found.signed("b", 4), 0x48);
    let found = link_at(DYNAMIC, source).expect("links");
    let (resolver, argument) = found.words("a", 3);
    assert_eq!(resolver, RESOLVERS.dynamic.value());
    assert_eq!((word_at(argument), word_at(argument + 8)), (DYNAMIC.module, 0));
    assert_eq!(found.signed("b", 4), 0x28);
}

#[test]
fn weak_references_to_nothing_are_null() {
    let source = ".weak nothing\n.text\n.globl a, b, c
        a: movq nothing@GOTTPOFF(%rip), %rax
        b: leaq nothing@TLSDESC(%rip), %rax
        c: movq %fs:nothing@TPOFF, %rax";
    let found = link_at(OWN, source).expect("links");
    assert_eq!(found.word("a", 3), 0);
    assert_eq!(found.words("b", 3), (RESOLVERS.absent.value(), 0));
    assert_eq!(found.signed("c", 5), 0);
}

#[test]
fn an_object_says_whether_it_needs_its_variables_at_a_fixed_distance() {
    let needs = |source: &str| {
        let memory = InProcessMemoryManager::new().expect("address space");
        let object = assemble(&format!("{VARIABLES}\n{source}").replace(".quad second@TPOFF", ""));
        let graph = elf::parse("needs.o", &object).expect("parses");
        let link = Link::new(graph, &LinkOptions::default()).and_then(|link| link.allocate(&memory));
        link.expect("fits").tls_shape().is_some_and(|shape| shape.needs_static)
    };
    assert!(needs("movq %fs:first@TPOFF, %rax") && needs("movq first@GOTTPOFF(%rip), %rax"));
    assert!(!needs("leaq first@TLSDESC(%rip), %rax") && !needs("movq library@GOTTPOFF(%rip), %rax"));
}

/// Loads and additions go to code that finds the distance on each thread; what that does is tried where it can run.
#[test]
fn r_x86_64_gottpoff_takes_a_detour_where_threads_disagree() {
    let source =
        format!("{VARIABLES} a: movq dynamic@GOTTPOFF(%rip), %rdx\n b: addq dynamic@GOTTPOFF(%rip), %rdx");
    let found = link_at(OWN, &source).expect("links");
    for name in ["a", "b"] {
        let start = found.definitions[name];
        assert_eq!(bytes_at(start, 1), [0xe9], "{name}");
        let detour = (start + 5).wrapping_add_signed(found.signed(name, 1));
        assert_eq!(
            bytes_at(detour, 10),
            [0x48, 0x8d, 0x64, 0x24, 0x80, 0x9c, 0x50, 0x48, 0x8d, 0x05],
            "{name}"
        );
        let pair = i32::from_le_bytes(bytes_at(detour + 10, 4).try_into().expect("four bytes"));
        let pair = (detour + 14).wrapping_add_signed(pair.into());
        assert_eq!((word_at(pair), word_at(pair + 8)), (RESOLVERS.dynamic.value(), DYNAMIC_DESCRIPTOR));
    }
}

#[test]
fn what_is_not_at_one_distance_is_refused_with_variable_object_model_and_flag() {
    let own = format!("{VARIABLES} a: movq %fs:second@TPOFF, %rax");
    let table = [
        ("a: cmpq dynamic@GOTTPOFF(%rip), %rax", OWN, "`dynamic`", "initial-exec"),
        ("a: movq %fs:dynamic@TPOFF, %rax", OWN, "`dynamic`", "local-exec"),
        (own.as_str(), DYNAMIC, "second", "local-exec"),
    ];
    for (source, own, variable, model) in table {
        let error = link_at(own, &format!(".text\n{source}\n")).err().expect("refused");
        assert!(matches!(error, LinkError::StaticTls { .. }), "{error}");
        let message = error.to_string();
        let why = "loaded when the process ran already";
        for word in [variable, "test.o", model, why, "-fPIC", "-ftls-model=global-dynamic"] {
            assert!(message.contains(word), "no `{word}`: {message}");
        }
    }
}

#[test]
fn ordinary_symbols_are_not_thread_local_by_any_model() {
    for instruction in ["movq x@GOTTPOFF(%rip), %rax", "movq %fs:x@TPOFF, %rax", "leaq x@TLSDESC(%rip), %rax"]
    {
        let object = assemble(&format!(".text\n{instruction}"));
        let error = failure(&object, &Externals::from([("x".to_owned(), external(0x1000))]));
        assert!(error.to_string().contains("is not a thread-local variable"), "{error}");
    }
}

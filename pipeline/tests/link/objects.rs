//! Objects and archives as the system's compiler and archiver make them, whole and damaged. Needs no LLVM.

use std::process::Command;
use std::sync::Arc;

use crate::layers::RecordingLayer;
use crate::support::{Scratch, open, run};
use uruk_core::{ExecutionSession, SymbolFlags};
use uruk_pipeline::arch::Architecture;
use uruk_pipeline::object::{
    ArchiveIndex, FileKind, ObjectBuffer, ObjectError, ObjectInterface, ObjectMaterializationUnit,
};

const EXPORTED: SymbolFlags = SymbolFlags::EXPORTED;
const CALLABLE: SymbolFlags = SymbolFlags::CALLABLE;
const WEAK: SymbolFlags = SymbolFlags::WEAK;

fn flags(interface: &ObjectInterface<'_>, name: &str) -> Option<SymbolFlags> {
    interface.defined.iter().find(|symbol| symbol.name == name).map(|symbol| symbol.flags)
}

#[test]
fn each_kind_of_c_definition_has_its_flags() {
    let scratch = Scratch::new("c-flags");
    let source = "
        int data = 1; const int constant = 2; int tentative; static int local; __thread int per_thread;
        void function(void) {} static void hidden_away(void) { local++; }
        __attribute__((weak)) void yielding(void) {}
        __attribute__((visibility(\"hidden\"))) int hidden = 3;
        __attribute__((visibility(\"protected\"))) int protected = 4;
        static void *choose(void) { return (void *)hidden_away; }
        void chosen(void) __attribute__((ifunc(\"choose\")));
        extern int needed; __attribute__((weak)) extern int optional;
        int *use(void) { return &optional ? &optional : &needed; }
        __asm__(\".globl bare\\n.text\\nbare: ret\\n.globl fixed\\n.set fixed, 0x1234\");";
    let object = scratch.compile("cc", "flags.c", source, &["-fcommon", "-fPIC"]);
    let interface = ObjectInterface::read(&object).expect("an object");
    let expected = [
        ("data", EXPORTED),
        ("constant", EXPORTED),
        ("tentative", EXPORTED | SymbolFlags::COMMON),
        ("per_thread", EXPORTED | SymbolFlags::THREAD_LOCAL),
        ("function", EXPORTED | CALLABLE),
        ("yielding", EXPORTED | CALLABLE | WEAK),
        ("hidden", SymbolFlags::empty()),
        ("protected", EXPORTED),
        ("chosen", EXPORTED | CALLABLE),
        ("bare", EXPORTED | CALLABLE),
        ("fixed", EXPORTED | SymbolFlags::ABSOLUTE),
        ("use", EXPORTED | CALLABLE),
    ];
    for (name, wanted) in expected {
        assert_eq!(flags(&interface, name), Some(wanted), "{name}");
    }
    assert_eq!(interface.defined.len(), expected.len(), "{:?}", interface.defined);
    let undefined = |name: &str| interface.undefined.iter().find(|symbol| symbol.name == name);
    assert!(!undefined("needed").expect("referred to").weak);
    assert!(undefined("optional").expect("referred to").weak);
    assert!(!interface.has_initializers && !interface.has_finalizers);
}

#[test]
fn comdat_members_and_unique_symbols_yield() {
    let scratch = Scratch::new("comdat");
    let source = "
        inline int &counter() { static int count = 0; return ++count; }
        template <class T> struct Box { static T value; T get() { return value; } };
        template <class T> T Box<T>::value;
        int use() { return counter() + Box<int>().get(); }
        struct S { S(); ~S(); }; static S s;";
    let object = scratch.compile("c++", "comdat.cpp", source, &["-std=c++17", "-fPIC"]);
    let interface = ObjectInterface::read(&object).expect("an object");
    for (name, wanted) in [
        ("_Z7counterv", EXPORTED | CALLABLE | WEAK),
        ("_ZZ7countervE5count", EXPORTED | WEAK),
        ("_ZN3BoxIiE5valueE", EXPORTED | WEAK),
        ("_Z3usev", EXPORTED | CALLABLE),
    ] {
        assert_eq!(flags(&interface, name), Some(wanted), "{name}");
    }
    assert!(interface.has_initializers);
}

#[test]
fn initializers_and_finalizers_are_seen_whatever_the_section_is_called() {
    let scratch = Scratch::new("init");
    for (source, expected) in [
        ("__attribute__((constructor)) void f(void) {}", (true, false)),
        ("__attribute__((constructor(101))) void f(void) {}", (true, false)),
        ("__attribute__((destructor)) void f(void) {}", (false, true)),
        ("__attribute__((section(\".ctors.5\"), used)) static void *p = 0;", (true, false)),
        ("__attribute__((section(\".dtors\"), used)) static void *p = 0;", (false, true)),
        ("__attribute__((section(\".preinit_array\"), used)) static void *p = 0;", (true, false)),
        ("__attribute__((section(\".init_arrays\"), used)) static void *p = 0;", (false, false)),
        ("__asm__(\".section .init, \\\"ax\\\", @progbits\\n nop\");", (true, false)),
        ("__asm__(\".section .fini, \\\"ax\\\", @progbits\\n nop\");", (false, true)),
        ("int nothing;", (false, false)),
    ] {
        let object = scratch.compile("cc", "init.c", source, &[]);
        let interface = ObjectInterface::read(&object).expect("an object");
        assert_eq!((interface.has_initializers, interface.has_finalizers), expected, "{source}");
    }
}

#[test]
fn what_is_no_object_for_this_machine_is_named() {
    let scratch = Scratch::new("foreign");
    let object = scratch.compile("cc", "good.c", "int f(void) { return 1; }", &[]);
    let changed = |name: &str, at: usize, value: u8| {
        let mut bytes = object.bytes().to_vec();
        bytes[at] = value;
        ObjectInterface::read(&ObjectBuffer::new(name, bytes)).expect_err(name)
    };
    let (machine, class, order, kind) = (18, 4, 5, 16);
    let error = changed("risc.o", machine, 243);
    assert!(matches!(error, ObjectError::ForeignMachine { .. }), "{error:?}");
    assert!(error.to_string().contains("risc.o") && error.to_string().contains("RISC-V"), "{error}");
    assert!(changed("x32.o", class, 1).to_string().contains("x32"));
    assert!(changed("odd.o", machine + 1, 0x77).to_string().contains("0x773e"));
    assert!(matches!(changed("big.o", order, 2), ObjectError::ForeignMachine { .. }));
    let error = changed("program", kind, 2);
    assert!(matches!(error, ObjectError::NotRelocatable { .. }), "{error:?}");
    assert!(error.to_string().contains("executable"), "{error}");
    for (bytes, reason) in
        [(&b""[..], "empty"), (b"hello", "hello"), (b"!<arch>\n", "archive"), (b"BC\xC0\xDE", "bitcode")]
    {
        let error = ObjectInterface::read(&ObjectBuffer::new("file", bytes.to_vec())).expect_err(reason);
        assert!(matches!(error, ObjectError::NotElf { .. }), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn an_object_without_machine_code_says_how_to_get_some() {
    let scratch = Scratch::new("slim");
    // The mark that GCC's `-flto` leaves in the symbol table, even if `cc` is another compiler.
    let object = scratch.compile("cc", "slim.c", "char __gnu_lto_slim;", &["-fcommon"]);
    let error = ObjectInterface::read(&object).expect_err("nothing to link");
    assert!(matches!(error, ObjectError::IntermediateOnly { .. }), "{error:?}");
    assert!(error.to_string().contains("-ffat-lto-objects"), "{error}");
}

#[test]
fn every_truncation_of_an_object_is_an_error() {
    let scratch = Scratch::new("cut");
    let object =
        scratch.compile("cc", "good.c", "int f(void) { return 1; } int g(void) { return f(); }", &[]);
    let whole = object.bytes();
    for size in 0..whole.len() {
        let cut = ObjectBuffer::new("cut.o", whole[..size].to_vec());
        assert!(ObjectInterface::read(&cut).is_err(), "{size} of {} bytes", whole.len());
    }
}

#[test]
fn no_change_of_one_byte_makes_reading_an_object_panic() {
    let scratch = Scratch::new("mutate");
    let source = "inline int &c() { static int n; return ++n; } int f() { return c(); }";
    let object = scratch.compile("c++", "good.cpp", source, &[]);
    let mut bytes = object.bytes().to_vec();
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7F, 0x80, 0xFF] {
            let before = std::mem::replace(&mut bytes[at], value);
            // Either answer will do.
            let _ = ObjectInterface::read(&ObjectBuffer::new("mutant.o", bytes.clone()));
            bytes[at] = before;
        }
    }
}

/// An archive of two objects that both define `both`, and one member that is no object.
fn archive(scratch: &Scratch, flags: &str) -> ObjectBuffer {
    let member = |name: &str, source: &str| {
        scratch.compile("cc", &format!("{name}.c"), source, &[]);
        std::fs::rename(scratch.path(&format!("{name}.c.out")), scratch.path(&format!("{name}.o")))
            .expect("renamed");
        scratch.path(&format!("{name}.o"))
    };
    let first = member("first", "int one = 1; int both = 1;");
    let second = member(
        "a_member_with_a_long_name",
        "int two = 2; int both = 2; __attribute__((constructor)) void f(void) {}",
    );
    let text = scratch.write("notes.txt", "odd");
    let path = scratch.path(&format!("lib{flags}.a"));
    run(Command::new("ar").arg(flags).arg(&path).args([&text, &first, &second]));
    open(&path)
}

#[test]
fn an_archive_tells_which_member_defines_what_with_and_without_its_table() {
    let scratch = Scratch::new("archive");
    for flags in ["rcs", "rcS"] {
        let archive = archive(&scratch, flags);
        assert_eq!(FileKind::of(archive.bytes()), FileKind::Archive);
        let index = ArchiveIndex::read(&archive).unwrap_or_else(|error| panic!("{flags}: {error}"));
        assert_eq!(index.members().len(), 3);
        let names: Vec<_> =
            index.members().iter().map(|member| member.contents().name().to_string()).collect();
        assert!(names[1].ends_with(".a(first.o)"), "{names:?}");
        assert!(names[2].ends_with("(a_member_with_a_long_name.o)"), "{names:?}");
        assert_eq!(index.member_defining("one"), Some(1), "{flags}");
        assert_eq!(index.member_defining("two"), Some(2), "{flags}");
        assert_eq!(index.member_defining("both"), Some(1), "{flags}: the first one wins");
        assert_eq!(index.member_defining("three"), None);
        let second = ObjectInterface::read(index.members()[2].contents()).expect("an object");
        assert!(second.has_initializers);
        assert_eq!(index.members()[0].contents().bytes(), b"odd");
    }
}

#[test]
fn a_bitcode_member_is_asked_for_its_symbols_when_the_table_leaves_it_out() {
    let scratch = Scratch::new("bitcode-member");
    let object = scratch.compile("cc", "plain.c", "int plain;", &["-fno-common"]);
    let object = scratch.write("plain.o", object.bytes());
    let bitcode = scratch.write("module.bc", b"BC\xC0\xDEnot really");
    let path = scratch.path("lib.a");
    run(Command::new("ar").arg("rcs").arg(&path).args([&bitcode, &object]));
    let mut asked = Vec::new();
    let index = ArchiveIndex::read_with::<ObjectError>(&open(&path), |member| {
        asked.push(member.name().to_string());
        Ok(vec!["from_bitcode".into()])
    });
    let index = index.expect("an archive");
    assert_eq!(asked.len(), 1);
    assert!(asked[0].ends_with("(module.bc)"), "{asked:?}");
    assert_eq!(index.member_defining("from_bitcode"), Some(0));
    assert_eq!(index.member_defining("plain"), Some(1));
    assert_eq!(index.symbol_count(), 2);
    assert!(index.members()[0].is_bitcode());
}

#[test]
fn thin_and_damaged_archives_are_refused() {
    let scratch = Scratch::new("bad-archives");
    let read = |archive: &ObjectBuffer| ArchiveIndex::read(archive);
    let thin = archive(&scratch, "rcsT");
    let error = read(&thin).expect_err("thin");
    assert!(matches!(error, ObjectError::ThinArchive { .. }), "{error:?}");
    assert!(error.to_string().contains("rebuild it without `T`"), "{error}");
    let good = archive(&scratch, "rcs");
    for size in [0, 4, 20, good.size_bytes() / 2, good.size_bytes() - 100] {
        let cut = good.slice("cut.a", 0..size).expect("within bounds");
        assert!(read(&cut).is_err(), "{size} of {} bytes", good.size_bytes());
    }
    let mut bytes = good.bytes().to_vec();
    for at in 0..bytes.len().min(1200) {
        let before = std::mem::replace(&mut bytes[at], b'9');
        let _ = read(&ObjectBuffer::new("mutant.a", bytes.clone()));
        bytes[at] = before;
    }
}

#[test]
fn an_object_for_another_architecture_than_its_layers_is_refused() {
    let scratch = Scratch::new("other-architecture");
    let object = scratch.compile("cc", "good.c", "int f(void) { return 1; }", &[]);
    let mut bytes = object.bytes().to_vec();
    bytes[18] = 183;
    let object = ObjectBuffer::new("arm.o", bytes);
    assert_eq!(ObjectInterface::read(&object).expect("an object").architecture, Architecture::AArch64);
    let (session, layer) = (ExecutionSession::new(), Arc::new(RecordingLayer::default()));
    let error =
        ObjectMaterializationUnit::new(&session, layer, object).map(drop).expect_err("not for this process");
    let message = error.to_string();
    for part in ["arm.o", "for AArch64", "links x86-64", "--target=x86_64-linux-gnu"] {
        assert!(message.contains(part), "{message}");
    }
    session.close().expect("nothing is linked");
}

//! Damaged objects: an error or a link, never a panic, an overflow or a write out of bounds.

use std::sync::Arc;

use crate::crafted::{CREL, Object, Section, TO_SYMBOLS};
use crate::link_support::*;
use uruk_core::{ExecutorAddr, SymbolFlags};
use uruk_pipeline::executor::RuntimeEntries;
use uruk_pipeline::link::{Link, LinkEnvironment, LinkError, LinkGraph, LinkOptions, elf};
use uruk_pipeline::memory::{
    Backing, FinalizedAlloc, InFlightAlloc, MemoryError, MemoryManager, SegmentKind, SegmentRequest,
};

/// Memory at made-up addresses: fast, never executable, and refuses what no small object can need.
struct PretendMemory;

const CONTENT_BYTES_MAX: usize = 1 << 20;

impl MemoryManager for PretendMemory {
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        let mut contents = Vec::new();
        for request in segments {
            assert!(request.zero_fill_bytes == 0 || request.kind == SegmentKind::Data);
            if request.content_bytes > CONTENT_BYTES_MAX {
                return Err(MemoryError::Invalid { owner: owner.into(), what: "too large for this test" });
            }
            contents.push(vec![0; request.content_bytes]);
        }
        Ok(InFlightAlloc::new(Box::new(PretendBacking { contents })))
    }
}

struct PretendBacking {
    contents: Vec<Vec<u8>>,
}

impl Backing for PretendBacking {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(0x7000_0000_0000 + ((segment as u64) << 30))
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        &mut self.contents[segment]
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        Ok(())
    }
}

fn link_anywhere(graph: LinkGraph<'_>, discard: bool) -> Result<FinalizedAlloc, LinkError> {
    let options =
        LinkOptions { is_discarded: &|name| discard && name.len() % 2 == 0, ..LinkOptions::default() };
    let mut allocated = Link::new(graph, &options)?.allocate(&PretendMemory)?;
    allocated.place_tls(MODULE);
    assert!(allocated.definitions().all(|(name, _)| name.len() < usize::MAX));
    let resolved = allocated.resolve(
        |name| {
            let mut definition = external(0x7000_1000_0000 + name.len() as u64);
            definition
                .flags
                .set(SymbolFlags::THREAD_LOCAL, matches!(name, "elsewhere" | "exported_variable"));
            Some(definition)
        },
        LinkEnvironment {
            tls_placement: &|_| Some(MODULE),
            entries: RuntimeEntries { ifunc_thunk: ExecutorAddr::new(THUNK), ..RuntimeEntries::default() },
            ..LinkEnvironment::default()
        },
    )?;
    Ok(resolved.fix()?.into_parts().0.finalize().expect("memory can be protected"))
}

/// Goes all the way as far as the object lets it.
fn try_link(object: &[u8]) {
    for discard in [false, true] {
        if let Ok(graph) = elf::parse("hostile.o", object) {
            // Most are refused, some link; both are right.
            drop(link_anywhere(graph, discard));
        }
    }
    if let (Ok(left), Ok(right)) = (elf::parse("left.o", object), elf::parse("right.o", object))
        && let Ok(merged) = LinkGraph::merge([left, right])
    {
        drop(link_anywhere(merged, false));
    }
}

/// A little of everything the parser knows.
const EVERYTHING: &str = r#"
    __attribute__((constructor(200))) static void first(void) {}
    __attribute__((destructor)) static void last(void) {}
    static __thread int local = 3;
    __thread int exported_variable;
    extern __thread int elsewhere;
    int tentative[4];
    static int implementation(void) { return 1; }
    static int (*resolver(void))(void) { return implementation; }
    int chosen(void) __attribute__((ifunc("resolver")));
    __attribute__((section("things"), used)) static int thing = 1;
    extern int __start_things[], __stop_things[];
    __attribute__((weak)) int maybe(int);
    __attribute__((weak)) int weak_function(int x) { return x; }
    int switcher(int x) {
        switch (x) { case 0: return maybe ? 5 : 9; case 1: return weak_function(x); case 2: return chosen();
                     case 3: return local++; case 4: return exported_variable + elsewhere; case 5: return tentative[x & 3]; }
        return (int)(__stop_things - __start_things);
    }
"#;

const FLAGS: [&str; 4] = ["-O1", "-fPIC", "-fcommon", "-ffunction-sections"];

fn sample() -> Vec<u8> {
    compile(CC, "c", EVERYTHING, &FLAGS)
}

/// The same with relocations in the compact form.
fn compact_sample() -> Vec<u8> {
    let flags = [&FLAGS[..], &["-Wa,--crel,--allow-experimental-crel"]].concat();
    compile(Tool("clang-22"), "c", EVERYTHING, &flags)
}

#[test]
fn the_samples_themselves_link() {
    for object in [sample(), compact_sample()] {
        drop(link_anywhere(elf::parse("sample.o", &object).expect("parses"), false).expect("links"));
    }
}

#[test]
fn truncated_objects_are_refused_or_linked_at_every_length() {
    let object = sample();
    for length in 0..object.len() {
        try_link(&object[..length]);
    }
    let message = elf::parse("t.o", &object[..100]).expect_err("the section headers are gone").to_string();
    assert!(message.starts_with("t.o: "), "{message}");
}

#[test]
fn objects_with_one_changed_byte_are_refused_or_linked() {
    change_each_byte(sample());
    change_each_byte(compact_sample());
}

fn change_each_byte(mut object: Vec<u8>) {
    for offset in 0..object.len() {
        let original = object[offset];
        for changed in [0, 0xff, original ^ 1, original ^ 0x80, original.wrapping_add(8)] {
            object[offset] = changed;
            try_link(&object);
        }
        object[offset] = original;
    }
}

#[test]
fn objects_with_many_changed_words_are_refused_or_linked() {
    let original = sample();
    // A fixed multiplier of a linear congruential generator: the run is the same every time.
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    const INTERESTING: [u64; 9] =
        [0, 1, u64::MAX, 1 << 63, 1 << 46, 0xffff_ffff, 0xffff, 0x7fff_ffff_ffff_ffff, 0x1000];
    for _ in 0..3000 {
        let mut object = original.clone();
        for _ in 0..1 + next(4) {
            let width = [1, 2, 4, 8][next(4)];
            let offset = next(object.len() - 8);
            let value = if next(2) == 0 { INTERESTING[next(9)] } else { next(object.len()) as u64 };
            object[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        try_link(&object);
    }
}

#[test]
fn foreign_files_are_named_for_what_they_are() {
    let refused = |bytes: &[u8]| elf::parse("f.o", bytes).expect_err("not for us").to_string();
    assert!(refused(b"").contains("empty"));
    assert!(refused(b"BC\xc0\xde").contains("not an ELF object"));
    assert!(refused(b"\x7fELF").contains("truncated"));
    let mut object = sample();
    object[18] = 243;
    assert!(refused(&object).contains("machine 243"));
    object[18] = 62;
    object[16] = 3;
    assert!(refused(&object).contains("shared library"));
    object[16] = 1;
    object[4] = 1;
    assert!(refused(&object).contains("64-bit"));
}

#[test]
fn errors_are_shared_between_everybody_who_waits() {
    fn assert_shareable<T: Clone + Send + Sync + 'static>() {}
    fn assert_sendable<T: Send + 'static>() {}
    assert_shareable::<LinkError>();
    assert_shareable::<Arc<LinkError>>();
    assert_sendable::<Link<uruk_pipeline::link::Allocated>>();
    assert_sendable::<Link<uruk_pipeline::link::Resolved>>();
}

#[test]
fn writable_code_and_executable_stacks_are_refused() {
    let error = failure(&assemble(".section .both, \"awx\", @progbits\nret"), &Externals::new());
    assert!(error.to_string().contains("writable and executable"), "{error}");
    let error = failure(&assemble(".section .note.GNU-stack, \"x\", @progbits\nnop"), &Externals::new());
    assert!(error.to_string().contains("executable stack"), "{error}");
}

#[test]
fn objects_without_machine_code_are_refused_with_advice() {
    let error = failure(&assemble(".comm __gnu_lto_slim, 1, 1"), &Externals::new());
    assert!(error.to_string().contains("-ffat-lto-objects"), "{error}");
}

#[test]
fn compact_relocations_that_say_what_is_not_so_are_refused() {
    let refused = |bytes: &[u8]| {
        let mut object = Object::with_main();
        object.section(Section {
            link: TO_SYMBOLS,
            info: 1,
            ..Section::new(".crel.text", CREL, 0x40, bytes)
        });
        elf::parse("c.o", &object.write()).expect_err("it is not so").to_string()
    };
    let cases: [(&[u8], &str); 7] = [
        (&[], "reach beyond the end"),
        // So many that none of them could be counted.
        (&[0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], "cannot be read"),
        (&[0xff; 20], "reach beyond the end"),
        // One, of which there is nothing; a part; whose number of a symbol never ends.
        (&[0x0c], "cannot be read"),
        (&[0x0c, 0x80], "cannot be read"),
        (
            &[0x0c, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            "cannot be read",
        ),
        // Addends that would lie in the code.
        (&[0x08, 0x00], "without explicit addends"),
    ];
    for (bytes, expected) in cases {
        let error = refused(bytes);
        assert!(error.contains(expected), "{bytes:x?}: {error}");
    }
    // A symbol that is not there, and a place beyond the end.
    assert!(refused(&[0x0c, 0x07, 0x7e, 0x02, 0x00]).contains("refers to symbol"));
    assert!(refused(&[0x0c, 0xff, 0x0f, 0x01, 0x02, 0x00]).contains("beyond"));
    // In the largest steps, which wrap around.
    let mut object = Object::with_main();
    object.section(Section::compact_relocations(1, &[(u64::MAX, 1, 2, i64::MIN), (0, 1, 2, i64::MAX)]));
    assert!(elf::parse("c.o", &object.write()).is_err());
}

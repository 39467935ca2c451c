//! AArch64: each relocation with a value that fits, as `ld.lld` writes it, and with one that does not.
//!
//! Nothing runs here, so no processor is needed: memory and addresses are made up. Tests are skipped without clang and `ld.lld`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use object::{Object as _, ObjectSegment as _};
use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, LookupRequest, LookupSet, SearchOrder, SymbolFlags,
};
use uruk_pipeline::executor::{RuntimeEntries, TlsPlacement, TlsResolvers};
use uruk_pipeline::link::{Link, LinkEnvironment, LinkError, LinkGraph, LinkOptions, elf};
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::memory::InProcessMemoryManager;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::in_process::InProcessExecutor;

use crate::function_unit::function_unit;
use crate::link_support::{Externals, Tool, assemble, chain, compile, external};
use crate::made_memory::{MadeSegment, MadeUpMemory};

const CODE: u64 = 0x10_0000_0000;
/// Where the functions of an object begin: behind the bytes that no function has.
const TEXT: u64 = CODE + 16;
/// Distances at the ends of what a branch, and what `adrp`, reaches.
const BRANCH_REACH: u64 = 1 << 27;
const PAGE_REACH: u64 = 1 << 32;

pub(crate) const CLANG: Tool = Tool("clang-22");
const LLD: &str = "ld.lld-22";

pub(crate) fn has_tools() -> bool {
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    has(CLANG.0) && has(LLD)
}

fn assemble_aarch64(source: &str) -> Vec<u8> {
    compile(CLANG, "s", source, &["--target=aarch64-linux-gnu"])
}

/// A linked object: its definitions, and its bytes.
pub(crate) struct Ours {
    pub(crate) definitions: HashMap<String, u64>,
    pub(crate) segments: Vec<MadeSegment>,
}

impl Ours {
    fn bytes(&self, address: u64, count: usize) -> &[u8] {
        self.segments.iter().find_map(|segment| segment.at(address, count)).expect("linked bytes")
    }

    fn instruction(&self, address: u64) -> u32 {
        u32::from_le_bytes(self.bytes(address, 4).try_into().expect("four bytes"))
    }

    fn word(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.bytes(address, 8).try_into().expect("eight bytes"))
    }

    /// The word that an `adrp` at `address` and the load behind it lead to.
    fn pair(&self, address: u64) -> u64 {
        let (adrp, load) = (self.instruction(address), self.instruction(address + 4));
        let pages = i64::from((adrp >> 5 & 0x7_ffff) << 2 | adrp >> 29 & 3) << 43 >> 43;
        let offset = u64::from(load >> 10 & 0xfff) * 8;
        (address & !0xfff).wrapping_add_signed(pages << 12) + offset
    }
}

/// The distance of the first thread-local variable: behind two words of the thread's own.
const FIRST_DISTANCE: i64 = 16;
const FIXED_RESOLVER: u64 = 0x1111;

/// Links a graph into memory that begins at `start`, with a resolver of TLS descriptors.
pub(crate) fn link_at(
    start: u64,
    resolver: u64,
    graph: LinkGraph<'_>,
    externals: &Externals,
) -> Result<Ours, LinkError> {
    let memory = MadeUpMemory::at(start);
    let mut link = Link::new(graph, &LinkOptions::default())?.allocate(&memory)?;
    link.place_tls(TlsPlacement { module: 1, offset: 0 });
    let definitions = link.definitions().map(|(name, def)| (name.to_owned(), def.address.value())).collect();
    let environment = LinkEnvironment {
        tls_placement: &|_| Some(TlsPlacement { module: 1, offset: 0 }),
        tls_distance: &|placement| Ok(FIRST_DISTANCE + placement.offset.cast_signed()),
        entries: RuntimeEntries {
            tls_resolvers: TlsResolvers { fixed: ExecutorAddr::new(resolver), ..TlsResolvers::default() },
            ..RuntimeEntries::default()
        },
    };
    let link = link.resolve(|name| externals.get(name).copied(), environment)?.fix()?;
    drop(link.into_parts().0.finalize().expect("there is nothing to protect"));
    let segments = memory.written.lock().clone();
    Ok(Ours { definitions, segments })
}

fn ours(object: &[u8], externals: &Externals) -> Result<Ours, LinkError> {
    link_at(CODE, FIXED_RESOLVER, elf::parse("test.o", object)?, externals)
}

/// The bytes of the section `.text` as `ld.lld` links it, or what it says.
fn lld(object: &[u8], flags: &[String], bytes: usize) -> Result<Vec<u8>, String> {
    let stem = format!("uruk-lld-{}-{:x}", std::process::id(), object.as_ptr().addr());
    let [input, output]: [PathBuf; 2] =
        ["o", "out"].map(|suffix| std::env::temp_dir().join(format!("{stem}.{suffix}")));
    std::fs::write(&input, object).expect("the temporary directory is writable");
    let mut command = Command::new(LLD);
    command.args(["-m", "aarch64linux", "--no-relax", "-e", "0", "-z", "separate-loadable-segments"]);
    command.arg(format!("--section-start=.text={TEXT:#x}")).args(flags);
    let linked = command.arg(&input).arg("-o").arg(&output).output().expect("it starts");
    let file = std::fs::read(&output);
    let _ = std::fs::remove_file(&input);
    let _ = std::fs::remove_file(&output);
    if !linked.status.success() {
        return Err(String::from_utf8_lossy(&linked.stderr).into_owned());
    }
    let file = file.expect("it has written a file");
    let parsed = object::File::parse(&*file).expect("an ELF file");
    let text = parsed.segments().find_map(|segment| segment.data_range(TEXT, bytes as u64).ok().flatten());
    Ok(text.expect("it has the section").to_vec())
}

/// One line of assembly for each case, which refers to a symbol `$`, and where that is.
const CASES: &[(&str, u64)] = &[
    (".xword $+5", 0xfedc_ba98_7654_3210),
    (".word $-1", 0x1_0000_0000),
    (".word $", 0xffff_ffff_8000_0000),
    (".hword $, 0", 0xfffe),
    (".xword $-.", 0x7000_0000_0000),
    (".word $-.", TEXT + 0x7fff_0000),
    (".hword $-., 0", TEXT + 0x7000),
    ("bl $", TEXT + BRANCH_REACH - 4),
    ("bl $+8", TEXT),
    ("b $", TEXT - BRANCH_REACH + 0x1000),
    ("b.ne $", TEXT + 0xf_0000),
    ("cbz x3, $", TEXT - 0xf_0000),
    ("tbnz x3, #33, $", TEXT - 0x7000),
    (".reloc ., R_AARCH64_PLT32, $\n.word 0", TEXT - 0x7000_0000),
    ("ldr x5, $", TEXT + 0xf_0008),
    ("adr x5, $", TEXT + 0xf_0007),
    ("adrp x5, $+0x123", TEXT + PAGE_REACH - 0x2345),
    ("adrp x5, $", TEXT - PAGE_REACH + 0x2000),
    ("adrp x5, :pg_hi21_nc:$", TEXT + PAGE_REACH * 3),
    ("add x5, x6, :lo12:$+1", 0x1234_5678_9abc),
    ("ldrb w5, [x6, :lo12:$]", 0x1234_5678_9abd),
    ("ldrh w5, [x6, :lo12:$]", 0x1234_5678_9abe),
    ("str w5, [x6, :lo12:$]", 0x1234_5678_9abc),
    ("ldr x5, [x6, :lo12:$+8]", 0x1234_5678_9ab0),
    ("ldr q5, [x6, :lo12:$]", 0x1234_5678_9ab0),
    ("movz x5, #:abs_g0:$", 0xfedc),
    ("movk x5, #:abs_g0_nc:$", 0xfedc_ba98_7654_3210),
    ("movz x5, #:abs_g1:$", 0xfedc_ba98),
    ("movk x5, #:abs_g1_nc:$", 0xfedc_ba98_7654_3210),
    ("movz x5, #:abs_g2:$", 0xfedc_ba98_7654),
    ("movk x5, #:abs_g2_nc:$", 0xfedc_ba98_7654_3210),
    ("movz x5, #:abs_g3:$", 0xfedc_ba98_7654_3210),
];

#[test]
fn each_field_is_as_another_linker_writes_it() {
    if !has_tools() {
        return;
    }
    let (mut source, mut externals, mut flags) =
        (".text\n.globl a\na:\n".to_owned(), Externals::new(), vec![]);
    for (index, (line, address)) in CASES.iter().enumerate() {
        let name = format!("sym{index}");
        source += &format!(".balign 8\n.globl case{index}\ncase{index}: {}\n", line.replace('$', &name));
        flags.push(format!("--defsym={name}={address:#x}"));
        externals.insert(name, external(*address));
    }
    let object = assemble_aarch64(&source);
    let ours = ours(&object, &externals).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ours.definitions["a"], TEXT);
    let theirs = lld(&object, &flags, CASES.len() * 8).unwrap_or_else(|error| panic!("{error}"));
    for (index, (line, _)) in CASES.iter().enumerate() {
        let place = ours.definitions[&format!("case{index}")];
        let offset = (place - TEXT) as usize;
        let theirs = &theirs[offset..offset + 8];
        assert_eq!(ours.bytes(place, 8), theirs, "{line}: {theirs:x?} are right");
    }
}

/// A line that refers to `x`, the address of that, the relocation's name, and how many bits it has.
const OVERFLOWS: &[(&str, u64, &str, u8)] = &[
    (".word x", 0x1_0000_0000, "R_AARCH64_ABS32", 32),
    (".hword x, 0", 0x1_0000, "R_AARCH64_ABS16", 16),
    (".word x-.", TEXT + 0x1_0000_0000, "R_AARCH64_PREL32", 32),
    (".hword x-., 0", TEXT + 0x1_0000, "R_AARCH64_PREL16", 16),
    ("ldr x5, x", TEXT + 0x10_0000, "R_AARCH64_LD_PREL_LO19", 21),
    ("adr x5, x", TEXT - 0x10_0001, "R_AARCH64_ADR_PREL_LO21", 21),
    ("adrp x5, x", TEXT + PAGE_REACH, "R_AARCH64_ADR_PREL_PG_HI21", 33),
    ("ldrh w5, [x6, :lo12:x]", 0x1001, "R_AARCH64_LDST16_ABS_LO12_NC", 12),
    ("ldr w5, [x6, :lo12:x]", 0x1002, "R_AARCH64_LDST32_ABS_LO12_NC", 12),
    ("ldr x5, [x6, :lo12:x]", 0x1004, "R_AARCH64_LDST64_ABS_LO12_NC", 12),
    ("ldr q5, [x6, :lo12:x]", 0x1008, "R_AARCH64_LDST128_ABS_LO12_NC", 12),
    ("movz x5, #:abs_g0:x", 0x1_0000, "R_AARCH64_MOVW_UABS_G0", 16),
    ("movz x5, #:abs_g1:x", 0x1_0000_0000, "R_AARCH64_MOVW_UABS_G1", 32),
    ("movz x5, #:abs_g2:x", 0x1_0000_0000_0000, "R_AARCH64_MOVW_UABS_G2", 48),
];

#[test]
fn a_value_that_does_not_fit_is_refused_as_by_another_linker() {
    if !has_tools() {
        return;
    }
    for (line, address, kind_wanted, bits_wanted) in OVERFLOWS {
        let object = assemble_aarch64(line);
        let theirs = lld(&object, &[format!("--defsym=x={address:#x}")], 4).expect_err(line);
        assert!(theirs.contains("out of range") || theirs.contains("improper alignment"), "{line}: {theirs}");
        let externals = Externals::from([("x".to_owned(), external(*address))]);
        match ours(&object, &externals).err() {
            Some(LinkError::OutOfRange { kind, bits, advice, .. }) => {
                assert_eq!((kind, bits), (*kind_wanted, *bits_wanted), "{line}");
                assert_eq!(
                    advice.contains("aligned"),
                    theirs.contains("improper alignment"),
                    "{line}: {advice}"
                );
            }
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn a_branch_to_a_far_function_goes_through_a_stub() {
    if !has_tools() {
        return;
    }
    let far = 0x7000_1234_5678;
    let externals = Externals::from([("x".to_owned(), external(far))]);
    let linked = ours(&assemble_aarch64(".globl a\na: bl x\nb x\ncbz x0, x"), &externals).expect("it links");
    let a = linked.definitions["a"];
    let stub = |place: u64| {
        let branch = linked.instruction(place);
        let distance = match branch >> 26 {
            0b00_0101 | 0b10_0101 => (branch << 6).cast_signed() >> 6,
            _ => (branch << 8).cast_signed() >> 13,
        };
        place.wrapping_add_signed(i64::from(distance) * 4)
    };
    let first = stub(a);
    assert!([a + 4, a + 8].map(stub) == [first; 2], "one stub for all");
    assert_eq!(linked.word(linked.pair(first)), far);
    // ldr x16, [x16, ...]; br x16
    assert_eq!(linked.instruction(first + 4) & 0xffc0_03ff, 0xf940_0210);
    assert_eq!(linked.instruction(first + 8), 0xd61f_0200);
}

#[test]
fn a_branch_that_reaches_neither_function_nor_stub_is_refused_with_the_reason() {
    if !has_tools() {
        return;
    }
    let refused = |source: &str| match ours(&assemble_aarch64(source), &Externals::new()).err() {
        Some(error @ LinkError::OutOfRange { .. }) => error.to_string(),
        other => panic!("{source}: {other:?}"),
    };
    for (line, kind, bits) in [
        ("bl x+0x8000000", "R_AARCH64_CALL26", 28),
        ("b x-0x8000010", "R_AARCH64_JUMP26", 28),
        ("b.eq x+0x100000", "R_AARCH64_CONDBR19", 21),
        ("tbz x0, #1, x-0x8010", "R_AARCH64_TSTBR14", 16),
    ] {
        let message = refused(&format!("{line}\n.globl x\nx: ret"));
        assert!(message.contains(kind) && message.contains(&format!("{bits} signed bits")), "{message}");
        assert!(message.contains("split it"), "{message}");
    }
}

#[test]
fn pointers_are_loaded_from_the_table() {
    if !has_tools() {
        return;
    }
    let source = ".globl a, b, c
        a: adrp x0, :got:x
        ldr x0, [x0, :got_lo12:x]
        b: adrp x1, :got:y
        ldr x1, [x1, :got_lo12:y]
        c: ldr x2, [x1, :gotpage_lo15:y]
        .reloc ., R_AARCH64_GOTPCREL32, y
        .word 0";
    let (x, y) = (0x7000_1234_5678, 0x6000_1234_5679);
    let externals = Externals::from([("x".to_owned(), external(x)), ("y".to_owned(), external(y))]);
    let object = assemble_aarch64(source);
    let linked = ours(&object, &externals).expect("it links");
    let table = linked.pair(linked.definitions["a"]);
    assert_eq!((linked.word(table), linked.word(table + 8)), (x, y));
    assert_eq!(linked.pair(linked.definitions["b"]), table + 8);
    let flags = [
        format!("--section-start=.got={table:#x}"),
        format!("--defsym=x={x:#x}"),
        format!("--defsym=y={y:#x}"),
    ];
    let theirs = lld(&object, &flags, 24).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(linked.bytes(TEXT, 24), theirs);
}

const VARIABLE: &str = "\n.section .tdata, \"awT\", @progbits\n.zero 0x123450\n.globl x\nx: .xword 1, 2\n";

#[test]
fn local_exec_code_holds_the_distance() {
    if !has_tools() {
        return;
    }
    let source = "a: add x1, x0, :tprel_hi12:x
        add x1, x1, :tprel_lo12_nc:x+8
        ldrb w2, [x1, :tprel_lo12_nc:x+1]
        ldrh w2, [x1, :tprel_lo12_nc:x+2]
        ldr w2, [x1, :tprel_lo12_nc:x+4]
        ldr x2, [x1, :tprel_lo12_nc:x+8]
        ldr q2, [x1, :tprel_lo12_nc:x]";
    let object = assemble_aarch64(&format!("{source}{VARIABLE}"));
    let linked = ours(&object, &Externals::new()).expect("it links");
    assert_eq!(linked.bytes(TEXT, 28), lld(&object, &[], 28).unwrap_or_else(|error| panic!("{error}")));
    let object = assemble_aarch64(&format!("add x1, x1, :tprel_lo12:x{VARIABLE}"));
    assert!(lld(&object, &[], 4).is_err());
    let error = ours(&object, &Externals::new()).err().expect("more than twelve bits");
    assert!(error.to_string().contains("R_AARCH64_TLSLE_ADD_TPREL_LO12"), "{error}");
}

/// Links code that finds the variable `x`, of another object, through a table, and checks that the instructions are right for where the table
/// is, and that it holds `words`.
fn check_table(source: &str, count: usize, words: &[u64]) {
    let object = assemble_aarch64(source);
    let flags = SymbolFlags::THREAD_LOCAL | SymbolFlags::EXPORTED;
    let variable = ExecutorSymbolDef::new(ExecutorAddr::new(0x5000), flags);
    let linked = ours(&object, &Externals::from([("x".to_owned(), variable)])).expect("it links");
    let table = linked.pair(TEXT);
    let flags = ["-shared", "-z", "norelro", &format!("--section-start=.got={table:#x}")].map(str::to_owned);
    let theirs = lld(&object, &flags, count).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(linked.bytes(TEXT, count), theirs, "{source}");
    for (at, word) in (table..).step_by(8).zip(words) {
        assert_eq!(linked.word(at), *word, "{source}");
    }
}

#[test]
fn a_variable_is_found_through_a_pair_of_resolver_and_argument() {
    if !has_tools() {
        return;
    }
    let source = "adrp x0, :tlsdesc:x
        ldr x1, [x0, :tlsdesc_lo12:x]
        add x0, x0, :tlsdesc_lo12:x
        .tlsdesccall x
        blr x1";
    check_table(source, 16, &[FIXED_RESOLVER, FIRST_DISTANCE.cast_unsigned()]);
}

#[test]
fn initial_exec_code_loads_the_distance() {
    if !has_tools() {
        return;
    }
    let source = "adrp x0, :gottprel:x\nldr x0, [x0, :gottprel_lo12:x]";
    check_table(source, 8, &[FIRST_DISTANCE.cast_unsigned()]);
}

#[test]
fn objects_for_two_processors_do_not_become_one() {
    if !has_tools() {
        return;
    }
    let objects = [assemble(".globl a\na: ret"), assemble_aarch64(".globl b\nb: ret")];
    let graphs = objects.each_ref().map(|object| elf::parse("test.o", object).expect("an object"));
    let error = LinkGraph::merge(graphs).expect_err("they are for two processors").to_string();
    assert!(error.contains("x86-64") && error.contains("AArch64"), "{error}");
}

#[test]
fn a_graph_for_another_processor_is_not_linked_into_this_process() {
    if !has_tools() {
        return;
    }
    let memory = Arc::new(InProcessMemoryManager::new().expect("address space"));
    let layer = ObjectLinkingLayer::new(Arc::new(InProcessExecutor::new(memory)), Arc::new(Platform::new()));
    let session = ExecutionSession::new();
    let dylib = session.create_jit_dylib("main").expect("new");
    let object = assemble_aarch64(".globl f\nf: ret");
    let unit = function_unit(session.intern("f"), move |responsibility| {
        layer.emit_graph(responsibility, elf::parse("f.o", &object).expect("an object"));
    });
    dylib.define(unit).expect("a new name");
    let request = LookupRequest::new(SearchOrder::of(&dylib), LookupSet::one(session.intern("f")));
    let error = chain(&session.lookup(request).expect_err("it is not of this process"));
    assert!(error.contains("AArch64") && error.contains("x86-64"), "{error}");
}

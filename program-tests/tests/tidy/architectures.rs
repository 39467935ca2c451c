//! Code that depends on a processor stands in the folder of its architecture, `pipeline/src/arch/`.

use super::source::{Source, sources};
use super::{demand_none, has_word};

const ROOM: &str = "pipeline/src/arch/";

/// Files outside it that hold assembly or intrinsics of a processor, and why they stay where they are.
const ASSEMBLY: &[(&str, &str)] = &[
    ("core/src/symbol/window.rs", "compares several names at once, in a crate that knows no linker"),
    ("core/src/symbol/text.rs", "fetches a line of the cache to be written"),
    ("pipeline/src/debug/gdb.rs", "has two weak symbols, which the language has not"),
    ("pipeline/src/ir/library.rs", "binds functions of LLVM when they are called"),
    ("pipeline/src/ir/processor.rs", "asks this processor for its name and features"),
    ("pipeline/src/runtime/allocation/mod.rs", "is called by the C library in its convention"),
    ("pipeline/src/runtime/tls/reserve.rs", "has variables that the dynamic linker places"),
    ("recorder/src/clock.rs", "reads the processor's counter"),
];

/// Files outside it whose bytes look like instructions, and what the bytes are.
const BYTES: &[(&str, &str)] = &[];

/// Outside the folder no code names relocations or edge kinds, spells an instruction, or is assembly.
#[test]
fn an_architecture_is_a_folder() {
    let mut findings = Vec::new();
    let mut used = Vec::new();
    for source in sources().iter().filter(|source| is_outside(source)) {
        let code = source.code_before_tests();
        let listed = |list: &'static [(&str, &str)]| list.iter().find(|(path, _)| *path == source.path);
        let mut report = |what: &str, list: &'static [(&str, &str)]| match listed(list) {
            Some((path, _)) => used.push(*path),
            None => findings.push(format!("{}: {what}", source.path)),
        };
        if code.contains("R_X86_64") || code.contains("R_AARCH64") {
            report("names a relocation type", &[]);
        }
        if ["x86_64::kinds", "aarch64::kinds", "host::kinds"].iter().any(|kinds| code.contains(kinds)) {
            report("names an edge kind of one architecture", &[]);
        }
        if let Some(bytes) = instruction_in(&code) {
            report(&format!("`{bytes}` is an instruction"), BYTES);
        }
        if ["asm!", "global_asm!", "naked_asm!"].iter().any(|word| code.contains(word))
            || code.contains("std::arch::")
            || code.contains("core::arch::")
        {
            report("holds assembly", ASSEMBLY);
        }
    }
    let stale = ASSEMBLY.iter().chain(BYTES).filter(|(path, _)| !used.contains(path));
    findings.extend(stale.map(|(path, _)| format!("{path}: needs no exception; take it off the list")));
    demand_none(
        findings,
        "move it to `pipeline/src/arch/`, and let the code here ask `Architecture`, or take a template of `arch::host`",
    );
}

fn is_outside(source: &Source) -> bool {
    (source.is_library() || source.is_command()) && !source.path.starts_with(ROOM)
}

/// The beginning of what looks like an instruction of x86-64: a list of bytes that begins with two in hexadecimal digits, or one of the
/// bytes that are a jump, a call, a return, a trap or a prefix by themselves.
fn instruction_in(code: &str) -> Option<&str> {
    const ALONE: [&str; 7] = ["0xc3", "0xcc", "0xe8", "0xe9", "0xeb", "0x48", "0x4c"];
    let alone = ALONE.into_iter().find(|byte| has_word(code, byte));
    let is_byte = |text: &str| {
        let digits = text.strip_prefix("0x").unwrap_or_default();
        digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_digit() || digit.is_ascii_lowercase())
    };
    let mut lists = code.split('[').skip(1).filter(|list| {
        let mut elements = list.split([',', ']']).map(str::trim);
        elements.next().is_some_and(is_byte) && elements.next().is_some_and(is_byte)
    });
    alone.or_else(|| Some(lists.next()?.split(']').next().unwrap_or_default().trim()))
}

/// Keeps the helper honest.
#[test]
fn instructions_are_known_by_their_bytes() {
    for instruction in
        ["let jump = [0xff, 0x25, 0, 0];", "[\n 0x4c, 0x89, 0x5c", "code[0] = 0xe9;", "0xe8 | 0xe9"]
    {
        assert!(instruction_in(instruction).is_some(), "{instruction}");
    }
    for other in ["[1, 0xff, 3]", "[0xCA, 0xFE, 0xBA]", "[0xff; 16]", "0xc350", "for value in [0, 0x7f]"] {
        assert_eq!(instruction_in(other), None, "{other}");
    }
}

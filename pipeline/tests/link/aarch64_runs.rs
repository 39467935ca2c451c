//! C for AArch64, compiled by clang, linked into made-up memory, and run from there by an emulator.
//!
//! ```text
//!   0x4000_0000    program.o: starts, calls the system, has thread-local variables
//!   0x1_8000_0000  system.o: out of reach of branches and of `adrp`
//! ```
//! Both are loaded as one executable file without a C library. Skipped without clang and `qemu-aarch64`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use uruk_pipeline::link::elf;

use crate::aarch64::{CLANG, has_tools, link_at};
use crate::link_support::{Externals, compile, external};
use crate::made_memory::MadeSegment;

const PROGRAM: u64 = 0x4000_0000;
const SYSTEM: u64 = 0x1_8000_0000;

const SYSTEM_SOURCE: &str = r#"
    int far_number = 30;
    long far_system(long number, long a, long b, long c) {
        register long x8 asm("x8") = number;
        register long x0 asm("x0") = a;
        register long x1 asm("x1") = b;
        register long x2 asm("x2") = c;
        asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
        return x0;
    }
    asm(".globl fixed_resolver\nfixed_resolver: ldr x0, [x0, #8]\nret");
"#;

const PROGRAM_SOURCE: &str = r#"
    extern long far_system(long number, long a, long b, long c);
    extern int far_number;
    extern int nowhere __attribute__((weak));
    static const char *const words[] = { "hello ", "from ", "a graph\n" };
    _Thread_local int first;
    _Thread_local long second;
    static char block[4096] __attribute__((aligned(64)));
    static long (*volatile pointer)(long, long, long, long) = far_system;

    static __attribute__((noinline)) long length(const char *word) {
        long count = 0;
        while (word[count]) count++;
        return count;
    }
    static __attribute__((noinline)) int chosen(int number) {
        switch (number) {
        case 0: return far_number;
        case 1: return first;
        case 2: return (int)second;
        case 3: return &nowhere ? 1000 : 4;
        case 4: return block[4095];
        default: return -1;
        }
    }
    void start(void) {
        asm volatile("msr tpidr_el0, %0" : : "r"(block));
        for (volatile int word = 0; word < 3; word++)
            far_system(64, 1, (long)words[word], length(words[word]));
        first = 5;
        second = 3;
        int sum = 0;
        for (volatile int number = 0; number < 5; number++) sum += chosen(number);
        pointer(94, sum, 0, 0);
    }
"#;

/// An executable file of these segments.
fn executable(entry: u64, segments: &[MadeSegment]) -> Vec<u8> {
    const PAGE: usize = 4096;
    let words = |values: &[u64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let halves = |values: &[u16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(halves(&[2, 183, 1, 0]));
    file.extend(words(&[entry, 64, 0]));
    file.extend(halves(&[0, 0, 64, 56, segments.len() as u16, 64, 0, 0]));
    let mut offset = PAGE;
    for MadeSegment { address, bytes } in segments {
        let size = bytes.len() as u64;
        file.extend(words(&[7 << 32 | 1, offset as u64, *address, *address, size, size, PAGE as u64]));
        offset = (offset + bytes.len()).next_multiple_of(PAGE);
    }
    for MadeSegment { bytes, .. } in segments {
        file.resize(file.len().next_multiple_of(PAGE), 0);
        file.extend(bytes);
    }
    file
}

#[test]
fn a_program_runs_whose_system_is_out_of_reach() {
    const EMULATOR: &str = "qemu-aarch64";
    if !has_tools() || Command::new(EMULATOR).arg("--version").output().is_err() {
        return;
    }
    for optimization in ["-O0", "-O2"] {
        let flags = ["--target=aarch64-linux-gnu", "-fPIC", "-ffreestanding", optimization];
        let [system, program] =
            [SYSTEM_SOURCE, PROGRAM_SOURCE].map(|source| compile(CLANG, "c", source, &flags));
        let parse = |object| elf::parse("program.o", object).expect("an object");
        let mut linked =
            link_at(SYSTEM, 0, parse(&system), &Externals::new()).unwrap_or_else(|error| panic!("{error}"));
        let there = linked.definitions.iter().map(|(name, address)| (name.clone(), external(*address)));
        let resolver = linked.definitions["fixed_resolver"];
        let program = link_at(PROGRAM, resolver, parse(&program), &there.collect())
            .unwrap_or_else(|error| panic!("{error}"));
        linked.segments.extend(program.segments);
        linked.segments.sort_by_key(|segment| segment.address);
        let path = std::env::temp_dir().join(format!("uruk-aarch64-{}", std::process::id()));
        std::fs::write(&path, executable(program.definitions["start"], &linked.segments))
            .expect("the temporary directory is writable");
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("the file is ours");
        let output = Command::new(EMULATOR).arg(&path).output().expect("it starts");
        let _ = std::fs::remove_file(&path);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello from a graph\n", "{output:?}");
        assert_eq!(output.status.code(), Some(30 + 5 + 3 + 4), "{optimization}: {output:?}");
    }
}

//! Thread-local storage where the executable keeps no reserve: what a library that embeds the engine can serve.
//!
//! `std::call_once` and all that is built on it reach variables of the C++ library at a fixed distance from the thread
//! pointer. That was refused, though the distance is there to be found.

use std::process::Command;

use crate::link_support::*;
use crate::threads::*;
use uruk_pipeline::runtime::tls;

/// The flags by which both compilers call TLS descriptors, the dynamic models, and the one that takes detours.
const DYNAMIC_MODELS: [&[&str]; 4] = [
    &["-ftls-model=global-dynamic"],
    &["-ftls-model=local-dynamic"],
    &["-mtls-dialect=gnu2"],
    &["-ftls-model=initial-exec"],
];

/// How another object reaches what the first defines; by default that is initial-exec.
const NEIGHBOUR_MODELS: [&[&str]; 3] = [&["-fPIC"], &["-fPIC", "-mtls-dialect=gnu2"], &[]];

#[test]
fn dynamic_models_and_descriptors_agree_on_every_thread() {
    let mut combinations = 0;
    for tool in compilers() {
        for model in DYNAMIC_MODELS {
            for level in ["-O0", "-O2"] {
                let flags = [model, &["-fPIC", level]].concat();
                let linking = Linking::new();
                let before = Caller::start();
                linking.add("variables.o", compile(tool, "c", VARIABLES, &flags));
                let flags = NEIGHBOUR_MODELS[combinations % 3];
                linking.add("neighbour.o", compile(tool, "c", NEIGHBOUR, flags));
                check_on_all_threads(&linking, &before, &format!("{tool:?} {model:?} {level}"));
                before.end();
                combinations += 1;
            }
        }
    }
    assert!(combinations >= 6);
}

/// The C library is loaded with the process, so its `errno` is at the same distance on every thread.
#[test]
fn variables_of_libraries_loaded_at_start_are_at_a_fixed_distance() {
    const SOURCE: &str = "
        extern __thread int error __asm__(\"errno\");
        unsigned long place(void) { return (unsigned long)&error; }";
    extern "C" fn native() -> u64 {
        // SAFETY: the C library's function has no obligations.
        unsafe { libc::__errno_location() }.addr() as u64
    }
    // Default flags are an executable's; the second is what a linker would make of them where the library is static.
    let models = [
        &[][..],
        &["-fPIC", "-ftls-model=initial-exec"],
        &["-ftls-model=local-exec"],
        &["-mtls-dialect=gnu2", "-fPIC"],
    ];
    for tool in compilers() {
        for flags in models {
            let before = Caller::start();
            let linking = Linking::new();
            linking.add("user.o", compile(tool, "c", SOURCE, flags));
            let place = linking.find("place").unwrap_or_else(|error| panic!("{tool:?} {flags:?}: {error:?}"));
            let after = Caller::start();
            assert_eq!(place(), native(), "{tool:?} {flags:?}");
            for thread in [before, after] {
                assert_eq!(thread.call(place), thread.call(native), "{tool:?} {flags:?}");
                thread.end();
            }
        }
    }
}

/// A library that comes later gets a block for each thread when that first touches it, at no fixed distance.
#[test]
fn variables_of_libraries_loaded_later_are_reached_by_every_model() {
    const LIBRARY: &str = "__thread int late = 3; __thread char much[5000];
        unsigned long place_in_library(void) { return (unsigned long)&late; }";
    const USER: &str = "extern __thread int late; unsigned long place_in_library(void);
        unsigned long same(void) { return late++ == 3 && (unsigned long)&late == place_in_library(); }";
    let directory = std::env::temp_dir().join(format!("uruk-tls-late-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
    let (source, library) = (directory.join("late.c"), directory.join("liblate.so"));
    std::fs::write(&source, LIBRARY).expect("it can be written");
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(made.expect("the compiler starts").success());

    let (before, linking) = (Caller::start(), Linking::new());
    linking.libraries.load_library(&library).expect("it loads");
    let _ = std::fs::remove_dir_all(&directory);
    // By default initial-exec: an executable's libraries are all there when it starts.
    for flags in [&["-fPIC"][..], &["-fPIC", "-mtls-dialect=gnu2"], &["-O0"], &["-O2"]] {
        let user = linking.add("user.o", compile(CC, "c", USER, flags));
        let same = linking.find("same").unwrap_or_else(|error| panic!("{flags:?}: {error:?}"));
        let after = Caller::start();
        assert_eq!(after.call(same), 1, "{flags:?}: on a new thread it is as initialised");
        assert_eq!(after.call(same), 0, "{flags:?}: and changed then");
        after.end();
        if flags == ["-fPIC"] {
            assert_eq!((same(), before.call(same)), (1, 1), "{flags:?}");
        }
        user.remove().expect("nobody runs it");
    }
    before.end();
}

/// A load of a distance keeps flags, registers and what a function has below its stack pointer; an addition sets the flags.
#[test]
fn a_detour_keeps_what_the_instruction_kept() {
    const SOURCE: &str = "
        .section .tdata, \"awT\", @progbits
        .balign 8
        variable: .quad 42
        .text
        .globl kept
        .type kept, @function
        kept:
            movq $0x1234, -8(%rsp)
            movq $0x5678, -128(%rsp)
            movq $11, %rsi
            movq $22, %r11
            movq %rsi, %xmm7
            movq $1, %rax
            cmpq $5, %rax
            movq variable@GOTTPOFF(%rip), %REGISTER
            jae 9f
            jz 9f
            cmpq $1, %rax
            jne 9f
            movq %fs:0, %rax
            movq %rax, %rcx
            addq variable@GOTTPOFF(%rip), %rax
            setc %r9b
            cmpq %rcx, %rax
            setb %r10b
            cmpb %r9b, %r10b
            jne 9f
            addq variable@GOTTPOFF(%rip), %rcx
            cmpq %rax, %rcx
            jne 9f
            movq variable@GOTTPOFF(%rip), %rcx
            cmpq %REGISTER, %rcx
            jne 9f
            cmpq $0x1234, -8(%rsp)
            jne 9f
            cmpq $0x5678, -128(%rsp)
            jne 9f
            movq %xmm7, %rcx
            cmpq %rsi, %rcx
            jne 9f
            cmpq $22, %r11
            jne 9f
            movq (%rax), %rax
            ret
        9:  xorl %eax, %eax
            ret";
    for register in ["rdx", "r8"] {
        let linking = Linking::new();
        linking.add("kept.o", assemble(&SOURCE.replace("REGISTER", register)));
        let kept = linking.find("kept").expect("links");
        let other = Caller::start();
        assert_eq!((kept(), other.call(kept)), (42, 42), "{register}");
        other.end();
    }
}

#[test]
fn own_variables_at_a_fixed_distance_are_refused_with_advice() {
    for tool in compilers() {
        for (flags, model) in [(&[][..], "local-exec"), (&["-ftls-model=local-exec"], "local-exec")] {
            let linking = Linking::new();
            linking.add("variables.o", compile(tool, "c", VARIABLES, flags));
            let message = linking.refusal("check");
            for word in
                ["variables.o", model, "keeps no room", "-fPIC", "-ftls-model=global-dynamic", "bitcode"]
            {
                assert!(message.contains(word), "{tool:?} {flags:?}, no `{word}`: {message}");
            }
        }
    }
}

/// A thread that started in the middle of a link kept what lay where the image was to be written. Here the thread that links does
/// what a new one does, while the object waits for its imports.
#[test]
fn copies_wait_until_the_linker_has_written_the_image() {
    let source = "int getpid(void); unsigned long seven = 7; __thread unsigned long *variable = &seven;
                  unsigned long read(void) { return getpid() > 0 && variable ? *variable : 0; }";
    let linking = Linking::noticing_imports(tls::touch_modules);
    linking.add("image.o", compile(CC, "c", source, &["-fPIC"]));
    assert_eq!(linking.find("read").expect("links")(), 7);
}

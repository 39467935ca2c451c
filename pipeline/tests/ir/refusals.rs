//! A module that cannot be read or compiled is an error that says why, and the thread compiles on.

use uruk_pipeline::ir::{
    CompileError, ModuleInterface, OptimizationLevel, OptimizationPipeline, ThreadSafeContext,
    ThreadSafeModule,
};
use uruk_pipeline::object::ObjectBuffer;

use super::{ADD, KINDS, bitcode, compiler, parse, target, text};
use crate::support::Scratch;

#[test]
fn bad_input_is_refused_with_its_name_and_a_reason() {
    let scratch = Scratch::new("bad_input_is_refused_with_its_name_and_a_reason");
    let bitcode = bitcode(&scratch, "good.c", "int f(int a) { return a * 3; }", &["-O1"]);
    let elf = scratch.compile("clang-22", "good2.c", "int g(void) { return 3; }", &[]);
    let whole = bitcode.bytes();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty.bc", vec![], "empty"),
        ("blank.ll", b" \n\t\n".to_vec(), "blank"),
        ("foreign.o", elf.bytes().to_vec(), "ELF"),
        ("library.a", b"!<arch>\nrest".to_vec(), "archive"),
        ("noise.bin", vec![1, 2, 0, 4], "neither bitcode nor text"),
        ("prose.ll", b"it was a dark and stormy night".to_vec(), "expected top-level entity"),
        ("header.bc", whole[..4].to_vec(), ""),
        ("half.bc", whole[..whole.len() / 2].to_vec(), ""),
        ("almost.bc", whole[..whole.len() - 4].to_vec(), ""),
        ("odd.bc", whole[..whole.len() - 3].to_vec(), ""),
    ];
    for (name, bytes, reason) in cases {
        let error = ThreadSafeModule::parse(&ObjectBuffer::new(name, bytes)).expect_err(name);
        assert!(matches!(error, CompileError::Parse { .. }), "{name}: {error:?}");
        let message = error.to_string();
        assert!(message.starts_with(name) && message.contains(reason), "{message}");
        assert!(message.len() > name.len() + "cannot be read as LLVM IR".len() + 5, "{message}");
    }
}

#[test]
fn every_truncation_of_bitcode_is_an_error_for_both_readers() {
    let scratch = Scratch::new("every_truncation_of_bitcode_is_an_error_for_both_readers");
    let source = "static int t[4]; int f(int a) { return a * t[a & 3]; } int g(int a) { return f(a) + 1; }";
    let bitcode = bitcode(&scratch, "good.c", source, &["-O1"]);
    let (whole, target) = (bitcode.bytes(), target());
    for size in (0..whole.len()).step_by(61) {
        let cut = ObjectBuffer::new("cut.bc", whole[..size].to_vec());
        assert!(ThreadSafeModule::parse(&cut).is_err(), "{size} of {} bytes", whole.len());
        // The lazy reader does not need the bytes behind the symbols; it must not crash.
        let _ = ModuleInterface::of_bitcode(&cut, &target);
    }
}

#[test]
fn ir_that_breaks_the_rules_is_not_compiled() {
    let bitcode_of_nonsense = "define i32 @f() {\n  ret i64 1\n}\n";
    let error = ThreadSafeModule::parse(&text("types.ll", bitcode_of_nonsense)).expect_err("parse error");
    assert!(error.to_string().contains("types.ll"), "{error}");
    let undominated = "define i32 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n  br label %b\nb:\n  ret i32 %x\n}\n";
    let error = ThreadSafeModule::parse(&text("order.ll", undominated)).expect_err("not valid");
    assert!(matches!(error, CompileError::Verify { .. }), "{error:?}");
    assert!(error.to_string().contains("does not dominate all uses"), "{error}");
}

#[test]
fn errors_in_inline_assembly_fail_the_module_though_llvm_returns_an_object() {
    for (name, source) in [
        (
            "asm.ll",
            "define void @f() {\n  call void asm sideeffect \"frobnicate %eax\", \"\"()\n  ret void\n}\n",
        ),
        (
            "constraint.ll",
            "define void @f(i32 %x) {\n  call void asm sideeffect \"nop\", \"{zmm99}\"(i32 %x)\n  ret void\n}\n",
        ),
        ("module-asm.ll", "module asm \"frobnicate\"\n"),
    ] {
        let module = ThreadSafeModule::parse(&text(name, source)).expect("valid IR");
        let error = compiler(OptimizationPipeline::none()).compile(module).expect_err(name);
        assert!(matches!(error, CompileError::Codegen { .. }), "{error:?}");
        assert!(error.to_string().starts_with(name), "{error}");
    }
}

/// Instruction selection finds no instruction for this, and has no way to say so but to give up.
const UNSELECTABLE: &str = "
    declare <2 x i64> @llvm.x86.sse4a.extrqi(<2 x i64>, i8, i8)
    define <2 x i64> @f(<2 x i64> %x) #0 {
      %r = call <2 x i64> @llvm.x86.sse4a.extrqi(<2 x i64> %x, i8 3, i8 2)
      ret <2 x i64> %r
    }
    attributes #0 = { \"target-features\"=\"-sse4a\" }";

#[test]
fn a_fatal_error_is_an_error_and_the_thread_compiles_on() {
    for _ in 0..20 {
        let module = ThreadSafeModule::parse(&text("fatal.ll", UNSELECTABLE)).expect("valid IR");
        let error = compiler(OptimizationPipeline::none()).compile(module).expect_err("not selectable");
        assert!(matches!(error, CompileError::Fatal { stage: "code generation", .. }), "{error:?}");
        assert!(error.to_string().starts_with("fatal.ll") && error.to_string().contains("Cannot select"));
        compiler(OptimizationPipeline::none()).compile(parse(ADD)).expect("compiles");
    }
}

#[test]
fn a_context_llvm_gave_up_on_is_not_used_again() {
    let context = ThreadSafeContext::new();
    let sibling = ThreadSafeModule::parse_in(&context, &text("sibling.ll", ADD)).expect("valid IR");
    let module = ThreadSafeModule::parse_in(&context, &text("fatal.ll", UNSELECTABLE)).expect("valid IR");
    let error = compiler(OptimizationPipeline::none()).compile(module).expect_err("not selectable");
    assert!(matches!(error, CompileError::Fatal { .. }), "{error:?}");
    for error in [
        sibling.to_bitcode().expect_err("lost"),
        sibling.with_module(|_| ()).expect_err("lost"),
        ThreadSafeModule::parse_in(&context, &text("late.ll", ADD)).expect_err("lost"),
    ] {
        assert!(matches!(error, CompileError::ContextLost { .. }), "{error:?}");
    }
    assert!(!ThreadSafeContext::held_by_current_thread());
}

#[test]
fn errors_reported_by_the_reader_of_registers_are_errors() {
    let source = "declare i64 @llvm.read_register.i64(metadata)\ndefine i64 @f() {\n  %p = call i64 @llvm.read_register.i64(metadata !0)\n  ret i64 %p\n}\n!0 = !{!\"nonsense\"}\n";
    let error = compiler(OptimizationPipeline::none()).compile(parse(source)).expect_err("no such register");
    assert!(matches!(error, CompileError::Codegen { .. }), "{error:?}");
    assert!(error.to_string().contains("nonsense"), "{error}");
}

#[test]
fn a_bad_pass_string_is_named_with_llvms_reason() {
    for passes in ["frobnicate", "default<O9>", "function(", "default<O2>,,"] {
        let compiler = compiler(OptimizationPipeline::passes(passes));
        let error = compiler.check_pipeline().expect_err(passes);
        assert!(matches!(error, CompileError::Optimize { .. }), "{error:?}");
        assert!(error.to_string().contains(passes), "{error}");
        let error = compiler.compile(parse(ADD)).expect_err(passes);
        assert!(error.to_string().starts_with("test.ll"), "{error}");
    }
}

#[test]
fn a_module_for_another_machine_is_refused() {
    let scratch = Scratch::new("a_module_for_another_machine_is_refused");
    let bitcode = bitcode(&scratch, "arm.c", "int f(void) { return 1; }", &["--target=aarch64-linux-gnu"]);
    let module = ThreadSafeModule::parse(&bitcode).expect("valid IR");
    let error = compiler(OptimizationPipeline::none()).compile(module).expect_err("foreign");
    assert!(matches!(error, CompileError::Target { .. }), "{error:?}");
    assert!(error.to_string().contains("aarch64") && error.to_string().contains("arm.c"), "{error}");
}

#[test]
fn random_changes_to_textual_ir_are_compiled_or_refused() {
    let scratch = Scratch::new("mutations");
    let source = bitcode(&scratch, "kinds.c", KINDS, &["-O1", "-S"]);
    let text = String::from_utf8(source.bytes().to_vec()).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let compiler = compiler(OptimizationPipeline::level(OptimizationLevel::O1));
    let (mut compiled, mut refused) = (0, 0);
    // Each line in turn is left out, doubled, or cut in half.
    for at in 0..lines.len() {
        for change in 0..3 {
            let mut mutant: Vec<&str> = lines.clone();
            match change {
                0 => drop(mutant.remove(at)),
                1 => mutant.insert(at, lines[at]),
                _ => mutant[at] = &lines[at][..lines[at].len() / 2],
            }
            let mutant = ObjectBuffer::new("mutant.ll", mutant.join("\n").into_bytes());
            match ThreadSafeModule::parse(&mutant).and_then(|module| compiler.compile(module)) {
                Ok(_) => compiled += 1,
                Err(error) => {
                    assert!(error.to_string().starts_with("mutant.ll"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(compiled > 20 && refused > 20, "{compiled} compiled, {refused} refused");
}

//! Modules become objects: pipelines, code generation, and what stays the same.

use uruk_core::SymbolFlags;
use uruk_pipeline::ir::{
    CodegenLevel, IrCompiler, JitTargetMachineBuilder, ModuleInterface, OptimizationPipeline,
    ThreadSafeContext, ThreadSafeModule,
};
use uruk_pipeline::object::{ObjectBuffer, ObjectInterface};

use super::{ADD, bitcode, compiler, defined, parse, target, text};
use crate::support::Scratch;

#[test]
fn textual_ir_becomes_an_object_that_defines_its_functions() {
    let object = compiler(OptimizationPipeline::default()).compile(parse(ADD)).expect("compiles");
    assert_eq!(&**object.name(), "test.ll");
    assert_eq!(defined(&object), [("add".to_owned(), SymbolFlags::EXPORTED | SymbolFlags::CALLABLE)]);
}

#[test]
fn bitcode_carries_a_module_to_another_context_and_thread() {
    let module = parse(ADD);
    let copy = module.clone_to_new_context().expect("copies");
    drop(module);
    let object = uruk_core::sync::thread::scope(|scope| {
        scope.spawn(|| compiler(OptimizationPipeline::none()).compile(copy)).join().expect("no panic")
    });
    assert_eq!(defined(&object.expect("compiles")).len(), 1);
}

#[test]
fn inkwell_builds_into_a_module_under_its_lock() {
    let context = ThreadSafeContext::new();
    let module = ThreadSafeModule::new(&context, "built");
    let held = module
        .with_module(|module| {
            let context = module.get_context();
            let kind = context.i32_type().fn_type(&[], false);
            let function = module.add_function("seven", kind, None);
            let builder = context.create_builder();
            builder.position_at_end(context.append_basic_block(function, "entry"));
            builder.build_return(Some(&context.i32_type().const_int(7, false))).expect("builds");
            ThreadSafeContext::held_by_current_thread()
        })
        .expect("no diagnostics");
    assert!(held);
    assert!(!ThreadSafeContext::held_by_current_thread());
    let object = compiler(OptimizationPipeline::none()).compile(module).expect("compiles");
    assert_eq!(defined(&object)[0].0, "seven");
}

#[test]
fn modules_of_one_context_are_dropped_in_any_order() {
    let context = ThreadSafeContext::new();
    let first = ThreadSafeModule::parse_in(&context, &text("first.ll", ADD)).expect("valid IR");
    let second = ThreadSafeModule::parse_in(&context, &text("second.ll", ADD)).expect("valid IR");
    drop(context);
    drop(first);
    second.verify().expect("still valid");
}

#[test]
fn the_same_source_makes_the_same_bitcode_and_object() {
    let scratch = Scratch::new("the_same_source_makes_the_same_bitcode_and_object");
    let source = "extern int e; __thread int t; int f(int a) { t += a; return e + t; } __attribute__((weak)) int w = 3;";
    let compile = |round: usize| {
        let bitcode = bitcode(&scratch, "same.c", source, &["-O1"]);
        let compiler = compiler(OptimizationPipeline::default());
        // Other work before and beside it must not show.
        for _ in 0..round {
            compiler.compile(parse(ADD)).expect("compiles");
        }
        let module = ThreadSafeModule::parse(&bitcode).expect("valid IR");
        let module = compiler.canonical(&module).expect("fits");
        let first = module.to_bitcode().expect("writes");
        let again = compiler.canonical(&module).expect("fits").to_bitcode().expect("writes");
        assert_eq!(first.bytes(), again.bytes());
        let object = compiler.compile(module).expect("compiles");
        (first.bytes().to_vec(), object.bytes().to_vec())
    };
    let first = compile(0);
    assert!(first == compile(3));
    let elsewhere =
        uruk_core::sync::thread::scope(|scope| scope.spawn(|| compile(1)).join().expect("no panic"));
    assert!(first == elsewhere);
}

/// Names of the relocation types an object has, as `llvm-readelf` prints them.
fn relocations(scratch: &Scratch, object: &ObjectBuffer) -> String {
    let path = scratch.write("relocations.o", object.bytes());
    let output = std::process::Command::new("/usr/lib/llvm-22/bin/llvm-readelf").arg("-r").arg(path).output();
    String::from_utf8(output.expect("llvm-readelf").stdout).expect("text")
}

const TLS: &str = "
    __thread int mine; static __thread int hidden; extern __thread int theirs;
    __attribute__((tls_model(\"initial-exec\"))) __thread int eager;
    extern int variable; extern int function(int);
    __attribute__((weak)) int yielding = 4;
    int use(int a) { mine += a; hidden += mine; eager += 1; yielding += 1; return theirs + hidden + variable + function(a); }";

#[test]
fn code_for_executables_becomes_code_for_a_part_of_one() {
    let scratch = Scratch::new("code_for_executables_becomes_code_for_a_part_of_one");
    for mode in ["-fPIE", "-fPIC", "-fno-pic", "-fno-plt"] {
        for level in ["-O0", "-O2"] {
            let bitcode = bitcode(&scratch, "tls.c", TLS, &[mode, level]);
            let module = ThreadSafeModule::parse(&bitcode).expect("valid IR");
            let object = compiler(OptimizationPipeline::none()).compile(module).expect("compiles");
            let relocations = relocations(&scratch, &object);
            for unwanted in ["TPOFF32", "GOTTPOFF", "R_X86_64_32"] {
                let found = relocations.lines().any(|line| {
                    line.split_whitespace()
                        .nth(2)
                        .is_some_and(|kind| kind.ends_with(unwanted) && !kind.contains("DTPOFF"))
                });
                assert!(!found, "{mode} {level}: {unwanted} in\n{relocations}");
            }
            for direct in ["variable", "yielding"] {
                let found = relocations
                    .lines()
                    .any(|line| line.contains("R_X86_64_PC32") && line.contains(&format!(" {direct} ")));
                assert!(!found, "{mode} {level}: {direct} is taken to be nearby in\n{relocations}");
            }
            assert!(relocations.contains("R_X86_64_TLSGD"), "{mode} {level}:\n{relocations}");
        }
    }
}

#[test]
fn constructors_go_to_init_array() {
    let scratch = Scratch::new("constructors_go_to_init_array");
    let source = "__attribute__((constructor(200))) static void early(void) {} __attribute__((destructor)) static void late(void) {}";
    let bitcode = bitcode(&scratch, "ctor.c", source, &[]);
    let interface = ModuleInterface::of_bitcode(&bitcode, &target()).expect("valid");
    assert!(interface.has_initializers);
    let object = compiler(OptimizationPipeline::none())
        .compile(ThreadSafeModule::parse(&bitcode).expect("valid IR"))
        .expect("compiles");
    let read = ObjectInterface::read(&object).expect("an object");
    assert!(read.has_initializers);
    let text = String::from_utf8_lossy(object.bytes()).into_owned();
    assert!(text.contains(".init_array.200") && !text.contains(".ctors"));
}

#[test]
fn function_sections_and_levels_reach_code_generation() {
    let compile = |target: JitTargetMachineBuilder| {
        let object = IrCompiler::new(target, OptimizationPipeline::none()).compile(parse(ADD));
        object.expect("compiles").bytes().to_vec()
    };
    let plain = compile(target());
    let sections = compile(target().with_sections(true, true));
    let quick = compile(target().with_codegen_level(CodegenLevel::None));
    assert!(String::from_utf8_lossy(&sections).contains(".text.add"));
    assert!(!String::from_utf8_lossy(&plain).contains(".text.add"));
    assert_ne!(plain, quick);
}

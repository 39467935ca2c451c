//! Modules from source to object, against what clang 22 and LLVM's own tools make of the same source.
#![cfg(feature = "llvm")]

mod support;

use support::Scratch;
use uruk_core::SymbolFlags;
use uruk_pipeline::ir::{
    CodegenLevel, CompileError, IrCompiler, JitTargetMachineBuilder, ModuleInterface, OptimizationLevel,
    OptimizationPipeline, Stage, ThreadSafeContext, ThreadSafeModule,
};
use uruk_pipeline::object::{ObjectBuffer, ObjectInterface};

fn target() -> JitTargetMachineBuilder {
    JitTargetMachineBuilder::host().expect("host target")
}

fn compiler(pipeline: OptimizationPipeline) -> IrCompiler {
    IrCompiler::new(target(), pipeline)
}

fn text(name: &str, source: &str) -> ObjectBuffer {
    ObjectBuffer::new(name, source.as_bytes().to_vec())
}

fn parse(source: &str) -> ThreadSafeModule {
    ThreadSafeModule::parse(&text("test.ll", source)).expect("valid IR")
}

const ADD: &str = "define i32 @add(i32 %a, i32 %b) {\n  %sum = add i32 %a, %b\n  ret i32 %sum\n}\n";

/// Compiles `source` to bitcode with clang 22.
fn bitcode(scratch: &Scratch, name: &str, source: &str, arguments: &[&str]) -> ObjectBuffer {
    let compiler = if name.ends_with(".cpp") { "clang++-22" } else { "clang-22" };
    let arguments: Vec<&str> = ["-emit-llvm"].iter().chain(arguments).copied().collect();
    scratch.compile(compiler, name, source, &arguments)
}

type Symbols = Vec<(String, SymbolFlags)>;

/// The flags of each defined symbol, by name.
fn defined(object: &ObjectBuffer) -> Symbols {
    let interface = ObjectInterface::read(object).expect("an object");
    let mut symbols: Vec<_> =
        interface.defined.iter().map(|symbol| (symbol.name.to_owned(), symbol.flags)).collect();
    symbols.sort_by(|left, right| left.0.cmp(&right.0));
    symbols
}

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
        // What lies behind the symbols need not be there for the lazy reader; it must not crash.
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
fn every_level_and_every_staged_pipeline_is_understood_and_compiles() {
    use OptimizationLevel::{O0, O1, O2, O3};
    let scratch = Scratch::new("levels");
    let source = "#include <stddef.h>\nstatic int sq(int x) { return x * x; }\n\
                  int dot(const int *a, const int *b, size_t n) { int s = 0; for (size_t i = 0; i < n; i++) s += sq(a[i]) * b[i]; return s; }";
    let bitcode = bitcode(&scratch, "dot.c", source, &["-O2", "-Xclang", "-disable-llvm-passes"]);
    let mut sizes = Vec::new();
    for level in [O0, O1, O2, O3] {
        for pipeline in [OptimizationPipeline::level(level), OptimizationPipeline::staged(level)] {
            let compiler = compiler(pipeline);
            compiler.check_pipeline().unwrap_or_else(|error| panic!("{error}"));
            let module = ThreadSafeModule::parse(&bitcode).expect("valid IR");
            let object = compiler.compile(module).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(defined(&object).len(), 1, "{:?}", compiler.pipeline());
            sizes.push(object.size_bytes());
        }
    }
    assert_ne!(sizes[0], sizes[4], "levels make a difference");
}

#[test]
fn extensions_stand_where_they_were_asked_for() {
    let pipeline = OptimizationPipeline::staged(OptimizationLevel::O2)
        .before(Stage::Loop, "function(instsimplify)")
        .after(Stage::Loop, "globalopt")
        .at_start("verify")
        .at_end("globaldce");
    let text = pipeline.text();
    assert!(text.starts_with("verify,") && text.ends_with(",globaldce"), "{text}");
    let order = ["function(instsimplify)", "function(loop-simplify", "globalopt,function(sroa"];
    let positions: Vec<_> = order.iter().map(|part| text.find(part).expect(part)).collect();
    assert!(positions.is_sorted(), "{text}");
    compiler(pipeline).check_pipeline().expect("understood");
    let level = OptimizationPipeline::level(OptimizationLevel::O1).before(Stage::Scalar, "globalopt");
    assert_eq!(level.text(), "globalopt,default<O1>");
    assert_eq!(OptimizationPipeline::none().text(), "");
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
        compiler.normalize(&module).expect("fits");
        let first = module.to_bitcode().expect("writes");
        let again = module.clone_to_new_context().expect("copies").to_bitcode().expect("writes");
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
fn a_module_for_another_machine_is_refused() {
    let scratch = Scratch::new("a_module_for_another_machine_is_refused");
    let bitcode = bitcode(&scratch, "arm.c", "int f(void) { return 1; }", &["--target=aarch64-linux-gnu"]);
    let module = ThreadSafeModule::parse(&bitcode).expect("valid IR");
    let error = compiler(OptimizationPipeline::none()).compile(module).expect_err("foreign");
    assert!(matches!(error, CompileError::Target { .. }), "{error:?}");
    assert!(error.to_string().contains("aarch64") && error.to_string().contains("arm.c"), "{error}");
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

/// The symbols of a module as its IR promises them and as its object defines them, by name.
fn interface_and_object(source: &ObjectBuffer) -> (Symbols, Symbols) {
    let target = target();
    let of_bitcode = ModuleInterface::of_bitcode(source, &target).expect("valid");
    let module = ThreadSafeModule::parse(source).expect("valid IR");
    let of_module = ModuleInterface::of_module(&module, &target).expect("valid");
    assert_eq!(of_bitcode, of_module, "read lazily and whole");
    let mut promised: Vec<_> =
        of_module.symbols.iter().map(|symbol| (symbol.name.to_string(), symbol.flags)).collect();
    promised.sort_by(|left, right| left.0.cmp(&right.0));
    let object = compiler(OptimizationPipeline::none()).compile(module).expect("compiles");
    (promised, defined(&object))
}

const KINDS: &str = "
    int data = 1; const int constant = 2; int tentative; static int local; __thread int per_thread;
    void function(void) {} static void hidden_away(void) { local++; }
    __attribute__((weak)) void yielding(void) {}
    __attribute__((visibility(\"hidden\"))) int hidden = 3;
    __attribute__((visibility(\"protected\"))) int protected = 4;
    static void *choose(void) { return (void *)hidden_away; }
    void chosen(void) __attribute__((ifunc(\"choose\")));
    void other_name(void) __attribute__((alias(\"function\")));
    extern int other_data __attribute__((alias(\"data\")));
    extern int verbatim __asm__(\"verbatim name\"); int verbatim = 5;
    extern int needed; int *use(void) { return &needed; }
    __asm__(\".globl bare\\n.type bare,@function\\n.text\\nbare: ret\\n.weak maybe\\nmaybe: ret\\nquiet: ret\\n\");";

#[test]
fn what_a_c_module_promises_is_what_its_object_defines() {
    let scratch = Scratch::new("promises-c");
    for flags in [["-O0", "-fcommon"], ["-O2", "-fcommon"]] {
        let source = bitcode(&scratch, "kinds.c", KINDS, &flags);
        let (promised, defined) = interface_and_object(&source);
        assert_eq!(promised, defined);
        let names: Vec<_> = promised.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["bare", "maybe", "verbatim name", "other_name", "other_data", "chosen", "tentative"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        for name in ["local", "quiet", "needed", "hidden_away"] {
            assert!(!names.contains(&name), "{name} in {names:?}");
        }
    }
}

const CXX: &str = "
    #include <stdexcept>
    inline int &counter() { static int count = 0; return ++count; }
    template <class T> struct Box { static T value; virtual T get() { return value; } virtual ~Box() {} };
    template <class T> T Box<T>::value;
    inline int inlined = counter();
    thread_local int per_thread = counter();
    struct Base { Base(int); virtual ~Base(); }; struct S : virtual Base { S(); ~S(); };
    S::S() : Base(1) {} S::~S() {}
    int use(Base *b) { try { if (!b) throw std::runtime_error(\"none\"); return counter() + Box<int>().get() + per_thread; }
                       catch (std::exception &) { return dynamic_cast<S *>(b) != nullptr; } }";

#[test]
fn what_a_cxx_module_promises_is_defined_by_its_object() {
    let scratch = Scratch::new("promises-cxx");
    for flags in ["-O0", "-O2"] {
        let source = bitcode(&scratch, "cxx.cpp", CXX, &["-std=c++17", flags]);
        let (promised, defined) = interface_and_object(&source);
        for symbol in &promised {
            assert!(defined.contains(symbol), "{flags}: {symbol:?} in {defined:?}");
        }
        // Code generation adds the personality's and nothing else.
        let added: Vec<_> = defined.iter().filter(|symbol| !promised.contains(symbol)).collect();
        assert!(
            added
                .iter()
                .all(|(name, flags)| name.starts_with("DW.ref.") && !flags.contains(SymbolFlags::EXPORTED)),
            "{added:?}"
        );
    }
}

#[test]
fn initializers_of_a_module_are_seen_in_ir_and_in_assembly() {
    let scratch = Scratch::new("ir-init");
    for (source, expected) in [
        ("__attribute__((constructor)) void f(void) {}", (true, false)),
        ("__attribute__((destructor)) void f(void) {}", (false, true)),
        ("__attribute__((section(\".init_array.7\"), used)) static void *p = 0;", (true, false)),
        ("__attribute__((section(\".dtors\"), used)) static void *p = 0;", (false, true)),
        ("__asm__(\".section .init_array,\\\"aw\\\"\\n.quad 0\\n\");", (true, false)),
        ("int nothing;", (false, false)),
    ] {
        let source_bitcode = bitcode(&scratch, "init.c", source, &[]);
        let interface = ModuleInterface::of_bitcode(&source_bitcode, &target()).expect("valid");
        assert_eq!((interface.has_initializers, interface.has_finalizers), expected, "{source}");
    }
}

#[test]
fn names_kept_to_itself_and_mere_copies_are_not_promised() {
    let source = "
        @llvm.used = appending global [1 x ptr] [ptr @kept], section \"llvm.metadata\"
        @kept = internal global i32 1
        @private = private constant i32 2
        @0 = global i32 3
        define available_externally i32 @copy() { ret i32 1 }
        define linkonce_odr i32 @once() { ret i32 1 }
        define i32 @mine() { ret i32 1 }";
    let interface = ModuleInterface::of_module(&parse(source), &target()).expect("valid");
    let names: Vec<_> = interface.symbols.iter().map(|symbol| &*symbol.name).collect();
    assert_eq!(names, ["once", "mine"]);
    assert_eq!(interface.symbols[0].flags, SymbolFlags::EXPORTED | SymbolFlags::CALLABLE | SymbolFlags::WEAK);
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

const RUST: &str = "
    use std::cell::RefCell;
    thread_local! { static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) }; }
    pub static TABLE: [u8; 3] = [1, 2, 3];
    #[unsafe(no_mangle)] pub extern \"C\" fn entry(count: usize) -> usize {
        let caught = std::panic::catch_unwind(|| { if count > 2 { panic!(\"{count}\") } });
        LOG.with_borrow_mut(|log| { log.push(format!(\"{count} {}\", caught.is_ok())); log.len() })
    }
    core::arch::global_asm!(\".globl from_rust_assembly\", \".type from_rust_assembly,@function\", \"from_rust_assembly: ret\");";

#[test]
fn what_a_rust_module_promises_is_defined_by_its_object() {
    let scratch = Scratch::new("promises-rust");
    let source = scratch.write("lib.rs", RUST);
    for level in ["0", "2"] {
        let output = scratch.path("lib.bc");
        support::run(
            std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
                .args(["--crate-type=lib", "--edition=2024", "--emit=llvm-bc", "-Ccodegen-units=1"])
                .arg(format!("-Copt-level={level}"))
                .arg("-o")
                .arg(&output)
                .arg(&source),
        );
        let (promised, defined) = interface_and_object(&support::open(&output));
        for name in ["entry", "from_rust_assembly"] {
            let flags = promised.iter().find(|symbol| symbol.0 == name).map(|symbol| symbol.1);
            assert_eq!(flags, Some(SymbolFlags::EXPORTED | SymbolFlags::CALLABLE), "{name}");
        }
        for symbol in &promised {
            assert!(defined.contains(symbol), "opt-level {level}: {symbol:?} in {defined:?}");
        }
    }
}

#[test]
fn multiversioned_functions_are_promised_under_their_common_name() {
    let scratch = Scratch::new("clones");
    let source = "__attribute__((target_clones(\"avx2\", \"default\"))) int sum(const int *v, int n) \
                  { int s = 0; for (int i = 0; i < n; i++) s += v[i]; return s; }";
    let (promised, defined) = interface_and_object(&bitcode(&scratch, "clones.c", source, &["-O2"]));
    assert!(promised.iter().any(|symbol| symbol.0 == "sum"), "{promised:?}");
    for symbol in &promised {
        assert!(defined.contains(symbol), "{symbol:?} in {defined:?}");
    }
}

#[test]
fn assembly_may_give_further_names_to_what_ir_defines() {
    let scratch = Scratch::new("further-names");
    let source = "
        int function(int x) { return x + 1; }
        __attribute__((used)) static int variable = 3;
        __thread int per_thread = 4;
        __asm__(\".symver function, versioned@V1\");
        __asm__(\".globl again\\n.set again, function\\n.globl published\\npublished = variable\");
        __asm__(\".globl thread_again\\n.set thread_again, per_thread\");";
    let (promised, defined) = interface_and_object(&bitcode(&scratch, "names.c", source, &["-O1"]));
    assert_eq!(promised, defined);
    let names: Vec<_> = promised.iter().map(|symbol| symbol.0.as_str()).collect();
    assert_eq!(names, ["again", "function", "per_thread", "published", "thread_again", "versioned@V1"]);
}

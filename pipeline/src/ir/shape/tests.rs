//! The form of a module, one change at a time.

use inkwell::attributes::{Attribute, AttributeLoc};

use super::*;
use crate::ir::OptimizationLevel;

/// A module with most of what can be in one.
const BASE: &str = r#"
    source_filename = "base"
    target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
    target triple = "x86_64-pc-linux-gnu"
    %S = type { i64, [4 x i32], <2 x ptr> }
    @host = internal constant ptr inttoptr (i64 94000000000000 to ptr)
    @table = internal constant [2 x ptr] [ptr @leaf, ptr @other]
    @text = private unnamed_addr constant [4 x i8] c"abc\00", align 1
    @count = global i64 5, align 8
    @elsewhere = external global i64
    @slot = thread_local global i32 3
    declare i32 @__gxx_personality_v0(...)
    declare i64 @outside(ptr, i64) nounwind
    declare i64 @llvm.umax.i64(i64, i64)
    declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)
    declare ptr @llvm.threadlocal.address.p0(ptr)
    define internal i64 @leaf(i64 %x) #0 { %y = mul nsw i64 %x, 3 ret i64 %y }
    define internal i64 @other(i64 range(i64 0, 9) %x) { ret i64 %x }
    define available_externally i64 @inlined(i64 %x) { %y = sub i64 %x, 1 ret i64 %y }
    define i64 @run(ptr noundef align 8 %p, i64 %x, double %d) #0 personality ptr @__gxx_personality_v0 !kind !4 {
    entry:
      %stack = alloca %S, align 16
      %a = load i64, ptr inttoptr (i64 94000000000000 to ptr), align 8, !tbaa !0
      %b = load i64, ptr inttoptr (i64 94000000000016 to ptr), align 8
      %far = load i64, ptr inttoptr (i64 95000000000000 to ptr), align 8
      %vector = add <2 x i64> <i64 96000000000000, i64 7>, splat (i64 1)
      %first = extractelement <2 x i64> %vector, i32 0
      %shuffled = shufflevector <2 x i64> %vector, <2 x i64> poison, <2 x i32> <i32 1, i32 0>
      %f = load ptr, ptr @host
      %g = getelementptr inbounds %S, ptr %stack, i32 0, i32 1, i64 2
      store i32 9, ptr %g, align 4
      store atomic i64 %a, ptr @count seq_cst, align 8
      call void @llvm.memcpy.p0.p0.i64(ptr align 8 %stack, ptr align 8 %p, i64 32, i1 false)
      %m = call i64 @llvm.umax.i64(i64 %a, i64 %b)
      %called = call i64 %f(i64 %m) [ "deopt"(i64 4) ]
      %t = call ptr @llvm.threadlocal.address.p0(ptr @slot)
      %e = fadd nnan double %d, 1.5
      %big = fcmp ogt double %e, 0.0
      br i1 %big, label %yes, label %no, !prof !3
    yes:
      %old = atomicrmw add ptr @elsewhere, i64 1 monotonic, align 8
      %pair = cmpxchg ptr @count, i64 1, i64 2 acq_rel monotonic, align 8
      %was = extractvalue { i64, i1 } %pair, 0
      %i = invoke i64 @outside(ptr %p, i64 97000000000000) to label %no unwind label %pad
    pad:
      %caught = landingpad { ptr, i32 } catch ptr null
      resume { ptr, i32 } %caught
    no:
      %phi = phi i64 [ 94000000000008, %entry ], [ %i, %yes ]
      switch i64 %x, label %end [ i64 98000000000000, label %more i64 2, label %end ]
    more:
      %tail = tail call fastcc i64 @inlined(i64 %phi)
      %small = icmp slt i64 %tail, 12
      %chosen = select i1 %small, i64 %tail, i64 %called
      %barrier = call i64 asm sideeffect "", "=r,0"(i64 %chosen)
      fence acquire
      br label %end
    end:
      %done = phi i64 [ 99000000000000, %no ], [ 99000000000000, %no ], [ %barrier, %more ]
      %frozen = freeze i64 %done
      %q = getelementptr [2 x ptr], ptr @table, i64 0, i64 1
      %n = load ptr, ptr %q
      %s = load volatile i8, ptr @text
      ret i64 %frozen
    }
    attributes #0 = { nounwind "frame-pointer"="all" }
    !llvm.module.flags = !{!5}
    !llvm.ident = !{!6}
    !0 = !{!1, !1, i64 0}
    !1 = !{!"long", !2, i64 0}
    !2 = !{!"root"}
    !3 = !{!"branch_weights", i32 1, i32 99}
    !4 = !{}
    !5 = !{i32 8, !"PIC Level", i32 2}
    !6 = !{!"a compiler"}
"#;

fn parse(text: &str) -> ThreadSafeModule {
    // `!kind` stands for a kind of LLVM's own.
    let text = text.replace("!kind", "!unpredictable");
    ThreadSafeModule::parse(&ObjectBuffer::new("module.ll", text.into_bytes()))
        .unwrap_or_else(|error| panic!("{error}"))
}

fn read(text: &str) -> Result<ModuleShape, Miss> {
    parse(text).with_module(ModuleShape::read).expect("its context is there")
}

fn changed(from: &str, to: &str) -> String {
    assert!(BASE.contains(from), "{from}");
    BASE.replace(from, to)
}

#[test]
fn each_change_of_meaning_is_another_form() {
    let base = read(BASE).expect("it has a shape").form;
    let changes = [
        ("x86_64-pc-linux-gnu", "x86_64-unknown-linux-gnu"),
        ("[4 x i32]", "[5 x i32]"),
        ("<2 x ptr> }", "<4 x ptr> }"),
        ("%S = type { i64, [4 x i32], <2 x ptr> }", "%S = type <{ i64, [4 x i32], <2 x ptr> }>"),
        ("[ptr @leaf, ptr @other]", "[ptr @other, ptr @leaf]"),
        ("@text = private unnamed_addr", "@text = private"),
        ("c\"abc\\00\"", "c\"abd\\00\""),
        ("@count = global i64 5, align 8", "@count = global i64 6, align 8"),
        ("@count = global i64 5, align 8", "@count = global i64 5, align 16"),
        ("@count = global", "@count = hidden global"),
        ("@count = global", "@count = weak global"),
        ("@count = global", "@count = externally_initialized global"),
        ("@elsewhere", "@somewhere"),
        ("@elsewhere = external global", "@elsewhere = extern_weak global"),
        ("@elsewhere = external global", "@elsewhere = external dso_local global"),
        ("@slot = thread_local global", "@slot = thread_local(localexec) global"),
        ("@outside(", "@inside("),
        ("@outside(ptr, i64) nounwind", "@outside(ptr, i64)"),
        ("mul nsw", "mul nuw"),
        ("mul nsw i64 %x, 3", "mul nsw i64 %x, 4"),
        ("range(i64 0, 9)", "range(i64 0, 8)"),
        ("sub i64 %x, 1", "sub i64 1, %x"),
        ("noundef align 8", "noundef align 16"),
        ("noundef align 8", "align 8"),
        ("personality ptr @__gxx_personality_v0", "personality ptr @outside"),
        ("alloca %S, align 16", "alloca %S, align 32"),
        ("align 8, !tbaa !0", "align 8"),
        ("align 8, !tbaa !0", "align 4, !tbaa !0"),
        // A field that lies elsewhere; one address instead of two; another distance of a group.
        ("94000000000016", "94000000000024"),
        ("95000000000000", "96000000000000"),
        ("95000000000000", "94000000000032"),
        ("95000000000000", "1000"),
        ("i64 7>, splat (i64 1)", "i64 8>, splat (i64 1)"),
        ("i64 7>, splat (i64 1)", "i64 7>, splat (i64 2)"),
        ("i32 0\n      %shuffled", "i32 1\n      %shuffled"),
        ("<i32 1, i32 0>", "<i32 0, i32 1>"),
        ("i32 1, i64 2", "i32 1, i64 3"),
        ("getelementptr inbounds", "getelementptr"),
        ("store i32 9", "store i32 10"),
        ("seq_cst", "release"),
        ("store atomic i64 %a, ptr @count seq_cst, align 8", "store volatile i64 %a, ptr @count, align 8"),
        (
            "store atomic i64 %a, ptr @count seq_cst",
            "store atomic i64 %a, ptr @count syncscope(\"singlethread\") seq_cst",
        ),
        ("i64 32, i1 false", "i64 40, i1 false"),
        ("i64 32, i1 false", "i64 32, i1 true"),
        ("\"deopt\"(i64 4)", "\"deopt\"(i64 5)"),
        ("\"deopt\"(i64 4)", "\"other\"(i64 4)"),
        ("fadd nnan", "fadd ninf"),
        ("double %d, 1.5", "double %d, 1.75"),
        ("fcmp ogt", "fcmp oge"),
        ("label %yes, label %no, !prof", "label %no, label %yes, !prof"),
        ("i32 1, i32 99}", "i32 1, i32 98}"),
        ("atomicrmw add", "atomicrmw sub"),
        ("atomicrmw add ptr @elsewhere, i64 1 monotonic", "atomicrmw add ptr @elsewhere, i64 1 acquire"),
        ("atomicrmw add", "atomicrmw volatile add"),
        ("cmpxchg ptr", "cmpxchg weak ptr"),
        ("acq_rel monotonic", "acq_rel acquire"),
        ("%pair, 0", "%pair, 1\n%dead = add i64 0, 0"),
        ("catch ptr null", "cleanup"),
        ("catch ptr null", "filter [0 x ptr] zeroinitializer"),
        // A case of a switch is a number like any other.
        ("98000000000000", "98000000000008"),
        ("i64 2, label %end", "i64 3, label %end"),
        ("tail call fastcc", "tail call coldcc"),
        ("tail call fastcc", "call fastcc"),
        ("icmp slt", "icmp sle"),
        ("%tail, i64 %called", "%called, i64 %tail"),
        ("asm sideeffect", "asm"),
        ("\"=r,0\"", "\"=&r,0\""),
        ("fence acquire", "fence release"),
        ("[ 99000000000000, %no ], [ 99000000000000, %no ]", "[ 0, %no ], [ 0, %no ]"),
        ("freeze i64 %done", "add i64 %done, 0"),
        ("load volatile i8", "load i8"),
        ("\"frame-pointer\"=\"all\"", "\"frame-pointer\"=\"none\""),
        ("{ nounwind \"frame", "{ \"frame"),
        ("\"long\", !2, i64 0", "\"int\", !2, i64 0"),
        ("!2 = !{", "!2 = distinct !{"),
        ("!\"PIC Level\", i32 2", "!\"PIC Level\", i32 1"),
    ];
    // No two of them are the same.
    let mut seen = std::collections::HashMap::from([(base, "the base")]);
    for (from, to) in changes {
        let form =
            read(&changed(from, to)).unwrap_or_else(|miss| panic!("`{to}` takes its shape: {miss}")).form;
        if let Some(other) = seen.insert(form, to) {
            panic!("`{to}` for `{from}` has the form of `{other}`");
        }
    }
}

#[test]
fn what_a_shape_leaves_out_changes_no_form() {
    let base = read(BASE).expect("it has a shape").form;
    let changes = [
        ("source_filename = \"base\"", "source_filename = \"other\""),
        ("%S", "%T.17"),
        ("@run", "@run_12_3"),
        ("@count", "@counter"),
        ("@leaf", "@first"),
        ("@text", "@.str"),
        ("%frozen", "%1"),
        ("a compiler", "another compiler"),
        ("align 8, !tbaa", "align 64, !tbaa"),
        ("ptr align 8 %stack", "ptr align 32 %stack"),
        ("94000000000", "94123456789"),
        ("95000000000000", "140000000000001"),
        ("96000000000000", "96000000000123"),
        ("97000000000000", "97000000000123"),
        ("define internal i64 @leaf", "define internal i64 @dead() { ret i64 1 } define internal i64 @leaf"),
        ("@elsewhere = external", "@not_used = external global i32\n@elsewhere = external"),
        ("!6 = ", "!7 = !{}\n!6 = "),
    ];
    for (from, to) in changes {
        let shape = read(&changed(from, to)).unwrap_or_else(|miss| panic!("`{to}` takes its shape: {miss}"));
        assert!(shape.form == base, "`{to}` for `{from}`");
    }
}

#[test]
fn a_copy_takes_the_shape_and_is_valid() {
    let (shape, module) = (read(BASE).expect("it has a shape"), parse(BASE));
    let copy =
        module.with_module(|module| copy(module, &"copy".into())).expect("it is there").expect("it is valid");
    assert_eq!(copy.lock().expect("it is there").take_shape(&shape).expect("LLVM is well"), Ok(()));
    copy.verify().expect("as valid as before");
    let text = copy.with_module(|module| module.print_to_string().to_string()).expect("it is there");
    // Two far apart, a vector's, an argument's, and one that a block brings twice; the case of the switch stays.
    let trillions = [94, 95, 96, 97, 99].map(|number| number * 1_000_000_000_000);
    assert_eq!(shape.addresses, trillions);
    for gone in ["i64 94000", "i64 95000", "i64 96000", "i64 97000", "@run", "@leaf", "%S", "a compiler"] {
        assert!(!text.contains(gone), "{gone} in {text}");
    }
    assert!(text.contains("i64 98000000000000, label"), "{text}");
    let compiler = IrCompiler::host(OptimizationLevel::O2).expect("host");
    compiler.compile(copy).expect("it compiles");
    // The module is as it was.
    let again = module.with_module(ModuleShape::read).expect("it is there").expect("it has a shape");
    assert!(again.form == shape.form && again.definitions == shape.definitions);
}

#[test]
fn a_copy_of_another_module_is_refused() {
    let (shape, other) = (read(BASE).expect("it has a shape"), parse(&changed("store i32 9", "store i32 8")));
    let refused = other.lock().expect("it is there").take_shape(&shape).expect("LLVM is well");
    let why = "its copy by way of bitcode differs in `run`".to_owned();
    assert_eq!(refused, Err(Miss::NoShape { why }));
}

/// PostgreSQL's modules had no hits: passes mark an intrinsic that returns as one that makes progress. Its copy by way of bitcode has LLVM's own
/// attributes again, and so read otherwise.
#[test]
fn attributes_that_passes_gave_to_an_intrinsic_do_not_count() {
    let (shape, module) = (read(BASE).expect("it has a shape"), parse(BASE));
    module
        .with_module(|module| {
            let kind = Attribute::get_named_enum_kind_id("mustprogress");
            let attribute = module.get_context().create_enum_attribute(kind, 0);
            let intrinsic = module.get_function("llvm.umax.i64").expect("it is declared");
            assert!(intrinsic.get_enum_attribute(AttributeLoc::Function, kind).is_none());
            intrinsic.add_attribute(AttributeLoc::Function, attribute);
        })
        .expect("it is there");
    let marked = module.with_module(ModuleShape::read).expect("it is there").expect("it has a shape");
    assert!(marked.form == shape.form);
    let copy =
        module.with_module(|module| copy(module, &"copy".into())).expect("it is there").expect("it is valid");
    assert_eq!(copy.lock().expect("it is there").take_shape(&marked).expect("LLVM is well"), Ok(()));
}

#[test]
fn modules_with_what_the_reader_does_not_know_have_no_shape_and_say_why() {
    let without = [
        ("@a = alias i64 (i64), ptr @leaf\n", "an alias or an indirect function"),
        ("module asm \"nop\"\n", "assembly of the module"),
        ("$group = comdat any\n@c = global i32 1, comdat($group)\n", "a COMDAT, in `c`"),
        ("@sectioned = global i32 1, section \"mine\"\n", "a section or partition, in `sectioned`"),
        ("@tentative = common global i32 0\n", "appending or common linkage, in `tentative`"),
        (
            "@llvm.global_ctors = appending global [0 x { i32, ptr, ptr }] zeroinitializer\n",
            "appending linkage, in `llvm.global_ctors`",
        ),
        (
            "@llvm.used = appending global [1 x ptr] [ptr @count], section \"llvm.metadata\"\n",
            "appending linkage, in `llvm.used`",
        ),
        ("@uruk.d0 = global i32 1\n", "a name that shapes use, in `uruk.d0`"),
        ("@\"\\01odd\" = global i32 1\n", "a name that the linker reads, in `\u{1}odd`"),
        (
            "@__start_mine = external global i32\n@start = global ptr @__start_mine\n",
            "a name that the linker reads, in `__start_mine`",
        ),
        (
            "@block = global ptr blockaddress(@jumps, %there)\ndefine void @jumps() { br label %there\nthere:\n ret void }\n",
            "a constant of kind ",
        ),
        (
            "define void @assembly() { call void asm \"label: nop\", \"\"() ret void }\n",
            "assembly, in `assembly`",
        ),
        ("define void @own() { ret void, !own !4 }\n", "metadata of a kind that is not LLVM's, in `own`"),
        (
            "define void @collected() gc \"shadow-stack\" { ret void }\n",
            "a collector, or data before its code, in `collected`",
        ),
        ("define void @memcpy() { ret void }\n", "the name of a function of the C library, in `memcpy`"),
        (
            "define <vscale x 2 x i64> @scalable(<vscale x 2 x i64> %x) { ret <vscale x 2 x i64> %x }\n",
            "a type of kind ",
        ),
    ];
    for (text, expected) in without {
        let miss = read(&format!("{BASE}\n{text}")).map(|_| ()).expect_err(text).to_string();
        assert!(miss.starts_with(&format!("it has no shape: {expected}")), "{text}: {miss}");
    }
    // Passes know functions of the C library by their names: `calloc` of `malloc` and `memset` would become a call of itself.
    for name in ["calloc", "puts", "printf", "malloc", "sqrt", "memset", "memcmp", "bcmp", "strlen", "wcslen"]
    {
        for linkage in ["", "internal"] {
            let text = format!("define {linkage} void @{name}() {{ ret void }}");
            assert!(read(&format!("{BASE}\n{text}")).is_err(), "{text}");
        }
        assert!(read(&format!("{BASE}\ndeclare void @{name}()")).is_ok(), "{name}");
    }
}

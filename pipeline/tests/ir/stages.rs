//! LLVM's own pipelines in seven stages: what they are, what replaces them, and what of the host's runs between them.

use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex};

use uruk_pipeline::ir::inkwell::builder::BuilderError;
use uruk_pipeline::ir::{
    CompileError, ExtensionPoint, OptimizationLevel, OptimizationPipeline, Partition, PartitionPolicy,
    PassHook, Stage, ThreadSafeModule,
};
use uruk_pipeline::object::ObjectBuffer;

use super::{bitcode, compiler, defined, parse};
use crate::support::Scratch;

/// Loops to vectorize and to unroll, calls to inline, recursion, tails, switches, globals that are only read.
const VARIED: &str = "#include <stddef.h>
    #include <string.h>
    static int sq(int x) { return x * x; }
    static int table[] = { 1, 1, 2, 3, 5, 8 };
    int dot(const int *a, const int *b, size_t n) { int s = 0; for (size_t i = 0; i < n; i++) s += sq(a[i]) * b[i]; return s; }
    void add(float *restrict to, const float *from, int n) { for (int i = 0; i < n; i++) to[i] += from[i] * 2; }
    static int even(unsigned n); static int odd(unsigned n) { return n == 0 ? 0 : even(n - 1); }
    static int even(unsigned n) { return n == 0 ? 1 : odd(n - 1); }
    int parity(unsigned n) { return even(n) * 2 + odd(n); }
    static int larger(int a, int b, int c, int d) { int s = 0; for (int i = a; i < b; i++) { if (i % c == d) s += i * sq(i); else s ^= i; } return s; }
    int sum(int n) { int s = larger(0, n, 3, 1); for (int i = 0; i < 4; i++) s += table[i] * larger(i, n, 5, i) ; return s; }
    int text(const char *t) { char room[32]; strcpy(room, \"abc\"); return strcmp(room, t) == 0 ? (int)strlen(room) : larger(1, 2, 3, 4); }
    int choose(int x) { switch (x) { case 1: return 7; case 2: return 19; case 3: return 4; case 4: return 8; default: return sum(x); } }
    int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }";

fn varied(test: &str) -> ObjectBuffer {
    bitcode(&Scratch::new(test), "varied.c", VARIED, &["-O2", "-Xclang", "-disable-llvm-passes"])
}

fn object(pipeline: OptimizationPipeline, source: &ObjectBuffer) -> ObjectBuffer {
    let module = ThreadSafeModule::parse(source).expect("valid IR");
    compiler(pipeline).compile(module).unwrap_or_else(|error| panic!("{error}"))
}

fn quiet() -> PassHook {
    PassHook::new("quiet", |_| Ok::<_, String>(()))
}

#[test]
fn every_level_compiles_and_levels_make_a_difference() {
    let source = varied("every_level_compiles_and_levels_make_a_difference");
    let objects = OptimizationLevel::ALL.map(|level| object(OptimizationPipeline::level(level), &source));
    assert!(objects.iter().all(|object| defined(object).len() >= 7));
    // The source has nothing that `O3` and `Os` would treat in their own ways.
    let [none, little, most, _, _, smallest] = objects.map(|object| object.bytes().to_vec());
    for (one, other) in [(&none, &little), (&little, &most), (&most, &smallest), (&none, &smallest)] {
        assert!(one != other);
    }
}

/// Each stage is put in its place again by name, so that all of the text is ours.
#[test]
fn the_seven_stages_put_together_make_the_same_object_as_llvms_pipeline() {
    let source = varied("the_seven_stages_put_together_make_the_same_object_as_llvms_pipeline");
    for level in OptimizationLevel::ALL {
        let whole = OptimizationPipeline::level(level);
        let stages = compiler(whole.clone()).stages().expect("a level");
        assert_eq!(stages.iter().map(|(stage, _)| *stage).collect::<Vec<_>>(), Stage::ALL);
        let staged = stages
            .into_iter()
            .fold(whole.clone(), |pipeline, (stage, passes)| pipeline.replace(stage, passes));
        assert!(object(staged, &source).bytes() == object(whole, &source).bytes(), "{level}");
    }
}

/// A function of 90 instructions, 450 in the inliner's units, that two others call.
fn costly() -> String {
    let body = "store volatile i32 1, ptr %p ".repeat(90);
    format!(
        "define internal void @costly(ptr %p) {{ {body} ret void }}
        define void @one(ptr %p) {{ call void @costly(ptr %p) ret void }}
        define void @two(ptr %p) {{ call void @costly(ptr %p) ret void }}"
    )
}

#[test]
fn the_inliners_threshold_counts_in_each_form_of_a_level() {
    let level = OptimizationPipeline::level(OptimizationLevel::O2);
    let stages = compiler(level.clone()).stages().expect("a level");
    let staged =
        stages.into_iter().fold(level.clone(), |pipeline, (stage, passes)| pipeline.replace(stage, passes));
    for pipeline in [level, staged, OptimizationPipeline::passes("default<O2>")] {
        let is_inlined = |pipeline: OptimizationPipeline| {
            let module = parse(&costly());
            compiler(pipeline).optimize(&module).unwrap_or_else(|error| panic!("{error}"));
            module
                .with_module(|module| module.get_function("costly").is_none())
                .expect("its context is there")
        };
        assert!(!is_inlined(pipeline.clone()), "{pipeline:?}");
        assert!(!is_inlined(pipeline.clone().inliner_threshold(200)), "{pipeline:?}");
        assert!(is_inlined(pipeline.clone().inliner_threshold(512)), "{pipeline:?}");
        assert!(!is_inlined(pipeline.clone().inliner_threshold(512).inliner_threshold(-1)), "{pipeline:?}");
    }
}

#[test]
fn a_module_that_is_divided_is_inlined_up_to_the_threshold() {
    let sections = |threshold| {
        let pipeline = OptimizationPipeline::level(OptimizationLevel::O2).inliner_threshold(threshold);
        let divided = Partition::new(PartitionPolicy::Late, 2).of_all_modules();
        let object = compiler(pipeline).with_partition(divided).compile(parse(&costly())).expect("compiles");
        object.size_bytes()
    };
    assert!(sections(512) > sections(200));
}

#[test]
fn hooks_that_do_nothing_change_no_object() {
    let source = varied("hooks_that_do_nothing_change_no_object");
    for level in OptimizationLevel::ALL {
        let whole = OptimizationPipeline::level(level);
        let hooked = Stage::ALL.into_iter().fold(whole.clone(), |pipeline, stage| {
            pipeline.hook_before(stage, quiet()).hook_after(stage, quiet())
        });
        assert!(object(hooked, &source).bytes() == object(whole, &source).bytes(), "{level}");
    }
}

#[test]
fn hooks_run_in_their_places() {
    use OptimizationLevel::{O0, O2};
    let source = parse(
        "define internal i32 @one() { ret i32 1 }
        define i32 @two() { %x = call i32 @one() %y = add i32 %x, 1 ret i32 %y }",
    );
    let bitcode = source.to_bitcode().expect("written");
    let seen = |level| {
        let said = Arc::new(Mutex::new(Vec::new()));
        let says = |place: String| {
            let said = said.clone();
            PassHook::new(place.clone(), move |site| {
                assert!(site.module().get_function("two").is_some());
                let function =
                    site.function().map(|function| function.get_name().to_string_lossy().into_owned());
                said.lock().push((place.clone(), function));
                Ok::<_, String>(())
            })
        };
        let pipeline = Stage::ALL.into_iter().fold(OptimizationPipeline::level(level), |pipeline, stage| {
            pipeline.hook_after(stage, says(stage.to_string()))
        });
        let pipeline = ExtensionPoint::ALL
            .into_iter()
            .fold(pipeline, |pipeline, point| pipeline.hook_at(point, says(format!("{point:?}"))));
        object(pipeline, &bitcode);
        std::mem::take(&mut *said.lock())
    };
    let places = |level| -> Vec<String> {
        let mut places: Vec<_> = seen(level).into_iter().map(|(place, _)| place).collect();
        places.dedup();
        places
    };
    let all = places(O2);
    for stage in Stage::ALL {
        let position = |place: &str| all.iter().position(|seen| seen == place).expect(place);
        let later = Stage::ALL.into_iter().find(|later| *later > stage);
        assert!(later.is_none_or(|later| position(stage.name()) < position(later.name())), "{all:?}");
    }
    for point in ExtensionPoint::ALL {
        // The functions have no loops.
        let has_loops =
            matches!(point, ExtensionPoint::LateLoopOptimizations | ExtensionPoint::LoopOptimizerEnd);
        assert_eq!(all.contains(&format!("{point:?}")), !has_loops, "{point:?}: {all:?}");
    }
    let of_stage = |level, stage: Stage| -> Vec<_> {
        seen(level)
            .into_iter()
            .filter(|(place, _)| place == stage.name())
            .map(|(_, function)| function)
            .collect()
    };
    // Callees come first; `one` is gone when it has been inlined.
    assert_eq!(of_stage(O2, Stage::Loop), [Some("one".to_owned()), Some("two".to_owned())]);
    assert_eq!(of_stage(O2, Stage::IntrinsicLowering), [None]);
    assert_eq!(of_stage(O0, Stage::Loop), [None], "there is no walk at O0");
}

/// A host decides what its own intrinsic becomes: here, a value that is read.
#[test]
fn a_hook_lowers_an_intrinsic_of_its_own() {
    let lower = PassHook::new("lower-seven", |site| {
        let module = site.module();
        let context = module.get_context();
        let seven = module.add_global(context.i32_type(), None, "seven");
        seven.set_initializer(&context.i32_type().const_int(7, false));
        let builder = context.create_builder();
        let calls = module.get_functions().flat_map(|function| function.get_basic_blocks());
        let calls: Vec<_> = calls.flat_map(|block| block.get_instructions().collect::<Vec<_>>()).collect();
        for call in calls.into_iter().filter(|call| call.to_string().contains("@host.seven")) {
            builder.position_before(&call);
            let value = builder.build_load(context.i32_type(), seven.as_pointer_value(), "seven")?;
            call.replace_all_uses_with(&value.into_int_value().as_instruction().expect("a load is one"));
            call.erase_from_basic_block();
        }
        Ok::<_, BuilderError>(())
    });
    let source = parse(
        "declare i32 @host.seven()
        define i32 @get() { %x = call i32 @host.seven() %y = mul i32 %x, 6 ret i32 %y }",
    );
    let source = source.to_bitcode().expect("written");
    let names = |object: &ObjectBuffer| String::from_utf8_lossy(object.bytes()).contains("host.seven");
    for level in OptimizationLevel::ALL {
        let whole = OptimizationPipeline::level(level);
        assert!(names(&object(whole.clone(), &source)));
        assert!(
            !names(&object(whole.hook_after(Stage::IntrinsicLowering, lower.clone()), &source)),
            "{level}"
        );
    }
}

#[test]
fn a_hook_that_fails_or_panics_is_an_error_of_its_module_and_the_rest_is_skipped() {
    let source = varied("a_hook_that_fails_or_panics_is_an_error_of_its_module_and_the_rest_is_skipped");
    let ran = Arc::new(AtomicUsize::new(0));
    let counts = ran.clone();
    let counts = PassHook::new("counts", move |_| {
        counts.fetch_add(1, Ordering::Relaxed);
        Ok::<_, String>(())
    });
    let fails = PassHook::new("fails", |_| Err("no room for safepoints"));
    let panics = PassHook::new("panics", |site| -> Result<(), String> {
        panic!("with {:?}", site.function().is_some())
    });
    for (hook, stage, expected) in [
        (&fails, Stage::EarlySimplification, "the hook `fails` failed: no room for safepoints"),
        (&panics, Stage::Loop, "the hook `panics` failed: panicked: with true"),
    ] {
        let pipeline = OptimizationPipeline::level(OptimizationLevel::O2);
        let pipeline = pipeline.hook_before(stage, hook.clone()).hook_after(Stage::Cleanup, counts.clone());
        let module = ThreadSafeModule::parse(&source).expect("valid IR");
        let error = compiler(pipeline).compile(module).expect_err("the hook fails");
        assert!(matches!(error, CompileError::Hook { .. }));
        assert!(error.to_string().ends_with(expected), "{error}");
    }
    assert_eq!(ran.load(Ordering::Relaxed), 0);
}

#[test]
fn passes_that_cannot_be_read_are_refused_by_stage() {
    let level = || OptimizationPipeline::level(OptimizationLevel::O2);
    for (pipeline, expected) in [
        (level().before(Stage::Loop, "no-such-pass"), ["stage loop", "no-such-pass"]),
        (level().replace(Stage::Cleanup, "instcombine(,"), ["stage cleanup", "instcombine(,"]),
        (level().after(Stage::Scalar, "globalopt"), ["stage scalar", "globalopt"]),
        (level().at_start("no-such-pass"), ["before or after everything", "no-such-pass"]),
        (OptimizationPipeline::passes("gvn").replace(Stage::Loop, ""), ["gvn", "no stages"]),
    ] {
        let error = compiler(pipeline).check_pipeline().expect_err("refused").to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }
    let fine =
        level().before(Stage::Loop, "gvn").after(Stage::Cleanup, "globalopt").replace(Stage::Scalar, "");
    compiler(fine.hook_at(ExtensionPoint::Peephole, quiet())).check_pipeline().expect("understood");
}

#[test]
fn a_pipeline_may_end_behind_any_stage() {
    let source = varied("a_pipeline_may_end_behind_any_stage");
    let mut last = String::new();
    for stage in Stage::ALL {
        let module = ThreadSafeModule::parse(&source).expect("valid IR");
        let pipeline = OptimizationPipeline::level(OptimizationLevel::O2).up_to(stage);
        compiler(pipeline).optimize(&module).unwrap_or_else(|error| panic!("{stage}: {error}"));
        let text = module.with_module(|module| module.to_string()).expect("no diagnostics");
        assert!(text != last || stage == Stage::Cleanup, "{stage}");
        // Vectors come with vectorization.
        assert_eq!(
            text.contains("<4 x float>") || text.contains("<8 x float>"),
            stage >= Stage::Vectorization,
            "{stage}"
        );
        last = text;
    }
}

#[test]
fn functions_that_are_not_to_be_optimized_are_not() {
    let source = "define i32 @plain(i32 %a) { %x = add i32 %a, 0 ret i32 %x }
        define i32 @left(i32 %a) noinline optnone { %x = add i32 %a, 0 ret i32 %x }";
    let module = parse(source);
    let pipeline = OptimizationPipeline::level(OptimizationLevel::O2).hook_after(Stage::Loop, quiet());
    compiler(pipeline).optimize(&module).expect("optimizes");
    let text = module.with_module(|module| module.to_string()).expect("no diagnostics");
    assert_eq!(text.matches(" i32 %a, 0").count(), 1, "{text}");
}

#[test]
fn changes_are_in_what_a_pipeline_is_known_by() {
    use OptimizationLevel::{O1, O2};
    let level = || OptimizationPipeline::level(O2);
    let named = |name: &str| PassHook::new(name, |_| Ok::<_, String>(()));
    let all = [
        level(),
        OptimizationPipeline::level(O1),
        level().before(Stage::Loop, "gvn"),
        level().after(Stage::Loop, "gvn"),
        level().replace(Stage::Loop, "gvn"),
        level().replace(Stage::Scalar, "gvn"),
        level().hook_before(Stage::Loop, named("a")),
        level().hook_before(Stage::Loop, named("b")),
        level().hook_after(Stage::Loop, named("a")),
        level().hook_at(ExtensionPoint::Peephole, named("a")),
        level().up_to(Stage::Loop),
        level().at_start("gvn"),
        level().at_end("gvn"),
    ];
    let texts: Vec<_> = all.iter().map(OptimizationPipeline::text).collect();
    for (number, text) in texts.iter().enumerate() {
        assert!(!texts[..number].contains(text), "{text}");
    }
    assert_eq!(texts[0], "default<O2>");
    assert_eq!(OptimizationPipeline::level(O1).at_start("globalopt").text(), "globalopt,default<O1>");
    assert_eq!(OptimizationPipeline::none().text(), "");
}

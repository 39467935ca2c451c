//! Units of modules in a session, with a layer in the linker's place.

use std::error::Error;
use std::process::Command;
use std::sync::Arc;

use crate::layers::{Linked, RecordingLayer, chain};
use crate::support::{Scratch, open, run};
use uruk_core::{
    ExecutionSession, JitDylib, LookupError, LookupRequest, LookupResult, LookupSet,
    MaterializationResponsibility, SearchOrder, SharedError, shared_error,
};
use uruk_pipeline::ir::IrLayer;
use uruk_pipeline::ir::{
    IrCompileLayer, IrCompiler, IrMaterializationUnit, IrTransformLayer, JitTargetMachineBuilder,
    ModuleInterface, OptimizationPipeline, ThreadSafeContext, ThreadSafeModule, define_ir,
};
use uruk_pipeline::object::ObjectLayer;
use uruk_pipeline::object::{
    ArchiveIndex, CommonExtent, CommonSymbols, FileKind, ObjectBuffer, ObjectInterface,
    StaticArchiveGenerator, define_object,
};

/// Refuses to be called with a context held, then passes on.
struct NoContextHeld(Arc<RecordingLayer>);

impl ObjectLayer for NoContextHeld {
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer) {
        assert!(!ThreadSafeContext::held_by_current_thread());
        self.0.emit(responsibility, object);
    }
}

struct Program {
    session: ExecutionSession,
    dylib: JitDylib,
    recording: Arc<RecordingLayer>,
    objects: Arc<dyn ObjectLayer>,
    ir: Arc<dyn IrLayer>,
    target: JitTargetMachineBuilder,
}

impl Program {
    fn new() -> Self {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").expect("new");
        let recording = Arc::new(RecordingLayer::default());
        let objects: Arc<dyn ObjectLayer> = Arc::new(NoContextHeld(recording.clone()));
        let target = JitTargetMachineBuilder::host().expect("host target");
        let compiler = IrCompiler::new(target.clone(), OptimizationPipeline::none());
        let ir = Arc::new(IrCompileLayer::new(compiler, objects.clone()));
        Self { session, dylib, recording, objects, ir, target }
    }

    fn define(&self, source: ObjectBuffer) -> Result<(), SharedError> {
        define_ir(&self.dylib, &self.ir, &self.target, source)
    }

    fn define_text(&self, name: &str, text: &str) {
        self.define(ObjectBuffer::new(name, text.as_bytes().to_vec())).expect("defined");
    }

    fn lookup(&self, names: &[&str]) -> Result<LookupResult, LookupError> {
        let order = SearchOrder::of(&self.dylib);
        self.session.lookup(LookupRequest::new(
            &order,
            LookupSet::required(names.iter().map(|name| self.session.intern(name))),
        ))
    }

    fn linked(&self) -> Vec<Linked> {
        self.recording.take()
    }
}

fn bitcode(scratch: &Scratch, name: &str, source: &str) -> ObjectBuffer {
    scratch.compile("clang-22", name, source, &["-emit-llvm", "-O1"])
}

#[test]
fn a_module_is_compiled_once_when_the_first_of_its_symbols_is_wanted() {
    let scratch = Scratch::new("ir-unit");
    let program = Program::new();
    program
        .define(bitcode(&scratch, "pair.c", "int one = 1; int two(void) { return one; }"))
        .expect("defined");
    assert!(program.linked().is_empty(), "nobody has asked yet");
    program.lookup(&["two"]).expect("found");
    program.lookup(&["one"]).expect("found");
    let linked = program.linked();
    assert_eq!(linked.len(), 1);
    assert!(linked[0].unit.ends_with("pair.c.out"), "{}", linked[0].unit);
    assert_eq!(linked[0].object.name().as_ref(), linked[0].unit);
    assert_eq!(linked[0].symbols, ["one", "two"]);
}

#[test]
fn of_two_inline_functions_the_first_is_compiled_and_the_second_refers_to_it() {
    let program = Program::new();
    let source = |user: &str| {
        format!(
            "$shared = comdat any\n@llvm.global_ctors = appending global [1 x {{ i32, ptr, ptr }}] [{{ i32, ptr, ptr }} {{ i32 1, ptr @start, ptr null }}]\ndefine internal void @start() {{\n  ret void\n}}\ndefine linkonce_odr i32 @shared() noinline comdat {{\n  ret i32 1\n}}\ndefine i32 @{user}() {{\n  %r = call i32 @shared()\n  ret i32 %r\n}}\n"
        )
    };
    program.define_text("first.ll", &source("first"));
    program.define_text("second.ll", &source("second"));
    program.lookup(&["first", "second", "shared"]).expect("found");
    let mut linked = program.linked();
    linked.sort_by(|left, right| left.unit.cmp(&right.unit));
    assert_eq!(linked[0].symbols, ["first", "shared"]);
    assert_eq!(linked[1].symbols, ["second"]);
    assert!(linked.iter().all(|linked| linked.has_initializer));
    let second = ObjectInterface::read(&linked[1].object).expect("an object");
    assert!(second.undefined.iter().any(|symbol| symbol.name == "shared"));
    assert!(!second.defined.iter().any(|symbol| symbol.name == "shared"));
}

#[test]
fn a_module_that_cannot_be_compiled_fails_its_lookup_with_llvms_reason() {
    let program = Program::new();
    program.define_text(
        "bad-asm.ll",
        "define void @f() {\n  call void asm sideeffect \"frobnicate\", \"\"()\n  ret void\n}\n",
    );
    let error = program.lookup(&["f"]).expect_err("no such instruction");
    let chain = chain(&error);
    assert!(chain.contains("bad-asm.ll") && chain.contains("frobnicate"), "{chain}");
    assert!(program.linked().is_empty());
    program.define_text("good.ll", "define void @g() {\n  ret void\n}\n");
    program.lookup(&["g"]).expect("the session goes on");
}

#[test]
fn damage_behind_the_symbols_is_found_when_the_module_is_wanted() {
    let scratch = Scratch::new("ir-damage");
    let program = Program::new();
    let good = bitcode(&scratch, "good.c", "int f(int a) { return a * 3; }");
    let mut accepted = 0;
    for size in (good.size_bytes() / 4..good.size_bytes()).step_by(16) {
        let name = format!("cut-{size}.bc");
        let cut = good.slice(name.clone(), 0..size).expect("within bounds");
        let error = match program.define(cut) {
            Err(error) => error.to_string(),
            Ok(()) => {
                accepted += 1;
                let error = program.lookup(&["f"]).expect_err("damaged");
                program.dylib.clear().expect("cleared");
                chain(&error)
            }
        };
        assert!(error.contains(&name), "{error}");
    }
    assert!(accepted < 100);
}

#[test]
fn a_transform_changes_modules_and_its_failure_is_theirs() {
    let program = Program::new();
    let rename = IrTransformLayer::new(program.ir.clone(), |module: ThreadSafeModule, responsibility| {
        if responsibility.unit_name() == "refused.ll" {
            return Err(shared_error("not today"));
        }
        let renamed = module.with_module(|module| {
            let global = module.get_global("value").expect("there");
            global.set_initializer(&module.get_context().i32_type().const_int(77, false));
        });
        renamed.map_err(|error| -> SharedError { Arc::new(error) })?;
        Ok(module)
    });
    let layer: Arc<dyn IrLayer> = Arc::new(rename);
    for (name, symbol) in [("taken.ll", "value"), ("refused.ll", "other")] {
        let text = format!("@{symbol} = global i32 1\n");
        let source = ObjectBuffer::new(name, text.into_bytes());
        define_ir(&program.dylib, &layer, &program.target, source).expect("defined");
    }
    program.lookup(&["value"]).expect("found");
    let linked = program.linked();
    assert!(linked[0].object.bytes().windows(4).any(|window| window == 77_u32.to_le_bytes()));
    let error = program.lookup(&["other"]).expect_err("refused");
    assert!(chain(&error).contains("not today"), "{}", chain(&error));
}

#[test]
fn an_archive_may_hold_bitcode_and_objects_side_by_side() {
    let scratch = Scratch::new("ir-archive");
    let program = Program::new();
    let module = bitcode(
        &scratch,
        "module.c",
        "extern int from_object; int *from_bitcode(void) { return &from_object; }",
    );
    let object = scratch.compile("clang-22", "object.c", "int from_object = 1;", &[]);
    let path = scratch.path("lib.a");
    let (module, object) =
        (scratch.write("module.o", module.bytes()), scratch.write("object.o", object.bytes()));
    // GNU ar knows no bitcode, so its table leaves the module out.
    run(Command::new("ar").arg("qcs").arg(&path).args([&module, &object]));
    let target = program.target.clone();
    let index = ArchiveIndex::read_with::<Box<dyn Error>>(&open(&path), |member| {
        Ok(ModuleInterface::of_bitcode(member, &target)?.into_names())
    });
    let (ir, objects, target) = (program.ir.clone(), program.objects.clone(), program.target.clone());
    let generator = StaticArchiveGenerator::new(index.expect("an archive"), move |dylib, member| {
        match FileKind::of(member.bytes()) {
            FileKind::Bitcode => define_ir(dylib, &ir, &target, member),
            _ => define_object(dylib, &objects, member),
        }
    });
    program.dylib.add_generator(Arc::new(generator));
    program.lookup(&["from_bitcode"]).expect("found");
    program.lookup(&["from_object"]).expect("found");
    let units: Vec<_> = program.linked().into_iter().map(|linked| linked.unit).collect();
    assert!(units[0].ends_with("lib.a(module.o)") && units[1].ends_with("lib.a(object.o)"), "{units:?}");
}

#[test]
fn a_module_in_memory_is_a_unit_too() {
    let program = Program::new();
    let source = ObjectBuffer::new("memory", b"define void @f() {\n  ret void\n}\n".to_vec());
    let module = ThreadSafeModule::parse(&source).expect("valid IR");
    let unit =
        IrMaterializationUnit::from_module(&program.session, program.ir.clone(), &program.target, module);
    program.dylib.define(Box::new(unit.expect("promised"))).expect("defined");
    program.lookup(&["f"]).expect("found");
    assert_eq!(program.linked()[0].unit, "memory");
}

#[test]
fn tentative_definitions_of_modules_become_references_to_the_shared_one() {
    let program = Program::new();
    let commons = CommonSymbols::new(program.objects.clone());
    for (name, kind, align) in
        [("small.ll", "i32", 4), ("large.ll", "[1000 x i32]", 64), ("hidden.ll", "i64", 8)]
    {
        let function = name.trim_end_matches(".ll");
        let text = format!(
            "@buffer = common global {kind} zeroinitializer, align {align}\ndefine ptr @{function}() {{\n  ret ptr @buffer\n}}\n"
        );
        let source = ObjectBuffer::new(name, text.into_bytes());
        let unit =
            IrMaterializationUnit::from_source(&program.session, program.ir.clone(), &program.target, source);
        let mut unit = unit.expect("promised");
        unit.share_commons(&program.dylib.default_tracker(), &commons).expect("taken up");
        program.dylib.define(Box::new(unit)).expect("defined");
    }
    program.lookup(&["small", "large", "buffer"]).expect("found");
    let linked = program.linked();
    assert_eq!(linked.len(), 3);
    for linked in &linked {
        let interface = ObjectInterface::read(&linked.object).expect("an object");
        if linked.symbols == ["buffer"] {
            let extent = CommonExtent { size_bytes: 4000, align: 64 };
            assert_eq!(interface.defined[0].common, Some(extent));
        } else {
            assert!(interface.undefined.iter().any(|symbol| symbol.name == "buffer"), "{}", linked.unit);
        }
    }
}

#[test]
fn a_module_is_compiled_in_the_code_model_it_was_compiled_for() {
    let scratch = Scratch::new("code-model");
    let source =
        |bytes: &str| format!("char huge[{bytes}]; char small; char *far(void) {{ return huge + small; }}");
    let compiler =
        IrCompiler::new(JitTargetMachineBuilder::host().expect("host target"), OptimizationPipeline::none());
    let sections = |flag: &str, bytes: &str| {
        let bitcode = scratch.compile("clang-22", "huge.c", &source(bytes), &["-emit-llvm", "-O1", flag]);
        let object =
            compiler.compile(ThreadSafeModule::parse(&bitcode).expect("valid IR")).expect("compiles");
        String::from_utf8_lossy(object.bytes()).into_owned()
    };
    assert!(sections("-mcmodel=medium", "1 << 20").contains(".lbss"));
    assert!(sections("-mcmodel=large", "1 << 20").contains(".lbss"));
    assert!(!sections("-mcmodel=small", "1 << 20").contains(".lbss"));
    // Data beyond all reach is large in each model.
    assert!(sections("-mcmodel=small", "3ul << 30").contains(".lbss"));
}

//! A module that was compiled once is not compiled again: layers above a cache. In processes of their own: a subscriber counts LLVM's
//! stages.

use std::cell::Cell;
use std::sync::{Arc, Once};

use crate::layers::RecordingLayer;
use crate::support::Scratch;
use uruk_core::sync::Mutex;
use uruk_core::{
    ExecutionSession, JitDylib, LookupError, LookupRequest, LookupSet, SearchOrder, SharedError,
};
use uruk_pipeline::cache::{
    Access, CacheMode, CompileCache, DiskCache, EntryKind, MemoryCache, Miss, ObjectCache, PackLimits,
    ReadOnlyCache,
};
use uruk_pipeline::ir::IrLayer;
use uruk_pipeline::ir::{
    IrCache, IrCompileLayer, IrCompiler, IrMaterializationUnit, JitTargetMachineBuilder, ModuleInterface,
    OptimizationLevel, OptimizationPipeline, Partition, PartitionPolicy, ThreadSafeContext, ThreadSafeModule,
};
use uruk_pipeline::object::ObjectBuffer;

const ANSWER: &str = "define i32 @answer() {\n  %r = call i32 @inline()\n  ret i32 %r\n}\n\
     define linkonce_odr i32 @inline() noinline {\n  ret i32 42\n}\n";

thread_local! {
    /// How many stages of LLVM this thread has begun.
    static STAGES: Cell<usize> = const { Cell::new(0) };
}

/// Counts the spans of LLVM's stages.
struct Stages;

impl tracing::Subscriber for Stages {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        if attributes.metadata().name().starts_with("ir.") {
            STAGES.set(STAGES.get() + 1);
        }
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}
    fn event(&self, _event: &tracing::Event<'_>) {}
    fn enter(&self, _span: &tracing::span::Id) {}
    fn exit(&self, _span: &tracing::span::Id) {}
}

/// How many stages of LLVM `act` runs on this thread.
fn stages(act: impl FnOnce()) -> usize {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Stages).expect("the first one"));
    let before = STAGES.get();
    act();
    STAGES.get() - before
}

/// A session that works in place, with a cache above what is stored.
struct Program {
    session: ExecutionSession,
    dylib: JitDylib,
    recording: Arc<RecordingLayer>,
    ir: Arc<IrCompileLayer>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Program {
    fn new(stored: &Arc<MemoryCache>, mode: CacheMode) -> Self {
        Self::with(stored, mode, &host(OptimizationLevel::O1))
    }

    fn with(stored: &Arc<MemoryCache>, mode: CacheMode, compiler: &IrCompiler) -> Self {
        let below: Arc<dyn ObjectCache> = match mode {
            CacheMode::ReadWrite => stored.clone(),
            _ => Arc::new(ReadOnlyCache::new(stored.clone())),
        };
        Self::above(Arc::new(CompileCache::new(0, Some(below))), mode, compiler)
    }

    fn above(store: Arc<CompileCache>, mode: CacheMode, compiler: &IrCompiler) -> Self {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").expect("new");
        let recording = Arc::new(RecordingLayer::default());
        let told = Arc::new(Mutex::new(Vec::new()));
        let observer = told.clone();
        let cache = IrCache::new(store, mode, compiler)
            .observed(Arc::new(move |event| observer.lock().push(event.to_string())));
        let ir = IrCompileLayer::new(compiler.clone(), recording.clone()).with_cache(Arc::new(cache));
        Self { session, dylib, recording, ir: Arc::new(ir), told }
    }

    fn layer(&self) -> Arc<dyn IrLayer> {
        self.ir.clone()
    }

    fn target(&self) -> &JitTargetMachineBuilder {
        self.ir.compiler().target()
    }

    fn add(&self, source: &ObjectBuffer) -> Result<(), SharedError> {
        uruk_pipeline::ir::define_ir(&self.dylib, &self.layer(), self.target(), source.clone())
    }

    fn add_module(&self, module: ThreadSafeModule) {
        let unit = IrMaterializationUnit::from_module(&self.session, self.layer(), self.target(), module);
        self.dylib.define(Box::new(unit.expect("valid"))).expect("the names are new");
    }

    fn lookup(&self, name: &str) -> Result<(), LookupError> {
        let order = SearchOrder::of(&self.dylib);
        self.session
            .lookup(LookupRequest::new(&order, LookupSet::required([self.session.intern(name)])))
            .map(drop)
    }

    /// Adds a file and compiles it; answers the object.
    fn compile(&self, source: &ObjectBuffer) -> Vec<u8> {
        self.add(source).expect("valid");
        self.object()
    }

    fn object(&self) -> Vec<u8> {
        self.lookup("answer").expect("it compiles");
        let linked = self.recording.take().pop().expect("one was linked");
        assert_eq!(**linked.object.name(), linked.unit, "messages name the file");
        linked.object.bytes().to_vec()
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock())
    }
}

fn host(level: OptimizationLevel) -> IrCompiler {
    IrCompiler::host(level).expect("host target")
}

fn stored() -> Arc<MemoryCache> {
    Arc::new(MemoryCache::new(1 << 24))
}

fn text(name: &str) -> ObjectBuffer {
    ObjectBuffer::new(name, ANSWER.as_bytes().to_vec())
}

fn bitcode(name: &str) -> ObjectBuffer {
    let bitcode = ThreadSafeModule::parse(&text("answer.ll")).and_then(|module| module.to_bitcode());
    bitcode.expect("valid IR").renamed(name)
}

#[test]
fn a_second_session_calls_no_stage_of_llvm() {
    alone!();
    for source in [text("answer.ll"), bitcode("answer.bc")] {
        let stored = stored();
        let mut objects = Vec::new();
        for is_warm in [false, true] {
            let program = Program::new(&stored, CacheMode::ReadWrite);
            let stages = stages(|| objects.push(program.compile(&source)));
            assert_eq!(stages == 0, is_warm, "{stages} stages");
            let stats = program.ir.ir_cache().expect("there is one").stats();
            let hits = [stats.interface_hits, stats.object_hits];
            let misses = [stats.interface_misses, stats.object_misses];
            assert_eq!((hits, misses), if is_warm { ([1; 2], [0; 2]) } else { ([0; 2], [1; 2]) });
        }
        assert!(objects[0] == objects[1], "what is found is what was compiled");
    }
}

#[test]
fn a_file_of_text_is_known_by_its_name_too_and_bitcode_is_not() {
    alone!();
    let stored = stored();
    let compile = |source: &ObjectBuffer| {
        let program = Program::new(&stored, CacheMode::ReadWrite);
        stages(|| drop(program.compile(source))) > 0
    };
    assert!(compile(&text("one.ll")));
    assert!(compile(&text("other.ll")), "its name is in its object");
    assert!(compile(&bitcode("one.bc")));
    assert!(!compile(&bitcode("other.bc")), "its object is the same");
}

#[test]
fn each_miss_says_its_cause_in_a_line() {
    alone!();
    let stored = stored();
    let program = Program::new(&stored, CacheMode::ReadWrite);
    program.compile(&text("answer.ll"));
    assert_eq!(program.told(), ["answer.ll: no interface: not stored", "answer.ll: no object: not stored"]);
    let program = Program::new(&stored, CacheMode::ReadWrite);
    program.compile(&text("answer.ll"));
    assert_eq!(program.told(), ["answer.ll: interface", "answer.ll: object"]);
}

#[test]
fn what_must_be_found_is_an_error_otherwise_and_nothing_is_compiled() {
    alone!();
    let stored = stored();
    let source = text("answer.ll");
    let required = || Program::new(&stored, CacheMode::RequireHit);
    let missing = |error: &(dyn std::error::Error + 'static)| {
        let message = crate::layers::chain(error);
        assert!(message.contains("answer.ll") && message.contains("not stored"), "{message}");
        message
    };
    let ran = stages(|| {
        let error = required().add(&source).expect_err("its interface is unknown");
        assert!(missing(&*error).contains("interface"));
    });
    assert_eq!(ran, 0);

    // Another level compiles it: the interface is the same, and the object is not.
    Program::with(&stored, CacheMode::ReadWrite, &host(OptimizationLevel::O2)).compile(&source);
    let program = required();
    let ran = stages(|| {
        program.add(&source).expect("its interface is known");
        let error = program.lookup("answer").expect_err("its object is unknown");
        assert!(missing(&error).contains("object"));
    });
    assert_eq!(ran, 0);

    Program::new(&stored, CacheMode::ReadWrite).compile(&source);
    assert_eq!(stages(|| drop(required().compile(&source))), 0);
}

#[test]
fn what_is_only_read_stores_nothing() {
    alone!();
    let stored = stored();
    Program::new(&stored, CacheMode::ReadOnly).compile(&text("answer.ll"));
    assert_eq!(stored.size(), (0, 0));
}

#[test]
fn a_module_in_memory_is_known_by_its_bitcode() {
    alone!();
    let stored = stored();
    let module = || ThreadSafeModule::parse(&text("answer.ll")).expect("valid IR");
    let compiled = |module: ThreadSafeModule| {
        let program = Program::new(&stored, CacheMode::ReadWrite);
        program.add_module(module);
        let mut object = Vec::new();
        let stages = stages(|| object = program.object());
        (stages > 0, object, program.told())
    };
    let (is_compiled, first, _) = compiled(module());
    assert!(is_compiled);
    let (is_compiled, again, told) = compiled(module());
    assert!(!is_compiled && first == again, "{told:?}");

    let (is_compiled, _, told) = compiled(module().bound_to_process());
    assert!(is_compiled);
    assert_eq!(told, ["answer.ll: no object: not cacheable: it has addresses of this process in it"]);
}

#[test]
fn a_module_is_known_again_whatever_shares_its_context() {
    alone!();
    let stored = stored();
    let structure = |field: &str| {
        format!(
            "%struct.S = type {{ {field} }}\ndefine ptr @other(ptr %p) {{\n  %q = getelementptr %struct.S, ptr %p, i32 1\n  ret ptr %q\n}}\n"
        )
    };
    let source = |name: &str, text: String| ObjectBuffer::new(name, text.into_bytes());
    let answer = source("answer.ll", structure("i32").replace("@other", "@answer"));
    let compile = |is_disturbed: bool| {
        let context = ThreadSafeContext::new();
        let parse = |source: &ObjectBuffer| ThreadSafeModule::parse_in(&context, source).expect("valid IR");
        // The second structure of a name has another name in the context.
        let other = is_disturbed.then(|| parse(&source("other.ll", structure("i64, i64"))));
        let program = Program::new(&stored, CacheMode::ReadWrite);
        program.add_module(parse(&answer));
        let mut object = Vec::new();
        let told = {
            let _ = stages(|| object = program.object());
            program.told()
        };
        drop(other);
        (told, object)
    };
    let (told, first) = compile(true);
    assert_eq!(told, ["answer.ll: no object: not stored"]);
    let (told, again) = compile(false);
    assert_eq!(told, ["answer.ll: object"]);
    assert!(first == again);
}

#[test]
fn definitions_left_out_have_another_object() {
    alone!();
    let stored = stored();
    let compile = |discards: &[&str]| {
        let program = Program::new(&stored, CacheMode::ReadWrite);
        let unit = IrMaterializationUnit::from_source(
            &program.session,
            program.layer(),
            program.target(),
            text("answer.ll"),
        );
        let mut unit = unit.expect("valid");
        for name in discards {
            use uruk_core::MaterializationUnit as _;
            unit.discard(&program.dylib, &program.session.intern(name));
        }
        program.dylib.define(Box::new(unit)).expect("the names are new");
        let mut object = Vec::new();
        (stages(|| object = program.object()) > 0, object)
    };
    let (_, whole) = compile(&[]);
    let (is_compiled, part) = compile(&["inline"]);
    assert!(is_compiled && whole != part);
    assert_eq!(compile(&["inline"]), (false, part));
    assert_eq!(compile(&[]), (false, whole));
}

#[test]
fn a_known_interface_that_says_to_keep_less_has_another_object() {
    alone!();
    let stored = stored();
    let compile = |interface: &ModuleInterface| {
        let program = Program::new(&stored, CacheMode::ReadWrite);
        let unit = IrMaterializationUnit::from_interface(
            &program.session,
            program.layer(),
            interface,
            bitcode("answer.bc"),
        );
        program.dylib.define(Box::new(unit)).expect("the names are new");
        stages(|| drop(program.object())) > 0
    };
    let target = JitTargetMachineBuilder::host().expect("host target");
    let mut interface = ModuleInterface::of_bitcode(&bitcode("answer.bc"), &target).expect("valid");
    assert!(compile(&interface) && !compile(&interface));
    interface.symbols.retain(|symbol| &*symbol.name == "answer");
    assert!(compile(&interface) && !compile(&interface));
}

#[test]
fn a_bad_interface_is_read_again_and_replaced() {
    alone!();
    let stored = stored();
    let source = text("answer.ll");
    let program = Program::new(&stored, CacheMode::ReadWrite);
    let key = program.ir.ir_cache().expect("there is one").source_key(&source);
    stored.put(&key, &ObjectBuffer::new("bad", b"urukifc\n and so on".to_vec()));
    program.compile(&source);
    let told = program.told();
    assert!(told[0].contains("the stored entry is damaged"), "{told:?}");
    let program = Program::new(&stored, CacheMode::ReadWrite);
    assert_eq!(stages(|| drop(program.compile(&source))), 0);
}

#[test]
fn what_does_not_compile_is_not_stored() {
    alone!();
    let stored = stored();
    let source = "define i32 @answer() {\n  call void asm sideeffect \"no such instruction\", \"\"()\n  ret i32 1\n}\n";
    for _ in 0..2 {
        let program = Program::new(&stored, CacheMode::ReadWrite);
        program
            .add(&ObjectBuffer::new("bad.ll", source.as_bytes().to_vec()))
            .expect("its symbols can be read");
        program.lookup("answer").expect_err("it cannot be assembled");
    }
    assert_eq!(stored.size().0, 1, "the interface alone");
}

#[test]
fn whether_a_file_would_be_found_is_told_before() {
    alone!();
    let stored = stored();
    let source = text("answer.ll");
    let would_hit = |level: OptimizationLevel| {
        let compiler = host(level);
        let program = Program::with(&stored, CacheMode::ReadWrite, &compiler);
        program.ir.ir_cache().expect("there is one").would_hit(&compiler, true, &source, |_| Vec::new())
    };
    assert_eq!(would_hit(OptimizationLevel::O1), Err(Miss::NotStored));
    Program::new(&stored, CacheMode::ReadWrite).compile(&source);
    assert_eq!(would_hit(OptimizationLevel::O1), Ok(()));
    assert_eq!(would_hit(OptimizationLevel::O2), Err(Miss::NotStored));
}

#[test]
fn other_passes_another_target_and_another_salt_have_other_objects() {
    alone!();
    let stored = stored();
    let source = bitcode("answer.bc");
    let target = || JitTargetMachineBuilder::host().expect("host target");
    let named = JitTargetMachineBuilder::new(target().options().clone()).expect("it is this machine");
    let none = OptimizationPipeline::none;
    let compilers = [
        IrCompiler::new(target(), none()),
        IrCompiler::new(target(), OptimizationPipeline::passes("mem2reg")),
        IrCompiler::new(target().with_sections(true, false), none()),
        IrCompiler::new(target().with_sections(false, true), none()),
        IrCompiler::new(target().with_codegen_level(OptimizationLevel::O0.into()), none()),
        IrCompiler::new(named, none()),
    ];
    for compiler in &compilers {
        let compile = || Program::with(&stored, CacheMode::ReadWrite, compiler).compile(&source);
        assert!(stages(|| drop(compile())) > 0, "{compiler:?}");
        assert_eq!(stages(|| drop(compile())), 0, "{compiler:?}");
    }
    let cache = |salt: &[u8]| {
        let store = Arc::new(CompileCache::new(0, None));
        IrCache::new(store, CacheMode::ReadWrite, &compilers[0]).salted(salt).source_key(&source)
    };
    assert_ne!(cache(b"one"), cache(b"other"));
    assert_eq!(EntryKind::Object.to_string(), "object");
}

/// Bytes that this process has allocated and not freed, LLVM's among them.
fn allocated_bytes() -> usize {
    // SAFETY: it only looks.
    unsafe { libc::mallinfo2() }.uordblks
}

/// Nine of ten compiles find one of a few modules; each tenth module is new. Memory and disk are small, so that both evict.
///
/// Alone in its process, so that all allocations count. The memory in use at a tenth of the way has to be the memory in use at the end. A
/// leak of one byte a compile would be seen.
fn compile_many(count: usize) {
    let scratch = Scratch::new("memory-level");
    let limits = PackLimits { size_bytes: 1 << 20, ..PackLimits::default() };
    let disk =
        DiskCache::open(&scratch.path("cache"), Access::ReadWrite, limits).expect("a directory of ours");
    let store = Arc::new(CompileCache::new(1 << 16, Some(Arc::new(disk))));
    let compiler = host(OptimizationLevel::O0);
    let (mut hits, mut at_first) = (0, 0);
    for number in 0..count {
        let module = if number % 10 == 0 { number } else { number / 1000 * 1000 + number % 7 * 10 };
        let answer = format!("define i32 @answer() {{\n  ret i32 {module:09}\n}}\n");
        let source = ObjectBuffer::new("answer.ll", answer.into_bytes());
        let program = Program::above(store.clone(), CacheMode::ReadWrite, &compiler);
        program.compile(&source);
        hits += program.ir.ir_cache().expect("there is one").stats().object_hits;
        if number == count / 10 {
            store.flush();
            at_first = allocated_bytes();
        }
    }
    store.flush();
    let more = allocated_bytes().saturating_sub(at_first);
    assert!(hits >= count as u64 * 8 / 10, "{hits} hits of {count}");
    assert!(more < 64 << 10, "{count} compiles: {at_first} bytes at first, and {more} more at the end");
}

#[test]
#[ignore = "takes a minute"]
fn stress_a_hundred_thousand_compiles_take_no_more_memory_than_ten_thousand() {
    alone!();
    compile_many(100_000);
}

/// An edit of one function once compiled all parts of its module again: the module's own key was the only one.
#[test]
fn an_edit_of_one_function_compiles_one_part() {
    alone!();
    const PARTS: u64 = 8;
    let source = |edited: u32| {
        let mut source = String::from("define i32 @answer() {\n  ret i32 42\n}\n");
        for number in 0..24 {
            let factor = if number == 7 { edited } else { number };
            source += &format!(
                "define i32 @f_{number}(i32 %x) noinline {{\n  %y = mul i32 %x, {factor}\n  ret i32 %y\n}}\n"
            );
        }
        ObjectBuffer::new("parts.ll", source.into_bytes())
    };
    let early = Partition::new(PartitionPolicy::Early, PARTS as usize).of_all_modules();
    let compiler = host(OptimizationLevel::O1).with_partition(early);
    let run = |stored: &Arc<MemoryCache>, source: &ObjectBuffer| {
        let program = Program::with(stored, CacheMode::ReadWrite, &compiler);
        let object = program.compile(source);
        let stats = program.ir.ir_cache().expect("it has one").stats();
        (object, [stats.object_hits, stats.part_hits, stats.part_misses])
    };
    let stored = stored();
    let (first, counts) = run(&stored, &source(7));
    assert_eq!(counts, [0, 0, PARTS]);
    let (again, counts) = run(&stored, &source(7));
    assert_eq!(counts, [1, 0, 0], "the module's own entry is the first that is looked for");
    assert!(first == again);
    let (edited, counts) = run(&stored, &source(1000));
    assert_eq!(counts, [0, PARTS - 1, 1]);
    let (cold, _) = run(&self::stored(), &source(1000));
    assert!(edited == cold && edited != first, "parts that were found are those that would be made");
}

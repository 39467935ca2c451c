//! Graphs that a compiler of no object files builds block by block, linked through the layer and run.

use std::sync::Arc;

use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, SymbolFlags, SymbolName, WithCauses,
    absolute_symbols,
};
use uruk_pipeline::arch::x86_64::kinds;
use uruk_pipeline::link::LinkError;
use uruk_pipeline::link::graph::{Edge, LinkGraph, LinkGraphBuilder, SectionRole};
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::memory::InProcessMemoryManager;
use uruk_pipeline::object::UnitTraits;
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::in_process::InProcessExecutor;

/// A unit whose code is there as bytes.
struct Built {
    name: SymbolName,
    layer: Arc<ObjectLinkingLayer>,
    build: fn() -> LinkGraph<'static>,
    initializer: Option<SymbolName>,
}

impl MaterializationUnit for Built {
    fn name(&self) -> &str {
        "built"
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        let interface = MaterializationInterface::new([(self.name.clone(), flags)].into_iter().collect());
        match &self.initializer {
            Some(initializer) => interface.with_initializer(initializer.clone()),
            None => interface,
        }
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.layer.emit_graph(responsibility, (self.build)());
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

fn define(dylib: &JitDylib, name: &str, build: fn() -> LinkGraph<'static>) {
    let memory = Arc::new(InProcessMemoryManager::new().expect("an address range"));
    let layer = Arc::new(ObjectLinkingLayer::new(
        Arc::new(InProcessExecutor::new(memory)),
        Arc::new(Platform::new()),
    ));
    let unit = Built { name: dylib.session().intern(name), layer, build, initializer: None };
    dylib.define(Box::new(unit)).expect("a new name");
}

/// `lea rdi, [rip + text]; jmp helper`, and what else the graph has is dropped or zero.
fn calls_helper() -> LinkGraph<'static> {
    let mut graph = LinkGraph::builder("calls.src");
    let code = [0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
    let code = graph.block(".text", SectionRole::Code, Vec::leak(code.to_vec()), 16);
    let text = graph.block(".rodata", SectionRole::ReadOnly, b"--five", 1);
    let counter = graph.zero_fill(".bss", 8, 8);
    graph.define("calls", code, 0);
    graph.define_local("counter", counter, 0);
    let text = graph.define_local("text", text, 2);
    let helper = graph.external("helper");
    graph.edge(code, Edge { offset: 3, kind: kinds::DELTA_32, target: text, addend: -4 });
    graph.edge(code, Edge { offset: 8, kind: kinds::BRANCH_32, target: helper, addend: -4 });
    graph.build().expect("a valid graph")
}

#[test]
fn a_built_graph_is_linked_with_what_it_refers_to() {
    extern "C" fn first_byte(text: *const u8) -> u32 {
        // SAFETY: the code below passes the address of a constant.
        u32::from(unsafe { *text })
    }
    let session = ExecutionSession::new();
    let main = session.create_jit_dylib("main").expect("new");
    let address = ExecutorAddr::new(first_byte as *const () as u64);
    let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
    let helper = [(session.intern("helper"), ExecutorSymbolDef::new(address, flags))];
    main.define(absolute_symbols(helper.into_iter().collect())).expect("new");
    define(&main, "calls", calls_helper);
    let found = session.lookup_symbol(&main.link_order(), &session.intern("calls")).expect("links");
    // SAFETY: the bytes above are a function of this type, and the session lives.
    let calls: extern "C" fn() -> u32 = unsafe { std::mem::transmute(found.address.value() as usize) };
    assert_eq!(calls(), u32::from(b'f'));
}

/// `sub rsp, 8; call thrower; add rsp, 8; ret`, and how it is unwound.
fn passes_on() -> LinkGraph<'static> {
    const CODE: &[u8] = &[0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 8, 0xc3];
    #[rustfmt::skip]
    const FRAMES: &[u8] = &[
        // Common: the frame begins 8 bytes above rsp, the return address lies below that.
        20, 0, 0, 0,  0, 0, 0, 0,  1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
        // Of the function: 16 bytes above behind the first instruction, 8 again behind the third.
        20, 0, 0, 0,  28, 0, 0, 0,  0, 0, 0, 0,  14, 0, 0, 0,  0, 0x44, 0x0e, 16, 0x49, 0x0e, 8, 0,
    ];
    let mut graph = LinkGraph::builder("passes.src");
    let code = graph.block(".text", SectionRole::Code, CODE, 16);
    let passes = graph.define("passes", code, 0);
    let thrower = graph.external("thrower");
    graph.edge(code, Edge { offset: 5, kind: kinds::BRANCH_32, target: thrower, addend: -4 });
    graph.unwind_table(FRAMES, &[Edge { offset: 32, kind: kinds::DELTA_32, target: passes, addend: 0 }]);
    graph.build().expect("a valid graph")
}

/// Code of a graph had no unwind table: what was thrown through it ended the process.
#[test]
fn an_exception_passes_through_a_built_graph() {
    extern "C-unwind" fn throws() {
        std::panic::resume_unwind(Box::new(5));
    }
    let session = ExecutionSession::new();
    let main = session.create_jit_dylib("main").expect("new");
    let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
    let address = ExecutorAddr::new(throws as *const () as u64);
    let thrower = [(session.intern("thrower"), ExecutorSymbolDef::new(address, flags))];
    main.define(absolute_symbols(thrower.into_iter().collect())).expect("new");
    define(&main, "passes", passes_on);
    let found = session.lookup_symbol(&main.link_order(), &session.intern("passes")).expect("links");
    // SAFETY: the bytes above are a function of this type, and the session lives.
    let passes: extern "C-unwind" fn() = unsafe { std::mem::transmute(found.address.value() as usize) };
    let caught = std::panic::catch_unwind(|| passes()).expect_err("it throws");
    assert_eq!(caught.downcast_ref::<i32>(), Some(&5));
}

/// `lock inc dword [rip + counter]; ret`, to be called at the start; what `counts` is gives the counter.
fn counts_its_starts() -> LinkGraph<'static> {
    let mut graph = LinkGraph::builder("counts.src");
    let begin = graph.block(".text", SectionRole::Code, &[0xff, 0x05, 0, 0, 0, 0, 0xc3], 16);
    let counts = graph.block(".text", SectionRole::Code, &[0x8b, 0x05, 0, 0, 0, 0, 0xc3], 16);
    let counter = graph.zero_fill(".bss", 4, 4);
    let counter = graph.define_local("counter", counter, 0);
    for code in [begin, counts] {
        graph.edge(code, Edge { offset: 2, kind: kinds::DELTA_32, target: counter, addend: -4 });
    }
    let begin = graph.define_local("begin", begin, 0);
    graph.define("counts", counts, 0);
    graph.init_array(65535, &[begin, begin]);
    graph.init_array(101, &[begin]);
    graph.build().expect("a valid graph")
}

#[test]
fn initialisers_of_a_built_graph_run() {
    let session = ExecutionSession::new();
    let main = session.create_jit_dylib("main").expect("new");
    let platform = Arc::new(Platform::new());
    let memory = Arc::new(InProcessMemoryManager::new().expect("an address range"));
    let layer = Arc::new(ObjectLinkingLayer::new(Arc::new(InProcessExecutor::new(memory)), platform.clone()));
    let traits = UnitTraits { runs_at_start: true, ..UnitTraits::default() };
    let initializer = platform.declare(&main, "counts.src", traits);
    let built = Built {
        name: session.intern("counts"),
        layer,
        build: counts_its_starts,
        initializer: Some(initializer),
    };
    main.define(Box::new(built)).expect("a new name");
    let found = session.lookup_symbol(&main.link_order(), &session.intern("counts")).expect("links");
    // SAFETY: the bytes above are functions of this type, and the session lives.
    let counts: extern "C" fn() -> u32 = unsafe { std::mem::transmute(found.address.value() as usize) };
    assert_eq!(counts(), 0);
    // SAFETY: they are sound.
    unsafe { platform.initialize(&main) }.expect("this thread may wait");
    assert_eq!(counts(), 3);
}

/// The same message as for objects: it names the function and the place.
#[test]
fn a_built_graph_that_refers_to_nobody_says_where() {
    let session = ExecutionSession::new();
    let main = session.create_jit_dylib("main").expect("new");
    define(&main, "calls", calls_helper);
    let error = session.lookup_symbol(&main.link_order(), &session.intern("calls")).expect_err("nobody");
    let told = "`calls` (dylib `main`, unit `built`) failed: undefined: `helper` (needed by `calls` at calls.src: .text+0x8): \
                searched `main`";
    assert_eq!(WithCauses(&error).to_string(), told);
}

/// A builder can be told anything, and says what it cannot be.
#[test]
fn graphs_that_contradict_themselves_are_refused() {
    let edge = |offset, target| Edge { offset, kind: kinds::DELTA_32, target, addend: 0 };
    let refused = |wrong: &dyn Fn(&mut LinkGraphBuilder<'static>)| {
        let mut graph = LinkGraph::builder("wrong.src");
        wrong(&mut graph);
        graph.build().expect_err("wrong").to_string()
    };
    let past = refused(&|graph| {
        let code = graph.block(".text", SectionRole::Code, b"abcd", 1);
        let other = graph.external("other");
        graph.edge(code, edge(1, other));
    });
    assert_eq!(past, "wrong.src: .text+0x1: the field of R_X86_64_PC32 ends past the block's 4 bytes");
    let zeros = refused(&|graph| {
        let zeros = graph.zero_fill(".bss", 64, 8);
        let other = graph.external("other");
        graph.edge(zeros, edge(0, other));
    });
    assert!(zeros.ends_with("ends past the block's 0 bytes"), "{zeros}");
    let foreign = refused(&|graph| {
        let mut other = LinkGraph::builder("other.src");
        let target = (0..9).map(|index| other.external(&format!("other{index}"))).last().expect("nine");
        let code = graph.block(".text", SectionRole::Code, b"abcd", 1);
        graph.edge(code, edge(0, target));
    });
    assert!(foreign.ends_with("an edge to a symbol of another graph"), "{foreign}");
    let align = refused(&|graph| {
        graph.block(".text", SectionRole::Code, b"abcd", 3);
    });
    assert!(align.ends_with("a block of 0x4 bytes, aligned to 0x3"), "{align}");
    let frames = refused(&|graph| {
        graph.block(".eh_frame", SectionRole::EhFrame, b"abcd", 8);
    });
    assert!(frames.ends_with("an unwind table is no block: it is added by `unwind_table`"), "{frames}");
    let table = refused(&|graph| graph.unwind_table(&[8, 0, 0, 0, 0, 0, 0, 0], &[]));
    assert!(table.ends_with("reaches beyond the end of the section"), "{table}");
    let nobody = refused(&|graph| graph.unwind_table(&[4, 0, 0, 0, 9, 0, 0, 0], &[]));
    assert!(nobody.ends_with("and is not there"), "{nobody}");
    let outside = refused(&|graph| {
        let code = graph.block(".text", SectionRole::Code, b"abcd", 1);
        graph.define("f", code, 5);
    });
    assert!(outside.ends_with("`f` lies past the 4 bytes of its block"), "{outside}");
    let mut twice = LinkGraph::builder("twice.src");
    let code = twice.block(".text", SectionRole::Code, b"abcd", 1);
    let _ = (twice.define("f", code, 0), twice.define("f", code, 1));
    assert!(matches!(twice.build(), Err(LinkError::Duplicate { .. })));
}

//! Graphs that a compiler of no object files builds block by block, linked through the layer and run.

use std::sync::Arc;

use uruk_core::{
    ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, SymbolFlags, SymbolName, WithCauses,
    absolute_symbols,
};
use uruk_pipeline::link::graph::{Edge, LinkGraph, LinkGraphBuilder, SectionRole};
use uruk_pipeline::link::x86_64::EdgeKind;
use uruk_pipeline::link::{LinkError, ObjectLinkingLayer};
use uruk_pipeline::memory::InProcessMemoryManager;
use uruk_pipeline::platform::Platform;

/// A unit whose code is there as bytes.
struct Built {
    name: SymbolName,
    layer: Arc<ObjectLinkingLayer>,
    build: fn() -> LinkGraph<'static>,
}

impl MaterializationUnit for Built {
    fn name(&self) -> &str {
        "built"
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        MaterializationInterface::new([(self.name.clone(), flags)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.layer.emit_graph(responsibility, (self.build)());
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

fn define(dylib: &JitDylib, name: &str, build: fn() -> LinkGraph<'static>) {
    let memory = Arc::new(InProcessMemoryManager::new().expect("an address range"));
    let layer = Arc::new(ObjectLinkingLayer::new(memory, Arc::new(Platform::new())));
    let unit = Built { name: dylib.session().intern(name), layer, build };
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
    graph.edge(code, Edge { offset: 3, kind: EdgeKind::Delta32, target: text, addend: -4 });
    graph.edge(code, Edge { offset: 8, kind: EdgeKind::Branch32, target: helper, addend: -4 });
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

/// The same message as for objects: it names the function and the place.
#[test]
fn a_built_graph_that_refers_to_nobody_says_where() {
    let session = ExecutionSession::new();
    let main = session.create_jit_dylib("main").expect("new");
    define(&main, "calls", calls_helper);
    let error = session.lookup_symbol(&main.link_order(), &session.intern("calls")).expect_err("nobody");
    let told = "`calls` (dylib `main`, unit `built`) failed: undefined: `helper` (needed by `calls` at calls.src: .text+0x8): \
                symbols not found: `helper` (searched dylibs: `main`)";
    assert_eq!(WithCauses(&error).to_string(), told);
}

/// A builder can be told anything, and says what it cannot be.
#[test]
fn graphs_that_contradict_themselves_are_refused() {
    let edge = |offset, target| Edge { offset, kind: EdgeKind::Delta32, target, addend: 0 };
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
    assert!(frames.ends_with("unwind tables are taken from object files only"), "{frames}");
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

//! Modules that share one LLVM context beside modules that have one each.
//!
//! The former are compiled one after another. That must not keep workers from the latter: together both groups are to take
//! as long as the slower one alone, where two workers have processors of their own, and not the sum.

use std::fmt::Write as _;
use std::sync::mpsc;

use uruk::Jit;
use uruk::pipeline::ir::{OptimizationLevel, OptimizationPipeline, ThreadSafeContext, ThreadSafeModule};
use uruk::pipeline::object::ObjectBuffer;
use uruk_core::{JitDylibLookupFlags, LookupRequest, LookupSet, SearchOrder, SymbolName};

use crate::Case;
use crate::measure::{Measured, Scale, Taken};

const MODULES: usize = 100;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "contexts",
        threads: 2,
        operation: "a module: 100 on one context, 100 on their own, both groups at once beside the slower of the two",
        run: Box::new(contexts),
    }]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    OneContext,
    OwnContexts,
}

fn contexts(scale: Scale) -> Vec<Measured> {
    let (mut one, mut own, mut slower, mut both) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut left = Vec::new();
    for _ in 0..scale.repetitions() {
        let (first, second) = (compile(&[Group::OneContext]), compile(&[Group::OwnContexts]));
        one.push(first);
        own.push(second);
        slower.push(if first.wall < second.wall { second } else { first });
        both.push(compile(&[Group::OneContext, Group::OwnContexts]));
        left.push(left_in_turn());
    }
    left.sort_unstable();
    // The time of both groups is reported per module of one group, as in the other rows. The `left_in_turn` modules wait for one worker
    // alone, however many there are; their number is the same if other programs keep the processors busy.
    vec![
        Measured::of(MODULES, &one).with("group", "one context"),
        Measured::of(MODULES, &own).with("group", "own contexts"),
        Measured::of(MODULES, &both)
            .with("group", "both")
            .with_beside("slower group", &slower)
            .extra("left_in_turn", left[left.len() / 2] as f64),
    ]
}

/// Reads the modules of these groups, then times the lookup of all of them.
fn compile(groups: &[Group]) -> Taken {
    let Scene { jit, order, names, .. } = Scene::new(groups);
    let names = names.concat();
    Taken::by(|| {
        let symbols = LookupSet::required(names.iter().cloned());
        let found = jit.session().lookup(LookupRequest::new(&order, symbols)).expect("every module compiles");
        assert_eq!(found.len(), names.len());
    })
}

/// How many modules of the one context wait for their turn when the last of the others is there.
fn left_in_turn() -> usize {
    let groups = [Group::OneContext, Group::OwnContexts];
    let Scene { jit, shared, order, names } = Scene::new(&groups);
    let (send, told) = mpsc::channel();
    for (group, names) in groups.into_iter().zip(names) {
        let (shared, send) = (shared.clone(), send.clone());
        let request = LookupRequest::new(order.clone(), LookupSet::required(names));
        jit.session().lookup_async(request, move |found| {
            found.expect("every module compiles");
            send.send((group, shared.serial_queue().waiting())).expect("somebody waits for it");
        });
    }
    let told = [told.recv(), told.recv()].map(|told| told.expect("both are answered"));
    told.iter().find(|(group, _)| *group == Group::OwnContexts).expect("one answer is theirs").1
}

/// An engine that has read the modules of some groups.
struct Scene {
    jit: Jit,
    shared: ThreadSafeContext,
    order: SearchOrder,
    /// By group, as asked for.
    names: Vec<Vec<SymbolName>>,
}

impl Scene {
    fn new(groups: &[Group]) -> Self {
        let jit = Jit::builder().threads(2).optimization(OptimizationLevel::O0);
        let jit = jit.pipeline(OptimizationPipeline::none()).build().expect("an engine for this machine");
        let mut names = vec![Vec::new(); groups.len()];
        let shared = ThreadSafeContext::new();
        for index in 0..MODULES {
            for (&group, names) in groups.iter().zip(&mut names) {
                let name = format!("{}{index}", if group == Group::OneContext { "one" } else { "own" });
                let source = ObjectBuffer::new(&*name, source(&name, index).into_bytes());
                let module = match group {
                    Group::OneContext => ThreadSafeModule::parse_in(&shared, &source),
                    Group::OwnContexts => ThreadSafeModule::parse(&source),
                };
                jit.add_module(module.expect("valid IR")).expect("names are distinct");
                names.push(jit.intern(&name));
            }
        }
        let order = [(jit.main_dylib().clone(), JitDylibLookupFlags::MatchAllSymbols)];
        Self { jit, shared, order: SearchOrder::from_iter(order), names }
    }
}

/// A function of many instructions, so that its compilation outweighs the rest.
fn source(name: &str, seed: usize) -> String {
    let mut text = format!("define i64 @{name}(i64 %x) {{\n  %v0 = add i64 %x, {seed}\n");
    for step in 1..600 {
        let operation = ["add", "mul", "xor", "sub"][(seed + step) % 4];
        writeln!(text, "  %v{step} = {operation} i64 %v{}, {}", step - 1, step * 7 + 1)
            .expect("a String takes everything");
    }
    text + "  ret i64 %v599\n}\n"
}

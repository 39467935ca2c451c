//! Modules that share one LLVM context beside modules that have one each.
//!
//! The former are compiled one after another. That must not keep workers from the latter: together both groups are to take
//! as long as the slower one alone, where two workers have processors of their own, and not the sum.

use std::fmt::Write as _;

use uruk::Jit;
use uruk::pipeline::ir::{OptimizationLevel, OptimizationPipeline, ThreadSafeContext, ThreadSafeModule};
use uruk::pipeline::object::ObjectBuffer;
use uruk_core::{JitDylibLookupFlags, LookupSet, SearchOrder};

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
    for _ in 0..scale.repetitions() {
        let (first, second) = (compile(&[Group::OneContext]), compile(&[Group::OwnContexts]));
        one.push(first);
        own.push(second);
        slower.push(if first.wall < second.wall { second } else { first });
        both.push(compile(&[Group::OneContext, Group::OwnContexts]));
    }
    // The time of both groups is told for each module of one of them, as the others are.
    vec![
        Measured::of(MODULES, &one).with("group", "one context"),
        Measured::of(MODULES, &own).with("group", "own contexts"),
        Measured::of(MODULES, &both).with("group", "both").with_beside("slower group", &slower),
    ]
}

/// Reads the modules of these groups, then times the lookup of all of them.
fn compile(groups: &[Group]) -> Taken {
    let jit = Jit::builder().threads(2).optimization(OptimizationLevel::O0);
    let jit = jit.pipeline(OptimizationPipeline::none()).build().expect("an engine for this machine");
    let mut names = Vec::new();
    let shared = ThreadSafeContext::new();
    for index in 0..MODULES {
        for &group in groups {
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
    let order = SearchOrder::from_iter([(jit.main_dylib().clone(), JitDylibLookupFlags::MatchAllSymbols)]);
    Taken::by(|| {
        let symbols = LookupSet::required(names.iter().cloned());
        let found = jit.session().lookup(&order, symbols).expect("every module compiles");
        assert_eq!(found.len(), names.len());
    })
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

//! A small language without LLVM: each function is a unit that writes machine code into a link graph when somebody calls for it.
//!
//! `cargo run --example no_llvm --no-default-features`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use uruk::core::sync::Arc;
use uruk::core::{
    MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SymbolFlags, shared_error,
};
use uruk::pipeline::link::graph::{Edge, LinkGraph, SectionRole};
use uruk::pipeline::link::{ObjectLinkingLayer, x86_64::EdgeKind};
use uruk::prelude::*;

/// Functions of one number `n`; a word before brackets is a call.
const PROGRAM: &str = "square = n * n\nnext = n + 1\nanswer = square(n) + square(next(n))";

/// `name = body`.
struct Definition {
    name: SymbolName,
    body: String,
    layer: Arc<ObjectLinkingLayer>,
}

/// The code of one function.
#[derive(Default)]
struct Code {
    bytes: Vec<u8>,
    /// Where it calls which others.
    calls: Vec<(u64, String)>,
}

impl Code {
    /// Terms and `+ *` between them, from left to right. The value is in `rax`; each step leaves the stack as it was.
    fn expression<'s>(&mut self, text: &'s str) -> Result<&'s str, String> {
        let mut rest = self.term(text)?.trim_start();
        while let Some(operator) = rest.chars().next().filter(|next| "+*".contains(*next)) {
            self.bytes.extend([0x50, 0x50]); // push rax, twice: calls find the stack aligned
            rest = self.term(&rest[1..])?.trim_start();
            self.bytes.extend([0x59, 0x59]); // pop rcx
            let sum: &[u8] = &[0x48, 0x01, 0xc8]; // add rax, rcx
            let product: &[u8] = &[0x48, 0x0f, 0xaf, 0xc1]; // imul rax, rcx
            self.bytes.extend(if operator == '+' { sum } else { product });
        }
        Ok(rest)
    }

    fn term<'s>(&mut self, text: &'s str) -> Result<&'s str, String> {
        let text = text.trim_start();
        let (word, rest) = text.split_at(text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len()));
        if let Some(argument) = rest.strip_prefix('(') {
            let rest = self.expression(argument)?;
            self.bytes.extend([0x48, 0x89, 0xc7, 0xe8, 0, 0, 0, 0]); // mov rdi, rax; call
            self.calls.push((self.bytes.len() as u64 - 4, word.to_owned()));
            return rest.strip_prefix(')').ok_or_else(|| format!("`)` is missing before `{rest}`"));
        }
        match (word, word.parse::<i32>()) {
            ("n", _) => self.bytes.extend([0x48, 0x8b, 0x45, 0xf8]), // mov rax, [rbp - 8]
            (_, Ok(number)) => self.bytes.extend([&[0x48, 0xc7, 0xc0], &number.to_le_bytes()[..]].concat()),
            _ => return Err(format!("neither a number nor `n` at `{text}`")),
        }
        Ok(rest)
    }
}

impl MaterializationUnit for Definition {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        MaterializationInterface::new([(self.name.clone(), flags)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let mut code = Code::default();
        code.bytes.extend([0x55, 0x48, 0x89, 0xe5, 0x57, 0x50]); // push rbp; mov rbp, rsp; push rdi; push rax
        if let Err(message) = code.expression(&self.body) {
            return responsibility.fail(shared_error(message));
        }
        code.bytes.extend([0xc9, 0xc3]); // leave; ret
        let mut graph = LinkGraph::builder(self.name.as_str());
        let block = graph.block(".text", SectionRole::Code, &code.bytes, 16);
        graph.define(self.name.as_str(), block, 0);
        for (offset, callee) in &code.calls {
            let target = graph.external(callee);
            graph.edge(block, Edge { offset: *offset, kind: EdgeKind::Branch32, target, addend: -4 });
        }
        self.layer.emit_graph(responsibility, graph.build().expect("the fields lie in the code"));
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let jit = Jit::builder().threads(2).build()?;
    for (name, body) in PROGRAM.lines().filter_map(|line| line.split_once(" = ")) {
        let layer = jit.object_layer().clone();
        jit.add_unit(Box::new(Definition { name: jit.intern(name), body: body.to_owned(), layer }))?;
    }
    // SAFETY: every function has this signature, and no copy of the pointer outlives the handle.
    let answer = unsafe { jit.get::<extern "C" fn(i64) -> i64>("answer")? };
    assert_eq!(answer(4), 16 + 25);
    println!("answer(4) = {}", answer(4));
    Ok(())
}

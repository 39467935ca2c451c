//! A unit of one function, which a closure makes; and one whose code is there as bytes.

use uruk_core::sync::Arc;
use uruk_core::{
    JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SymbolFlags,
    SymbolName,
};
use uruk_pipeline::link::graph::SectionRole;
use uruk_pipeline::link::{LinkGraph, ObjectLinkingLayer};

struct FunctionUnit {
    name: SymbolName,
    materialize: Box<dyn FnOnce(MaterializationResponsibility) + Send>,
}

impl MaterializationUnit for FunctionUnit {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        MaterializationInterface::new([(self.name.clone(), flags)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        (self.materialize)(responsibility);
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

/// A unit of the function `name`, which `materialize` makes.
pub(crate) fn function_unit(
    name: SymbolName,
    materialize: impl FnOnce(MaterializationResponsibility) + Send + 'static,
) -> Box<dyn MaterializationUnit> {
    Box::new(FunctionUnit { name, materialize: Box::new(materialize) })
}

/// A unit of the function `name`, whose code refers to nothing.
pub(crate) fn code_unit(
    name: SymbolName,
    layer: Arc<ObjectLinkingLayer>,
    code: Vec<u8>,
) -> Box<dyn MaterializationUnit> {
    let function = name.clone();
    function_unit(name, move |responsibility| {
        let mut graph = LinkGraph::builder(function.as_str());
        let block = graph.block(".text", SectionRole::Code, &code, 16);
        graph.define(function.as_str(), block, 0);
        layer.emit_graph(responsibility, graph.build().expect("a graph"));
    })
}

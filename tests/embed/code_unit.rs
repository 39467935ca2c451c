//! A unit of one function whose code is there as bytes.

use uruk::core::sync::Arc;
use uruk::core::{MaterializationUnit, SymbolName};
use uruk::pipeline::link::LinkGraph;
use uruk::pipeline::link::graph::SectionRole;
use uruk::pipeline::linking::ObjectLinkingLayer;

use crate::function_unit::function_unit;

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

//! The spans of the stages. In a process of its own: whether a span is wanted is remembered for the whole process.

use uruk_core::sync::{Arc, Mutex};
use uruk_pipeline::ir::{IrCompiler, OptimizationLevel, ThreadSafeModule};
use uruk_pipeline::object::ObjectBuffer;

/// Collects the names of the spans a thread enters.
#[derive(Clone, Default)]
struct SpanNames(Arc<Mutex<Vec<&'static str>>>);

impl tracing::Subscriber for SpanNames {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        assert!(attributes.metadata().fields().field("unit").is_some());
        let mut names = self.0.lock();
        names.push(attributes.metadata().name());
        tracing::span::Id::from_u64(names.len() as u64)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}
    fn event(&self, _event: &tracing::Event<'_>) {}
    fn enter(&self, _span: &tracing::span::Id) {}
    fn exit(&self, _span: &tracing::span::Id) {}
}

#[test]
fn the_stages_are_spans_named_as_the_picture_names_them() {
    alone!();
    let names = SpanNames::default();
    tracing::subscriber::with_default(names.clone(), || {
        let source = ObjectBuffer::new("unit.ll", b"define void @f() {\n  ret void\n}\n".to_vec());
        let module = ThreadSafeModule::parse(&source).expect("valid IR");
        IrCompiler::host(OptimizationLevel::O1).expect("host target").compile(module).expect("compiles");
    });
    assert_eq!(*names.0.lock(), ["ir.parse", "ir.normalize", "ir.optimize", "ir.codegen"]);
}

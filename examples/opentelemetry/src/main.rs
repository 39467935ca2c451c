//! Spans of the engine in OpenTelemetry: each request of a host is a trace, with what was compiled for it.
//!
//! With a collector on this machine, for example Jaeger's or Grafana's Tempo:
//! `OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 cargo run -p uruk-opentelemetry`
//!
//! Work of other threads begins traces of its own; the ids in the fields lead there (`uruk::spans`).

use std::error::Error;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Level, info_span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;
use uruk::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    // Address, headers and time limits come from the environment, by OpenTelemetry's variables.
    let exporter = SpanExporter::builder().with_http().build()?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("uruk-example").build())
        .build();
    // The engine's spans and this program's, and not those of the exporter, which would export itself.
    let ours = Targets::new().with_target("uruk", Level::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("uruk"));
    tracing_subscriber::registry().with(layer.with_filter(ours)).init();

    let answer = serve()?;
    assert_eq!(answer, 42);
    provider.shutdown()?; // Sends the rest.
    Ok(())
}

/// One request of a host: compiles a function and the one it calls, and runs it.
fn serve() -> Result<i64, JitError> {
    let jit = Jit::builder().threads(2).build()?;
    let answer =
        "declare i64 @half(i64) define i64 @answer(i64 %x) { %y = call i64 @half(i64 %x) ret i64 %y }";
    jit.add_ir_text("answer.ll", answer)?;
    jit.add_ir_text("half.ll", "define i64 @half(i64 %x) { %y = sdiv i64 %x, 2 ret i64 %y }")?;
    let _request = info_span!("request", answer = 42).entered();
    // SAFETY: that is the function's signature.
    let answer = unsafe { jit.get::<extern "C" fn(i64) -> i64>("answer")? };
    Ok(answer(84))
}

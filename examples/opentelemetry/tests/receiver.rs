//! The example, against a receiver of OTLP over HTTP: names, ids and parents arrive as `uruk::spans` lists them.

use std::collections::HashMap;
use std::process::Command;
use std::sync::mpsc;

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

/// A span as it arrived.
struct Received(Value);

impl Received {
    fn id(&self) -> &str {
        self.0["spanId"].as_str().expect("each span has one")
    }

    fn name(&self) -> &str {
        self.0["name"].as_str().expect("each span has one")
    }

    fn parent(&self) -> &str {
        self.0["parentSpanId"].as_str().unwrap_or_default()
    }

    /// The value of a field, as text.
    fn field(&self, name: &str) -> Option<String> {
        let fields = self.0["attributes"].as_array()?;
        let value = &fields.iter().find(|field| field["key"] == name)?["value"];
        let value = value.as_object()?.values().next()?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }
}

/// Runs the example beside a receiver. The spans that have arrived when it has ended.
fn received() -> Vec<Received> {
    let (sender, receiver) = mpsc::channel();
    let take = move |Json(message): Json<Value>| async move {
        let sent = sender.send(message);
        sent.expect("the test is there");
        Json(json!({}))
    };
    let router = Router::new().route("/v1/traces", post(take));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let address = listener.local_addr().expect("it has one");
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let server = std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::spawn(async { axum::serve(listener, router).await });
            let _ = ended.await; // Its sender is only ever dropped.
        });
    });
    let mut example = Command::new(env!("CARGO_BIN_EXE_uruk-opentelemetry"));
    let endpoint = format!("http://{address}");
    let output = example.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    drop(end);
    server.join().expect("no panic");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let resources = receiver.iter().flat_map(|message| list(&message["resourceSpans"]));
    let scopes = resources.flat_map(|resource| {
        let service = &resource["resource"]["attributes"].to_string();
        assert!(service.contains("uruk-example"), "{service}");
        list(&resource["scopeSpans"])
    });
    scopes.flat_map(|scope| list(&scope["spans"])).map(Received).collect()
}

#[test]
fn spans_arrive_with_their_names_ids_and_parents() {
    let spans = received();
    let shown: Vec<_> = spans.iter().map(|span| &span.0).collect();
    let by_id: HashMap<_, _> = spans.iter().map(|span| (span.id(), span)).collect();
    let parent_of = |span: &Received| by_id.get(span.parent()).map(|span| span.name());
    let with = |name: &str, field: &str, value: &str| {
        let is_it = |span: &&Received| span.name() == name && span.field(field).as_deref() == Some(value);
        spans.iter().find(is_it).unwrap_or_else(|| panic!("no {name} with {field} {value} in {shown:#?}"))
    };
    let one =
        |name: &str| spans.iter().find(|span| span.name() == name).unwrap_or_else(|| panic!("no {name}"));

    let request = with("request", "answer", "42");
    assert_eq!(request.parent(), "");
    let lookup = one("session.lookup");
    assert_eq!(parent_of(lookup), Some("request"));
    // A lookup is known by its query, from its beginning to the thread's wait.
    let query = lookup.field("query").expect("it had to wait");
    for name in ["lookup.lodge", "lookup.wait"] {
        assert_eq!(parent_of(with(name, "query", &query)), Some("session.lookup"));
    }

    // A unit is known by its claim, on each thread that is at work on it.
    let unit = with("unit.materialize", "unit", "answer.ll");
    assert_eq!(parent_of(unit), Some("dispatch.run"));
    assert_eq!(
        (unit.field("dylib").as_deref(), unit.field("session")),
        (Some("main"), lookup.field("session"))
    );
    let claim = unit.field("claim").expect("each unit has one");
    for name in ["symbols.resolve", "symbols.emit"] {
        assert_eq!(with(name, "claim", &claim).field("unit").as_deref(), Some("answer.ll"));
    }
    assert_eq!(parent_of(with("ir.codegen", "unit", "answer.ll")), Some("unit.materialize"));
    // It asks for what it calls, which is another unit.
    assert!(with("lookup.lodge", "by_claim", &claim).field("query").is_some());
    assert_ne!(with("unit.materialize", "unit", "half.ll").field("claim"), Some(claim));
}

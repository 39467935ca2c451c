//! The answers: the page, its notes, the path of a lookup, a unit, and why a symbol is not Ready.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::stream;
use serde_json::json;
use uruk_core::sync::{Arc, Mutex};
use uruk_recorder::{History, PathStep, PathWork};

use super::frame::{self, Place};
use super::gate::{self, Gate};
use super::store::Feed;
use super::unit::Asked;
use crate::metrics::EngineMetrics;

/// How long a client that has everything waits for more.
const NEWS_PERIOD: Duration = Duration::from_millis(100);

/// The files of the page: where it asks for them, their type, their bytes.
const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/page/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/page/chart.js", SCRIPT, include_str!("page/chart.js")),
    ("/page/columns.js", SCRIPT, include_str!("page/columns.js")),
    ("/page/forest.js", SCRIPT, include_str!("page/forest.js")),
    ("/page/format.js", SCRIPT, include_str!("page/format.js")),
    ("/page/input.js", SCRIPT, include_str!("page/input.js")),
    ("/page/kinds.js", SCRIPT, include_str!("page/kinds.js")),
    ("/page/main.js", SCRIPT, include_str!("page/main.js")),
    ("/page/measure.js", SCRIPT, include_str!("page/measure.js")),
    ("/page/model.js", SCRIPT, include_str!("page/model.js")),
    ("/page/panels.js", SCRIPT, include_str!("page/panels.js")),
    ("/page/stream.js", SCRIPT, include_str!("page/stream.js")),
    ("/page/synthetic.js", SCRIPT, include_str!("page/synthetic.js")),
    ("/page/theme.js", SCRIPT, include_str!("page/theme.js")),
    ("/page/tiles.js", SCRIPT, include_str!("page/tiles.js")),
    ("/page/timeline.js", SCRIPT, include_str!("page/timeline.js")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The recording, and the engine that is asked.
#[derive(Debug)]
pub(super) struct Shown {
    feed: Mutex<Feed>,
    asked: Option<Asked>,
}

impl Shown {
    pub(super) fn new(feed: Feed, asked: Option<Asked>) -> Self {
        Self { feed: Mutex::new(feed), asked }
    }

    /// Takes in what has been noted since the last time.
    pub(super) fn read(&self) {
        self.feed.lock().read();
    }
}

pub(super) fn router(shown: Arc<Shown>, gate: Gate) -> Router {
    let mut router = Router::new()
        .route("/notes", get(notes))
        .route("/path", get(path))
        .route("/unit", get(unit))
        .route("/why", get(why))
        .route("/info", get(info))
        .route("/metrics", get(metrics))
        .with_state(shown);
    for (path, kind, text) in FILES {
        router = router.route(path, get(|| async { ([(header::CONTENT_TYPE, *kind)], *text) }));
    }
    router
        .fallback(|| async { (StatusCode::NOT_FOUND, "There is no such page.\n") })
        .layer(axum::middleware::from_fn_with_state(gate, gate::check))
}

/// Frames, for as long as the client takes them: one is made when there is room for it in the connection, so that a client that stalls holds
/// one at most. `from` and `names` say what it has already; `once` ends when it has everything.
async fn notes(State(shown): State<Arc<Shown>>, Query(query): Query<HashMap<String, String>>) -> Response {
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let name = usize::try_from(number("names")).unwrap_or(usize::MAX);
    let place = Place { note: number("from"), name, missed: number("lost") };
    let once = query.contains_key("once");
    let frames = stream::unfold((shown, place, true), move |(shown, place, has_more)| async move {
        if !has_more {
            if once {
                return None;
            }
            tokio::time::sleep(NEWS_PERIOD).await;
        }
        let (frame, next, has_more) = {
            let mut feed = shown.feed.lock();
            feed.read();
            let (frame, next) = frame::next(&feed.store, place, feed.now());
            (frame, next, next.note < feed.store.next())
        };
        Some((Ok::<_, Infallible>(frame), (shown, next, has_more)))
    });
    ([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(frames)).into_response()
}

/// The critical path of a lookup that has ended.
async fn path(State(shown): State<Arc<Shown>>, Query(query): Query<HashMap<String, String>>) -> Response {
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<u64>().ok());
    let session = number("session").and_then(|session| u16::try_from(session).ok());
    let Some((session, lookup)) = session.zip(number("lookup")) else {
        return (StatusCode::BAD_REQUEST, "Which lookup? /path?session=1&lookup=1\n").into_response();
    };
    // Of a million notes it takes a part of a second, which belongs to the reading of notes.
    let steps = tokio::task::spawn_blocking(move || {
        let mut history = History::default();
        let (notes, names) = {
            let mut feed = shown.feed.lock();
            feed.read();
            (feed.store.of_lookups(session), feed.store.names.clone())
        };
        history.add(&notes, |name| names.get(name.number() as usize).cloned().unwrap_or_default());
        history.critical_path((session, lookup))
    });
    let steps = steps.await.unwrap_or_default();
    if steps.is_empty() {
        return (StatusCode::NOT_FOUND, "The notes of this lookup are gone, or it has not ended.\n")
            .into_response();
    }
    json_of(&steps.iter().map(json_of_step).collect())
}

fn json_of_step(step: &PathStep) -> serde_json::Value {
    let kind = match step.what {
        PathWork::Working => "work",
        PathWork::Queued => "queued",
        _ => "unknown",
    };
    json!({ "from": step.begin, "to": step.end, "kind": kind, "claim": step.claim, "unit": &step.unit })
}

/// Why a symbol is not Ready, as text for people.
async fn why(State(shown): State<Arc<Shown>>, Query(query): Query<HashMap<String, String>>) -> Response {
    let Some(symbol) = query.get("symbol").filter(|symbol| !symbol.is_empty()) else {
        return (StatusCode::BAD_REQUEST, "Which symbol? /why?symbol=main\n").into_response();
    };
    match shown.asked.as_ref().and_then(|asked| asked.why(symbol, false)) {
        Some(why) => json_of(&why),
        None => no_engine(),
    }
}

/// A unit: why it is not Ready, its IR, its code.
async fn unit(State(shown): State<Arc<Shown>>, Query(query): Query<HashMap<String, String>>) -> Response {
    let Some(name) = query.get("name").filter(|name| !name.is_empty()).cloned() else {
        return (StatusCode::BAD_REQUEST, "Which unit? /unit?name=app.c\n").into_response();
    };
    let wanted = query.get("symbol").cloned().unwrap_or_default();
    // A module of a megabyte takes a moment to print, which belongs to the reading of notes.
    let answer = tokio::task::spawn_blocking(move || {
        let asked = shown.asked.as_ref().filter(|asked| asked.main.upgrade().is_some())?;
        Some(asked.unit(&name, &wanted))
    });
    match answer.await.ok().flatten() {
        Some(unit) => json_of(&unit),
        None => no_engine(),
    }
}

/// For Prometheus: read now, and kept nowhere.
async fn metrics(State(shown): State<Arc<Shown>>) -> Response {
    match shown.asked.as_ref().filter(|asked| asked.metrics.has_engine()) {
        Some(asked) => {
            ([(header::CONTENT_TYPE, EngineMetrics::CONTENT_TYPE)], asked.metrics.text()).into_response()
        }
        None => no_engine(),
    }
}

fn no_engine() -> Response {
    (StatusCode::NOT_FOUND, "The engine is gone: there is none to ask.\n").into_response()
}

/// The version and the process.
async fn info(State(shown): State<Arc<Shown>>) -> Response {
    json_of(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "process": shown.feed.lock().process(),
        "answers": shown.asked.is_some(),
    }))
}

fn json_of(value: &serde_json::Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

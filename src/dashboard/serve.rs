//! The server's thread: connections in, answers out.
//!
//! It never holds more than [`CONNECTIONS_MAX`] connections: a new one ends the oldest, so that clients that hold on to theirs shut none out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::TcpListener;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use uruk_core::sync::Arc;

use super::gate::Gate;
use super::routes::{self, Shown};

/// How many connections there are at once.
const CONNECTIONS_MAX: usize = 32;

/// How long a client may take to send the head of a request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(5);

/// How large the head of a request may be.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// How often notes are read, whether or not a client asks for them: rings are soon full.
const READ_PERIOD: Duration = Duration::from_millis(50);

/// Ends the server when it is dropped.
pub(super) struct End(
    #[expect(dead_code, reason = "its drop is what is waited for")] oneshot::Sender<Infallible>,
);

/// Resolves when the server has to end.
pub(super) type Ended = oneshot::Receiver<Infallible>;

impl End {
    pub(super) fn pair() -> (Self, Ended) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }
}

/// Serves until told to end.
pub(super) fn serve(listener: TcpListener, shown: Arc<Shown>, gate: Gate, ended: Ended) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let Ok(runtime) = runtime else { return }; // The process has no more file descriptors: clients see a closed port.
    runtime.block_on(async {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        tokio::spawn(read_notes(shown.clone()));
        tokio::spawn(accept(listener, shown, gate));
        let _ = ended.await; // Its sender is only ever dropped.
    });
    // The runtime's drop ends every connection.
}

async fn read_notes(shown: Arc<Shown>) {
    let mut ticks = tokio::time::interval(READ_PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shown.read();
    }
}

async fn accept(listener: tokio::net::TcpListener, shown: Arc<Shown>, gate: Gate) {
    let router = routes::router(shown, gate);
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, mostly: there may be some soon.
            tokio::time::sleep(READ_PERIOD).await;
            continue;
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        connections.push_back(tokio::spawn(answer(stream, router.clone())).abort_handle());
    }
}

async fn answer(stream: TcpStream, router: axum::Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // A client that breaks off, or speaks no HTTP, has its connection closed; there is none to tell.
    let _ = served.await;
}

//! Scenarios that fail instead of hanging.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Runs `scenario` on a thread of its own; one that ends in a deadlock fails the test instead of hanging it. `URUK_PATIENCE`
/// says how many times longer than usual everything takes, under a sanitizer.
pub fn within_reason<R: Send + 'static>(scenario: impl FnOnce() -> R + Send + 'static) -> R {
    within("the scenario", Duration::from_secs(20), scenario)
}

/// The same for one of many, by name, which may take as long as that.
pub fn within<R: Send + 'static>(
    name: &str,
    usual: Duration,
    scenario: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (send, receive) = mpsc::channel();
    let runs = thread::spawn(move || send.send(scenario()));
    let patience = std::env::var("URUK_PATIENCE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    match receive.recv_timeout(usual * patience) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name} does not end"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(runs.join().expect_err("only a panic loses the result"))
        }
    }
}

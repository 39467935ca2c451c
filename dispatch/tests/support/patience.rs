//! Scenarios that fail instead of hanging.
//!
//! A thread that hangs does nothing. One that has to wait for a processor, on a machine that others use as well, does something now
//! and then, or waits for a processor at that moment. So what is counted is not time, but looks in a row at which no thread of the
//! process had run since the look before, and none was about to.

use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};

use uruk_core::sync::Mutex;

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(1);

/// A scenario that hangs may keep a thread busy, which looks at a clock or asks again and again: it ends after so many times the looks
/// that one without a sign of life is given.
const BUSY_MAX: u64 = 30;

/// Runs `scenario` on a thread of its own; one that ends in a deadlock fails the test instead of hanging it.
pub fn within_reason<R: Send + 'static>(scenario: impl FnOnce() -> R + Send + 'static) -> R {
    within("the scenario", Duration::from_secs(20), scenario)
}

/// The same for one of many, by name, in which nothing happens for so long at most.
pub fn within<R: Send + 'static>(
    name: &str,
    still_max: Duration,
    scenario: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (send, receive) = mpsc::channel();
    let runs = thread::spawn(move || send.send(scenario()));
    let _watcher = Watcher::here();
    let still_max = still_max.as_secs();
    let (mut still, mut before) = (0, runs_so_far());
    for _ in 0..still_max * BUSY_MAX {
        match receive.recv_timeout(LOOK) {
            Ok(result) => return result,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                std::panic::resume_unwind(runs.join().expect_err("only a panic loses the result"))
            }
        }
        let now = runs_so_far();
        still = if now == before && !waits_for_a_processor() { still + 1 } else { 0 };
        before = now;
        if still >= still_max {
            panic!("{name} does not end: nothing has run for {still} looks");
        }
    }
    panic!("{name} does not end, and keeps a thread busy");
}

/// How often the process's threads were given a processor, watchers aside. Another number is another state.
fn runs_so_far() -> u64 {
    // Time on a processor, time waiting for one, and how often it got one.
    let stats = others("schedstat");
    stats.filter_map(|text| text.split_whitespace().nth(2)?.parse::<u64>().ok()).sum()
}

/// Whether one of them would run if others left it a processor: a machine may keep it from that for more than a look.
fn waits_for_a_processor() -> bool {
    // The state follows the thread's name, which may contain anything.
    others("stat").any(|text| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R')))
}

/// This file of each thread of the process, watchers aside.
fn others(file: &str) -> impl Iterator<Item = String> {
    let watchers = WATCHERS.lock().clone();
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let others =
        tasks.filter(move |task| !watchers.contains(&task.file_name().to_string_lossy().into_owned()));
    others.filter_map(move |task| fs::read_to_string(task.path().join(file)).ok())
}

/// The threads that only watch: what they do is no sign of life.
static WATCHERS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Watcher(String);

impl Watcher {
    fn here() -> Self {
        let link = fs::read_link("/proc/thread-self").unwrap_or_default();
        let id = link.file_name().unwrap_or_default().to_string_lossy().into_owned();
        WATCHERS.lock().push(id.clone());
        Self(id)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut watchers = WATCHERS.lock();
        if let Some(place) = watchers.iter().position(|id| *id == self.0) {
            watchers.swap_remove(place);
        }
    }
}

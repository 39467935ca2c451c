//! Writing behind: what was put is there after a flush, and a cache that has retired has no thread.

use std::fs;

use uruk_pipeline::cache::{Access, DiskCache, ObjectCache, PackLimits};

use super::support::Scratch;
use super::{key, object, payload};

/// How many threads of this process write for caches in a directory of their own.
fn writers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("this is Linux");
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks
        .filter_map(Result::ok)
        .filter(|task| task.path().exists())
        .map(name)
        .filter(|name| name.trim() == "uruk-cache")
        .count()
}

#[test]
fn everything_is_written_when_a_cache_has_flushed_or_retired() {
    let scratch = Scratch::new("queue");
    let open = || {
        DiskCache::open(&scratch.path("cache"), Access::ReadWrite, PackLimits::default()).expect("our own")
    };
    let cache = open();
    for number in 0..300 {
        cache.put(&key(number), &object(number));
    }
    cache.flush();
    let other = open();
    for number in 0..300 {
        assert!(other.get(&key(number)).expect("it was flushed").bytes() == payload(number));
    }
    cache.put(&key(300), &object(300));
    cache.retire();
    cache.retire();
    cache.put(&key(301), &object(301));
    cache.flush();
    other.refresh();
    for number in [300, 301] {
        assert!(other.get(&key(number)).expect("it was written").bytes() == payload(number));
    }
    assert_eq!(other.pack().stats().generations[0].entries, 302);
}

#[test]
fn a_cache_that_has_retired_has_no_thread() {
    // In a process of its own: other tests have threads too.
    let scratch = Scratch::new("queue-thread");
    let mut child = super::child::Process::start(&[], "retires", &scratch.path("cache"), 0);
    assert_eq!(child.hear().as_deref(), Some("0, then 1, then 0"));
}

/// What the process does.
pub(crate) fn retire(directory: &std::path::Path) -> String {
    let cache = DiskCache::open(directory, Access::ReadWrite, PackLimits::default()).expect("our own");
    let before = writers();
    cache.put(&key(0), &object(0));
    // A thread that has written something has its name, by which it is counted.
    cache.flush();
    let with = writers();
    cache.retire();
    let after = writers();
    cache.get(&key(0)).expect("it was written");
    format!("{before}, then {with}, then {after}")
}

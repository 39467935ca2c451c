//! Writing behind: what was put is there after a flush, and a cache that has retired has no thread.

use std::fs;

use uruk_pipeline::cache::{Access, DiskCache, ObjectCache, PackLimits};

use super::support::Scratch;
use super::{key, object, payload};

/// How many threads of this process write for caches in a directory of their own.
fn writers() -> usize {
    statuses_of_writers().len()
}

/// The system's status of each thread that writes.
fn statuses_of_writers() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("this is Linux");
    let file =
        |task: &fs::DirEntry, name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
    let tasks = tasks.filter_map(Result::ok);
    tasks.filter(|task| file(task, "comm").trim() == "uruk-cache").map(|task| file(&task, "status")).collect()
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

/// The work of the child process.
pub(crate) fn retire(directory: &std::path::Path) -> String {
    let cache = DiskCache::open(directory, Access::ReadWrite, PackLimits::default()).expect("our own");
    let before = writers();
    cache.put(&key(0), &object(0));
    // A thread that has written something has its name, by which it is counted.
    cache.flush();
    let with = writers();
    // SIGTERM, of whose handlers none runs there.
    let is_blocked = |status: &String| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or_default().trim();
        u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & 1 << 14 != 0)
    };
    assert!(statuses_of_writers().iter().all(is_blocked), "{:?}", statuses_of_writers());
    cache.retire();
    // The system lists a thread a moment longer than it can be joined.
    let after = (0..1_000_000).map(|_| writers()).find(|count| *count == 0).unwrap_or(1);
    cache.get(&key(0)).expect("it was written");
    format!("{before}, then {with}, then {after}")
}

/// A child of a fork waited for ever for the thread that writes, which its parent has: nothing had told it of the fork.
#[test]
fn a_child_of_a_fork_does_not_wait_for_its_parents_thread() {
    // In a process of its own: it forks, and has no memory manager, which would note that.
    let scratch = Scratch::new("queue-fork");
    let mut child = super::child::Process::start(&[], "forks", &scratch.path("cache"), 0);
    assert_eq!(child.hear().as_deref(), Some("the child ends with 0"));
}

/// The work of the child process: it forks while its thread cannot write, and so has something to write.
pub(crate) fn fork_while_it_writes(directory: &std::path::Path) -> String {
    const CHILD_SECONDS_MAX: u32 = 60;
    let open = || DiskCache::open(directory, Access::ReadWrite, PackLimits::default()).expect("our own");
    let cache = open();
    cache.put(&key(0), &object(0));
    cache.flush();
    let lock = fs::OpenOptions::new().write(true).open(directory.join("uruk1.lock")).expect("it has written");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("nobody has it");
    cache.put(&key(1), &object(1));
    // SAFETY: the child uses the cache alone, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: concerns this process alone: it is ended if it hangs.
        unsafe { libc::alarm(CHILD_SECONDS_MAX) };
        cache.flush();
        let has_first = cache.get(&key(0)).is_ok();
        cache.put(&key(2), &object(2));
        let has_own = cache.get(&key(2)).is_ok();
        drop(cache);
        // SAFETY: no destructor and no handler of the parent runs.
        unsafe { libc::_exit(i32::from(!has_first) + 2 * i32::from(!has_own)) }
    }
    // The child has the lock as well, until it is released explicitly.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).expect("it is ours");
    let mut status = 0;
    // SAFETY: the status is ours to write.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFEXITED(status), "the child was ended by signal {}", libc::WTERMSIG(status));
    cache.flush();
    let other = open();
    assert!([0, 1, 2].iter().all(|number| other.get(&key(*number)).is_ok()));
    format!("the child ends with {}", libc::WEXITSTATUS(status))
}

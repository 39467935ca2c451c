//! A worker runs no handler of the host's.
#![cfg(not(uruk_loom))]

use std::fs;

use uruk_core::sync::{Arc, Latch, Mutex};
use uruk_core::{Task, TaskDispatcher, TaskPriority};
use uruk_dispatch::WorkStealingTaskDispatcher;

/// The signals that this thread has blocked, as the kernel has them: one bit for each, the first for signal 1.
fn blocked() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("hexadecimal")
}

#[test]
fn workers_have_the_signals_of_the_host_blocked_and_its_threads_do_not() {
    let [hangup, interrupt, user, fault, alarm, terminate] =
        [1, 2, 10, 11, 14, 15].map(|number| 1 << (number - 1));
    let before = blocked();
    let pool = WorkStealingTaskDispatcher::builder().workers(1).build().expect("a pool");
    let (mask, done) = (Arc::new(Mutex::new(0)), Arc::new(Latch::new()));
    let task = Task::new("look", TaskPriority::Demanded, {
        let (mask, done) = (mask.clone(), done.clone());
        move || {
            *mask.lock() = blocked();
            done.open();
        }
    });
    pool.dispatch(task).expect("it is open");
    pool.wait(&done).expect("a thread of the host");
    let of_host = hangup | interrupt | user | alarm | terminate;
    assert_eq!(*mask.lock() & (of_host | fault), of_host, "{:x}", *mask.lock());
    assert_eq!(blocked(), before);
}

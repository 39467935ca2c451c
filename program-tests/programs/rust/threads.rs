//# stdout: channel: 4950 from 4 senders
//# stdout: rendezvous: 0 1 2 3 4
//# stdout: scoped: [1, 4, 9, 16, 25, 36, 49, 64]
//# stdout: mutex and condvar: 1000
//# stdout: read-write lock: consistent
//# stdout: barrier: 1 leader of 4
//# stdout: atomics: 400000
//# stdout: once: 1, lazy: 1, value 12
//# stdout: named: clerk, parked and unparked
//# stdout: disconnected: yes
//! Threads of the standard library, whose code is in the shared library and whose closures are here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, RwLock};
use std::thread;

static ONCE: Once = Once::new();
static CALLS: AtomicU64 = AtomicU64::new(0);
static LAZY: LazyLock<u64> = LazyLock::new(|| 11 + CALLS.fetch_add(1, Ordering::SeqCst));

fn channels() {
    let (sender, receiver) = channel();
    let senders: Vec<_> = (0..4_u64)
        .map(|part| {
            let sender = sender.clone();
            thread::spawn(move || (0..25).for_each(|i| sender.send(part * 25 + i).unwrap()))
        })
        .collect();
    drop(sender);
    println!("channel: {} from {} senders", receiver.iter().sum::<u64>(), senders.len());
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    let (sender, receiver) = sync_channel(0);
    let sending = thread::spawn(move || (0..5).for_each(|i| sender.send(i.to_string()).unwrap()));
    println!("rendezvous: {}", receiver.iter().collect::<Vec<_>>().join(" "));
    sending.join().unwrap();
}

fn locks() {
    let pair = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1000 {
                *pair.0.lock().unwrap() += 1;
                pair.1.notify_one();
            }
        });
        let count = pair.1.wait_while(pair.0.lock().unwrap(), |count| *count < 1000).unwrap();
        println!("mutex and condvar: {}", *count);
    });
    let lock = RwLock::new((0_i64, 0_i64));
    let torn = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..4 {
            let (lock, torn) = (&lock, &torn);
            scope.spawn(move || {
                for _ in 0..2000 {
                    if writer < 2 {
                        let mut pair = lock.write().unwrap();
                        pair.0 += 1;
                        pair.1 -= 1;
                    } else if *lock.read().unwrap() != (0, 0) {
                        let pair = lock.read().unwrap();
                        torn.fetch_or(pair.0 + pair.1 != 0, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    println!("read-write lock: {}", if torn.into_inner() { "torn" } else { "consistent" });
}

fn main() {
    channels();
    let mut squares: Vec<u32> = (1..=8).collect();
    thread::scope(|scope| {
        for chunk in squares.chunks_mut(3) {
            scope.spawn(|| chunk.iter_mut().for_each(|x| *x *= *x));
        }
    });
    println!("scoped: {squares:?}");
    locks();
    let barrier = Arc::new(Barrier::new(4));
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn({
                let b = Arc::clone(&barrier);
                move || b.wait().is_leader()
            })
        })
        .collect();
    let leaders = waiting.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count();
    println!("barrier: {leaders} leader of 4");
    let counter = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100_000).for_each(|_| _ = counter.fetch_add(1, Ordering::Relaxed)));
        }
    });
    println!("atomics: {}", counter.into_inner());
    let mut runs = 0;
    for _ in 0..3 {
        ONCE.call_once(|| runs += 1);
    }
    let first = *LAZY;
    println!("once: {runs}, lazy: {}, value {}", CALLS.load(Ordering::SeqCst), first + *LAZY - 10);
    let named = thread::Builder::new().name("clerk".into()).spawn(|| {
        thread::park();
        thread::current().name().map(str::to_owned)
    });
    let named = named.unwrap();
    named.thread().unpark();
    println!("named: {}, parked and unparked", named.join().unwrap().unwrap());
    let (sender, receiver) = channel::<()>();
    drop(receiver);
    println!("disconnected: {}", if sender.send(()).is_err() { "yes" } else { "no" });
}

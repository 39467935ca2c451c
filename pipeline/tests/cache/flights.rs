//! One compile for each key: of threads, and of processes, one of which may die or stop.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use uruk_pipeline::cache::{
    Access, CompileCache, DiskCache, Key, Miss, ObjectCache, Obtained, Origin, PackLimits,
};
use uruk_pipeline::object::ObjectBuffer;

use super::child::Process;
use super::support::Scratch;
use super::{key, object, open};

fn disk(scratch: &Scratch) -> Arc<DiskCache> {
    let disk = DiskCache::open(&scratch.path("cache"), Access::ReadWrite, PackLimits::default());
    Arc::new(disk.expect("a directory of our own"))
}

/// Wants the entry of a key, and makes it if it has to.
fn obtain(cache: &CompileCache, number: u64) -> Obtained {
    let wait = |wait: &mut dyn FnMut()| {
        wait();
        true
    };
    cache.get_or_make(&key(number), &wait, || Ok::<_, ()>(object(number))).expect("it is made")
}

#[test]
fn processes_that_want_the_same_at_once_make_it_once() {
    const KEYS: u64 = 60;
    let scratch = Scratch::new("flights-processes");
    let mut makers = [(); 3].map(|()| Process::start(&[], "maker", &scratch.path("cache"), KEYS));
    let made =
        makers.each_mut().map(|maker| maker.hear().expect("it ends").parse::<u64>().expect("a number"));
    assert_eq!(made.iter().sum::<u64>(), KEYS, "{made:?}");
}

#[test]
fn a_holder_that_is_stopped_is_not_waited_for_for_ever() {
    let scratch = Scratch::new("flights-stopped");
    let mut holder = Process::start(&[], "holder", &scratch.path("cache"), 0);
    assert_eq!(holder.hear().as_deref(), Some("holds"));
    kill_process(holder.id(), Signal::STOP).expect("it is ours");
    let cache = CompileCache::new(0, Some(disk(&scratch))).waiting_at_most(Duration::from_millis(30));
    assert_eq!(obtain(&cache, 0).origin, Origin::Made(Miss::NotStored));
    assert_eq!(cache.stats().waits_given_up, 1);
    // No other thread makes it.
    assert_eq!(obtain(&cache, 1).origin, Origin::Made(Miss::NotStored));
    assert_eq!(cache.stats().waits_given_up, 1);
}

/// A suspended process has a key for each thread, and for each entry that it has not yet written. Each of them was waited for.
#[test]
fn a_process_that_is_stopped_is_waited_for_once() {
    let scratch = Scratch::new("flights-stopped-once");
    let mut holder = Process::start(&[], "holder of many", &scratch.path("cache"), 20);
    assert_eq!(holder.hear().as_deref(), Some("holds"));
    kill_process(holder.id(), Signal::STOP).expect("it is ours");
    let cache = CompileCache::new(0, Some(disk(&scratch))).waiting_at_most(Duration::from_millis(30));
    let waits = Cell::new(0);
    let counted = |wait: &mut dyn FnMut()| {
        waits.set(waits.get() + 1);
        wait();
        true
    };
    let want = |number| {
        cache.get_or_make(&key(number), &counted, || Ok::<_, ()>(object(number))).expect("it is made")
    };
    for number in 0..20 {
        assert_eq!(want(number).origin, Origin::Made(Miss::NotStored));
    }
    assert_eq!((waits.get(), cache.stats().waits_given_up), (1, 20));
    cache.flush();
    // The other one goes on, finds the entries, and leaves them as they are.
    kill_process(holder.id(), Signal::CONT).expect("it is ours");
    holder.say("go on");
    assert_eq!(holder.hear().as_deref(), Some("20 stored, 0 of them anew"));
    let verified = open(&scratch, Access::ReadOnly).verify();
    assert_eq!((verified.entries, verified.bad.len()), (20, 0));
    // Others are waited for again.
    let mut second = Process::start(&[], "holder", &scratch.path("cache"), 20);
    assert_eq!(second.hear().as_deref(), Some("holds"));
    assert_eq!(want(20).origin, Origin::Made(Miss::NotStored));
    assert_eq!((waits.get(), cache.stats().waits_given_up), (2, 21));
}

#[test]
fn a_holder_that_dies_holds_nothing() {
    let scratch = Scratch::new("flights-killed");
    let disk = disk(&scratch);
    let mut holder = Process::start(&[], "holder", &scratch.path("cache"), 0);
    assert_eq!(holder.hear().as_deref(), Some("holds"));
    assert!(disk.try_claim(&key(0)).is_none());
    holder.kill();
    let claim = disk.try_claim(&key(0)).expect("the kernel has let it go");
    assert!(disk.try_claim(&key(0)).is_none());
    drop(claim);
    drop(disk.try_claim(&key(0)).expect("it was dropped"));
}

#[test]
fn threads_that_want_the_same_at_once_make_it_once() {
    let cache = CompileCache::new(1 << 20, None);
    let obtained = std::thread::scope(|scope| {
        let threads = [(); 4]
            .map(|()| scope.spawn(|| (0..200).map(|number| obtain(&cache, number)).collect::<Vec<_>>()));
        threads.map(|thread| thread.join().expect("no panic")).concat()
    });
    let made = obtained.iter().filter(|obtained| matches!(obtained.origin, Origin::Made(_))).count();
    // An entry that is too large for the memory may be made again.
    assert!((200..=obtained.len()).contains(&made), "{made}");
    assert_eq!(cache.stats().made, made as u64);
    assert_eq!(cache.stats().waits_given_up, 0);
}

/// Has everything, and does not know before it looks.
#[derive(Debug, Default)]
struct Behind {
    has_looked: AtomicBool,
}

impl ObjectCache for Behind {
    fn get(&self, _: &Key) -> Result<ObjectBuffer, Miss> {
        // Relaxed: there is one thread.
        if self.has_looked.load(Ordering::Relaxed) { Ok(object(0)) } else { Err(Miss::NotStored) }
    }

    fn put(&self, _: &Key, _: &ObjectBuffer) {
        panic!("it is there");
    }

    fn refresh(&self) {
        self.has_looked.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_another_process_has_just_stored_is_not_made_again() {
    let cache = CompileCache::new(0, Some(Arc::new(Behind::default())));
    assert_eq!(obtain(&cache, 0).origin, Origin::Stored);
}

#[test]
fn who_may_not_wait_makes_it_alone() {
    let cache = Arc::new(CompileCache::new(1 << 20, None));
    let refuses = |_: &mut dyn FnMut()| false;
    let inner: Result<_, ()> = cache.get_or_make(&key(0), &refuses, || {
        let again = cache.get_or_make(&key(0), &refuses, || Ok(object(0)))?;
        assert_eq!(again.origin, Origin::Made(Miss::NotStored));
        Ok(again.object)
    });
    assert!(inner.is_ok());
    assert_eq!(cache.stats().waits_given_up, 1);
}

#[test]
fn an_error_is_told_and_the_next_one_tries() {
    let cache = CompileCache::new(1 << 20, None);
    let waits = |_: &mut dyn FnMut()| unreachable!("nobody else is here");
    let failed = cache.get_or_make(&key(0), &waits, || Err("it cannot be made"));
    assert_eq!(failed.map(drop), Err("it cannot be made"));
    let made = cache.get_or_make(&key(0), &waits, || Ok::<_, ()>(object(0))).expect("it is made");
    assert_eq!(made.origin, Origin::Made(Miss::NotStored));
    assert_eq!(obtain(&cache, 0).origin, Origin::Stored);
}

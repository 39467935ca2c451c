//! Generations come and go: what is in use stays, limits hold, and other processes follow.

use std::time::Duration;

use uruk_pipeline::cache::{Access, DiskCache, Miss, ObjectCache, Pack, PackLimits, WriteError};

use super::child::SMALL;
use super::support::Scratch;
use super::{assert_stored, key, open, open_limited, payload};

#[test]
fn an_entry_is_written_once() {
    let scratch = Scratch::new("generations-once");
    let [one, other] = [open(&scratch, Access::ReadWrite), open(&scratch, Access::ReadWrite)];
    assert_eq!(one.put(&key(0), &payload(0)).expect("there is room").entries, 1);
    assert_eq!(other.put(&key(0), &payload(0)).expect("there is room").known, 1);
    assert_stored(&other, 0);
    let verified = one.verify();
    assert_eq!((verified.entries, verified.orphan_bytes), (1, 64), "the header of the file alone");
}

#[test]
fn limits_hold_and_what_is_asked_for_stays() {
    let scratch = Scratch::new("generations-limits");
    let pack = std::sync::Arc::new(open_limited(&scratch, Access::ReadWrite, SMALL));
    let cache = DiskCache::new(pack.clone());
    pack.put(&key(0), &payload(0)).expect("there is room");
    for number in 1..500 {
        pack.put(&key(number), &payload(number)).expect("there is room");
        cache.get(&key(0)).unwrap_or_else(|miss| panic!("after {number}: {miss}"));
        cache.flush();
    }
    assert_eq!(pack.get(&key(1)).map(drop), Err(Miss::NotStored));
    assert_stored(&pack, 499);
    let stats = pack.stats();
    let file_bytes: u64 = stats.generations.iter().map(|generation| generation.file_bytes).sum();
    assert!(file_bytes <= SMALL.size_bytes && file_bytes > SMALL.size_bytes / 2, "{stats:?}");
    assert!(stats.generations[0].number > 10 && stats.generations[1].is_sealed, "{stats:?}");
    let files = std::fs::read_dir(pack.path()).expect("it is there").count();
    assert_eq!(files, 2 * 2 + 1, "two generations, and what writers lock");
}

#[test]
fn an_entry_larger_than_a_generation_is_refused() {
    let scratch = Scratch::new("generations-large");
    let pack = open_limited(&scratch, Access::ReadWrite, SMALL);
    let large = vec![0; 600_000];
    let entries: [(_, &[u8]); 2] = [(key(0), &large), (key(1), &payload(1))];
    let error = pack.put_all(&entries, false).expect_err("one is too large");
    assert!(matches!(error, WriteError::TooLarge { bytes: 600_064, bytes_max: 524_288 }), "{error}");
    assert_stored(&pack, 1);
    assert_eq!(pack.stats().failed_writes, 1);
}

#[test]
fn other_processes_follow_when_generations_go() {
    let scratch = Scratch::new("generations-follow");
    let [one, other] = [(); 2].map(|()| open_limited(&scratch, Access::ReadWrite, SMALL));
    let reader = open_limited(&scratch, Access::ReadWrite, SMALL);
    // Each writes more than the pack holds, in turns.
    for number in 0..300 {
        let writer = if number / 50 % 2 == 0 { &one } else { &other };
        writer.put(&key(number), &payload(number)).expect("there is room");
        reader.refresh();
        assert_stored(&reader, number);
    }
    one.clear().expect("nobody holds the lock");
    reader.refresh();
    assert_eq!(reader.get(&key(299)).map(drop), Err(Miss::NotStored));
    // Numbers begin anew. No process takes the new files for the old ones, even if it has not looked in between.
    for (number, writer) in [(0, &other), (1, &one), (2, &other)] {
        writer.put(&key(number), &payload(number)).expect("there is room");
        reader.refresh();
        assert_stored(&reader, number);
        writer.clear().expect("nobody holds the lock");
    }
}

#[test]
fn files_that_somebody_has_removed_are_not_written_to() {
    let scratch = Scratch::new("generations-removed");
    let pack = open(&scratch, Access::ReadWrite);
    pack.put(&key(0), &payload(0)).expect("there is room");
    for file in std::fs::read_dir(pack.path()).expect("it is there") {
        std::fs::remove_file(file.expect("it is there").path()).expect("it is ours");
    }
    assert_stored(&pack, 0);
    pack.put(&key(1), &payload(1)).expect("there is room");
    assert_stored(&open(&scratch, Access::ReadOnly), 1);
    assert_stored(&pack, 1);
}

#[test]
fn what_is_too_old_is_collected() {
    let scratch = Scratch::new("generations-old");
    open(&scratch, Access::ReadWrite).put(&key(0), &payload(0)).expect("there is room");
    // Begun in 1970: what the clock says then does not matter.
    let directory = scratch.path("cache");
    let limits = PackLimits { age: Duration::from_secs(3600), ..PackLimits::default() };
    assert_eq!(open_limited(&scratch, Access::ReadWrite, limits).gc().expect("no lock").generations, [0; 0]);
    let none = PackLimits { size_bytes: 0, ..limits };
    let collected = Pack::open(&directory, Access::ReadWrite, none).expect("our own").gc().expect("no lock");
    assert_eq!(collected.generations, [0]);
    assert!(collected.bytes > 64 + 64 + 16, "{collected:?}");
    assert_eq!(open(&scratch, Access::ReadOnly).get(&key(0)).map(drop), Err(Miss::NotStored));
}

#[test]
fn a_writer_that_does_not_go_on_is_not_waited_for_for_ever() {
    let scratch = Scratch::new("generations-stopped");
    let cache =
        DiskCache::open(&scratch.path("cache"), Access::ReadWrite, PackLimits::default()).expect("our own");
    cache.put(&key(0), &super::object(0));
    cache.flush();
    let lock = std::fs::File::open(scratch.path("cache/uruk1.lock")).expect("writers lock it");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("nobody has it");
    for number in 1..20 {
        cache.put(&key(number), &super::object(number));
        cache.flush();
        cache.get(&key(0)).expect("who reads needs no lock");
    }
    assert_eq!(cache.failure(), Some(WriteError::Busy));
    assert_eq!(cache.pack().stats().failed_writes, 19);
    // Closing it is not enough: a process that another test starts has it until it has become a program.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).expect("it is ours");
    cache.put(&key(1), &super::object(1));
    cache.retire();
    assert_eq!(cache.failure(), None);
    cache.get(&key(1)).expect("it was written");
}

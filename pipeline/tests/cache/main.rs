//! The cache on disk: damage, kills, full disks, directories of others, and processes beside each other.

mod child;
mod damage;
mod directories;
mod flights;
mod full_disk;
mod generations;
mod kills;
mod queue;

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "only the directory is needed here")]
mod support;

use uruk_pipeline::cache::{Access, Key, KeyBuilder, Pack, PackLimits};
use uruk_pipeline::object::ObjectBuffer;

use support::Scratch;

/// The key with this number.
fn key(number: u64) -> Key {
    KeyBuilder::new("test").number("number", number).finish()
}

/// The entry of the key: up to 40 KB that no other key has.
fn payload(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state >> 29;
        state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 32;
        state
    };
    let words = next() % 5_000;
    (0..words).flat_map(|_| next().to_le_bytes()).collect()
}

fn object(number: u64) -> ObjectBuffer {
    ObjectBuffer::new("object", payload(number))
}

/// Opens the pack below a scratch directory.
fn open(scratch: &Scratch, access: Access) -> Pack {
    open_limited(scratch, access, PackLimits::default())
}

fn open_limited(scratch: &Scratch, access: Access, limits: PackLimits) -> Pack {
    Pack::open(&scratch.path("cache"), access, limits).expect("a directory of our own")
}

/// Holds that a key's entry is what was put.
#[track_caller]
fn assert_stored(pack: &Pack, number: u64) {
    let entry = pack.get(&key(number)).unwrap_or_else(|miss| panic!("entry {number}: {miss}"));
    assert!(entry.bytes.bytes() == payload(number), "entry {number} is another");
}

//! One byte of a file is changed, every byte in turn: an entry keeps its bytes, or is missed. Then it is written again.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use uruk_pipeline::cache::{Access, Miss, Pack, PackLimits};

use super::support::Scratch;
use super::{key, open};

const ENTRIES: u64 = 4;

fn small(number: u64) -> Vec<u8> {
    vec![number as u8; 40 + number as usize]
}

/// A pack with small entries; its data file and its index file.
fn filled(scratch: &Scratch) -> [PathBuf; 2] {
    let pack = open(scratch, Access::ReadWrite);
    for number in 0..ENTRIES {
        pack.put(&key(number), &small(number)).expect("there is room");
    }
    ["data", "index"].map(|ending| {
        let files =
            fs::read_dir(pack.path()).expect("it is there").map(|entry| entry.expect("it is there").path());
        files.into_iter().find(|path| path.extension().is_some_and(|has| has == ending)).expect("it is there")
    })
}

/// Which entries are found. Each of them is what was put.
fn found(pack: &Pack) -> Vec<u64> {
    let is_found = |number: &u64| match pack.get(&key(*number)) {
        Ok(entry) => {
            assert_eq!(entry.bytes.bytes(), small(*number), "entry {number}");
            true
        }
        Err(Miss::NotStored | Miss::BadEntry { .. }) => false,
        Err(other) => panic!("{other}"),
    };
    (0..ENTRIES).filter(is_found).collect()
}

/// Changes each byte of a file in turn. `lost` says which entry the byte at an offset belongs to, and `everything` where all are.
fn flip_each(
    scratch: &Scratch,
    path: &PathBuf,
    everything: &Range<usize>,
    lost: impl Fn(usize) -> Option<u64>,
) {
    let bytes = fs::read(path).expect("it is there");
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            fs::write(path, &damaged).expect("it is ours");
            let pack = open(scratch, Access::ReadOnly);
            let found = found(&pack);
            let is_lost = |number: &u64| everything.contains(&at) || lost(at) == Some(*number);
            let expected: Vec<u64> = (0..ENTRIES).filter(|number| !is_lost(number)).collect();
            assert_eq!(found, expected, "byte {at} of {}, ^ {flip:#x}", path.display());
            let verified = pack.verify();
            assert_eq!(verified.entries, expected.len() as u64, "byte {at}: {verified:?}");
        }
    }
    fs::write(path, &bytes).expect("it is ours");
    assert_eq!(found(&open(scratch, Access::ReadOnly)).len() as u64, ENTRIES);
}

#[test]
fn each_byte_of_a_data_file_is_checked() {
    let scratch = Scratch::new("damage-data");
    let [data, _] = filled(&scratch);
    // Entries begin at multiples of 64 and have a header of 64. Bytes behind them belong to no entry.
    let entry_of = |at: usize| {
        let number = (at - 64) as u64 / 128;
        ((at - 64) % 128 < 64 + small(number).len()).then_some(number)
    };
    flip_each(&scratch, &data, &(0..64), entry_of);
}

#[test]
fn each_byte_of_an_index_file_is_checked() {
    let scratch = Scratch::new("damage-index");
    let [_, index] = filled(&scratch);
    flip_each(&scratch, &index, &(0..64), |at| Some((at - 64) as u64 / 16));
}

#[test]
fn files_that_are_cut_off_hold_what_is_left_of_them() {
    let scratch = Scratch::new("damage-cut");
    for path in filled(&scratch) {
        let bytes = fs::read(&path).expect("it is there");
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).expect("it is ours");
            let found = found(&open(&scratch, Access::ReadOnly));
            assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>(), "{length} bytes");
        }
        fs::write(&path, &bytes).expect("it is ours");
    }
}

#[test]
fn a_damaged_entry_is_written_again() {
    let scratch = Scratch::new("damage-again");
    for path in filled(&scratch) {
        for at in [3, 70, 90, 150] {
            let mut bytes = fs::read(&path).expect("it is there");
            let Some(byte) = bytes.get_mut(at) else { continue };
            *byte ^= 0x10;
            fs::write(&path, &bytes).expect("it is ours");
            let pack = open(&scratch, Access::ReadWrite);
            assert!(found(&pack).len() < ENTRIES as usize, "byte {at}");
            for number in 0..ENTRIES {
                pack.put(&key(number), &small(number)).expect("there is room");
            }
            assert_eq!(found(&pack).len() as u64, ENTRIES, "byte {at}");
            pack.clear().expect("nobody holds the lock");
            filled(&scratch);
        }
    }
}

#[test]
fn a_pack_of_nothing_but_noise_is_empty() {
    let scratch = Scratch::new("damage-noise");
    let files = filled(&scratch);
    for length in [0, 1, 63, 64, 65, 80, 1000] {
        for path in &files {
            fs::write(path, vec![0x5a; length]).expect("it is ours");
        }
        let pack = Pack::open(&scratch.path("cache"), Access::ReadWrite, PackLimits::default());
        let pack = pack.expect("noise is no error");
        assert_eq!(found(&pack), []);
        assert_eq!(pack.verify().unusable.len(), 1);
    }
    let pack = open(&scratch, Access::ReadWrite);
    pack.put(&key(0), &small(0)).expect("there is room");
    assert_eq!(found(&pack), [0]);
    assert_eq!(pack.verify().unusable, [], "what nobody can read is removed with the next generation");
}

#[test]
fn a_writer_goes_on_behind_what_a_full_disk_or_a_kill_has_left() {
    let scratch = Scratch::new("damage-behind");
    for (path, left) in filled(&scratch).iter().zip([100, 7]) {
        let mut bytes = fs::read(path).expect("it is there");
        bytes.resize(bytes.len() + left, 0x77);
        fs::write(path, &bytes).expect("it is ours");
    }
    for first in [ENTRIES, ENTRIES + 1] {
        let pack = open(&scratch, Access::ReadWrite);
        pack.put(&key(first), &small(first)).expect("there is room");
        for number in 0..=first {
            let entry = open(&scratch, Access::ReadOnly).get(&key(number));
            let entry = entry.unwrap_or_else(|miss| panic!("entry {number}: {miss}"));
            assert_eq!(entry.bytes.bytes(), small(number));
        }
    }
    // Half a slot may name something by chance, and that is no entry.
    let verified = open(&scratch, Access::ReadOnly).verify();
    assert_eq!(verified.entries, ENTRIES + 2);
}

//! A disk that is full: writes fail, and what was written before is found.

use std::path::Path;

use uruk_pipeline::cache::Access;

use super::child::{Process, skip, works};
use super::support::Scratch;
use super::{assert_stored, open};

/// Has a process write until it cannot; gives how many entries it has written.
#[track_caller]
fn fill(wrapper: &[&str], directory: &Path, reason: &str) -> u64 {
    let mut filler = Process::start(wrapper, "filler", directory, 0);
    let said = filler.hear().expect("it comes to an end");
    let (entries, error) = said.split_once(" entries, then ").expect("what it says");
    assert!(error.contains(reason), "{error}");
    entries.parse().expect("a number")
}

#[test]
fn files_that_may_not_grow_keep_what_they_have() {
    let scratch = Scratch::new("full-limit");
    // The signal that comes with the error would end the process.
    let wrapper = ["sh", "-c", "trap '' XFSZ; ulimit -f 256; exec \"$0\" \"$@\""];
    let entries = fill(&wrapper, &scratch.path("cache"), "too large");
    assert!(entries > 1, "{entries}");
    let pack = open(&scratch, Access::ReadWrite);
    (0..entries).for_each(|number| assert_stored(&pack, number));
    // Later there is room again.
    pack.put(&super::key(entries), &super::payload(entries)).expect("no limit here");
    assert_stored(&pack, entries);
    assert_eq!(pack.verify().bad, []);
}

#[test]
fn a_full_disk_keeps_what_it_has() {
    let scratch = Scratch::new("full-disk");
    let directory = scratch.path("cache");
    std::fs::create_dir(&directory).expect("it is ours");
    let mount = format!("mount -t tmpfs -o size=256k,mode=700 none {}", directory.display());
    let namespace = ["unshare", "--user", "--map-root-user", "--mount"];
    if !works(&[&namespace[..], &["sh", "-c", &mount]].concat()) {
        return skip("this system lets nobody mount a small disk (`unshare --user --mount`)");
    }
    let script = format!("{mount} && exec \"$0\" \"$@\"");
    let entries = fill(&[&namespace[..], &["sh", "-c", &script]].concat(), &directory, "No space");
    assert!(entries > 1, "{entries}");
}

//! Writers that are killed at any moment lose what they were writing, and nothing else.

use uruk_pipeline::cache::{Access, PackLimits};

use super::child::{Process, SMALL, works};
use super::support::Scratch;
use super::{assert_stored, open, open_limited};

const ROUNDS: u64 = 100;

/// Entries that one writer may write in one round.
const NUMBERS: u64 = 1 << 20;

#[test]
fn killed_writers_lose_what_they_were_writing_and_nothing_else() {
    kill_writers(&Scratch::new("kills"), ROUNDS, &[]);
}

#[test]
#[ignore = "takes a minute"]
fn stress_a_thousand_kills() {
    kill_writers(&Scratch::new("thousand-kills"), 1000, &[]);
}

#[test]
fn writers_of_two_pid_namespaces_do_not_disturb_each_other() {
    // Inside, both have the same process ids: a cache that identified lock holders by their ids would err.
    let wrapper = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    if !works(&[&wrapper[..], &["true"]].concat()) {
        return super::child::skip("this system lets nobody make pid namespaces (`unshare --user --pid`)");
    }
    kill_writers(&Scratch::new("namespaces"), 10, &wrapper);
}

/// Two writers, again and again. They are killed when they have written a few entries.
fn kill_writers(scratch: &Scratch, rounds: u64, wrapper: &[&str]) {
    let directory = open(scratch, Access::ReadWrite).path().to_owned();
    let mut written = Vec::new();
    for round in 0..rounds {
        let mut writers = [0, 1].map(|writer| {
            let first = (2 * round + writer) * NUMBERS;
            Process::start(wrapper, "writer", &directory, first)
        });
        for entry in 0..(round * 7) % 12 {
            let said = writers[(entry % 2) as usize].hear().expect("it writes for ever");
            written.push(said.parse::<u64>().expect("a number"));
        }
        writers.iter_mut().for_each(Process::kill);
        // Messages from before the end have been written, too.
        for writer in &mut writers {
            written.extend(
                std::iter::from_fn(|| writer.hear()).map(|said| said.parse::<u64>().expect("a number")),
            );
        }
        let pack = open(scratch, Access::ReadOnly);
        written.iter().rev().take(24).for_each(|number| assert_stored(&pack, *number));
    }
    let pack = open(scratch, Access::ReadWrite);
    written.iter().for_each(|number| assert_stored(&pack, *number));
    let verified = pack.verify();
    assert_eq!((&*verified.bad, &*verified.unusable), (&[][..], &[][..]));
    assert!(verified.entries >= written.len() as u64);
}

#[test]
fn kills_do_no_harm_while_generations_come_and_go() {
    let scratch = Scratch::new("kills-small");
    drop(open(&scratch, Access::ReadWrite));
    for round in 0..30 {
        let mut writers = [0, 1].map(|writer| {
            let first = (2 * round + writer) * NUMBERS;
            Process::start(&[], "small writer", &scratch.path("cache"), first)
        });
        for entry in 0..40 + round {
            writers[(entry % 2) as usize].hear().expect("it writes for ever");
        }
        writers.iter_mut().for_each(Process::kill);
        let pack = open_limited(&scratch, Access::ReadOnly, SMALL);
        let verified = pack.verify();
        assert_eq!(verified.bad, [], "round {round}");
        assert!(verified.entries > 0, "round {round}");
    }
    let pack = open_limited(&scratch, Access::ReadWrite, SMALL);
    pack.gc().expect("nobody holds the lock");
    let stats = pack.stats();
    assert!(stats.generations.len() <= 2 && pack.verify().unusable.is_empty(), "{stats:?}");
    assert!(
        stats.generations.iter().map(|generation| generation.file_bytes).sum::<u64>() <= SMALL.size_bytes
    );
    // The same files are those of a larger pack.
    open_limited(&scratch, Access::ReadWrite, PackLimits::default()).clear().expect("nobody holds the lock");
    assert_eq!(pack.stats().generations, []);
}

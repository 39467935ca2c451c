//! The end of a program whose first thread leaves `main` by `pthread_exit`: it comes with the last of its threads.
//!
//! The C library ends a process with the last thread of all, and an executor has threads of its own, which watch the host to the end.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::fs::Dir;
use uruk_core::sync::{Arc, Latch, thread};

use crate::peer::{keep_descriptors, set_aside};
use crate::runtime::exit::ExitError;
use crate::runtime::thread_exit::on_end_of_thread;
use crate::runtime::tls::SignalsBlocked;

/// How often it is looked whether there are other threads.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Has the process exit with 0 when this thread, its first, has ended and so have all others that are started from here on.
///
/// # Errors
/// As of [`on_end_of_thread`]; [`ExitError::Refused`] too if the system refuses a thread.
pub(super) fn exit_with_the_last_thread() -> Result<(), ExitError> {
    let [first_ends, is_counted, last_ends] = [(); 3].map(|()| Arc::new(Latch::new()));
    let blocked = SignalsBlocked::now(); // The threads have them blocked to their ends: signals are for the program's.
    let refused = |_| ExitError::Refused;
    // Handlers of the exit use the descriptors of the program.
    let exit = {
        let last_ends = last_ends.clone();
        move || {
            last_ends.wait();
            exit()
        }
    };
    thread::Builder::new().name("uruk exit".to_owned()).spawn(exit).map_err(refused)?;
    let watch = {
        let (first_ends, is_counted) = (first_ends.clone(), is_counted.clone());
        move || {
            let so_far = ThreadsSoFar::new(); // with these two
            let kept = so_far.as_ref().map(|so_far| [so_far.directory.as_fd(), so_far.first.as_fd()]);
            keep_descriptors(kept.as_ref().map_or(&[], |kept| kept));
            is_counted.open();
            first_ends.wait();
            // Without the list the process ends with its host.
            let Ok(so_far) = so_far else { return };
            while so_far.others_run().unwrap_or(true) {
                std::thread::park_timeout(LOOK_EVERY);
            }
            last_ends.open();
        }
    };
    thread::Builder::new().name("uruk last".to_owned()).spawn(watch).map_err(refused)?;
    drop(blocked);
    is_counted.wait();
    on_end_of_thread(move || first_ends.open())
}

/// As the C library does with the last thread.
#[expect(clippy::disallowed_methods, reason = "the process is the program's, and that has ended")]
fn exit() -> ! {
    std::process::exit(0)
}

/// The threads of the process before the program begins.
struct ThreadsSoFar {
    directory: OwnedFd,
    numbers: HashSet<Vec<u8>>,
    /// The state of the first one, in `stat`.
    first: OwnedFd,
}

impl ThreadsSoFar {
    fn new() -> io::Result<Self> {
        let directory = set_aside(File::open("/proc/self/task")?.into());
        let first = set_aside(File::open("/proc/self/stat")?.into());
        let numbers = numbers(&directory)?;
        Ok(Self { directory, numbers, first })
    }

    /// Whether the first thread runs still, or one that is not of these.
    fn others_run(&self) -> io::Result<bool> {
        let mut stat = [0; 256];
        let read = rustix::io::pread(&self.first, &mut stat, 0)?;
        // The name may have brackets of its own.
        let state =
            stat[..read].windows(3).rev().find(|window| window.starts_with(b") ")).map(|found| found[2]);
        Ok(state != Some(b'Z') || !numbers(&self.directory)?.is_subset(&self.numbers))
    }
}

/// The numbers of the threads of the process, as text.
fn numbers(directory: &OwnedFd) -> io::Result<HashSet<Vec<u8>>> {
    let mut numbers = HashSet::new();
    for entry in Dir::read_from(directory)? {
        numbers.insert(entry?.file_name().to_bytes().to_vec());
    }
    Ok(numbers)
}

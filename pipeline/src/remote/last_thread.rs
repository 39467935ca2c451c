//! The end of a program whose first thread leaves `main` by `pthread_exit`: it comes with the last of its threads.
//!
//! The C library ends a process with the last thread of all, and an executor has threads of its own, which watch the host to the end.

use std::fs;
use std::time::Duration;

use uruk_core::sync::thread;

use crate::runtime::exit::ExitError;
use crate::runtime::thread_exit::on_end_of_thread;

/// The names of an executor's own threads begin so.
const OWN_THREADS: &str = "uruk ";

/// How often it is looked whether there are others.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Has the process exit with 0 when this thread, its first, has ended and so have all others of the program.
///
/// # Errors
/// As of [`on_end_of_thread`].
pub(super) fn exit_with_the_last_thread() -> Result<(), ExitError> {
    on_end_of_thread(|| {
        // Refused, the process goes on until its host ends it.
        let _ = thread::Builder::new().name(format!("{OWN_THREADS}last")).spawn(|| {
            while has_threads().unwrap_or(false) {
                std::thread::park_timeout(LOOK_EVERY);
            }
            exit();
        });
    })
}

/// As the C library does with the last thread.
#[expect(clippy::disallowed_methods, reason = "the process is the program's, and that has ended")]
fn exit() -> ! {
    std::process::exit(0)
}

/// Whether a thread of the program runs. The first one is there to the end of the process, and does not run.
fn has_threads() -> std::io::Result<bool> {
    let first = std::process::id().to_string();
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        // One that has ended meanwhile has no name.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_else(|_| OWN_THREADS.to_owned());
        if entry.file_name() != *first && !name.starts_with(OWN_THREADS) {
            return Ok(true);
        }
    }
    Ok(false)
}

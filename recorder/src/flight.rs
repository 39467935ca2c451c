//! The flight recorder: a recording in a file that others find by the number of the process.
//!
//! ```text
//!  $XDG_RUNTIME_DIR/uruk/PID.uflight     or, where there is no such directory:
//!  /dev/shm/uruk-UID/PID.uflight
//! ```
//!
//! Both are in memory: on a disk the system takes milliseconds to make a file and its place, and a page of it that is written goes there.
//!
//! A process that ends well removes its file. Any other end leaves it behind, for `uruk trace` and `uruk top`. One process of sixteen
//! looks after the files of those that have ended when it begins: it leaves the newest, for a day.
//!
//! **Architecture Invariant:** files are made and removed in a directory alone that is this user's, and where no other user may write. It is no
//! symbolic link, and no other user can put another directory in its place.

use std::cmp::Reverse;
use std::fs::{self, DirBuilder, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use rustix::process::{Pid, Resource, geteuid, getrlimit, test_kill_process};

use crate::reader::Reader;
use crate::recording::{EnableError, Options, area, enable};

/// The end of each file's name.
const EXTENSION: &str = "uflight";

/// So many files of processes that have ended are left.
const LEFT_MAX: usize = 8;

/// So long after it was seen that its process has ended.
const LEFT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// One process of so many looks after them: it costs a tenth of what a start may cost.
const LOOKED_AT_BY: u32 = 16;

/// It looks at so many files.
const LOOKED_AT_MAX: usize = 256;

/// The recording of this process in a file that others find by the process's number.
///
/// # Examples
/// ```
/// use uruk_recorder::{Flight, Options};
///
/// let flight = Flight::begin(Options::small())?;
/// // Work. A crash or a kill leaves the file behind: `uruk trace dump PID`.
/// assert_eq!(Flight::find(std::process::id()).as_deref(), Some(flight.path()));
/// flight.remove();
/// # Ok::<(), uruk_recorder::FlightError>(())
/// ```
#[derive(Debug)]
#[must_use = "a process that ends well removes its file"]
pub struct Flight {
    path: PathBuf,
    process: u32,
}

/// Why there is no flight recorder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlightError {
    /// The directory cannot be had.
    #[error("{}: cannot be made, or looked at", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Others than this user may write in the directory, or it is none.
    #[error("{}: is no directory of this user's alone", path.display())]
    Shared {
        /// The directory.
        path: PathBuf,
    },
    /// The process may not have files as large.
    #[error("the process may not have files of {size} bytes (RLIMIT_FSIZE)")]
    Limit {
        /// The size of the recording.
        size: u64,
    },
    /// The recording does not begin.
    #[error("the recording does not begin")]
    Enable(#[from] EnableError),
}

impl Flight {
    /// Begins to record; `options` may name no file.
    ///
    /// # Errors
    /// If no directory can be had, or the recording does not begin there: a process has one recording.
    pub fn begin(options: Options) -> Result<Self, FlightError> {
        Self::begin_for(std::process::id(), options)
    }

    /// The same, found by the number of another process, for which this one works.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_for(found_by: u32, options: Options) -> Result<Self, FlightError> {
        let (user, mut failure) = (geteuid().as_raw(), None);
        for directory in directories(user) {
            match Self::begin_in(&directory, (user, found_by), options.clone()) {
                Ok(flight) => return Ok(flight),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("there is a directory at least"))
    }

    fn begin_in(
        directory: &Path,
        (user, found_by): (u32, u32),
        options: Options,
    ) -> Result<Self, FlightError> {
        if area().is_some() {
            return Err(EnableError::Differs.into());
        }
        let layout = options.layout();
        if !layout.is_sound() {
            return Err(EnableError::Size.into());
        }
        let size = (layout.words() * size_of::<u64>()) as u64;
        if getrlimit(Resource::Fsize).current.is_some_and(|most| most < size) {
            // The system would end the process by a signal.
            return Err(FlightError::Limit { size });
        }
        make_own(directory, user)?;
        let process = std::process::id();
        let path = file_of(directory, found_by);
        // Of an earlier process with our number.
        drop(fs::remove_file(&path));
        if process.is_multiple_of(LOOKED_AT_BY) {
            remove_left(directory);
        }
        enable(Options { file: Some(path.clone()), ..options }).inspect_err(|_| {
            // It may have been made.
            drop(fs::remove_file(&path));
        })?;
        Ok(Self { path, process })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file: the process ends well. In a forked child it does nothing. The recording goes on in memory.
    pub fn remove(&self) {
        if std::process::id() == self.process {
            // A file that cannot be removed is left, as that of a process that was killed.
            drop(fs::remove_file(&self.path));
        }
    }

    /// The file of a process that runs, or has ended otherwise than well.
    pub fn find(process: u32) -> Option<PathBuf> {
        // That of another user is found by those who may read it.
        let user =
            fs::metadata(format!("/proc/{process}")).map_or(geteuid().as_raw(), |process| process.uid());
        let mut files = directories(user).map(|directory| file_of(&directory, process));
        files.find(|file| file.symlink_metadata().is_ok_and(|file| file.is_file() && file.uid() == user))
    }

    /// The file of this user's process that began last.
    pub fn newest() -> Option<PathBuf> {
        let user = geteuid().as_raw();
        let directories = directories(user).filter(|directory| is_own(directory, user));
        let files = directories.flat_map(|directory| files(&directory).collect::<Vec<_>>());
        let begun =
            files.filter_map(|(file, _)| Some((Reader::open(file.path()).ok()?.began(), file.path())));
        begun.max().map(|(_, path)| path)
    }
}

fn file_of(directory: &Path, process: u32) -> PathBuf {
    directory.join(format!("{process}.{EXTENSION}"))
}

/// The directories of a user, the best first.
fn directories(user: u32) -> impl Iterator<Item = PathBuf> {
    let is_this_user = geteuid().as_raw() == user;
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let named = named.filter(|directory| is_this_user && directory.is_absolute());
    // Another process of the user may have another environment.
    let usual = PathBuf::from(format!("/run/user/{user}"));
    let runtime = named.into_iter().chain([usual]).map(|directory| directory.join("uruk"));
    runtime.chain([PathBuf::from(format!("/dev/shm/uruk-{user}"))])
}

/// Makes the directory if it is not there.
fn make_own(directory: &Path, user: u32) -> Result<(), FlightError> {
    let failed = |source| FlightError::Directory { path: directory.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
        _ if is_own(directory, user) => Ok(()),
        _ => Err(FlightError::Shared { path: directory.to_owned() }),
    }
}

/// Whether a directory is the user's alone, and stays where it is.
fn is_own(directory: &Path, user: u32) -> bool {
    let is_private = |found: Metadata| found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0;
    let is_safe = |found: Metadata| {
        let is_sticky = found.mode() & 0o1000 != 0;
        [0, user].contains(&found.uid()) && (is_sticky || found.mode() & 0o022 == 0)
    };
    directory.symlink_metadata().is_ok_and(is_private)
        && directory.parent().is_some_and(|parent| fs::metadata(parent).is_ok_and(is_safe))
}

/// The files of a directory, with the numbers of their processes.
fn files(directory: &Path) -> impl Iterator<Item = (DirEntry, u32)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(LOOKED_AT_MAX);
    entries.filter_map(|entry| {
        let name = entry.file_name();
        let process = name.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?.parse().ok()?;
        Some((entry, process))
    })
}

/// Removes files of processes that have ended: all but the newest, and older ones.
///
/// A process may have run for weeks, so its day begins when it is seen that it has ended: its file may not be written then.
fn remove_left(directory: &Path) {
    let now = SystemTime::now();
    let mut left = Vec::new();
    for (file, process) in files(directory) {
        if lives(process) {
            continue;
        }
        let Some(found) = file.metadata().ok().filter(|found| found.is_file()) else { continue };
        let (mut permissions, since) = (found.permissions(), found.modified().unwrap_or(now));
        if permissions.readonly() {
            left.push((since, file.path()));
            continue;
        }
        permissions.set_readonly(true);
        let file = (file.path(), permissions);
        // One that cannot be marked is looked at again by the next start.
        drop(mark(&file.0, file.1, now));
        left.push((now, file.0));
    }
    left.sort_unstable_by_key(|(since, _)| Reverse(*since));
    let is_old = |since: SystemTime| now.duration_since(since).is_ok_and(|age| age > LEFT_FOR);
    for (at, (since, path)) in left.into_iter().enumerate() {
        if at >= LEFT_MAX || is_old(since) {
            drop(fs::remove_file(path));
        }
    }
}

fn mark(file: &Path, permissions: fs::Permissions, now: SystemTime) -> io::Result<()> {
    let opened = fs::File::options().write(true).open(file)?;
    opened.set_modified(now)?;
    opened.set_permissions(permissions)
}

fn lives(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) != Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A directory of this user's alone, which goes at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("uruk-flight-{}-{name}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_directory_is_taken_only_if_no_other_user_can_write_there() {
        let (scratch, user) = (Scratch::new("own"), geteuid().as_raw());
        let directory = scratch.0.join("uruk");
        let is_taken = |user| make_own(&directory, user).is_ok();
        assert!(is_taken(user), "it is made");
        assert!(is_taken(user), "it is there");
        assert!(!is_taken(user + 1), "of another user");
        let give = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        give(&directory, 0o701);
        assert!(!is_taken(user), "others may enter it");
        give(&directory, 0o700);
        give(&scratch.0, 0o777);
        assert!(!is_taken(user), "others may put another in its place");
        give(&scratch.0, 0o1777);
        assert!(is_taken(user), "as in /tmp");
        fs::rename(&directory, scratch.0.join("moved")).unwrap();
        symlink(scratch.0.join("moved"), &directory).unwrap();
        assert!(!is_taken(user), "a symbolic link");
        fs::remove_file(&directory).unwrap();
        symlink("nowhere", &directory).unwrap();
        assert!(!is_taken(user) && !scratch.0.join("nowhere").exists(), "a symbolic link to nowhere");
    }

    /// The numbers of processes end below these.
    const ENDED: u32 = 2_000_000_000;

    #[test]
    fn of_processes_that_have_ended_the_newest_are_left_for_a_day_after_that_was_seen() {
        let scratch = Scratch::new("left");
        let file = |process: u32| file_of(&scratch.0, process);
        let left = || files(&scratch.0).map(|(_, process)| process).collect::<Vec<_>>();
        let alive = std::process::id();
        let month = 30 * LEFT_FOR;
        for process in [alive, ENDED, ENDED + 1] {
            let written = fs::File::create(file(process)).unwrap();
            written.set_modified(SystemTime::now() - month).unwrap();
        }
        fs::write(scratch.0.join("diary"), "").unwrap();
        remove_left(&scratch.0);
        let mut found = left();
        found.sort_unstable();
        assert_eq!(found, [alive, ENDED, ENDED + 1], "the day of the two begins now");

        let since = |process, age| {
            // The mark does not hinder this user.
            let path = fs::File::open(file(process)).unwrap();
            path.set_modified(SystemTime::now() - age).unwrap();
        };
        since(ENDED, LEFT_FOR + Duration::from_secs(1));
        since(ENDED + 1, LEFT_FOR / 2);
        remove_left(&scratch.0);
        assert_eq!((file(ENDED).exists(), file(ENDED + 1).exists()), (false, true));

        (2..40).for_each(|process| fs::write(file(ENDED + process), "").unwrap());
        remove_left(&scratch.0);
        assert_eq!((left().len(), file(ENDED + 1).exists()), (LEFT_MAX + 1, false));
        assert!(file(alive).exists() && scratch.0.join("diary").exists());
    }
}

//! [`Directory`]: the place of a pack, and its trusted writers.
//!
//! An entry is code: its writer has it run with the rights of each reader. So a directory belongs to this user or to root, and others cannot
//! write to it. The exception is a directory that a group *shares*: the group may write to it, and it has the set-group-id bit, so
//! that all files in it are the group's (`chmod 2770`). It is taken from any owner, for the group may write in any case. A name in a directory
//! that everybody may write to is anybody's to take, though: there the owner has to be this user or root.
//!
//! Files are opened through the descriptor of the directory that was checked, so another that takes its name later is never looked
//! at. They may be read and written by those who may list and write to the directory: the system's `umask` narrows that, unless the directory is
//! shared.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::format::{PackFileKind, VERSION};
use crate::runtime::set_aside;

/// Why a directory cannot hold a cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheOpenError {
    /// It is not there and could not be made, or cannot be opened.
    #[error("the cache directory {} cannot be {what}", path.display())]
    System {
        /// The directory.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// It belongs to another user.
    #[error(
        "the cache directory {} belongs to user {owner}, who could have code run as user {user}: name a directory of your own, or one that a group of yours shares (mode 2770)",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Others may write to it.
    #[error(
        "others may write to the cache directory {path} (mode {mode:04o}), and so have code run as you: `chmod 700 {path}`, or `chmod 2770 {path}` to share it with its group",
        path = path.display()
    )]
    WritableByOthers {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// An open directory of a cache.
#[derive(Debug)]
pub(in crate::cache) struct Directory {
    handle: OwnedFd,
    path: PathBuf,
    /// The same from any working directory.
    absolute: PathBuf,
    /// Device and number, which tell it from others that have its name.
    identity: (u64, u64),
    writers: Writers,
    /// The permissions of a file that is made here.
    file_mode: Mode,
    /// Of the format of its files.
    version: u32,
}

/// The trusted writers of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writers {
    /// This user, and root.
    Owner,
    /// All of this group.
    Group(u32),
}

/// The reason to distrust a directory.
enum Distrust {
    Foreign { owner: u32, user: u32 },
    WritableByOthers { mode: u32 },
}

impl Directory {
    /// Opens a directory. It is made first if it `may_be_made`, for this user alone. In a directory that a group shares it is made for the
    /// group, as the user's mask allows.
    pub(super) fn open(path: &Path, may_be_made: bool) -> Result<Self, CacheOpenError> {
        Self::open_version(path, may_be_made, VERSION)
    }

    /// The same for files of another version.
    pub(super) fn open_version(path: &Path, may_be_made: bool, version: u32) -> Result<Self, CacheOpenError> {
        let system = |what, source| CacheOpenError::System { path: path.to_owned(), what, source };
        let open = || fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let handle = match open() {
            Err(Errno::NOENT) if may_be_made => {
                let mut builder = DirBuilder::new();
                builder.recursive(true).mode(if lies_in_shared(path) { 0o770 } else { 0o700 });
                builder.create(path).map_err(|error| system("created", error))?;
                open()
            }
            opened => opened,
        };
        let handle = set_aside(handle.map_err(|error| system("opened", error.into()))?);
        let stat = fs::fstat(&handle).map_err(|error| system("examined", error.into()))?;
        let writers = Writers::of_directory(&handle, &stat).map_err(|distrust| match distrust {
            Distrust::Foreign { owner, user } => {
                CacheOpenError::Foreign { path: path.to_owned(), owner, user }
            }
            Distrust::WritableByOthers { mode } => {
                CacheOpenError::WritableByOthers { path: path.to_owned(), mode }
            }
        })?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let identity = (stat.st_dev, stat.st_ino);
        let file_mode = Mode::RUSR | Mode::WUSR | Mode::from_raw_mode(stat.st_mode & 0o066);
        Ok(Self { handle, path: path.to_owned(), absolute, identity, writers, file_mode, version })
    }

    /// Opens the same directory by its name, without the descriptor. The name may belong to another directory by now, or to none: the
    /// process may see other files.
    pub(super) fn reopen(known: &Self) -> Result<Self, Errno> {
        let handle =
            set_aside(fs::open(&known.absolute, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?);
        let stat = fs::fstat(&handle)?;
        if (stat.st_dev, stat.st_ino) != known.identity {
            return Err(Errno::STALE);
        }
        let (path, absolute) = (known.path.clone(), known.absolute.clone());
        Ok(Self { handle, path, absolute, ..*known })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// The name of the file that writers lock.
    pub(super) fn lock_name(&self) -> String {
        format!("uruk{}.lock", self.version)
    }

    /// The name of the file in which a compiling process locks bytes.
    pub(in crate::cache) fn flights_name(&self) -> String {
        format!("uruk{}.flights", self.version)
    }

    /// The name of a file of a generation.
    pub(super) fn file_name(&self, generation: u64, kind: PackFileKind) -> String {
        format!("uruk{}.{generation:016x}.{}", self.version, kind.ending())
    }

    /// The numbers of the generations of which there is a file, damaged ones included, in order.
    pub(super) fn generations(&self) -> Result<Vec<u64>, Errno> {
        let prefix = format!("uruk{}.", self.version);
        let mut numbers = Vec::new();
        for entry in Dir::read_from(&self.handle)? {
            let entry = entry?;
            let name = entry.file_name().to_str().ok().and_then(|name| name.strip_prefix(&*prefix));
            let number = name.and_then(|name| {
                let (number, ending) = name.split_once('.')?;
                let is_ours =
                    [PackFileKind::Data, PackFileKind::Index].iter().any(|kind| kind.ending() == ending);
                (is_ours && number.len() == 16).then(|| u64::from_str_radix(number, 16).ok())?
            });
            numbers.extend(number);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// Opens a file of the directory to which only those may write who may write to the directory.
    pub(in crate::cache) fn open_file(&self, name: &str, access: OFlags) -> Result<OwnedFd, Errno> {
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = set_aside(fs::openat(&self.handle, name, flags, self.file_mode)?);
        let stat = fs::fstat(&file)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || !self.writers.are_those_of(&stat) {
            return Err(Errno::PERM);
        }
        let is_made_here = access.contains(OFlags::CREATE) && stat.st_uid == geteuid().as_raw();
        if is_made_here && matches!(self.writers, Writers::Group(_)) {
            // The mask of one user is not to lock out the others.
            let mode = Mode::from_raw_mode(stat.st_mode);
            if !mode.contains(self.file_mode) {
                fs::fchmod(&file, mode | self.file_mode)?;
            }
        }
        Ok(file)
    }

    /// How long a file is; nothing if it is not there.
    pub(super) fn size_bytes(&self, name: &str) -> u64 {
        fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| stat.st_size as u64)
    }

    /// Removes a file. A process that has it open keeps it.
    pub(super) fn remove(&self, name: &str) -> Result<(), Errno> {
        match fs::unlinkat(&self.handle, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Writers {
    /// The writers of a directory, if they are to be trusted.
    fn of_directory(handle: &OwnedFd, stat: &Stat) -> Result<Self, Distrust> {
        let mode = stat.st_mode & 0o7777;
        let is_shared = is_shared(mode);
        if mode & 0o022 != 0 && !is_shared {
            return Err(Distrust::WritableByOthers { mode });
        }
        let (owner, user) = (stat.st_uid, geteuid().as_raw());
        let is_trusted = is_owner_trusted(stat) || is_shared && is_named_by_few(handle);
        if !is_trusted {
            return Err(Distrust::Foreign { owner, user });
        }
        Ok(if is_shared { Self::Group(stat.st_gid) } else { Self::Owner })
    }

    /// Whether no other user may write to a file.
    fn are_those_of(self, file: &Stat) -> bool {
        let is_of_group = self == Self::Group(file.st_gid);
        let by_others = if is_of_group { 0o002 } else { 0o022 };
        (is_owner_trusted(file) || is_of_group) && file.st_mode & by_others == 0
    }
}

/// Whether a directory of this mode is its group's, and no user outside the group may write to it.
const fn is_shared(mode: u32) -> bool {
    mode & 0o2022 == 0o2020
}

fn lies_in_shared(path: &Path) -> bool {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::stat(parent.unwrap_or(Path::new("."))).is_ok_and(|parent| is_shared(parent.st_mode))
}

/// Root can have any code run anyway.
fn is_owner_trusted(stat: &Stat) -> bool {
    stat.st_uid == geteuid().as_raw() || stat.st_uid == 0
}

/// Whether not everybody could have made a directory of this name.
fn is_named_by_few(directory: &OwnedFd) -> bool {
    fs::statat(directory, "..", AtFlags::empty()).is_ok_and(|parent| parent.st_mode & 0o002 == 0)
}

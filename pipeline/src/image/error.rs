//! Why an image could not be used.

use std::path::PathBuf;
use std::sync::Arc;

use crate::executor::NotStatic;
use crate::link::LinkError;
use crate::memory::MemoryError;

/// Why a file could not be opened as an image.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The system refuses the file.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Arc<std::io::Error>,
    },
    /// The file is none.
    #[error("{}: {what}, no image; `uruk image build` makes one", path.display())]
    NotImage {
        /// The file.
        path: PathBuf,
        /// Its kind.
        what: Box<str>,
    },
    /// It is shorter or longer than it was.
    #[error("{}: {found_bytes} bytes, and its header says {written_bytes}: it was cut off; build it again", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// How long it is.
        found_bytes: u64,
        /// How long it was written.
        written_bytes: u64,
    },
    /// Its numbers contradict each other.
    #[error("{}: the metadata is damaged ({what}); build it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first contradiction.
        what: Box<str>,
    },
    /// Another version of the engine made it.
    #[error("{}: made for {what} {made_for}, and this is {have}; build it again with this engine", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The numbered thing.
        what: &'static str,
        /// The number in the file.
        made_for: u32,
        /// The number here.
        have: u32,
    },
    /// Other users may change it.
    #[error(
        "{}: others may write to it (mode {mode:03o}): code in it would run as you; chmod go-w {}",
        path.display(), path.display()
    )]
    WritableByOthers {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to another user.
    #[error("{}: belongs to user {owner}: code in it would run as you; copy it, if you trust it", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The user's number.
        owner: u32,
    },
    /// The processor lacks instructions that the code uses.
    #[error(
        "{}: no version fits this processor: {target} needs {}, which it lacks{others}; build with --cpu-targets {build}",
        path.display(), missing.join(", ")
    )]
    Processor {
        /// The file.
        path: PathBuf,
        /// The processors that the code is for.
        target: Box<str>,
        /// The instruction sets that it uses and that are missing.
        missing: Vec<&'static str>,
        /// The needs of the versions for other processors, as a part of the sentence.
        others: Box<str>,
        /// The target to build it for.
        build: &'static str,
    },
    /// It is one whole.
    #[error("{}: it is one whole, without units that sources could replace; build it with --package", path.display())]
    Whole {
        /// The file.
        path: PathBuf,
    },
    /// An image that it was built on is not there.
    #[error(
        "{}: it was built on {below} (id {wanted}), and {found}; load that one first, or build this one again",
        path.display()
    )]
    Below {
        /// The file.
        path: PathBuf,
        /// The file name of the other image, when this one was built.
        below: Box<str>,
        /// The beginning of its id.
        wanted: Box<str>,
        /// The image that is there instead.
        found: Box<str>,
    },
    /// A unit of an image that it was built on is not used there.
    #[error(
        "{}: it was built on {below}, and may contain code of its unit {unit}, which is not used: {reason}; build {below} again, and this one on it",
        path.display()
    )]
    BelowRejected {
        /// The file.
        path: PathBuf,
        /// The file name of the other image, when this one was built.
        below: Box<str>,
        /// The unit of that.
        unit: Box<str>,
        /// Why it is not used.
        reason: Box<str>,
    },
    /// There is no memory for it.
    #[error("{}: cannot be mapped", path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// Why.
        source: MemoryError,
    },
}

/// Why a part of the host's cannot be in an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostPartError {
    /// The image has one of that name.
    #[error("the image has a section `{name}` already")]
    Duplicate {
        /// The section.
        name: Box<str>,
    },
    /// The image has an instance for the same method and specialization.
    #[error("the image has a code instance for this method and specialization already (`{invoke}`)")]
    DuplicateInstance {
        /// The function of the first one.
        invoke: Box<str>,
    },
    /// It is longer than offsets in images are.
    #[error("{what} is {bytes} bytes long, and at most {bytes_max} fit into an image")]
    TooLong {
        /// The part.
        what: Box<str>,
        /// Its length.
        bytes: u64,
        /// The largest length.
        bytes_max: u64,
    },
    /// A name has a zero byte in it, or is empty.
    #[error("`{}` is no name for a part of an image: it is empty, or has a zero byte in it", name.escape_default())]
    Name {
        /// The name.
        name: Box<str>,
    },
    /// Nothing defines a function of a code instance.
    #[error("nothing defines `{symbol}`, a function of a code instance")]
    NoSymbol {
        /// The function.
        symbol: Box<str>,
    },
}

/// Why an image could not be bound to its place.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Its numbers contradict each other.
    #[error("{image}: the metadata is damaged ({what}); build it again")]
    Damaged {
        /// The image.
        image: Box<str>,
        /// The first contradiction.
        what: Box<str>,
    },
    /// Code reaches a thread-local variable at a fixed distance from the thread pointer, and there is none.
    #[error(
        "{image}: its code reaches `{symbol}` at a fixed distance from the thread pointer, but {reason}; compile its files with -ftls-model=global-dynamic"
    )]
    StaticTls {
        /// The image.
        image: Box<str>,
        /// The variable, or the image's own variables.
        symbol: Box<str>,
        /// Why the variable is not at such a distance.
        reason: NotStatic,
    },
    /// An import is too far away, or of the wrong kind.
    #[error(transparent)]
    Link(#[from] LinkError),
}

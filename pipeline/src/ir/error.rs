//! Why a module could not be turned into an object.

use std::path::PathBuf;
use std::sync::Arc;

use crate::cache::{EntryKind, Miss};
use crate::helpers::HelperError;

/// Reading, checking, optimizing or compiling a module failed. `message` is LLVM's wherever LLVM had one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The bytes are no LLVM IR that this LLVM can read.
    #[error("{module}: cannot be read as LLVM IR: {message}")]
    Parse {
        /// The file or module.
        module: Arc<str>,
        /// The defect.
        message: String,
    },
    /// The module was read and breaks LLVM's rules.
    #[error("{module}: not valid LLVM IR: {message}")]
    Verify {
        /// The file or module.
        module: Arc<str>,
        /// The rules broken, one a line.
        message: String,
    },
    /// The pass pipeline was refused or reported an error.
    #[error("{module}: cannot run the passes `{passes}`: {message}")]
    Optimize {
        /// The file or module.
        module: Arc<str>,
        /// The pipeline, as LLVM was given it.
        passes: String,
        /// LLVM's message.
        message: String,
    },
    /// A [hook](super::PassHook) between the passes failed or panicked.
    #[error("{module}: the hook `{hook}` failed: {message}")]
    Hook {
        /// The file or module.
        module: Arc<str>,
        /// The hook's id.
        hook: Arc<str>,
        /// The hook's message.
        message: String,
    },
    /// Code generation reported an error, for instance about inline assembly.
    #[error("{module}: cannot generate code: {message}")]
    Codegen {
        /// The file or module.
        module: Arc<str>,
        /// LLVM's message.
        message: String,
    },
    /// The module is for another target, or the target machine cannot be made.
    #[error("{subject}: {message}")]
    Target {
        /// The module, or the target asked for.
        subject: Arc<str>,
        /// The mismatch.
        message: String,
    },
    /// Code relies on a test of types that its compiler left to a link of all modules (`-flto -fsanitize=cfi`). Without it code would run unchecked.
    #[error(
        "{module}: `{function}` checks types in link-time optimization (-fsanitize=cfi), which has to see all modules of the program: link them first (clang -flto -fuse-ld=lld -Wl,--lto-emit-llvm), or compile without -fsanitize=cfi"
    )]
    TypeTest {
        /// The file or module.
        module: Arc<str>,
        /// A function with such a test.
        function: String,
    },
    /// Nothing may be compiled, and the cache has not got what is needed of the module.
    #[error(
        "{module}: the cache has no {kind} of it: {why}; nothing may be compiled here, so compile it once with the same options and a cache that may be written to"
    )]
    NotCached {
        /// The file or module.
        module: Arc<str>,
        /// The missing entry.
        kind: EntryKind,
        /// Why it is not there.
        why: Miss,
    },
    /// LLVM is to be loaded when it is first needed, and is not there, or is another one.
    #[error(
        "{}: LLVM cannot be loaded: {message}; install LLVM 22 (Debian: libllvm22), or say where it is: URUK_LLVM=PATH",
        path.display()
    )]
    Library {
        /// The library.
        path: PathBuf,
        /// The system's message.
        message: String,
    },
    /// LLVM was loaded, and the part of this program that calls it was not.
    #[error(
        "the part of this program that calls LLVM cannot be loaded: {message}; name a directory for temporary files from which code may be loaded: TMPDIR=DIR"
    )]
    Shim {
        /// The system's message, for each place that was tried.
        message: String,
    },
    /// LLVM gave up in the middle of a stage. The module and all else in its context are lost.
    #[error("{module}: LLVM gave up during {stage}: {message}")]
    Fatal {
        /// The file or module.
        module: Arc<str>,
        /// LLVM's work at that moment.
        stage: &'static str,
        /// LLVM's last words.
        message: String,
    },
    /// The module shares its context with one that LLVM gave up on.
    #[error(
        "{module}: its context was lost when LLVM gave up on another module; give each module a context of its own to keep them apart"
    )]
    ContextLost {
        /// The file or module.
        module: Arc<str>,
    },
    /// The module was to be compiled in a helper process, which gave no answer.
    #[error("{module}: cannot be compiled")]
    Helper {
        /// The file or module.
        module: Arc<str>,
        /// Why there is no answer.
        source: Box<HelperError>,
    },
    /// Helper processes are to compile, and cannot do this.
    #[error("not possible in helper processes: {what}")]
    NotContained {
        /// The reason.
        what: String,
    },
    /// Something done to the module through [`ThreadSafeModule::with_module`] made LLVM report errors.
    ///
    /// [`ThreadSafeModule::with_module`]: super::ThreadSafeModule::with_module
    #[error("{module}: {message}")]
    Diagnosed {
        /// The file or module.
        module: Arc<str>,
        /// LLVM's report.
        message: String,
    },
}

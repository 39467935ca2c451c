//! [`Helpers`]: how many there are, of which program, and their limits.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::peer::PeerProgram;

/// Helper processes to be used.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use uruk_pipeline::helpers::Helpers;
///
/// let helpers = Helpers::new("/usr/local/bin/uruk").argument("compile-helper");
/// let helpers = helpers.count(2).memory(1 << 30).time_limit(Duration::from_secs(30));
/// # let _ = helpers;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helpers {
    pub(super) program: PeerProgram,
    pub(super) count: usize,
    pub(super) memory_bytes: Option<u64>,
    pub(super) time_limit: Duration,
    pub(super) start_limit: Duration,
    pub(super) jobs_max: u32,
    pub(super) age_max: Duration,
    pub(super) confines: bool,
    pub(super) answer_bytes: u32,
}

impl Helpers {
    /// Helpers of a program that calls [`serve_compiles`](crate::ir::serve_compiles) when it is started so: one a core, each with 4 GiB of
    /// memory and five minutes for a job.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: PeerProgram { path: program.into(), arguments: Vec::new() },
            count: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: Some(4 << 30),
            time_limit: Duration::from_secs(300),
            start_limit: Duration::from_secs(30),
            jobs_max: 1_000,
            age_max: Duration::from_secs(3_600),
            confines: true,
            answer_bytes: 512 << 20,
        }
    }

    /// Adds an argument of the program.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.program.arguments.push(argument.into());
        self
    }

    /// How many helpers there are at most. One is started with the pool, the others when all before them are busy. Zero counts as one.
    #[must_use]
    pub fn count(mut self, count: usize) -> Self {
        self.count = count.max(1);
        self
    }

    /// How many bytes of address space a helper may take beyond those that it has at its start. A compilation that needs more ends its
    /// helper, and fails.
    #[must_use]
    pub fn memory(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.memory_bytes = bytes.into();
        self
    }

    /// How many bytes an object may have, which is memory of this process. A helper that announces a larger one is ended, and its job fails.
    /// 512 MiB, unless this says otherwise. Messages of the compiler come beside it, in at most 16 MiB.
    #[must_use]
    pub fn answer(mut self, bytes: u32) -> Self {
        self.answer_bytes = bytes;
        self
    }

    /// How long a helper may take for a job. Then it is ended, and the job fails.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// How long a helper may take until it is ready.
    #[must_use]
    pub fn start_limit(mut self, limit: Duration) -> Self {
        self.start_limit = limit;
        self
    }

    /// After how many jobs, and at what age, a helper is replaced; and always when it has half of its memory in use at the end of a
    /// job, with the module of that job.
    #[must_use]
    pub fn recycle_after(mut self, jobs: u32, age: Duration) -> Self {
        (self.jobs_max, self.age_max) = (jobs, age);
        self
    }

    /// Lets helpers call all of the system. Otherwise a helper that opens a file to write, a socket or another process, starts a program or
    /// a thread, or asks for executable memory is ended by `SIGSYS`, and its job fails; files that it opens to read are refused. The
    /// limits of memory, descriptors and file sizes hold in either case.
    ///
    /// For programs of helpers that do more than compile, and for tools that look at them from inside.
    #[must_use]
    pub fn unconfined(mut self) -> Self {
        self.confines = false;
        self
    }
}

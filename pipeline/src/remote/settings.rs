//! [`RemoteProgram`]: which program runs the code, and how long it may take for what.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::address::ExecutorAddress;
use super::exchange::ExecutorAbove;
use super::messages::{GreetedPerf, GreetedWatchers};
use super::names::PublishedNames;
use crate::debug::{NamedCode, PerfFormat};
use crate::peer::PeerProgram;

/// A program that calls [`serve_executor`](super::serve_executor): one to be started, or one that [listens](super::ExecutorListener).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use uruk_pipeline::remote::RemoteProgram;
///
/// let program = RemoteProgram::new("/usr/local/bin/uruk").argument("executor");
/// let program = program.request_limit(Duration::from_secs(5));
/// # let _ = program;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteProgram {
    pub(super) place: RemotePlace,
    pub(super) sends_memory: bool,
    pub(super) is_program: bool,
    pub(super) watchers: GreetedWatchers,
    pub(super) start_limit: Duration,
    pub(super) request_limit: Duration,
    pub(super) call_limit: Option<Duration>,
}

/// How the host gets an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RemotePlace {
    Started(PeerProgram),
    Listening(ExecutorAddress),
    Above(ExecutorAbove),
}

impl RemotePlace {
    /// Whether it is on this machine, for sure.
    pub(super) fn is_local(&self) -> bool {
        !matches!(self, Self::Listening(ExecutorAddress::Tcp(..)))
    }
}

impl RemoteProgram {
    /// A program that has half a minute to start, and as long for each request. Calls take as long as they take.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::of(RemotePlace::Started(PeerProgram { path: path.into(), arguments: Vec::new() }))
    }

    /// A program that listens at `address`, with the same limits. It has the stdin, stdout and stderr of this process if the address is a socket of this
    /// machine; otherwise its own. Its directory and its environment are its own.
    pub fn listening_at(address: ExecutorAddress) -> Self {
        Self::of(RemotePlace::Listening(address))
    }

    pub(super) fn of(place: RemotePlace) -> Self {
        let limit = Duration::from_secs(30);
        Self {
            place,
            sends_memory: false,
            is_program: false,
            watchers: GreetedWatchers::default(),
            start_limit: limit,
            request_limit: limit,
            call_limit: None,
        }
    }

    /// The number of an executor that was the command itself, for which this process [goes on](super::become_executor).
    pub fn above(&self) -> Option<u32> {
        match &self.place {
            RemotePlace::Above(above) => Some(above.pid),
            RemotePlace::Started(_) | RemotePlace::Listening(_) => None,
        }
    }

    /// Adds an argument of a program that is started.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        if let RemotePlace::Started(program) = &mut self.place {
            program.arguments.push(argument.into());
        }
        self
    }

    /// Sends linked code by messages, also where memory could be shared. Always so where an executor listens on a port, or runs code of another architecture
    /// than this process.
    #[must_use]
    pub fn sends_memory(mut self, sends_memory: bool) -> Self {
        self.sends_memory = sends_memory;
        self
    }

    /// Has the process be a program's alone: libraries that are loaded there may refer to the program, and their constructors run when it
    /// [begins](super::RemoteExecutor::run_program).
    #[must_use]
    pub fn for_program(mut self, is_program: bool) -> Self {
        self.is_program = is_program;
        self
    }

    /// Has gdb know the code, if it is attached to the executor. Memory is sent then: gdb cannot write breakpoints into memory that is shared.
    ///
    /// # Cost
    /// Each message with code has its names and debug information besides, up to 32 MiB of that: larger objects have names and frames alone.
    #[must_use]
    pub fn debugger(mut self, is_on: bool) -> Self {
        self.watchers.debugger = is_on;
        self
    }

    /// Has perf know the code there, by a file that the executor writes: in `/tmp`, or in its own directory.
    #[must_use]
    pub fn perf(mut self, format: impl Into<Option<PerfFormat>>) -> Self {
        self.watchers.perf = format.into().map(GreetedPerf::from);
        self
    }

    /// The part of `names` that debuggers and profilers there are told.
    pub(super) fn told(&self, names: &NamedCode) -> Option<PublishedNames> {
        let GreetedWatchers { debugger, perf } = self.watchers;
        let has_readers = debugger || perf == Some(GreetedPerf::JitDump);
        (debugger || perf.is_some()).then(|| PublishedNames::new(names, has_readers))
    }

    /// Whether linked code comes by messages, as far as the program says.
    pub(super) fn is_sent(&self) -> bool {
        self.sends_memory || self.watchers.debugger
    }

    /// How long it may take until it is ready.
    #[must_use]
    pub fn start_limit(mut self, limit: Duration) -> Self {
        self.start_limit = limit;
        self
    }

    /// How long it may take to find symbols or to load a library. Then it is ended.
    #[must_use]
    pub fn request_limit(mut self, limit: Duration) -> Self {
        self.request_limit = limit;
        self
    }

    /// How long a call may take. Then the executor is ended: code that runs cannot be stopped in another way.
    #[must_use]
    pub fn call_limit(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.call_limit = limit.into();
        self
    }
}

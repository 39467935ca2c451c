//! `--executor`: the program runs in a process of its own, which this command links for.

use std::ffi::{CString, OsString, c_int};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
use uruk::Jit;
use uruk::core::ExecutorSymbolDef;
use uruk::pipeline::peer::{PeerProgram, ProcessEnd};
use uruk::pipeline::remote::{
    ExecutorAddress, ExecutorAddressError, FindsNames, RemoteError, RemoteExecutor, RemoteProgram,
    become_executor,
};

use super::args::RunArgs;
use super::examples::HOW;
use super::replaced::replaced_allocation;
use super::report;
use super::run::RunError;

/// The exit code of a shell for a program that a signal has ended.
const BY_SIGNAL: c_int = 128;

/// Signals of code that is wrong. A terminal's signals, and those of other processes, are no news.
const FAULTS: [c_int; 7] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP];

/// The option of a process that runs the code.
#[derive(Debug, Args)]
pub(crate) struct ExecutorArgs {
    /// Run the program in a process of its own, without compiler and linker, and say where it was when a fault ends it.
    ///
    /// This command compiles and links into memory that both share, waits for the program, and ends as it has ended. Objects that were built for
    /// an executable (without -fPIC) may be refused. With --lazy or --tiered, a child that the program forks has no compiler: it ends, with a
    /// message, at a function that was not called before.
    ///
    /// With an address, uruk-executor --listen ADDR runs the program: unix:PATH on this machine, or HOST:PORT. Directory, environment and libraries
    /// are its own, and on HOST:PORT its input and output too. exec:COMMAND starts another program than this one, by words without quotes: sources and
    /// LLVM IR are compiled for its processor, as in --executor='exec:qemu-aarch64 -L /usr/aarch64-linux-gnu uruk-executor'.
    ///
    /// --debugger and --perf are for that process.
    #[arg(
        help_heading = HOW,
        long,
        value_name = "ADDR",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with_all = ["backtrace", "image", "no_image"],
    )]
    pub(crate) executor: Option<Option<ExecutorPlace>>,
}

/// An address, or a command.
#[derive(Clone, Debug)]
pub(crate) enum ExecutorPlace {
    Listening(ExecutorAddress),
    Started(Vec<String>),
}

impl FromStr for ExecutorPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("exec:") {
            Some(command) if !command.trim().is_empty() => {
                Ok(Self::Started(command.split_whitespace().map(str::to_owned).collect()))
            }
            Some(_) => Err("exec: is followed by the command that starts the executor".to_owned()),
            None => text.parse().map(Self::Listening).map_err(|error: ExecutorAddressError| {
                format!("{error}, or exec:COMMAND, which is started here")
            }),
        }
    }
}

impl ExecutorArgs {
    /// The program that runs the code. Nothing if it runs here.
    ///
    /// One that is started takes the place of this process, which returns in another one: to be called before there are threads.
    pub(crate) fn program(&self) -> Result<Option<RemoteProgram>, RunError> {
        let become_one =
            |program: &PeerProgram| become_executor(program).map_err(|source| RunError::NoHost { source });
        Ok(Some(match &self.executor {
            None => return Ok(None),
            Some(Some(ExecutorPlace::Listening(address))) => RemoteProgram::listening_at(address.clone()),
            Some(Some(ExecutorPlace::Started(command))) => {
                let mut words = command.iter();
                let path = words.next().map(PathBuf::from).unwrap_or_default();
                let program = PeerProgram { path, arguments: words.map(OsString::from).collect() };
                // An emulator may go on with code that it has translated, where the code that is shared was written anew.
                become_one(&program)?.sends_memory(true)
            }
            // The file that runs, also when an update has put another one in its place.
            Some(None) => become_one(&PeerProgram {
                path: "/proc/self/exe".into(),
                arguments: vec!["executor".into()],
            })?,
        }))
    }
}

/// Loads the libraries of `--load` there, if the program runs there.
pub(super) fn load_libraries(jit: &Jit, args: &RunArgs) -> Result<(), RunError> {
    let libraries = if jit.executor().is_some() { &args.load[..] } else { &[] };
    libraries.iter().try_for_each(|library| Ok(jit.load_library(library)?))
}

/// Runs the program there. Gives its exit code, or ends by the signal by which it has ended.
pub(super) fn run_there(
    jit: &'static Jit,
    executor: &RemoteExecutor,
    entry: ExecutorSymbolDef,
    arguments: &[CString],
) -> Result<c_int, RunError> {
    if !replaced_allocation(jit)?.is_empty() {
        return Err(RunError::ReplacesAllocation);
    }
    if !executor.is_above() {
        // Signals come to the program's own process otherwise. Without a thread they end the command, and the program with it.
        let _ = executor.forward_signals();
    }
    let startup = jit.platform().take_startup();
    let names: FindsNames = Box::new(|name| {
        let found = program_symbol(jit, name);
        (found, jit.platform().take_startup())
    });
    let error = executor.run_program(&startup, entry.address, arguments, jit.program_image(), names);
    if executor.is_above() {
        return end_below(jit, &error);
    }
    match error.process_end() {
        Some(ProcessEnd::Exited(code)) => Ok(code),
        Some(ProcessEnd::Signal(signal)) => Ok(end_by(jit, signal, &error)),
        _ => Err(error.into()),
    }
}

/// The program's own definition of a name, for `dlsym`. It may be linked for that.
pub(super) fn program_symbol(jit: &Jit, name: &str) -> Option<ExecutorSymbolDef> {
    let session = jit.session();
    let exported = [(jit.main_dylib().clone(), Default::default())].into();
    session.lookup_symbol(&exported, &session.intern(name)).ok()
}

/// Ends with an executor that was this command. If that has exited it waits for what is done at the end, such as reports.
fn end_below(jit: &Jit, error: &RemoteError) -> Result<c_int, RunError> {
    match error.process_end() {
        Some(ProcessEnd::Exited(code)) => return Ok(code),
        Some(ProcessEnd::Signal(_)) => report::error(error),
        Some(_) => {}
        None => report::error(error),
    }
    jit.flush_cache();
    // Handlers of the exit do not run, as where a signal ends a process.
    signal_hook::low_level::exit(0)
}

/// Ends by the same signal. A signal that is refused gives an exit code.
fn end_by(jit: &Jit, signal: c_int, error: &RemoteError) -> c_int {
    jit.flush_cache(); // Handlers of the exit do not run.
    if FAULTS.contains(&signal) {
        report::error(error);
    }
    // The program has left its core; this process is of no interest.
    let maximum = getrlimit(Resource::Core).maximum;
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    BY_SIGNAL + signal
}

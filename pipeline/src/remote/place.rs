//! [`RemoteExecutor`]: another process as the place where code runs, as the host has it.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::Serialize;
use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicU32, Ordering};
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags};

use super::address::ExecutorAddress;
use super::connection::{Connection, RetiringCode};
use super::error::RemoteError;
use super::exchange::outlive_keeper;
use super::finds::KnownVariables;
use super::forward::forward_signals;
use super::messages::{
    BIND, CALL, FIND, FOUND, Finding, FunctionCall, LOAD, LOADED, ModuleImage, PUBLISH, ProgramRun,
    Publication, PublishedSegment, REFER, REFERRED, RETURNED, RUN, SIGNAL, START, StartLists,
};
use super::program_names::{BoundSymbol, FindsNames, ReferredNames};
use super::reach::{ReachedExecutor, reach};
use super::settings::RemoteProgram;
use super::values::{CallArguments, CallRegisters, CallResult};
use super::variables::RemoteVariables;
use crate::arch::Architecture;
use crate::debug::{NamedCode, SymbolAt};
use crate::executor::{
    Actions, CodeNumber, Executor, Home, NotStatic, PublishError, Published, RuntimeEntries, Startup,
    StubsThere, TlsError, TlsPlacement, TlsReservation, TlsShape,
};
use crate::memory::{InFlightAlloc, MemoryManager};
use crate::peer::PeerFrame;
use crate::runtime::image::ProgramImage;
use crate::runtime::process::LibraryReferences;

/// A process that was started to run linked code, or that listens for hosts that have some. Dropping the last handle, and the last code there, ends it.
///
/// # Concurrency
/// As for every [`Executor`]. Code runs on the executor's first thread, one request after another. It may be published meanwhile.
///
/// # Cost
/// A message without an answer for each object, with its contents where no memory is shared, and one with an answer for names of libraries that were not looked up before.
///
/// ORC: `SimpleRemoteEPC`.
#[doc(alias = "SimpleRemoteEPC")]
#[derive(Clone)]
pub struct RemoteExecutor {
    shared: Arc<RemoteState>,
}

struct RemoteState {
    pid: u32,
    architecture: Architecture,
    program: RemoteProgram,
    memory: Arc<dyn MemoryManager>,
    entries: RuntimeEntries,
    variables: RemoteVariables,
    known: KnownVariables,
    last_code: AtomicU32,
    connection: Arc<Connection>,
}

impl RemoteExecutor {
    /// Starts `program`, with the stdin, stdout and stderr of this process, or connects to it, and waits until it is ready.
    ///
    /// # Errors
    /// [`RemoteError::Start`] if it cannot be started, or is no executor of this version; [`RemoteError::Gone`] if it ends meanwhile;
    /// [`RemoteError::Connect`] where there was to be one that listens.
    pub fn reach(program: &RemoteProgram) -> Result<Self, RemoteError> {
        let ReachedExecutor { process, channel, ended, pid, architecture, memory, entries, reserve } =
            reach(program)?;
        let connection = Connection::new(process, channel, ended, program.request_limit);
        let connection = connection.map_err(|error| RemoteError::NoThread { source: Arc::new(error) })?;
        let shared = RemoteState {
            pid,
            architecture,
            program: program.clone(),
            memory,
            entries,
            variables: RemoteVariables::new(reserve),
            known: KnownVariables::default(),
            last_code: AtomicU32::new(0),
            connection,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Connects to the executor that listens at `address`, with the limits of [`RemoteProgram::listening_at`].
    ///
    /// # Errors
    /// [`RemoteError::Connect`].
    pub fn connect(address: ExecutorAddress) -> Result<Self, RemoteError> {
        Self::reach(&RemoteProgram::listening_at(address))
    }

    /// Whether it was the command itself: this process [goes on as its host](super::become_executor), and ends when it does.
    pub fn is_above(&self) -> bool {
        self.shared.program.above().is_some()
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.shared.pid
    }

    /// The memory that code lies in.
    pub fn code_memory(&self) -> Arc<dyn MemoryManager> {
        self.shared.memory.clone()
    }

    /// The symbols of the executor's libraries.
    ///
    /// # Errors
    /// [`RemoteError::Gone`].
    pub fn find(&self, names: &[&str]) -> Result<Vec<Option<ExecutorSymbolDef>>, RemoteError> {
        self.find_near(&names.iter().map(|name| (*name, false)).collect::<Vec<_>>())
    }

    /// The same, with whether linked code reads a symbol directly. A variable of a library then moves near to the code, the first time it is found.
    ///
    /// # Errors
    /// As there.
    pub(super) fn find_near(
        &self,
        names: &[(&str, bool)],
    ) -> Result<Vec<Option<ExecutorSymbolDef>>, RemoteError> {
        let found: Vec<Option<Finding>> = self.ask((FIND, FOUND), &names)?;
        if found.len() != names.len() {
            return Err(self.lied(format!("{} symbols for {} names", found.len(), names.len())));
        }
        found.iter().flatten().for_each(|found| self.shared.known.note(found));
        let definition = |found: Finding| {
            let flags = SymbolFlags::from_bits_truncate(found.flags);
            ExecutorSymbolDef::new(ExecutorAddr::new(found.address), flags)
        };
        Ok(found.into_iter().map(|found| found.map(definition)).collect())
    }

    /// Loads a shared library there. It is searched from now on.
    ///
    /// # Errors
    /// [`RemoteError::LoadLibrary`] if it cannot be loaded; [`RemoteError::Gone`].
    pub fn load_library(&self, path: &Path) -> Result<(), RemoteError> {
        let refused: Option<String> = self.ask((LOAD, LOADED), &path.as_os_str().as_bytes())?;
        match refused {
            Some(message) => Err(RemoteError::LoadLibrary { path: path.into(), message }),
            None => Ok(()),
        }
    }

    /// The names by which libraries that were loaded there refer to the program, if the process is [a program's](RemoteProgram::for_program).
    ///
    /// # Errors
    /// [`RemoteError::Gone`].
    pub fn references_to_program(&self) -> Result<LibraryReferences, RemoteError> {
        let ReferredNames { required, optional } = self.ask((REFER, REFERRED), &())?;
        let names = |names: Vec<String>| names.into_iter().map(Box::from).collect();
        Ok(LibraryReferences { required: names(required), optional: names(optional) })
    }

    /// Binds what loaded libraries there refer to, where `found` has a definition of the program.
    ///
    /// # Errors
    /// [`RemoteError::Gone`].
    pub fn bind_to_program(&self, found: &HashMap<Box<str>, ExecutorSymbolDef>) -> Result<(), RemoteError> {
        let found: Vec<_> = found.iter().map(|(name, found)| (name, BoundSymbol::from(*found))).collect();
        self.shared.connection.send(BIND, 0, &found, &[])
    }

    /// Runs functions that come before others, and notes those that come at the end of their code, or of the process.
    ///
    /// Functions that are none have the executor crash.
    ///
    /// # Errors
    /// [`RemoteError::Gone`].
    pub fn start(&self, startup: &Startup) -> Result<(), RemoteError> {
        let limit = self.shared.program.call_limit;
        self.shared.connection.ask((START, RETURNED), &StartLists::from(startup), limit).map(drop)
    }

    /// Calls a function there. One with fewer parameters does not look at the rest. If its result is of another type than `R`, the number is
    /// meaningless.
    ///
    /// # Errors
    /// [`RemoteError::Gone`] if the executor ended before the function returned: it crashed, or took too long.
    pub fn call<R: CallResult>(
        &self,
        function: ExecutorAddr,
        arguments: impl CallArguments,
    ) -> Result<R, RemoteError> {
        let CallRegisters { integers, floats } = arguments.registers();
        let call = FunctionCall { function: function.value(), integers, floats };
        let limit = self.shared.program.call_limit;
        let answer = self.shared.connection.ask((CALL, RETURNED), &call, limit)?;
        let mut registers = CallRegisters::default();
        (registers.integers[0], registers.floats[0]) = self.body(&answer)?;
        Ok(R::of_registers(registers))
    }

    /// Has signals that come to this process from now on go on to the program, unless they are ignored. For a process that only waits for its end.
    ///
    /// # Errors
    /// The system's, if it refuses a pipe or a thread.
    pub fn forward_signals(&self) -> io::Result<()> {
        let connection = self.shared.connection.clone();
        // One that is gone has its end told.
        forward_signals(move |signal| _ = connection.send(SIGNAL, 0, &&signal[..], &[]))
    }

    /// Has the process become the program: it starts, calls `main` with these arguments and exits with its result. Waits for that. Code there is told
    /// of the program's `image`. It finds by `dlsym` what `names` finds, which may link for it, on any thread.
    ///
    /// Gives the end of the process as the error that all requests have from now on: [`RemoteError::process_end`] has its code or its signal.
    pub fn run_program(
        &self,
        startup: &Startup,
        main: ExecutorAddr,
        arguments: &[CString],
        image: Option<&ProgramImage>,
        names: FindsNames,
    ) -> RemoteError {
        self.shared.connection.serve_names(names);
        let arguments = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        let header = image.map(|image| image.header().value());
        let run = ProgramRun { lists: startup.into(), entry: main.value(), header, arguments };
        if self.is_above() {
            outlive_keeper();
        }
        self.shared.connection.run(RUN, &run)
    }

    /// The symbol of linked code at an address there.
    ///
    /// # Cost
    /// As of [`symbol_at`](crate::debug::symbol_at).
    pub fn symbol_at(&self, address: ExecutorAddr) -> Option<SymbolAt> {
        self.shared.connection.symbol_at(address)
    }

    fn ask<A: serde::de::DeserializeOwned>(
        &self,
        kinds: (u16, u16),
        body: &impl Serialize,
    ) -> Result<A, RemoteError> {
        let limit = Some(self.shared.program.request_limit);
        let answer = self.shared.connection.ask(kinds, body, limit)?;
        self.body(&answer)
    }

    fn body<A: serde::de::DeserializeOwned>(&self, answer: &PeerFrame) -> Result<A, RemoteError> {
        postcard::from_bytes(answer.body()).map_err(|error| self.lied(format!("half an answer: {error}")))
    }

    fn lied(&self, why: String) -> RemoteError {
        self.shared.connection.lied(why)
    }
}

impl Executor for RemoteExecutor {
    fn architecture(&self) -> Architecture {
        self.shared.architecture
    }

    fn memory(&self) -> &dyn MemoryManager {
        &*self.shared.memory
    }

    fn entries(&self) -> RuntimeEntries {
        self.shared.entries
    }

    fn place_tls(&self, shape: TlsShape) -> Result<TlsReservation, TlsError> {
        self.shared.variables.place(shape)
    }

    fn tls_placement(&self, descriptor: ExecutorAddr) -> Option<TlsPlacement> {
        self.shared.known.placement(descriptor)
    }

    fn tls_distance(&self, variable: TlsPlacement) -> Result<i64, NotStatic> {
        self.shared.variables.distance(variable).unwrap_or_else(|| self.shared.known.distance(variable))
    }

    fn is_variable(&self, _: ExecutorAddr) -> bool {
        false // Asked for entries of functions below 2 GiB alone, of which there are none.
    }

    fn low_variable(&self, _: ExecutorAddr, _: bool) -> Option<ExecutorAddr> {
        None
    }

    fn stubs_there(&self) -> Option<Arc<dyn StubsThere>> {
        Some(self.shared.connection.clone())
    }

    fn publish(
        &self,
        memory: InFlightAlloc,
        tls: Option<TlsReservation>,
        actions: Actions,
    ) -> Result<Box<dyn Published>, PublishError> {
        let mut memory = memory.finalize()?;
        let written = memory.take_segments_there();
        let Actions { tls: image, unwind, is_stubs, names, end, .. } = actions;
        let pair = |range: &Range<u64>| (range.start, range.end);
        let publication = Publication {
            segments: written.segments.iter().map(PublishedSegment::from).collect(),
            unwind: unwind.map(|table| (table.code.start, table.code.end, table.eh_frame_hdr)),
            tls: tls.as_ref().zip(image).map(|(tls, image)| ModuleImage::new(tls.placement(), image)),
            is_stubs,
            names: names.as_ref().and_then(|names| self.shared.program.told(names)),
            end: end.as_ref().map(|end| (end.home.id(), end.ranges.iter().map(pair).collect())),
        };
        // Relaxed: a number of its own is all that is wanted.
        let number = self.shared.last_code.fetch_add(1, Ordering::Relaxed);
        let names = names.map(Arc::new);
        let connection = &self.shared.connection;
        // It has to be there before code is called: with the next message.
        let sent = if written.contents.is_empty() {
            connection.send_soon(PUBLISH, number, &publication)
        } else {
            connection.send(PUBLISH, number, &publication, &written.contents)
        };
        sent.map_err(|error| PublishError::Action(error.into()))?;
        if let Some(names) = &names {
            connection.add_names(names);
        }
        let code = Some(RetiringCode { _tls: tls, memory });
        Ok(Box::new(RemoteCode {
            number,
            names,
            code,
            _home: end.map(|end| end.home),
            place: self.shared.clone(),
        }))
    }
}

/// Code there.
struct RemoteCode {
    number: u32,
    names: Option<Arc<NamedCode>>,
    /// There until the drop.
    code: Option<RetiringCode>,
    /// Has the dylib's number stay its own.
    _home: Option<Home>,
    place: Arc<RemoteState>,
}

impl Published for RemoteCode {
    /// Its end is the executor's affair.
    fn number(&self) -> Option<CodeNumber> {
        None
    }

    fn address(&self, segment: usize) -> ExecutorAddr {
        self.code.as_ref().map_or(ExecutorAddr::NULL, |code| code.memory.address(segment))
    }
}

impl Drop for RemoteCode {
    fn drop(&mut self) {
        if let Some(names) = &self.names {
            self.place.connection.remove_names(names);
        }
        if let Some(code) = self.code.take() {
            self.place.connection.retire(self.number, code);
        }
    }
}

impl Drop for RemoteState {
    fn drop(&mut self) {
        self.connection.close();
    }
}

impl fmt::Debug for RemoteExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteExecutor").field("pid", &self.shared.pid).finish_non_exhaustive()
    }
}

//! [`serve_executor`]: a process that runs the code of another one.
//!
//! ```text
//!   "uruk link": takes messages in their order         the first thread
//!      Publish, Retire, Find, Load, Lead: done at once
//!      FirstCalled ──▶ AnswerTable: the thread that waits for it goes on
//!      Start, Call, Run, End ──▶ JobQueue ──────────▶   runs code, and answers
//! ```
//!
//! Holds: code is published before a request that comes after it runs. Signals come to the threads of the program: the thread that takes messages
//! has them blocked.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::setsid;
use serde::de::DeserializeOwned;
use uruk_core::sync::Arc;
use uruk_core::{ExecutorSymbolDef, SymbolFlags};

use super::answers::AnswerTable;
use super::asking::{HostNames, HostStubs};
use super::below::{end_with_host, program_begins};
use super::copies::CopyRoom;
use super::exchange::close_stdin;
use super::faults::tell_host;
use super::forward::raise_here;
use super::jobs::JobQueue;
use super::messages::{
    BIND, CALL, END, FIND, FIRST_CALLED, FOUND, Finding, FirstCalled, FunctionCall, GREETING_BYTES_MAX,
    GreetedHost, GreetedMemory, GreetedWatchers, HELLO, HostGreeting, LEAD, LOAD, LOADED, LedStub, NAMED,
    PROTOCOL, PUBLISH, ProgramRun, READY, REFER, REFERRED, RETIRE, RETIRED, RETURNED, RUN, ReadyPlace,
    SIGNAL, START, StartLists,
};
use super::program_names::{BoundSymbol, ReferredNames};
use super::published::PublishedTable;
use super::replies::Replies;
use super::running::{self, ProgramGround};
use crate::arch::Architecture;
use crate::debug;
use crate::executor::{RuntimeEntries, StubLead};
use crate::memory::{MemoryHere, SentRange, SharedRange};
use crate::peer::{
    Channel, ChannelError, Deadline, FrameLimits, PeerFrame, end_with_parent, keep_descriptors,
    receive_descriptors, set_aside,
};
use crate::runtime::call_through::{FoundElsewhere, ask_elsewhere, lead_stubs};
use crate::runtime::in_process::entries_here;
use crate::runtime::process::{ProcessSymbols, jit_overrides};
use crate::runtime::tls::{self, SignalsBlocked};

/// How long a host may take to greet.
const GREETING_LIMIT: Duration = Duration::from_secs(30);

/// The most address space that a host is given.
const RANGE_BYTES_MAX: u64 = 4 << 30;

/// Runs code for the process that has a channel to this one's stdin, until that ends or needs it no more. To be called on the first
/// thread, before others are started. The program's end is the process's end.
///
/// # Errors
/// Stdin is no channel of a [`RemoteExecutor`](super::RemoteExecutor), the host is of another version, or the system refuses memory.
///
/// # Examples
/// ```no_run
/// // A host that is its own executor.
/// if std::env::args().nth(1).as_deref() == Some("executor") {
///     return uruk_pipeline::remote::serve_executor();
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn serve_executor() -> io::Result<()> {
    serve_executor_watched(|_| {})
}

/// The same, calling `watch` with the kind of each message before it is taken, and before it is sent: for tests, which end the process there.
///
/// # Errors
/// As there.
#[doc(hidden)]
pub fn serve_executor_watched(watch: impl Fn(u16) + Send + Sync + 'static) -> io::Result<()> {
    let stdin = set_aside(io::stdin().as_fd().try_clone_to_owned()?);
    let mut receiving = Channel::new(stdin);
    let by_hand =
        |_| invalid("this is started by a host, not by hand: its stdin is no channel of an executor");
    let deadline = Deadline::after(GREETING_LIMIT);
    deadline.wait_for(receiving.stream(), PollFlags::IN).map_err(io::Error::other)?;
    let mut descriptors = receive_descriptors(receiving.stream()).map_err(by_hand)?;
    receiving.take_at_most(FrameLimits { body_bytes: GREETING_BYTES_MAX, bulk_bytes: 0 });
    let hello = receiving.receive_while(&mut |stream, until| deadline.wait_for(stream, until));
    let hello = hello.map_err(io::Error::other)?;
    receiving.take_at_most(FrameLimits::default());
    watch(hello.kind);
    let greeting: HostGreeting = match hello.kind {
        HELLO => postcard::from_bytes(hello.body()).map_err(io::Error::other)?,
        _ => return Err(invalid("the host does not begin with a greeting")),
    };
    if greeting.protocol != PROTOCOL {
        return Err(invalid("the host is of another version"));
    }
    match greeting.host {
        GreetedHost::Parent(parent) => end_with_parent(&receiving, Some(parent))?,
        GreetedHost::Below { host, keeper } => end_with_host(&receiving, host, keeper)?,
        GreetedHost::Connected => {
            end_with_parent(&receiving, None)?;
            // The terminal of the host's program is not this process's to be stopped by. Refused, it leads a session already.
            let _ = setsid();
        }
    }
    // The libraries, ahead of the memory that comes to lie near them.
    let symbols = if greeting.is_program { ProcessSymbols::of_program() } else { ProcessSymbols::new() };
    let symbols = Arc::new(symbols);
    let memory = memory_for(greeting.memory, &mut descriptors)?;
    take_stdio(descriptors, &greeting)?;
    watch_code(greeting.watchers)?;
    let sending = set_aside(receiving.stream().try_clone_to_owned()?);
    let sending = Replies::new(Channel::new(sending), watch)?;
    let answers = Arc::new(AnswerTable::new());
    let names = Arc::new(HostNames::new(sending.clone()));
    ask_elsewhere(Box::new(HostStubs {
        replies: sending.clone(),
        answers: answers.clone(),
        owner: std::process::id(),
    }));
    let (addresses, copies) = (memory.addresses(), CopyRoom::of(&*memory));
    let ready = ReadyPlace {
        protocol: PROTOCOL,
        pid: std::process::id(),
        machine: Architecture::HOST.machine().0,
        page_bytes: rustix::param::page_size() as u64,
        base: addresses.start,
        zeros_bytes: memory.zeros_bytes(),
        entries: entries(),
        reserve: tls::reserve_distance(),
    };
    let faults = set_aside(receiving.stream().try_clone_to_owned()?);
    let jobs = Arc::new(JobQueue::new());
    let retired = sending.clone();
    let told_gone = Arc::new(move |number| _ = retired.send(RETIRED, number, &()));
    let table = Arc::new(PublishedTable::new(memory, told_gone));
    let overrides = jit_overrides().into_iter().collect();
    let messages = Messages {
        sending: sending.clone(),
        jobs: jobs.clone(),
        answers,
        names: names.clone(),
        table: table.clone(),
        symbols: symbols.clone(),
        copies,
        overrides,
        keeps_descriptors: greeting.watchers.perf.is_none(),
    };
    sending.send(READY, 0, &ready);
    let blocked = SignalsBlocked::now(); // The new thread has them blocked from its first moment.
    let take = move || messages.take_all(receiving);
    uruk_core::sync::thread::Builder::new().name("uruk link".to_owned()).spawn(take)?;
    drop(blocked);
    tell_host(faults, addresses);
    run_jobs(&jobs, &sending, &ProgramGround { table, symbols, names });
    Ok(())
}

/// The memory that the host places code in.
fn memory_for(greeted: GreetedMemory, descriptors: &mut Vec<OwnedFd>) -> io::Result<Arc<dyn MemoryHere>> {
    match greeted {
        GreetedMemory::Shared => {
            let file = descriptors.pop().ok_or_else(|| invalid("no memory came that is shared"))?;
            Ok(Arc::new(SharedRange::map(&file.into()).map_err(io::Error::other)?))
        }
        GreetedMemory::Sent(bytes) => {
            let bytes = usize::try_from(bytes.min(RANGE_BYTES_MAX)).map_err(io::Error::other)?;
            let range = SentRange::reserve(bytes, rustix::param::page_size() as u64);
            Ok(Arc::new(range.map_err(io::Error::other)?))
        }
    }
}

/// Has the program the host's stdin, or all three of its streams; or none of its own, where stdin is the channel still.
fn take_stdio(descriptors: Vec<OwnedFd>, greeting: &HostGreeting) -> io::Result<()> {
    match &descriptors[..] {
        // Nothing reads from it here.
        [] if matches!(greeting.host, GreetedHost::Below { .. }) && !greeting.has_input => close_stdin(),
        [] => rustix::stdio::dup2_stdin(File::open("/dev/null")?)?,
        [input] => rustix::stdio::dup2_stdin(input)?,
        [input, output, errors] => {
            rustix::stdio::dup2_stdin(input)?;
            rustix::stdio::dup2_stdout(output)?;
            rustix::stdio::dup2_stderr(errors)?;
        }
        _ => return Err(invalid("the host has sent descriptors for nothing")),
    }
    Ok(())
}

/// Has debuggers and profilers of this process know its code, if the host asks for it.
fn watch_code(GreetedWatchers { debugger, perf }: GreetedWatchers) -> io::Result<()> {
    if debugger {
        debug::set_debugger(true);
    }
    match perf {
        Some(format) => debug::set_perf(Some(format.into())),
        None => Ok(()),
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Addresses of functions that linked code calls without naming them.
fn entries() -> [u64; 6] {
    let RuntimeEntries { tls_resolvers, ifunc_thunk, first_call, counted_call } = entries_here();
    let tls::TlsResolvers { fixed, dynamic, absent } = tls_resolvers;
    [fixed, dynamic, absent, ifunc_thunk, first_call, counted_call].map(|address| address.value())
}

/// A request to run code.
enum RemoteJob {
    Start(u32, StartLists),
    Call(u32, FunctionCall),
    Run(ProgramRun),
    End,
}

/// Runs code as it is asked for, until the host needs it no more.
fn run_jobs(jobs: &JobQueue<RemoteJob>, sending: &Arc<Replies>, ground: &ProgramGround) {
    loop {
        let job = jobs.take();
        debug::settle();
        match job {
            RemoteJob::Start(id, lists) => {
                running::start(lists, &ground.table);
                sending.send(RETURNED, id, &(0_u64, 0_u64));
            }
            RemoteJob::Call(id, call) => {
                let result = running::call(call);
                sending.send(RETURNED, id, &result);
            }
            RemoteJob::Run(run) => {
                let begun = program_begins(sending);
                let refused = begun.map_or_else(|refused| refused, |()| running::run(run, ground));
                sending.break_off(&refused.to_string());
            }
            RemoteJob::End => return,
        }
    }
}

/// Takes the host's messages.
struct Messages {
    sending: Arc<Replies>,
    jobs: Arc<JobQueue<RemoteJob>>,
    answers: Arc<AnswerTable<FoundElsewhere>>,
    names: Arc<HostNames>,
    table: Arc<PublishedTable>,
    symbols: Arc<ProcessSymbols>,
    copies: CopyRoom,
    overrides: HashMap<&'static str, ExecutorSymbolDef>,
    /// Whether the thread has its own descriptors when a program runs: nothing that it does writes to a file.
    keeps_descriptors: bool,
}

impl Messages {
    fn take_all(&self, mut receiving: Channel) {
        loop {
            let frame = match receiving.receive() {
                Ok(frame) => frame,
                Err(ChannelError::Closed) => return,
                Err(error) => self.sending.break_off(&error.to_string()),
            };
            self.sending.watch(frame.kind);
            if frame.kind == RUN && self.keeps_descriptors {
                keep_descriptors(&[receiving.stream()]);
            }
            if let Err(why) = self.take(&frame) {
                self.sending.break_off(&why);
            }
        }
    }

    /// # Errors
    /// The defect of the message, after which nothing is as the host thinks.
    fn take(&self, frame: &PeerFrame) -> Result<(), String> {
        let id = frame.id;
        match frame.kind {
            PUBLISH => self.table.publish(id, body(frame)?, frame.bulk())?,
            RETIRE => self.table.retire(id)?,
            FIND => {
                let names: Vec<(String, bool)> = body(frame)?;
                let found: Vec<_> = names.iter().map(|(name, is_close)| self.find(name, *is_close)).collect();
                self.sending.send(FOUND, id, &found);
            }
            LOAD => {
                let path: Vec<u8> = body(frame)?;
                let loaded = self.symbols.load_library(Path::new(OsStr::from_bytes(&path)));
                self.sending.send(LOADED, id, &loaded.err().map(|error| error.to_string()));
            }
            LEAD => {
                let leads: Vec<LedStub> = body(frame)?;
                let leads: Vec<_> = leads.into_iter().map(StubLead::from).collect();
                lead_stubs(&leads).map_err(|address| format!("there is no stub at {address}"))?;
            }
            FIRST_CALLED => {
                let answer: FirstCalled = body(frame)?;
                if !self.answers.answer(id, answer.into()) {
                    return Err(format!("no call waits for answer {id}"));
                }
            }
            REFER => {
                let references = self.symbols.references_to_program();
                let names = |names: HashSet<Box<str>>| names.into_iter().map(String::from).collect();
                let (required, optional) = (names(references.required), names(references.optional));
                self.sending.send(REFERRED, id, &ReferredNames { required, optional });
            }
            BIND => {
                let found: Vec<(String, BoundSymbol)> = body(frame)?;
                let found = found.into_iter().map(|(name, bound)| (name.into(), bound.into()));
                self.symbols.bind_to_program(&found.collect());
            }
            NAMED => {
                if !self.names.answer(id, body(frame)?) {
                    return Err(format!("nobody asked for name {id}"));
                }
            }
            SIGNAL => {
                let signal: Vec<u8> = body(frame)?;
                raise_here(&signal.try_into().map_err(|_| "half a signal")?);
            }
            START => self.jobs.add(RemoteJob::Start(id, body(frame)?)),
            CALL => self.jobs.add(RemoteJob::Call(id, body(frame)?)),
            RUN => self.jobs.add(RemoteJob::Run(body(frame)?)),
            END => self.jobs.add(RemoteJob::End),
            kind => return Err(format!("the host sent a message of kind {kind}")),
        }
        Ok(())
    }

    /// Finds a symbol of a library, which moves near to the code if that reads it directly.
    fn find(&self, name: &str, is_close: bool) -> Option<Finding> {
        let unversioned = name.split_once('@').map_or(name, |(unversioned, _)| unversioned);
        let overridden = self.overrides.get(unversioned).copied();
        let found = overridden.or_else(|| self.symbols.lookup(name))?;
        let is_local = found.flags.contains(SymbolFlags::THREAD_LOCAL);
        let variable = if is_local { tls::variable_of_descriptor(found.address) } else { None };
        let tls = variable.map(|variable| {
            let distance = tls::distance_from_thread_pointer(variable);
            (variable.module, variable.offset, distance.ok())
        });
        let may_move = is_close && overridden.is_none() && !is_local;
        let address = may_move.then(|| self.copies.near(found.address)).flatten().unwrap_or(found.address);
        Some(Finding { address: address.value(), flags: found.flags.bits(), tls })
    }
}

fn body<T: DeserializeOwned>(frame: &PeerFrame) -> Result<T, String> {
    postcard::from_bytes(frame.body())
        .map_err(|error| format!("a message of kind {} with another body: {error}", frame.kind))
}

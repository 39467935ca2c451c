//! How a host gets an executor: it starts one, or connects to one that listens, and both greet each other.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

use super::address::ExecutorAddress;
use super::dial::connect;
use super::error::RemoteError;
use super::exchange::{ExecutorAbove, end_with_keeper};
use super::messages::{
    BROKEN, ENDED, GREETING_BYTES_MAX, GreetedHost, GreetedMemory, HELLO, HostGreeting, PROTOCOL,
    ProcessEndThere, READY, ReadyPlace,
};
use super::settings::{RemotePlace, RemoteProgram};
use super::supervised::ExecutorPeer;
use crate::arch::Architecture;
use crate::executor::{RuntimeEntries, TlsResolvers};
use crate::memory::{MemoryManager, SentMemory, SharedFile};
use crate::peer::{
    Channel, ChannelError, ConnectedPeer, Deadline, FrameLimits, PeerFrame, PeerProcess, PeerProgram,
    ProcessEnd, send_descriptors,
};

/// An executor that is ready.
pub(super) struct ReachedExecutor {
    pub(super) process: ExecutorPeer,
    pub(super) channel: Channel,
    /// Can be read from when the process has ended, if there is such a thing.
    pub(super) ended: Option<OwnedFd>,
    pub(super) pid: u32,
    pub(super) architecture: Architecture,
    pub(super) memory: Arc<dyn MemoryManager>,
    pub(super) entries: RuntimeEntries,
    /// How far from the thread pointer there is room for variables there.
    pub(super) reserve: Option<i64>,
}

/// Memory for code, before the executor has said where it lies.
enum OfferedMemory {
    Shared(SharedFile),
    Sent,
}

impl OfferedMemory {
    fn new(is_sent: bool) -> io::Result<Self> {
        Ok(if is_sent { Self::Sent } else { Self::Shared(SharedFile::new()?) })
    }

    fn greeted(&self) -> GreetedMemory {
        match self {
            Self::Shared(_) => GreetedMemory::Shared,
            Self::Sent => GreetedMemory::Sent(SentMemory::RANGE_BYTES),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Shared(file) => Some(file.file().as_fd()),
            Self::Sent => None,
        }
    }

    /// # Errors
    /// The place is none that memory can have.
    fn placed(self, ready: &ReadyPlace) -> Result<Arc<dyn MemoryManager>, String> {
        let refused = |base| format!("no memory begins at {base:#x} in pages of {} bytes", ready.page_bytes);
        Ok(match self {
            Self::Shared(file) => Arc::new(file.mapped_at(ready.base, ready.zeros_bytes).map_err(refused)?),
            Self::Sent => {
                Arc::new(SentMemory::at(ready.base, ready.page_bytes, ready.zeros_bytes).map_err(refused)?)
            }
        })
    }
}

/// Starts or connects.
///
/// # Errors
/// [`RemoteError`].
pub(super) fn reach(program: &RemoteProgram) -> Result<ReachedExecutor, RemoteError> {
    let is_sent = program.is_sent() || !program.place.is_local();
    let reached = reach_once(program, is_sent)?;
    if is_sent || reached.architecture == Architecture::HOST {
        return Ok(reached);
    }
    // An emulator goes on with old instructions of a page that is written through another view.
    drop(reached);
    reach_once(program, true)
}

fn reach_once(program: &RemoteProgram, is_sent: bool) -> Result<ReachedExecutor, RemoteError> {
    match &program.place {
        RemotePlace::Started(started) => start(started, program, is_sent),
        RemotePlace::Above(above) => greet_above(above, program, is_sent),
        RemotePlace::Listening(address) => join(address, program, is_sent)
            .map_err(|error| RemoteError::Connect { address: address.clone(), source: Arc::new(error) }),
    }
}

fn start(
    started: &PeerProgram,
    program: &RemoteProgram,
    is_sent: bool,
) -> Result<ReachedExecutor, RemoteError> {
    let start_error =
        |source: io::Error| RemoteError::Start { program: started.path.clone(), source: Arc::new(source) };
    let gone = |end| RemoteError::Gone { end, at: None };
    let memory = OfferedMemory::new(is_sent).map_err(start_error)?;
    let mut process = PeerProcess::start_beside(started).map_err(start_error)?;
    let mut channel = process.second_channel().map_err(start_error)?;
    let deadline = Deadline::after(program.start_limit);
    let greeting = HostGreeting {
        protocol: PROTOCOL,
        host: GreetedHost::Parent(std::process::id()),
        has_input: true,
        memory: memory.greeted(),
        is_program: program.is_program,
        watchers: program.watchers,
    };
    let stdin = io::stdin();
    let descriptors: Vec<_> = [stdin.as_fd()].into_iter().chain(memory.descriptor()).collect();
    let ready = greet(&mut channel, &descriptors, &greeting, deadline);
    let ready = ready.map_err(|(error, is_received)| gone(process.end(error, deadline, is_received)))?;
    let (ready, architecture, entries) = read_ready(&ready).map_err(|why| gone(process.lied(why)))?;
    let memory = memory.placed(&ready).map_err(|why| gone(process.lied(why)))?;
    let (ended, pid, reserve) = (process.end_descriptor(), process.pid(), ready.reserve);
    Ok(ReachedExecutor {
        process: ExecutorPeer::Child(Box::new(process)),
        channel,
        ended,
        pid,
        architecture,
        memory,
        entries,
        reserve,
    })
}

/// Greets the executor that was this command.
fn greet_above(
    above: &ExecutorAbove,
    program: &RemoteProgram,
    is_sent: bool,
) -> Result<ReachedExecutor, RemoteError> {
    let path = &above.program.path;
    let start_error =
        |source: io::Error| RemoteError::Start { program: path.clone(), source: Arc::new(source) };
    let gone = |end| RemoteError::Gone { end, at: None };
    let memory = OfferedMemory::new(is_sent).map_err(start_error)?;
    let mut channel = Channel::new(above.channel.try_clone().map_err(start_error)?);
    let mut process = ConnectedPeer::new(above.pid, above.channel.try_clone().map_err(start_error)?);
    let greeting = HostGreeting {
        protocol: PROTOCOL,
        host: GreetedHost::Below { host: std::process::id(), keeper: above.keeper },
        has_input: above.has_input,
        memory: memory.greeted(),
        is_program: program.is_program,
        watchers: program.watchers,
    };
    let stdin = io::stdin();
    let input = above.has_input.then(|| stdin.as_fd());
    let descriptors: Vec<_> = input.into_iter().chain(memory.descriptor()).collect();
    let deadline = Deadline::after(program.start_limit);
    let ready = greet(&mut channel, &descriptors, &greeting, deadline);
    let ready = ready.map_err(|(error, is_received)| gone(process.end(error, deadline, is_received)))?;
    if ready.kind == BROKEN {
        let why = postcard::from_bytes::<String>(ready.body()).map_err(io::Error::other);
        return Err(start_error(why.map_or_else(|error| error, io::Error::other)));
    }
    let (ready, architecture, entries) = read_ready(&ready).map_err(|why| gone(process.lied(why)))?;
    let memory = memory.placed(&ready).map_err(|why| gone(process.lied(why)))?;
    end_with_keeper(above.keeper);
    let ended = i32::try_from(above.pid).ok().and_then(Pid::from_raw);
    let ended = ended.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let (process, pid, reserve) = (ExecutorPeer::Above(process), above.pid, ready.reserve);
    Ok(ReachedExecutor { process, channel, ended, pid, architecture, memory, entries, reserve })
}

fn join(address: &ExecutorAddress, program: &RemoteProgram, is_sent: bool) -> io::Result<ReachedExecutor> {
    let (memory, is_local) = (OfferedMemory::new(is_sent)?, program.place.is_local());
    let mut channel = Channel::new(connect(address, program.start_limit)?);
    let socket = channel.stream().try_clone_to_owned()?;
    let deadline = Deadline::after(program.start_limit);
    let greeting = HostGreeting {
        protocol: PROTOCOL,
        host: GreetedHost::Connected,
        has_input: is_local,
        memory: memory.greeted(),
        is_program: program.is_program,
        watchers: program.watchers,
    };
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let streams = if is_local { &streams[..] } else { &[] };
    let descriptors: Vec<_> = streams.iter().copied().chain(memory.descriptor()).collect();
    let ready = greet(&mut channel, &descriptors, &greeting, deadline);
    let ready = ready.map_err(|(error, _)| io::Error::other(error))?;
    if ready.kind == ENDED {
        let end = postcard::from_bytes::<ProcessEndThere>(ready.body()).map_err(io::Error::other)?;
        return Err(io::Error::other(format!("its process {} before it was ready", ProcessEnd::from(end))));
    }
    if ready.kind == BROKEN {
        return Err(io::Error::other(
            postcard::from_bytes::<String>(ready.body()).map_err(io::Error::other)?,
        ));
    }
    let (ready, architecture, entries) = read_ready(&ready).map_err(io::Error::other)?;
    let memory = memory.placed(&ready).map_err(io::Error::other)?;
    let process = ExecutorPeer::Connected(ConnectedPeer::new(ready.pid, socket));
    let ReadyPlace { pid, reserve, .. } = ready;
    Ok(ReachedExecutor { process, channel, ended: None, pid, architecture, memory, entries, reserve })
}

/// Hands the process its descriptors and its greeting. Its answer; an error says whether that was received.
fn greet(
    channel: &mut Channel,
    descriptors: &[BorrowedFd<'_>],
    greeting: &HostGreeting,
    deadline: Deadline,
) -> Result<PeerFrame, (ChannelError, bool)> {
    channel.take_at_most(FrameLimits { body_bytes: GREETING_BYTES_MAX, bulk_bytes: 0 });
    let greeting = postcard::to_stdvec(greeting).expect("a vector takes everything");
    let mut wait = |stream: BorrowedFd<'_>, until| deadline.wait_for(stream, until);
    let sent = send_descriptors(channel.stream(), descriptors);
    match sent.and_then(|()| channel.send_while(HELLO, 0, &greeting, &[], &mut wait)) {
        // One that has closed its side may have said why before.
        Ok(()) | Err(ChannelError::Closed) => {}
        Err(error) => return Err((error, false)),
    }
    channel.receive_while(&mut wait).map_err(|error| (error, true))
}

/// # Errors
/// The defect of the answer.
fn read_ready(answer: &PeerFrame) -> Result<(ReadyPlace, Architecture, RuntimeEntries), String> {
    let ready = match postcard::from_bytes::<ReadyPlace>(answer.body()) {
        Ok(ready) if answer.kind == READY && ready.protocol == PROTOCOL => ready,
        _ => return Err("it is no executor of this version".into()),
    };
    let Some(architecture) = Architecture::of_machine(ready.machine) else {
        return Err(format!("it runs code of machine {}, which is not linked here", ready.machine));
    };
    let [fixed, dynamic, absent, ifunc_thunk, first_call, counted_call] =
        ready.entries.map(ExecutorAddr::new);
    let tls_resolvers = TlsResolvers { fixed, dynamic, absent };
    Ok((ready, architecture, RuntimeEntries { tls_resolvers, ifunc_thunk, first_call, counted_call }))
}

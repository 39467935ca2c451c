//! [`Connection`]: the host's side of the channel, and the end of the executor.
//!
//! ```text
//!   any thread ── ask ──▶ sending ──▶ channel ──▶ executor
//!        ▲                                           │
//!        └── answered ◀── reader: one thread ◀───────┘
//! ```
//!
//! A thread that asks waits for the frame that has its id. The reader is the only thread that receives, and the one that finds the end.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use serde::Serialize;
use uruk_core::ExecutorAddr;
use uruk_core::sync::{Arc, Condvar, Mutex};

use super::calls::CallQueue;
use super::error::RemoteError;
use super::first_calls::CallThere;
use super::messages::{
    BROKEN, COUNTED, END, ENDED, FAULT, FIRST_CALL, FOUND, LOADED, NAME, REFERRED, RETIRE, RETIRED, RETURNED,
    RemoteFault, StubCall,
};
use super::program_names::{FindsNames, named_in};
use super::supervised::{ExecutorPeer, wait_for_either, wait_for_process};
use crate::code_ranges::CodeRanges;
use crate::debug::{NamedCode, SymbolAt, symbol_in};
use crate::executor::TlsReservation;
use crate::memory::FinalizedAlloc;
use crate::peer::{Channel, ChannelError, Deadline, FrameLimits, PeerError, PeerFrame, Wait};
use crate::runtime::tls::SignalsBlocked;

/// The largest answer: one that finds many symbols.
const ANSWER_BYTES_MAX: u32 = 16 << 20;

/// So many bytes of messages wait at most for one that is awaited.
const DEFERRED_BYTES_MAX: usize = 8 << 10;

/// How long the host waits for code that goes when it ends the executor, and how long for the end itself to be found.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Connection {
    process: Mutex<ExecutorPeer>,
    sending: Mutex<Channel>,
    requests: Mutex<OpenRequests>,
    answered: Condvar,
    /// The names of the code there, for reports of its end.
    names: Mutex<CodeRanges<Arc<NamedCode>>>,
    /// First calls there, and counts that have run out.
    pub(super) calls: CallQueue<CallThere>,
    pub(super) names_of_program: OnceLock<FindsNames>,
    limit: Duration,
    owner: u32,
}

/// Requests without an answer, and the end.
#[derive(Default)]
struct OpenRequests {
    last: u32,
    open: HashMap<u32, OpenRequest>,
    /// Code that the executor is about to forget, by its number.
    retiring: HashMap<u32, RetiringCode>,
    /// The executor has become a program, or is about to.
    runs_program: bool,
    /// The program has closed the channel, and ends when it does.
    is_let_go: bool,
    fault: Option<RemoteFault>,
    end: Option<RemoteError>,
}

/// A request, by the kind of its answer.
enum OpenRequest {
    Awaited(u16),
    Answered(PeerFrame),
}

/// Memory and thread-local module of code, until the executor says that the code has gone. They go in the opposite order.
pub(super) struct RetiringCode {
    pub(super) _tls: Option<TlsReservation>,
    pub(super) memory: FinalizedAlloc,
}

impl Connection {
    /// A connection by `receiving` to a `process` that has said that it is ready. Its messages are read by a thread that lives as long as the process,
    /// whose end `ended` may show too.
    pub(super) fn new(
        process: ExecutorPeer,
        mut receiving: Channel,
        ended: Option<OwnedFd>,
        limit: Duration,
    ) -> std::io::Result<Arc<Self>> {
        let sending = receiving.second()?;
        receiving.take_at_most(FrameLimits { body_bytes: ANSWER_BYTES_MAX, bulk_bytes: 0 });
        let connection = Arc::new(Self {
            process: Mutex::new(process),
            sending: Mutex::new(sending),
            requests: Mutex::default(),
            answered: Condvar::new(),
            names: Mutex::new(CodeRanges::new()),
            calls: CallQueue::new(),
            names_of_program: OnceLock::new(),
            limit,
            owner: std::process::id(),
        });
        let reader = connection.clone();
        let read = move || {
            let _signals = SignalsBlocked::now();
            reader.read(receiving, ended.as_ref());
        };
        uruk_core::sync::thread::Builder::new().name("uruk executor".to_owned()).spawn(read)?;
        Ok(connection)
    }

    /// Sends a request, and waits for its answer of that kind: as long as `limit` says, or as it takes.
    ///
    /// # Errors
    /// [`RemoteError`]: the executor is gone.
    pub(super) fn ask(
        &self,
        (kind, answer): (u16, u16),
        body: &impl Serialize,
        limit: Option<Duration>,
    ) -> Result<PeerFrame, RemoteError> {
        // A child of a fork may have got a locked lock.
        if std::process::id() != self.owner {
            return Err(RemoteError::Forked);
        }
        let id = {
            let mut requests = self.requests.lock();
            if let Some(end) = &requests.end {
                return Err(end.clone());
            }
            requests.last = requests.last.wrapping_add(1);
            let id = requests.last;
            requests.open.insert(id, OpenRequest::Awaited(answer));
            id
        };
        self.send(kind, id, body, &[])?;
        self.wait_for(id, limit)
    }

    /// Sends a message, with `bulk` behind its body.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(super) fn send(
        &self,
        kind: u16,
        id: u32,
        body: &impl Serialize,
        bulk: &[u8],
    ) -> Result<(), RemoteError> {
        if std::process::id() != self.owner {
            return Err(RemoteError::Forked);
        }
        let body = postcard::to_stdvec(body).expect("a vector takes everything");
        self.send_by(|channel, wait| channel.send_while(kind, id, &body, bulk, wait))
    }

    fn send_by(
        &self,
        send: impl FnOnce(&mut Channel, Wait<'_>) -> Result<(), ChannelError>,
    ) -> Result<(), RemoteError> {
        let deadline = Deadline::after(self.limit);
        let mut wait = |stream: BorrowedFd<'_>, until| deadline.wait_for(stream, until);
        let sent = send(&mut self.sending.lock(), &mut wait);
        match sent {
            Ok(()) => Ok(()),
            Err(ChannelError::Closed) if self.let_go() => Err(RemoteError::LetGo),
            Err(ChannelError::Closed) => {
                // Only the reader knows what it said last. An executor that has closed one direction alone does not end by itself.
                self.process.lock().reap();
                Err(self.wait_for_end())
            }
            Err(error) => Err(self.end(|process| process.end(error, deadline, false))),
        }
    }

    /// Sends a message with the next one, unless many wait for that already: it is there before that one is.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(super) fn send_soon(&self, kind: u16, id: u32, body: &impl Serialize) -> Result<(), RemoteError> {
        if std::process::id() != self.owner {
            return Err(RemoteError::Forked);
        }
        if let Some(end) = &self.requests.lock().end {
            return Err(end.clone());
        }
        let body = postcard::to_stdvec(body).expect("a vector takes everything");
        self.send_by(|channel, wait| match channel.defer(kind, id, &body)? {
            ..=DEFERRED_BYTES_MAX => Ok(()),
            _ => channel.send_deferred(wait),
        })
    }

    /// Ends the executor. The reader, which finds that it has gone, waits for the process, so it finds the reason too.
    fn end(&self, end: impl FnOnce(&mut ExecutorPeer) -> PeerError) -> RemoteError {
        let mut process = self.process.lock();
        let end = end(&mut process);
        self.finish(end);
        drop(process);
        self.wait_for_end()
    }

    fn wait_for(&self, id: u32, limit: Option<Duration>) -> Result<PeerFrame, RemoteError> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut requests = self.requests.lock();
        loop {
            if let Some(OpenRequest::Answered(_)) = requests.open.get(&id)
                && let Some(OpenRequest::Answered(frame)) = requests.open.remove(&id)
            {
                return Ok(frame);
            }
            if let Some(end) = requests.end.clone().or(requests.is_let_go.then_some(RemoteError::LetGo)) {
                requests.open.remove(&id);
                return Err(end);
            }
            let Some(until) = until else {
                requests = self.answered.wait(requests);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                requests.open.remove(&id);
                drop(requests);
                let deadline = Deadline::after(limit.unwrap_or_default());
                return Err(self.end(|process| process.end(ChannelError::Late, deadline, true)));
            }
            requests = self.answered.wait_timeout(requests, left).0;
        }
    }

    /// Has the executor become the program of a message, and waits for its end.
    pub(super) fn run(&self, kind: u16, body: &impl Serialize) -> RemoteError {
        self.requests.lock().runs_program = true;
        match self.send(kind, 0, body, &[]) {
            Ok(()) => {
                let end = self.wait_for_end();
                if !self.is_above() {
                    self.calls.wait_for_rest(); // No thread compiles for the program any more.
                }
                end
            }
            Err(end) => end,
        }
    }

    /// The end, which is about to be found.
    pub(super) fn wait_for_end(&self) -> RemoteError {
        let mut requests = self.requests.lock();
        loop {
            match &requests.end {
                Some(end) => return end.clone(),
                None => requests = self.answered.wait(requests),
            }
        }
    }

    /// Has the executor forget code. Its memory is used again when that is done.
    pub(super) fn retire(&self, number: u32, code: RetiringCode) {
        if std::process::id() != self.owner {
            return drop(code);
        }
        let mut requests = self.requests.lock();
        if requests.end.is_some() {
            drop(requests);
            return drop(code);
        }
        requests.retiring.insert(number, code);
        drop(requests);
        // An executor that is gone has no code.
        let _ = self.send(RETIRE, number, &(), &[]);
    }

    pub(super) fn add_names(&self, names: &Arc<NamedCode>) {
        self.names.lock().add(&names.ranges, names.clone());
    }

    pub(super) fn remove_names(&self, names: &Arc<NamedCode>) {
        if std::process::id() != self.owner {
            return;
        }
        self.names.lock().remove(&names.ranges, |known| Arc::ptr_eq(known, names));
    }

    /// The symbol of linked code at an address there.
    pub(super) fn symbol_at(&self, address: ExecutorAddr) -> Option<SymbolAt> {
        let code = self.names.lock().at(address.value())?.clone();
        symbol_in(&code, address)
    }

    /// Has the executor exit, when all code has gone that goes. A process that does not come to its end is killed.
    pub(super) fn close(&self) {
        if std::process::id() != self.owner {
            return;
        }
        let until = Instant::now() + PATIENCE;
        let mut requests = self.requests.lock();
        while requests.end.is_none() && !requests.retiring.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            requests = self.answered.wait_timeout(requests, left).0;
        }
        let is_over = requests.end.is_some();
        drop(requests);
        if is_over || self.send(END, 0, &(), &[]).is_err() {
            return;
        }
        // Handlers of the program run now.
        let mut requests = self.requests.lock();
        while requests.end.is_none() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            requests = self.answered.wait_timeout(requests, left).0;
        }
        drop(requests);
        self.process.lock().reap();
    }

    /// Ends the executor, which sent what makes no sense.
    pub(super) fn lied(&self, why: String) -> RemoteError {
        self.end(|process| process.lied(why))
    }

    /// Takes messages until there is an end.
    fn read(self: &Arc<Self>, mut channel: Channel, ended: Option<&OwnedFd>) {
        let mut wait = |stream: BorrowedFd<'_>, until| wait_for_either(stream, until, ended);
        let mut is_told = true;
        let end = loop {
            match channel.receive_while(&mut wait) {
                Ok(frame) if frame.kind == ENDED => break self.process.lock().ended(frame.body()),
                Ok(frame) => {
                    if let Err(why) = self.take(frame) {
                        break self.process.lock().lied(why);
                    }
                    let fault = self.requests.lock().fault;
                    let by_fault = fault.map(|fault| fault.signal as i32);
                    let end = by_fault.and_then(|signal| self.process.lock().ends_by_fault(signal));
                    if let Some(end) = end {
                        break end;
                    }
                }
                Err(error) => {
                    is_told = false;
                    self.wait_for_what_it_became(&error, ended);
                    break self.process.lock().end(error, Deadline::never(), true);
                }
            }
        };
        self.finish(end);
        if let (true, true, Some(ended)) = (is_told, self.is_above(), ended) {
            // It waits for the end of this process. If it is gone before, there is no command any more.
            wait_for_process(ended.as_fd());
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }

    fn is_above(&self) -> bool {
        matches!(*self.process.lock(), ExecutorPeer::Above(_))
    }

    /// The channel is closed. If it was a program's, no request waits from here on, since none is answered; says so.
    fn let_go(&self) -> bool {
        let mut requests = self.requests.lock();
        requests.is_let_go = requests.runs_program;
        requests.is_let_go
    }

    /// A program that has closed the channel may have another file executed in its place, or go on by itself: its end is the end.
    fn wait_for_what_it_became(&self, error: &ChannelError, ended: Option<&OwnedFd>) {
        if let (ChannelError::Closed, Some(ended)) = (error, ended)
            && self.let_go()
        {
            self.answered.notify_all();
            wait_for_process(ended.as_fd());
        }
    }

    fn take(self: &Arc<Self>, frame: PeerFrame) -> Result<(), String> {
        let no_thread = |error: std::io::Error| format!("no thread sees to its first calls: {error}");
        match frame.kind {
            FIRST_CALL => {
                let call: StubCall =
                    postcard::from_bytes(frame.body()).map_err(|error| format!("half a call: {error}"))?;
                let StubCall { wants_references, .. } = call;
                let call = CallThere::First { number: frame.id, call: call.call(), wants_references };
                return self.take_call(call).map_err(no_thread);
            }
            COUNTED => {
                let call = StubCall::of_bytes(frame.body()).ok_or("half a call")?;
                return self.take_call(CallThere::Counted(call)).map_err(no_thread);
            }
            NAME => return self.take_call(named_in(&frame)?).map_err(no_thread),
            FOUND | LOADED | REFERRED | RETURNED => {
                let mut requests = self.requests.lock();
                let request = requests.open.get_mut(&frame.id);
                let Some(request) = request
                    .filter(|request| matches!(request, OpenRequest::Awaited(kind) if *kind == frame.kind))
                else {
                    return Err(format!("an answer of kind {} to no request", frame.kind));
                };
                *request = OpenRequest::Answered(frame);
            }
            RETIRED => {
                let gone = self.requests.lock().retiring.remove(&frame.id);
                drop(gone.ok_or("code has gone that was there")?);
            }
            FAULT => {
                self.requests.lock().fault = Some(RemoteFault::read(frame.body()).ok_or("half a fault")?)
            }
            BROKEN => return Err(postcard::from_bytes(frame.body()).map_err(|error| error.to_string())?),
            kind => return Err(format!("a message of kind {kind}")),
        }
        self.answered.notify_all();
        Ok(())
    }

    /// Notes the end, once, and has all that wait learn of it.
    fn finish(&self, end: PeerError) {
        let fault = self.requests.lock().fault;
        let is_end = matches!(end, PeerError::Ended { .. });
        let at = fault.filter(|_| is_end).and_then(|fault| self.symbol_at(ExecutorAddr::new(fault.address)));
        let mut requests = self.requests.lock();
        requests.end.get_or_insert(RemoteError::Gone { end, at: at.map(Arc::new) });
        let retiring = std::mem::take(&mut requests.retiring);
        drop(requests);
        self.calls.close();
        drop(retiring);
        self.answered.notify_all();
    }

    /// How long a request may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }
}

impl RemoteFault {
    fn read(body: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
        Some(Self { signal: number(0)?, address: number(8)? })
    }
}

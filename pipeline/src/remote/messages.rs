//! The messages between a host and its executor. Bodies are by `postcard`. An answer has the id of its request.

use serde::{Deserialize, Serialize};

use uruk_core::ExecutorAddr;

use super::names::PublishedNames;
use crate::debug::PerfFormat;
use crate::executor::{ArrayFunction, Startup, StubLead, StubTarget, TlsImage, TlsPlacement};
use crate::memory::{SegmentKind, SegmentThere};
use crate::peer::ProcessEnd;
use crate::runtime::call_through::{CallElsewhere, FoundElsewhere};

/// The first message of the host.
pub(super) const HELLO: u16 = 1;
/// The executor can run code.
pub(super) const READY: u16 = 2;
/// Code is in its place. The id is its number. There is no answer.
pub(super) const PUBLISH: u16 = 3;
/// The code of that id goes.
pub(super) const RETIRE: u16 = 4;
/// The code of that id has gone.
pub(super) const RETIRED: u16 = 5;
/// A list of names, and whether linked code reads them directly.
pub(super) const FIND: u16 = 6;
/// A [`Finding`] or nothing for each name.
pub(super) const FOUND: u16 = 7;
/// The path of a library.
pub(super) const LOAD: u16 = 8;
/// The message of the dynamic linker, if the library could not be loaded.
pub(super) const LOADED: u16 = 9;
/// Functions that come before others.
pub(super) const START: u16 = 10;
/// A [`FunctionCall`].
pub(super) const CALL: u16 = 11;
/// The program's entry and its arguments. The process ends with the program: there is no answer.
pub(super) const RUN: u16 = 12;
/// The registers for results: of integers, of floating-point numbers.
pub(super) const RETURNED: u16 = 13;
/// A fault is about to end the process.
pub(super) const FAULT: u16 = 14;
/// The executor cannot go on: why.
pub(super) const BROKEN: u16 = 15;
/// The host needs it no more: it exits.
pub(super) const END: u16 = 16;

/// A connected executor has ended. Sent by the process that has started it, or by the executor itself, which waits for its host then.
pub(super) const ENDED: u16 = 17;

/// A stub was called that does not lead to a body: a [`StubCall`].
pub(super) const FIRST_CALL: u16 = 18;
/// Where the call of that id goes on: a [`FirstCalled`].
pub(super) const FIRST_CALLED: u16 = 19;
/// A list of [`LedStub`]s, which lead on together. There is no answer.
pub(super) const LEAD: u16 = 20;
/// The calls of a stub were counted. Its body is that of a [`StubCall`] in a fixed form. There is no answer.
pub(super) const COUNTED: u16 = 21;

/// Which names of the program its libraries use.
pub(super) const REFER: u16 = 22;
/// The [`ReferredNames`].
pub(super) const REFERRED: u16 = 23;
/// Definitions of the program for its libraries: a list of names and [`BoundSymbol`]s. There is no answer.
pub(super) const BIND: u16 = 24;
/// The program asks for a definition of its own by name.
pub(super) const NAME: u16 = 25;
/// The definition of that name, if there is one: a [`NamedThere`].
pub(super) const NAMED: u16 = 26;
/// A signal has come to the host, which is for the program: a `siginfo_t`. There is no answer.
pub(super) const SIGNAL: u16 = 27;

/// Raised when messages change: an executor of another number is refused.
pub(super) const PROTOCOL: u32 = 6;

/// A greeting, and the answer to it, have no larger body.
pub(super) const GREETING_BYTES_MAX: u32 = 4 << 10;

/// The body of a [`HELLO`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HostGreeting {
    pub(super) protocol: u32,
    pub(super) host: GreetedHost,
    /// Whether the program has a stdin: the first descriptor, where it is the host's.
    pub(super) has_input: bool,
    pub(super) memory: GreetedMemory,
    /// Whether the process is a program's.
    pub(super) is_program: bool,
    pub(super) watchers: GreetedWatchers,
}

/// The host, by numbers of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum GreetedHost {
    /// It has started the executor.
    Parent(u32),
    /// It goes on for the command that has become the executor (`exchange.rs`), and `keeper` waits for it.
    Below { host: u32, keeper: u32 },
    /// It has connected to the executor.
    Connected,
}

/// Those who are told of the code there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GreetedWatchers {
    /// gdb.
    pub(super) debugger: bool,
    /// perf, by a file that the executor writes.
    pub(super) perf: Option<GreetedPerf>,
}

/// A [`PerfFormat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum GreetedPerf {
    Map,
    JitDump,
}

impl From<PerfFormat> for GreetedPerf {
    fn from(format: PerfFormat) -> Self {
        match format {
            PerfFormat::Map => Self::Map,
            PerfFormat::JitDump => Self::JitDump,
        }
    }
}

impl From<GreetedPerf> for PerfFormat {
    fn from(format: GreetedPerf) -> Self {
        match format {
            GreetedPerf::Map => Self::Map,
            GreetedPerf::JitDump => Self::JitDump,
        }
    }
}

/// How linked code comes to the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum GreetedMemory {
    /// Through a file in memory, which comes as the last descriptor.
    Shared,
    /// As the bulk of each [`PUBLISH`]. So many bytes of address space are needed.
    Sent(u64),
}

/// The body of a [`READY`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadyPlace {
    pub(super) protocol: u32,
    /// The executor's number.
    pub(super) pid: u32,
    /// Its architecture, as the header of an object has it.
    pub(super) machine: u16,
    pub(super) page_bytes: u64,
    /// Where the memory for code begins.
    pub(super) base: u64,
    /// How many zeros lie behind it.
    pub(super) zeros_bytes: u64,
    /// Addresses of functions that linked code calls without naming them: of thread-local variables (fixed, dynamic, absent), of
    /// indirect functions, of first and of counted calls.
    pub(super) entries: [u64; 6],
    /// How far from the thread pointer a reserve for thread-local variables begins on every thread, if there is one.
    pub(super) reserve: Option<i64>,
}

/// The body of a [`PUBLISH`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Publication {
    /// All segments if their contents come with the message, otherwise those of data.
    pub(super) segments: Vec<PublishedSegment>,
    /// The code, and the index of its frames.
    pub(super) unwind: Option<(u64, u64, u64)>,
    pub(super) tls: Option<ModuleImage>,
    pub(super) is_stubs: bool,
    /// For those who are told of the code there.
    pub(super) names: Option<PublishedNames>,
    /// The dylib, and the ranges of what ends with it.
    pub(super) end: Option<(u64, Vec<(u64, u64)>)>,
}

/// A segment: its kind, its addresses, and how many bytes of contents it has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct PublishedSegment {
    kind: u8,
    start: u64,
    end: u64,
    content_bytes: u64,
}

impl From<&SegmentThere> for PublishedSegment {
    fn from(SegmentThere { kind, range, content_bytes }: &SegmentThere) -> Self {
        let kind = match kind {
            SegmentKind::Code => 0,
            SegmentKind::ReadOnly => 1,
            SegmentKind::Data | SegmentKind::FarData => 2,
        };
        Self { kind, start: range.start, end: range.end, content_bytes: *content_bytes }
    }
}

impl PublishedSegment {
    /// `None` if there is no such kind.
    pub(super) fn segment(self) -> Option<SegmentThere> {
        let Self { kind, start, end, content_bytes } = self;
        let kind = *[SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data].get(usize::from(kind))?;
        Some(SegmentThere { kind, range: start..end, content_bytes })
    }
}

/// The body of an [`ENDED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ProcessEndThere {
    Exited(i32),
    Signal(i32),
    Unknown,
}

impl From<ProcessEnd> for ProcessEndThere {
    fn from(end: ProcessEnd) -> Self {
        match end {
            ProcessEnd::Exited(code) => Self::Exited(code),
            ProcessEnd::Signal(signal) => Self::Signal(signal),
            ProcessEnd::Unknown => Self::Unknown,
        }
    }
}

impl From<ProcessEndThere> for ProcessEnd {
    fn from(end: ProcessEndThere) -> Self {
        match end {
            ProcessEndThere::Exited(code) => Self::Exited(code),
            ProcessEndThere::Signal(signal) => Self::Signal(signal),
            ProcessEndThere::Unknown => Self::Unknown,
        }
    }
}

/// A module of thread-local variables.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ModuleImage {
    pub(super) module: u64,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) image_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) align: u64,
}

impl ModuleImage {
    pub(super) fn new(TlsPlacement { module, offset }: TlsPlacement, image: TlsImage) -> Self {
        let TlsImage { address, image_bytes, total_bytes, align } = image;
        Self { module, offset, address: address.value(), image_bytes, total_bytes, align }
    }

    pub(super) fn placement(&self) -> TlsPlacement {
        TlsPlacement { module: self.module, offset: self.offset }
    }

    pub(super) fn image(&self) -> TlsImage {
        let Self { address, image_bytes, total_bytes, align, .. } = *self;
        TlsImage { address: ExecutorAddr::new(address), image_bytes, total_bytes, align }
    }
}

/// A symbol of the executor's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Finding {
    pub(super) address: u64,
    pub(super) flags: u8,
    /// Of a thread-local variable: its module, its offset, and its distance from the thread pointer if that is the same on every thread.
    pub(super) tls: Option<(u64, u64, Option<i64>)>,
}

/// A function of an array, as numbers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct StartFunction {
    priority: i32,
    unit: u32,
    index: u32,
    address: u64,
}

impl From<ArrayFunction> for StartFunction {
    fn from(ArrayFunction { priority, unit, index, address }: ArrayFunction) -> Self {
        Self { priority, unit, index, address: address.value() }
    }
}

impl From<StartFunction> for ArrayFunction {
    fn from(StartFunction { priority, unit, index, address }: StartFunction) -> Self {
        Self { priority, unit, index, address: ExecutorAddr::new(address) }
    }
}

/// The body of a [`START`], and the beginning of that of a [`RUN`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct StartLists {
    /// Functions that choose their implementation.
    pub(super) indirect: Vec<u64>,
    pub(super) initializers: Vec<StartFunction>,
    pub(super) finalizers: Vec<StartFunction>,
}

impl From<&Startup> for StartLists {
    fn from(Startup { indirect, initializers, finalizers }: &Startup) -> Self {
        let numbers =
            |functions: &[ArrayFunction]| functions.iter().map(|&function| function.into()).collect();
        Self {
            indirect: indirect.iter().map(|descriptor| descriptor.value()).collect(),
            initializers: numbers(initializers),
            finalizers: numbers(finalizers),
        }
    }
}

/// The body of a [`RUN`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProgramRun {
    pub(super) lists: StartLists,
    pub(super) entry: u64,
    /// Where the header of the program is, if it has one.
    pub(super) header: Option<u64>,
    pub(super) arguments: Vec<Vec<u8>>,
}

/// The body of a [`CALL`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FunctionCall {
    pub(super) function: u64,
    pub(super) integers: [u64; 6],
    pub(super) floats: [u64; 8],
}

/// The body of a [`FIRST_CALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StubCall {
    /// The id of the cells of the stub's unit.
    cells: u64,
    number: u32,
    stub: u64,
    /// Whether the answer names the functions that the body refers to.
    pub(super) wants_references: bool,
}

impl StubCall {
    /// The size of its fixed form.
    pub(super) const BYTES: usize = 20;

    pub(super) fn new(call: CallElsewhere, wants_references: bool) -> Self {
        let CallElsewhere { cells, number, stub } = call;
        Self { cells, number, stub: stub.value(), wants_references }
    }

    pub(super) fn call(self) -> CallElsewhere {
        CallElsewhere { cells: self.cells, number: self.number, stub: ExecutorAddr::new(self.stub) }
    }

    /// Two numbers of 64 bits and one of 32, in little-endian order: it is written where nothing may be allocated.
    pub(super) fn bytes(call: CallElsewhere) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&call.cells.to_le_bytes());
        bytes[8..16].copy_from_slice(&call.stub.value().to_le_bytes());
        bytes[16..].copy_from_slice(&call.number.to_le_bytes());
        bytes
    }

    /// `None` for bytes of another size.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<CallElsewhere> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let number = u32::from_le_bytes(std::array::from_fn(|byte| bytes[16 + byte]));
        Some(CallElsewhere { cells: word(0), number, stub: ExecutorAddr::new(word(8)) })
    }
}

/// The body of a [`FIRST_CALLED`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FirstCalled {
    /// Zero if there is nothing to go on at.
    address: u64,
    references: Vec<u64>,
}

impl From<FoundElsewhere> for FirstCalled {
    fn from(FoundElsewhere { address, references }: FoundElsewhere) -> Self {
        let references = references.into_iter().map(ExecutorAddr::value).collect();
        Self { address: address.value(), references }
    }
}

impl From<FirstCalled> for FoundElsewhere {
    fn from(FirstCalled { address, references }: FirstCalled) -> Self {
        let references = references.into_iter().map(ExecutorAddr::new).collect();
        Self { address: ExecutorAddr::new(address), references }
    }
}

/// A part of the body of a [`LEAD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LedStub {
    stub: u64,
    target: LedTo,
}

/// Where a stub leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum LedTo {
    Body(u64),
    CountedBody(u64, u32),
    NextCall,
    CountAgain(u32),
}

impl From<&StubLead> for LedStub {
    fn from(StubLead { stub, target }: &StubLead) -> Self {
        let target = match *target {
            StubTarget::Body(body) => LedTo::Body(body.value()),
            StubTarget::CountedBody(body, calls) => LedTo::CountedBody(body.value(), calls),
            StubTarget::NextCall => LedTo::NextCall,
            StubTarget::CountAgain(calls) => LedTo::CountAgain(calls),
        };
        Self { stub: stub.value(), target }
    }
}

impl From<LedStub> for StubLead {
    fn from(LedStub { stub, target }: LedStub) -> Self {
        let target = match target {
            LedTo::Body(body) => StubTarget::Body(ExecutorAddr::new(body)),
            LedTo::CountedBody(body, calls) => StubTarget::CountedBody(ExecutorAddr::new(body), calls),
            LedTo::NextCall => StubTarget::NextCall,
            LedTo::CountAgain(calls) => StubTarget::CountAgain(calls),
        };
        Self { stub: ExecutorAddr::new(stub), target }
    }
}

/// The body of a [`FAULT`]. It is written by a handler of signals, so its form is fixed: three numbers in little-endian order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemoteFault {
    pub(super) signal: u64,
    /// Of the instruction.
    pub(super) address: u64,
}

//! Another process as the place where code runs: a child of `fork` that shares its code memory with the linker.
//!
//! ```text
//!   linker                                              child
//!     writes contents through a view of its own           has the memory at its final addresses, not executable at first
//!     publish ──────── pieces ───────────────────────▶    protects them
//!             ──────── actions ──────────────────────▶    takes the steps; answers when the code can run
//!     call, bind ────────────────────────────────────▶    runs it
//!     drops what was published ──────────────────────▶    takes everything back
//! ```
//!
//! The linker does not map the final addresses at all, so nothing of it can touch the place but through these messages. The child has the
//! libraries of its parent at the same addresses, so symbols of the process are looked up here.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;
use uruk_pipeline::arch::Architecture;
use uruk_pipeline::executor::{
    Actions, CodeNumber, Executor, HeldTls, NotStatic, PublishError, Published, RuntimeEntries, TlsError,
    TlsImage, TlsPlacement, TlsReservation, TlsShape, UnwindTable,
};
use uruk_pipeline::memory::{
    Backing, FinalizedAlloc, InFlightAlloc, InProcessMemoryManager, MemoryError, MemoryManager, SegmentKind,
    SegmentRequest,
};
use uruk_pipeline::runtime::ifunc;
use uruk_pipeline::runtime::in_process::InProcessExecutor;
use uruk_pipeline::runtime::process::ProcessSymbols;

const ARENA_BYTES: usize = 64 << 20;
const PAGE_BYTES: usize = 4096;
const CHILD_SECONDS_MAX: u32 = 60;

/// A message to the child: its kind, and words whose meaning the kind says.
type Words = Vec<u64>;

const PLACE_TLS: u64 = 1; // shape                     -> module, offset
const DROP_TLS: u64 = 2; // offset, module
const PUBLISH: u64 = 3; // see `Steps`                  -> number
const RETIRE: u64 = 4; // number
const BIND: u64 = 5; // descriptors
const CALL: u64 = 6; // function, argument         -> result
const PUBLISHED: u64 = 7; //                            -> how much code is published
const PROTECT: u64 = 8; // start, end, kind, of each piece

/// The linker's end.
pub(crate) struct OtherProcess {
    child: Arc<Child>,
    memory: SharedMemory,
    /// Answers questions whose answers a fork does not change.
    here: InProcessExecutor,
}

struct Child {
    pid: libc::pid_t,
    stream: Mutex<UnixStream>,
}

/// The child has gone.
#[derive(Debug, thiserror::Error)]
#[error("the child has gone")]
pub(crate) struct Gone;

impl OtherProcess {
    /// Forks the child, which serves until this is dropped.
    pub(crate) fn start() -> Self {
        let here = InProcessExecutor::new(Arc::new(InProcessMemoryManager::new().expect("address space")));
        let _ = here.entries(); // The child finds the processor's state as it was looked up here.
        // The C++ library comes when a symbol of it is first looked up. Both processes need it at one address.
        assert!(ProcessSymbols::new().lookup("__cxa_throw").is_some(), "there is a C++ library");
        let arena = Arena::new();
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        // SAFETY: this process has one thread, so the child may do all that its parent may.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            drop(ours);
            // SAFETY: concerns this process alone.
            unsafe { libc::alarm(CHILD_SECONDS_MAX) };
            let status = i32::from(catch_unwind(AssertUnwindSafe(|| serve(&here, theirs))).is_err());
            // SAFETY: no destructor and no handler of the parent runs.
            unsafe { libc::_exit(status) };
        }
        // SAFETY: nothing of this process lies there. The child keeps its own view.
        assert_eq!(unsafe { libc::munmap(arena.run as *mut _, ARENA_BYTES) }, 0);
        let child = Arc::new(Child { pid, stream: Mutex::new(ours) });
        let memory = SharedMemory { arena, taken: Mutex::new(0), child: child.clone() };
        Self { child, memory, here }
    }

    pub(crate) fn pid(&self) -> u64 {
        self.child.pid as u64
    }

    /// Calls `function` there.
    pub(crate) fn call(&self, function: ExecutorAddr, argument: u64) -> Result<u64, Gone> {
        Ok(self.child.ask(CALL, &[function.value(), argument])?[0])
    }

    /// Binds functions that choose their implementation.
    pub(crate) fn bind(&self, descriptors: &[ExecutorAddr]) -> Result<(), Gone> {
        let words: Words = descriptors.iter().map(|address| address.value()).collect();
        self.child.ask(BIND, &words).map(drop)
    }

    /// How many pieces of code the child has.
    pub(crate) fn published(&self) -> Result<u64, Gone> {
        Ok(self.child.ask(PUBLISHED, &[])?[0])
    }

    /// Waits for the end of the child, and gives the signal that ended it.
    pub(crate) fn signal_of_its_end(&self) -> Option<i32> {
        let mut status = 0;
        // SAFETY: the child is ours, and is waited for once.
        assert_eq!(unsafe { libc::waitpid(self.child.pid, &raw mut status, 0) }, self.child.pid);
        libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
    }
}

impl Child {
    fn ask(&self, kind: u64, words: &[u64]) -> Result<Words, Gone> {
        let mut stream = self.stream.lock();
        send(&mut stream, kind, words)?;
        Ok(receive(&mut stream)?.1)
    }
}

fn send(stream: &mut UnixStream, kind: u64, words: &[u64]) -> Result<(), Gone> {
    let head = [kind, words.len() as u64];
    let bytes: Vec<u8> = head.iter().chain(words).flat_map(|word| word.to_le_bytes()).collect();
    stream.write_all(&bytes).map_err(|_| Gone)
}

fn receive(stream: &mut UnixStream) -> Result<(u64, Words), Gone> {
    let mut word = || -> Result<u64, Gone> {
        let mut bytes = [0; 8];
        stream.read_exact(&mut bytes).map_err(|_| Gone)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let (kind, count) = (word()?, word()?);
    Ok((kind, (0..count).map(|_| word()).collect::<Result<_, _>>()?))
}

/// Memory that two processes share.
struct Arena {
    /// The final addresses, which only the child maps.
    run: usize,
    /// The linker's view.
    working: usize,
}

impl Arena {
    fn new() -> Self {
        // SAFETY: a name that ends in a zero.
        let file = unsafe { libc::memfd_create(c"code".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(file >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        // SAFETY: a file of ours.
        assert_eq!(unsafe { libc::ftruncate(file, ARENA_BYTES as i64) }, 0);
        let map = || {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping at an address that the system chooses.
            let start = unsafe {
                libc::mmap(std::ptr::null_mut(), ARENA_BYTES, protection, libc::MAP_SHARED, file, 0)
            };
            assert_ne!(start, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
            start as usize
        };
        Self { run: map(), working: map() }
    }
}

/// Hands out the arena from its start, and takes nothing back.
struct SharedMemory {
    arena: Arena,
    taken: Mutex<usize>,
    child: Arc<Child>,
}

impl MemoryManager for SharedMemory {
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        let mut taken = self.taken.lock();
        let mut pieces = Vec::new();
        for request in segments {
            let bytes = request.content_bytes + request.zero_fill_bytes;
            let start = taken.next_multiple_of(request.align.max(PAGE_BYTES));
            if start + bytes > ARENA_BYTES {
                return Err(MemoryError::Invalid { owner: owner.into(), what: "too large for this test" });
            }
            *taken = start + bytes;
            pieces.push(Piece {
                run: self.arena.run + start,
                working: self.arena.working + start,
                content_bytes: request.content_bytes,
                bytes,
                kind: request.kind,
            });
        }
        Ok(InFlightAlloc::new(Box::new(Pieces { pieces, child: self.child.clone() })))
    }
}

#[derive(Clone, Copy)]
struct Piece {
    run: usize,
    working: usize,
    content_bytes: usize,
    bytes: usize,
    kind: SegmentKind,
}

/// The pieces of an allocation, which the child protects when they are final.
struct Pieces {
    pieces: Vec<Piece>,
    child: Arc<Child>,
}

impl Backing for Pieces {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(self.pieces[segment].run as u64)
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        let Piece { working, content_bytes, .. } = self.pieces[segment];
        // SAFETY: the range is this allocation's, and the view is mapped to the end of the process.
        unsafe { std::slice::from_raw_parts_mut(working as *mut u8, content_bytes) }
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        let words = self.pieces.iter().flat_map(|piece| {
            let kind = KINDS.iter().position(|known| *known == piece.kind).expect("a kind") as u64;
            [piece.run as u64, (piece.run + piece.bytes) as u64, kind]
        });
        let words: Words = words.collect();
        self.child.ask(PROTECT, &words).map(drop).map_err(|Gone| MemoryError::Forked)
    }
}

const KINDS: [SegmentKind; 4] =
    [SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data, SegmentKind::FarData];

/// Memory without segments: the child protects what it is told to protect.
struct Protected;

impl Backing for Protected {
    fn address(&self, _: usize) -> ExecutorAddr {
        ExecutorAddr::NULL
    }

    fn working(&mut self, _: usize) -> &mut [u8] {
        &mut []
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        Ok(())
    }
}

fn protect(pieces: &[u64]) {
    for piece in pieces.chunks_exact(3) {
        let protection = match KINDS[piece[2] as usize] {
            SegmentKind::Code => libc::PROT_READ | libc::PROT_EXEC,
            SegmentKind::ReadOnly => libc::PROT_READ,
            SegmentKind::Data | SegmentKind::FarData => libc::PROT_READ | libc::PROT_WRITE,
        };
        let len = (piece[1] - piece[0]) as usize;
        // SAFETY: whole pages of one allocation in the arena.
        assert_eq!(unsafe { libc::mprotect(piece[0] as *mut _, len, protection) }, 0);
    }
}

/// The actions of a publication, as words.
struct Steps {
    tls: Option<(TlsPlacement, TlsImage)>,
    unwind: Option<UnwindTable>,
    is_stubs: bool,
}

impl Steps {
    fn to_words(&self) -> Words {
        let mut words = vec![self.is_stubs.into(), self.unwind.is_some().into()];
        if let Some(UnwindTable { code, eh_frame_hdr }) = &self.unwind {
            words.extend([code.start, code.end, *eh_frame_hdr]);
        }
        if let Some((placement, image)) = self.tls {
            let TlsImage { address, image_bytes, total_bytes, align } = image;
            words.extend([placement.module, placement.offset, address.value(), image_bytes]);
            words.extend([total_bytes, align]);
        }
        words
    }

    fn from_words(words: &[u64]) -> Self {
        let (&[is_stubs, unwinds], rest) = words.split_first_chunk().expect("a head");
        let (unwind, rest) = match rest {
            &[start, end, eh_frame_hdr, ref rest @ ..] if unwinds != 0 => {
                (Some(UnwindTable { code: start..end, eh_frame_hdr }), rest)
            }
            rest => (None, rest),
        };
        let tls = match *rest {
            [module, offset, address, image_bytes, total_bytes, align] => {
                let address = ExecutorAddr::new(address);
                let image = TlsImage { address, image_bytes, total_bytes, align };
                Some((TlsPlacement { module, offset }, image))
            }
            _ => None,
        };
        Self { tls, unwind, is_stubs: is_stubs != 0 }
    }
}

impl Executor for OtherProcess {
    fn architecture(&self) -> Architecture {
        Architecture::HOST
    }

    fn memory(&self) -> &dyn MemoryManager {
        &self.memory
    }

    fn entries(&self) -> RuntimeEntries {
        self.here.entries()
    }

    fn place_tls(&self, shape: TlsShape) -> Result<TlsReservation, TlsError> {
        let TlsShape { image_bytes, total_bytes, align, needs_static } = shape;
        let words = [image_bytes, total_bytes, align, needs_static.into()];
        let placed = self.child.ask(PLACE_TLS, &words).map_err(|Gone| TlsError::Exhausted { limit: 0 })?;
        let placement = TlsPlacement { module: placed[0], offset: placed[1] };
        Ok(TlsReservation::new(placement, Box::new(Placed { placement, child: self.child.clone() })))
    }

    fn tls_placement(&self, descriptor: ExecutorAddr) -> Option<TlsPlacement> {
        self.here.tls_placement(descriptor)
    }

    fn tls_distance(&self, variable: TlsPlacement) -> Result<i64, NotStatic> {
        self.here.tls_distance(variable)
    }

    fn is_variable(&self, address: ExecutorAddr) -> bool {
        self.here.is_variable(address)
    }

    fn low_variable(&self, _: ExecutorAddr, _: bool) -> Option<ExecutorAddr> {
        None
    }

    fn publish(
        &self,
        memory: InFlightAlloc,
        tls: Option<TlsReservation>,
        actions: Actions,
    ) -> Result<Box<dyn Published>, PublishError> {
        let Actions { tls: image, unwind, is_stubs, end, low_entry, names: _ } = actions;
        assert!(end.is_none() && low_entry.is_none(), "the program has its process for itself");
        let steps = Steps { tls: tls.as_ref().map(TlsReservation::placement).zip(image), unwind, is_stubs };
        let memory = memory.finalize()?;
        let number = self.child.ask(PUBLISH, &steps.to_words());
        let number = number.map_err(|gone| PublishError::Action(Box::new(gone)))?[0];
        Ok(Box::new(PublishedThere { number, child: self.child.clone(), memory, _tls: tls }))
    }
}

/// Room for thread-local variables there.
struct Placed {
    placement: TlsPlacement,
    child: Arc<Child>,
}

impl HeldTls for Placed {
    fn initialize(&self, _: TlsImage) {
        unreachable!("the child does it when it publishes");
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let _ = self.child.ask(DROP_TLS, &[self.placement.module, self.placement.offset]);
    }
}

struct PublishedThere {
    number: u64,
    child: Arc<Child>,
    memory: FinalizedAlloc,
    _tls: Option<TlsReservation>,
}

impl Published for PublishedThere {
    fn number(&self) -> Option<CodeNumber> {
        None
    }

    fn address(&self, segment: usize) -> ExecutorAddr {
        self.memory.address(segment)
    }
}

impl Drop for PublishedThere {
    fn drop(&mut self) {
        let _ = self.child.ask(RETIRE, &[self.number]);
    }
}

/// The child: it does as it is told, by the means of the process that it is, until the linker has gone.
fn serve(here: &InProcessExecutor, mut stream: UnixStream) {
    let mut published: FxHashMap<u64, Box<dyn Published>> = FxHashMap::default();
    let mut placed: FxHashMap<(u64, u64), TlsReservation> = FxHashMap::default();
    let mut last = 0;
    while let Ok((kind, words)) = receive(&mut stream) {
        let answer = match (kind, words.as_slice()) {
            (PLACE_TLS, &[image_bytes, total_bytes, align, needs_static]) => {
                let shape = TlsShape { image_bytes, total_bytes, align, needs_static: needs_static != 0 };
                let reservation = here.place_tls(shape).expect("there is room");
                let TlsPlacement { module, offset } = reservation.placement();
                placed.insert((module, offset), reservation);
                vec![module, offset]
            }
            (DROP_TLS, &[module, offset]) => {
                placed.remove(&(module, offset));
                Words::new()
            }
            (PUBLISH, words) => {
                last += 1;
                let steps = Steps::from_words(words);
                let tls = steps.tls.and_then(|(at, _)| placed.remove(&(at.module, at.offset)));
                let image = steps.tls.map(|(_, image)| image);
                let Steps { unwind, is_stubs, .. } = steps;
                let actions = Actions { tls: image, unwind, is_stubs, ..Actions::default() };
                let memory = InFlightAlloc::new(Box::new(Protected));
                published.insert(last, here.publish(memory, tls, actions).expect("the process takes it"));
                vec![last]
            }
            (PROTECT, pieces) => {
                protect(pieces);
                Words::new()
            }
            (RETIRE, &[number]) => {
                published.remove(&number);
                Words::new()
            }
            (BIND, descriptors) => {
                // SAFETY: the linker sends what it has published here.
                descriptors.iter().for_each(|&at| unsafe { ifunc::bind(ExecutorAddr::new(at)) });
                Words::new()
            }
            (CALL, &[function, argument]) => {
                let function = ExecutorAddr::new(function).to_ptr::<u8>();
                // SAFETY: the linker sends functions of this signature that it has published here.
                let function: extern "C" fn(u64) -> u64 = unsafe { std::mem::transmute(function) };
                vec![function(argument)]
            }
            (PUBLISHED, _) => vec![published.len() as u64],
            other => panic!("an unknown message: {other:?}"),
        };
        if send(&mut stream, kind, &answer).is_err() {
            return;
        }
    }
}

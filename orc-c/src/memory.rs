//! Memory of the client's: the callbacks that LLVM's MCJIT had, for code that the engine links.
//!
//! ```text
//!  an object is linked           ─▶ create ─▶ code, variables: one call a segment ─▶ written, relocated ─▶ finalize
//!  its code goes                 ─▶ destroy
//!  the LLJIT and all code are gone ─▶ end
//! ```
//!
//! The engine writes where the code will run, so the client's memory must be writable until its own `finalize`, which gives it its protection.
//! Another object may be linked meanwhile.
//!
//! The functions run deep inside the session, and must return. They run on a thread that looks something up or removes it, but code with destructors of
//! thread-local variables goes with the last thread that has some.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ops::Range;
use std::slice;

use uruk::core::sync::{Arc, Mutex};
use uruk::core::{ExecutorAddr, shared_error};
use uruk::pipeline::memory::{
    Backing, InFlightAlloc, InProcessMemoryManager, MemoryError, MemoryManager, MemoryUsage, ProgramWindow,
    SegmentBytes, SegmentKind, SegmentRequest,
};

use crate::callbacks::Data;

pub(crate) type CreateContext = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
pub(crate) type NotifyTerminating = unsafe extern "C" fn(*mut c_void);
pub(crate) type AllocateCode =
    unsafe extern "C" fn(*mut c_void, usize, c_uint, c_uint, *const c_char) -> *mut u8;
pub(crate) type AllocateData =
    unsafe extern "C" fn(*mut c_void, usize, c_uint, c_uint, *const c_char, c_int) -> *mut u8;
pub(crate) type FinalizeMemory = unsafe extern "C" fn(*mut c_void, *mut *mut c_char) -> c_int;
pub(crate) type DestroyContext = unsafe extern "C" fn(*mut c_void);

/// Code reaches the segments of its object with 32 bits.
const REACH: u64 = i32::MAX as u64;

/// The client's functions. Dropping them tells the client that no more memory will be asked for.
pub(crate) struct ClientMemory {
    pub(crate) data: Data,
    pub(crate) create: CreateContext,
    pub(crate) end: NotifyTerminating,
    pub(crate) code: AllocateCode,
    pub(crate) variables: AllocateData,
    pub(crate) finalize: FinalizeMemory,
    pub(crate) destroy: DestroyContext,
}

impl Drop for ClientMemory {
    fn drop(&mut self) {
        // SAFETY: the client has given the function for that, with its data.
        unsafe { (self.end)(self.data.0) }
    }
}

/// The memory of an engine: ours, unless its client hands out its own.
pub(crate) struct EngineMemory {
    own: InProcessMemoryManager,
    clients: Mutex<Clients>,
}

/// The client's memory manager.
enum Clients {
    None,
    Some(Arc<ClientMemory>),
    /// The LLJIT was disposed of.
    Ended,
}

impl EngineMemory {
    pub(crate) fn new() -> Result<Self, MemoryError> {
        Ok(Self { own: InProcessMemoryManager::new()?, clients: Mutex::new(Clients::None) })
    }

    /// Objects that are linked from now on lie in the client's memory.
    pub(crate) fn use_clients(&self, memory: Arc<ClientMemory>) {
        *self.clients.lock() = Clients::Some(memory);
    }

    /// The client is asked for no more memory. Code that is still there keeps its own.
    pub(crate) fn end(&self) {
        let mut clients = self.clients.lock();
        let ended = match *clients {
            Clients::Some(_) => std::mem::replace(&mut *clients, Clients::Ended),
            _ => return,
        };
        drop(clients);
        drop(ended); // It calls the client, under no lock.
    }

    /// # Errors
    /// The LLJIT was disposed of.
    fn clients(&self, owner: &str) -> Result<Option<Arc<ClientMemory>>, MemoryError> {
        match &*self.clients.lock() {
            Clients::None => Ok(None),
            Clients::Some(clients) => Ok(Some(clients.clone())),
            Clients::Ended => Err(refused(owner, "the LLJIT was disposed of before")),
        }
    }
}

impl MemoryManager for EngineMemory {
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        match self.clients(owner)? {
            Some(clients) => Ok(InFlightAlloc::new(Box::new(ClientAlloc::new(&clients, owner, segments)?))),
            None => self.own.allocate(owner, segments),
        }
    }

    /// The client cannot be asked for addresses below 2 GiB.
    fn allocate_low(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        self.own.allocate_low(owner, segments)
    }

    fn program_window(&self) -> Option<ProgramWindow> {
        self.own.program_window()
    }

    fn mapped(&self) -> Vec<(Range<ExecutorAddr>, SegmentKind)> {
        self.own.mapped()
    }

    /// Without the client's memory.
    fn usage(&self) -> MemoryUsage {
        self.own.usage()
    }
}

/// The client's memory for one object.
struct ClientAlloc {
    memory: Arc<ClientMemory>,
    context: Data,
    owner: Box<str>,
    segments: Vec<ClientSegment>,
}

struct ClientSegment {
    /// The client's, of the size that was asked for.
    start: Data,
    request: SegmentRequest,
}

impl ClientAlloc {
    fn new(
        memory: &Arc<ClientMemory>,
        owner: &str,
        requests: &[SegmentRequest],
    ) -> Result<Self, MemoryError> {
        // SAFETY: the client has given the function for that, with its data.
        let context = unsafe { (memory.create)(memory.data.0) };
        let segments = Vec::with_capacity(requests.len());
        // From here on, an error destroys the context.
        let mut alloc =
            Self { memory: memory.clone(), context: Data(context), owner: owner.into(), segments };
        for &request in requests {
            alloc.add(request)?;
        }
        let near = || alloc.segments.iter().filter(|segment| segment.request.kind != SegmentKind::FarData);
        let starts = near().map(|segment| segment.start.0.addr() as u64);
        match (starts.min(), near().map(ClientSegment::reached_end).max()) {
            (Some(start), Some(end)) if end.abs_diff(start) > REACH => {
                Err(alloc.refused("the client's memory lies too far apart: code reaches 2 GiB"))
            }
            _ => Ok(alloc),
        }
    }

    /// Asks the client for a segment, and clears it.
    fn add(&mut self, request: SegmentRequest) -> Result<(), MemoryError> {
        let bytes = request.content_bytes + request.zero_fill_bytes;
        let too_large = |_| self.refused("the alignment does not fit");
        let align = c_uint::try_from(request.align).map_err(too_large)?;
        let number = self.segments.len() as c_uint + 1;
        let (context, memory) = (self.context.0, &self.memory);
        // SAFETY: the client has given the functions for that, and its own context; the names are literals.
        let start = unsafe {
            match request.kind {
                SegmentKind::Code => (memory.code)(context, bytes, align, number, c".text".as_ptr()),
                SegmentKind::ReadOnly => {
                    (memory.variables)(context, bytes, align, number, c".rodata".as_ptr(), 1)
                }
                SegmentKind::Data | SegmentKind::FarData => {
                    (memory.variables)(context, bytes, align, number, c".data".as_ptr(), 0)
                }
            }
        };
        if start.is_null() {
            return Err(self.refused("the client gave none"));
        }
        if !start.addr().is_multiple_of(request.align) {
            return Err(self.refused("the client's memory is not aligned as was asked for"));
        }
        // SAFETY: the client has given so many bytes, to be written until they are finalized.
        unsafe { start.write_bytes(0, bytes) };
        self.segments.push(ClientSegment { start: Data(start.cast()), request });
        Ok(())
    }

    fn refused(&self, why: &str) -> MemoryError {
        refused(&self.owner, why)
    }
}

fn refused(owner: &str, why: &str) -> MemoryError {
    MemoryError::Refused { owner: owner.into(), source: shared_error(why.to_owned()) }
}

impl ClientSegment {
    /// The end of what code reaches with 32 bits. Of zeroes by themselves, which may be many, it need reach the start alone.
    fn reached_end(&self) -> u64 {
        let SegmentRequest { content_bytes, zero_fill_bytes, .. } = self.request;
        let bytes = if content_bytes == 0 { 0 } else { content_bytes + zero_fill_bytes };
        (self.start.0.addr() + bytes) as u64
    }
}

impl Backing for ClientAlloc {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(self.segments[segment].start.0.addr() as u64)
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        let ClientSegment { start, request } = &self.segments[segment];
        // SAFETY: the client has given these bytes to us alone until it finalizes or destroys them; they were cleared, and `self` is borrowed.
        unsafe { slice::from_raw_parts_mut(start.0.cast(), request.content_bytes) }
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        let mut message = std::ptr::null_mut();
        // SAFETY: the client has given the function for that, and its own context; the message is null or a string for `free`.
        let failed = unsafe { (self.memory.finalize)(self.context.0, &raw mut message) } != 0;
        let text = (!message.is_null()).then(|| {
            // SAFETY: as above; nothing reads it after it is freed.
            unsafe {
                let text: CString = CStr::from_ptr(message).to_owned();
                libc::free(message.cast());
                text.to_string_lossy().into_owned()
            }
        });
        match failed {
            true => Err(self.refused(&text.unwrap_or_else(|| "the client could not protect it".to_owned()))),
            false => Ok(()),
        }
    }

    fn bytes(&self) -> SegmentBytes {
        let mut bytes = SegmentBytes::default();
        for ClientSegment { request, .. } in &self.segments {
            let total = (request.content_bytes + request.zero_fill_bytes) as u64;
            match request.kind {
                SegmentKind::Code => bytes.code_bytes += total,
                SegmentKind::ReadOnly => bytes.read_only_bytes += total,
                SegmentKind::Data | SegmentKind::FarData => bytes.data_bytes += total,
            }
        }
        bytes
    }
}

impl Drop for ClientAlloc {
    fn drop(&mut self) {
        // SAFETY: the client has given the function for that; it made the context, which is not used after this.
        unsafe { (self.memory.destroy)(self.context.0) }
    }
}

//! First calls: a stub binds its function when it is called for the first time.
//!
//! ```text
//!  stub ─▶ cold part ─▶ thunk ─▶ first_call ─▶ destination      the function's address, or where to go instead
//!    ▲                  (`ifunc.rs`)  │   on a stack of ours, signals blocked
//!    └──────────── slot ◀─────────────┘
//! ```
//!
//! The cold part and the thunk are those of functions that choose their implementation: every register is kept, in full width. Only the
//! lookup differs: it may compile and link, and runs on a stack of its own, because a coroutine may have a few kilobytes.
//!
//! Nothing unwinds out of a first call. If the lookup fails, the destination gives an address to go on at.

mod slot;

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::{self, NonNull};

use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;
use uruk_core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub(crate) use self::slot::{Counted, RootAddr, SlotAddr};
use self::slot::{Counting, SlotPlace};
use super::unwind;
pub(crate) use super::unwind::functions::note as note_body;
use crate::arch::host::lazy;
use crate::memory::StackMapping;

/// Where a stub leads on to.
pub(crate) trait Destination: Any + Send + Sync {
    /// The address of the function, to which `slot` leads from now on; or an address to go on at this time alone.
    fn find(&self, slot: SlotAddr) -> Result<ExecutorAddr, ExecutorAddr>;

    /// As many calls were made through `slot` as were to be counted. Perhaps in a handler of a signal: must not wait.
    fn counted_out(&self, slot: SlotAddr);

    /// The functions that the code at `function` refers to. `function` was found.
    fn refers_to(&self, function: ExecutorAddr) -> Vec<ExecutorAddr>;
}

/// The data that the cold part of a stub hands to the thunk, with an [`IfuncDescriptor`](super::ifunc::IfuncDescriptor) first. The linker
/// writes it into data beside the stubs.
#[repr(C)]
pub(crate) struct CallThroughDescriptor {
    /// Where the thunk notes its answer: the last field, which is never read. A failed call must not bind the slot.
    ignored_slot: *mut u64,
    resolver: extern "C" fn(&CallThroughDescriptor) -> u64,
    /// The slot that the stub jumps through.
    slot: *mut u64,
    cell: *const Box<dyn Destination>,
    /// The function's address.
    stub: u64,
    ignored: u64,
}

impl CallThroughDescriptor {
    pub(crate) const BYTES: u64 = size_of::<Self>() as u64;
    pub(crate) const IGNORED_SLOT: u64 = std::mem::offset_of!(Self, ignored_slot) as u64;
    pub(crate) const SLOT: u64 = std::mem::offset_of!(Self, slot) as u64;
    pub(crate) const STUB: u64 = std::mem::offset_of!(Self, stub) as u64;
    pub(crate) const IGNORED: u64 = std::mem::offset_of!(Self, ignored) as u64;

    fn slot(&self) -> SlotAddr {
        // SAFETY: the stub that this is of is there.
        let place = match unsafe { stub_code(self.stub) } {
            Some((StubJump::Table(root), number)) => SlotPlace::InTable(root, number),
            _ => SlotPlace::Own(self.slot),
        };
        SlotAddr { place, stub: self.stub, counting: None }
    }

    /// The bytes of one whose slots the linker fills in. `cell` has to stay where it is for as long as the stub can be called.
    #[expect(clippy::borrowed_box, reason = "what is written is the box's own address, which is thin")]
    pub(crate) fn bytes(cell: &Box<dyn Destination>) -> [u8; Self::BYTES as usize] {
        let mut bytes = [0; Self::BYTES as usize];
        let resolver = first_call as extern "C" fn(&Self) -> u64 as *const () as u64;
        let cell = ptr::from_ref(cell) as u64;
        for (offset, value) in
            [(std::mem::offset_of!(Self, resolver), resolver), (std::mem::offset_of!(Self, cell), cell)]
        {
            bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}

/// The same of a stub whose calls may be counted.
#[repr(C)]
pub(crate) struct CountingDescriptor {
    first: CallThroughDescriptor,
    counted: *mut Counted,
    /// The counting part.
    counting: u64,
}

impl CountingDescriptor {
    pub(crate) const BYTES: u64 = size_of::<Self>() as u64;
    pub(crate) const COUNTED: u64 = std::mem::offset_of!(Self, counted) as u64;
    pub(crate) const COUNTING: u64 = std::mem::offset_of!(Self, counting) as u64;

    fn slot(&self) -> SlotAddr {
        let counting = Counting { counted: self.counted, part: self.counting };
        SlotAddr { counting: Some(counting), ..self.first.slot() }
    }

    /// As [`CallThroughDescriptor::bytes`].
    #[expect(clippy::borrowed_box, reason = "as there")]
    pub(crate) fn bytes(cell: &Box<dyn Destination>) -> [u8; Self::BYTES as usize] {
        const RESOLVER: usize = std::mem::offset_of!(CallThroughDescriptor, resolver);
        let mut bytes = [0; Self::BYTES as usize];
        let resolver = counted_call as extern "C" fn(&Self) -> u64 as *const () as u64;
        bytes[..CallThroughDescriptor::BYTES as usize].copy_from_slice(&CallThroughDescriptor::bytes(cell));
        bytes[RESOLVER..][..8].copy_from_slice(&resolver.to_le_bytes());
        bytes
    }
}

/// Called by the thunk.
extern "C" fn first_call(descriptor: &CallThroughDescriptor) -> u64 {
    call_first(descriptor, descriptor.slot())
}

/// The same of a stub whose calls may be counted: the first call, or the last that was to be counted.
extern "C" fn counted_call(descriptor: &CountingDescriptor) -> u64 {
    let slot = descriptor.slot();
    let Some(body) = slot.counted_body() else { return call_first(&descriptor.first, slot) };
    // SAFETY: the C library's place of this thread.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the maker of the stub keeps the cell at its place for as long as the stub may be called.
    let cell = unsafe { &**descriptor.first.cell };
    cell.counted_out(slot);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    body
}

fn call_first(descriptor: &CallThroughDescriptor, slot: SlotAddr) -> u64 {
    // SAFETY: the C library's place of this thread.
    let errno = unsafe { *libc::__errno_location() };
    let blocked = BlockedSignals::begin();
    let once = OnceCall::save();
    // SAFETY: the maker of the stub keeps the cell at its place for as long as the stub may be called.
    let cell = unsafe { &**descriptor.cell };
    let found = bind(slot, cell);
    once.restore();
    drop(blocked);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    found.unwrap_or_else(|instead| instead).value()
}

/// The thread-local variables that `std::call_once` of libstdc++ sets and reads back. LLVM uses `call_once` too, so a first call between
/// the two would leave them changed.
struct OnceCall([(*mut usize, usize); 2]);

impl OnceCall {
    fn save() -> Self {
        let library = Self::library();
        Self([c"_ZSt15__once_callable", c"_ZSt11__once_call"].map(|name| {
            let variable = match library {
                None => ptr::null_mut(),
                // SAFETY: a handle that is never given back, and a name that ends in a zero.
                Some(library) => unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) }.cast::<usize>(),
            };
            // SAFETY: this thread's variable of that name, a pointer.
            let value = if variable.is_null() { 0 } else { unsafe { *variable } };
            (variable, value)
        }))
    }

    /// The library, if it is loaded. It may have come with LLVM, in a place where a search by symbol does not find it.
    fn library() -> Option<NonNull<c_void>> {
        static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        // Relaxed: every writer stores the same value.
        NonNull::new(LIBRARY.load(Ordering::Relaxed)).or_else(|| {
            // SAFETY: a name that ends in a zero. A loaded library is not loaded again; it stays from now on.
            let library =
                unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            LIBRARY.store(library, Ordering::Relaxed); // as above
            NonNull::new(library)
        })
    }

    fn restore(self) {
        for (variable, value) in self.0.into_iter().filter(|(variable, _)| !variable.is_null()) {
            // SAFETY: as in `save`; the thread is the same.
            unsafe { *variable = value };
        }
    }
}

/// Finds where the stub leads, and has later calls go there.
fn bind(slot: SlotAddr, cell: &dyn Destination) -> Result<ExecutorAddr, ExecutorAddr> {
    let mut found = None;
    on_spare_stack(&mut || found = Some(cell.find(slot)));
    let found = found.expect("what runs elsewhere has come back");
    if let Ok(address) = found {
        slot.note(address);
    }
    found
}

/// How many functions [`prepare`] has compiled at most.
const PREPARED_MAX: usize = 256;

/// Has a function and the functions that it may call compiled before its first call: handlers of signals may interrupt the engine or the C
/// library in the middle of anything. Does nothing if `function` is no stub. A function that cannot be compiled fails at its call.
///
/// Functions that are called through pointers in data are not seen. If there are too many functions, the nearest are prepared.
pub(crate) fn prepare(function: ExecutorAddr) {
    HAS_HANDLERS.store(true, Ordering::Relaxed); // read by handlers, which are installed after this
    let (mut seen, mut next) = (vec![function], 0);
    while let Some(&function) = seen.get(next).filter(|_| next < PREPARED_MAX) {
        next += 1;
        let blocked = BlockedSignals::begin();
        // SAFETY: linked code that was found there stays, or the caller hands out a pointer to code that is being removed.
        let Some((descriptor, slot)) = (unsafe { unbound(function) }) else { continue };
        // SAFETY: as for a first call.
        let cell = unsafe { &**descriptor.cell };
        if let Ok(address) = bind(slot, cell) {
            let calls = cell.refers_to(address).into_iter();
            let calls: Vec<_> = calls.filter(|called| !seen.contains(called)).collect();
            seen.extend(calls);
        }
        drop(blocked);
    }
}

/// The pointer that a stub jumps through.
enum StubJump {
    /// A slot of its own, which is there.
    Slot(u64),
    Table(RootAddr),
}

/// Linked code that stays where it is for as long as the value is there.
pub(crate) trait KeepsCode {
    /// Whether code that stays lies at an address.
    fn contains(&self, address: ExecutorAddr) -> bool;
}

/// The number of the stub in code that is kept, and, if it is of a group, the word by which that is led elsewhere.
pub(crate) fn stub_at(stub: ExecutorAddr, kept: &impl KeepsCode) -> Option<(u32, Option<RootAddr>)> {
    kept.contains(stub).then_some(())?;
    // SAFETY: linked code is there, and stays (`KeepsCode`).
    let (jump, number) = unsafe { stub_code(stub.value()) }?;
    let root = if let StubJump::Table(root) = jump { Some(root) } else { None };
    Some((number, root))
}

/// The pointer that the stub at an address jumps through, and the stub's number. A stub has 16 bytes, or 48 in a group. An entry of the
/// linker's or a foreign function may jump like a stub: its number means nothing.
///
/// # Safety
/// If linked code is there, it stays.
unsafe fn stub_code(at: u64) -> Option<(StubJump, u32)> {
    // SAFETY: as here; linked code may be read.
    unsafe {
        let number = |at: u64| u32::from_le((at as *const u32).read_unaligned());
        if let Some(slot) = operand(at, &lazy::JUMP) {
            return Some((StubJump::Slot(slot), number(at + lazy::STUB_NUMBER as u64)));
        }
        let root = operand(at, &lazy::LOAD_ROOT)?;
        operand(at + lazy::LOAD_BY_TABLE_AT, &lazy::LOAD_BY_TABLE)?;
        let offset = number(at + lazy::LOAD_BY_TABLE_AT + lazy::LOAD_BY_TABLE.len() as u64);
        Some((StubJump::Table(RootAddr(root as *mut u64)), offset / 8))
    }
}

/// The address that an instruction refers to, if it begins with these bytes: the 32 bits behind them are the distance.
///
/// # Safety
/// If linked code is there, it stays.
unsafe fn operand(at: u64, first: &[u8]) -> Option<u64> {
    // Each piece of code has its entry in an unwind table, so that all of the instruction is there if its first byte is.
    if !unwind::is_linked(at) {
        return None;
    }
    let (at, len) = (ExecutorAddr::new(at), first.len());
    // SAFETY: linked code, which may be read.
    let bytes = unsafe { std::slice::from_raw_parts(at.to_ptr::<u8>(), len + 4) };
    let distance = i32::from_le_bytes(bytes[len..].try_into().ok()?);
    (bytes[..len] == *first).then(|| (at.value() + len as u64 + 4).wrapping_add_signed(distance.into()))
}

/// The descriptor that a cold part hands to the thunk. `None` for code that calls anything else.
///
/// # Safety
/// If linked code is there, it stays.
unsafe fn described(cold: u64) -> Option<*const CallThroughDescriptor> {
    // SAFETY: as here; memory that an instruction refers to may be read, and behind a call of the thunk stands the distance.
    unsafe {
        let thunk = operand(cold, &lazy::CALL)? as *const u64;
        (thunk.read_unaligned() == super::ifunc::lazy_thunk().value()).then_some(())?;
        let place = cold + lazy::COLD_DESCRIPTOR.offset;
        let distance = (place as *const i32).read_unaligned();
        Some(place.wrapping_add_signed(distance.into()) as *const CallThroughDescriptor)
    }
}

/// The descriptor and slot of the stub at an address that has not been called yet. `None` for all other code.
///
/// # Safety
/// If linked code is at `stub`, it stays there.
unsafe fn unbound<'a>(stub: ExecutorAddr) -> Option<(&'a CallThroughDescriptor, SlotAddr)> {
    // A foreign function may begin like a stub, and its pointers lead anywhere.
    unwind::functions::is_in_stubs(stub).then_some(())?;
    // SAFETY: as here.
    let place = match unsafe { stub_code(stub.value()) }? {
        (StubJump::Slot(slot), _) => SlotPlace::Own(slot as *mut u64),
        (StubJump::Table(root), number) => SlotPlace::InTable(root, number),
    };
    // Either the cold part, which was there before the stub, or a function, of which nothing is read.
    let cold = SlotAddr { place, stub: stub.value(), counting: None }.load();
    // SAFETY: as here; a function's code stays as long as its stub.
    let descriptor = unsafe { described(cold) }?;
    // SAFETY: functions that choose their implementation have shorter descriptors, which begin alike; the resolver tells the two apart.
    unsafe {
        let resolver = (&raw const (*descriptor).resolver).read() as usize;
        let slot = if resolver == first_call as extern "C" fn(&CallThroughDescriptor) -> u64 as usize {
            (*descriptor).slot()
        } else if resolver == counted_call as extern "C" fn(&CountingDescriptor) -> u64 as usize {
            (*descriptor.cast::<CountingDescriptor>()).slot()
        } else {
            return None;
        };
        Some((&*descriptor, slot))
    }
}

/// Whether linked code has installed a handler of a signal. Before that, none of its code runs in one.
pub(crate) fn has_handlers() -> bool {
    HAS_HANDLERS.load(Ordering::Relaxed) // see `prepare`
}

static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

/// `PTHREAD_CANCEL_DISABLE` of the GNU C library.
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Signals that come later, and being cancelled, until this is dropped: a handler that makes a first call itself would find the engine's locks taken beneath it.
pub(crate) struct BlockedSignals {
    signals: libc::sigset_t,
    cancellation: c_int,
}

impl BlockedSignals {
    pub(crate) fn begin() -> Self {
        // SAFETY: both sets are written before they are read; blocking signals on this thread has no other obligation.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            // Faults of the thread itself are not blocked: the process would end without a word.
            for fault in
                [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT]
            {
                libc::sigdelset(&raw mut all, fault);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            let mut cancellation = 0;
            pthread_setcancelstate(CANCEL_DISABLE, &raw mut cancellation);
            Self { signals: before, cancellation }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: both were written by `begin`.
        unsafe {
            pthread_setcancelstate(self.cancellation, ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.signals, ptr::null_mut());
        }
    }
}

/// How much address space a stack takes; memory only as far as it was used. As much as a compiler's threads are given elsewhere.
const STACK_BYTES: usize = 64 << 20;
/// How many wait for their next use.
const SPARE_MAX: usize = 8;

/// Tried, never waited for: a thread of the parent may have held the lock when the process forked.
static SPARE: Mutex<Vec<StackMapping>> = Mutex::new(Vec::new());

/// Runs `work` on a large stack; on this one, if the system grants none.
pub(crate) fn on_spare_stack(work: &mut dyn FnMut()) {
    let spare = SPARE.try_lock().and_then(|mut spare| spare.pop());
    let Some(stack) = spare.or_else(|| StackMapping::reserve(STACK_BYTES).ok()) else { return work() };
    let Range { end, .. } = stack.range();
    let mut work: &mut dyn FnMut() = work;
    // SAFETY: `end` is the aligned end of a stack that is used here alone; `run` gets the pointer it expects, and does not unwind: it is
    // `extern "C"`.
    unsafe { call_on(run, (&raw mut work).cast(), end) };
    if let Some(mut spare) = SPARE.try_lock()
        && spare.len() < SPARE_MAX
    {
        spare.push(stack);
    }
}

extern "C" fn run(work: *mut c_void) {
    // SAFETY: the pointer that `on_spare_stack` has handed over.
    let work = unsafe { &mut *work.cast::<&mut dyn FnMut()>() };
    work();
}

/// Calls `function` with `data` on the stack that ends at `top`. Backtraces go on through it.
///
/// # Safety
/// `top` is the end, aligned to 16 bytes, of memory that is large enough and otherwise unused. `function` may be called with `data`.
#[unsafe(naked)]
unsafe extern "C" fn call_on(function: extern "C" fn(*mut c_void), data: *mut c_void, top: usize) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdx",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_another_stack_and_stacks_are_used_again() {
        let here = 0_u8;
        let place = || {
            let mut place = 0;
            on_spare_stack(&mut || {
                let there = 0_u8;
                place = (&raw const there).addr();
            });
            place
        };
        let first = place();
        assert!(first.abs_diff((&raw const here).addr()) > 1 << 20);
        assert!(first != 0 && place() != 0);
    }

    #[test]
    fn a_deep_recursion_has_room() {
        fn depth(left: usize) -> usize {
            let frame = std::hint::black_box([left; 64]);
            if left == 0 { 0 } else { 1 + depth(left - 1) + frame[0] - left }
        }
        let mut reached = 0;
        on_spare_stack(&mut || reached = depth(50_000));
        assert_eq!(reached, 50_000);
    }

    #[test]
    fn signals_wait_and_faults_do_not() {
        let is_blocked = |signal| {
            // SAFETY: the set is written before it is read.
            unsafe {
                let mut now = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut now);
                libc::sigismember(&raw const now, signal) == 1
            }
        };
        let blocked = BlockedSignals::begin();
        assert_eq!([libc::SIGUSR1, libc::SIGALRM, libc::SIGSEGV].map(is_blocked), [true, true, false]);
        drop(blocked);
        assert!(!is_blocked(libc::SIGUSR1));
    }
}

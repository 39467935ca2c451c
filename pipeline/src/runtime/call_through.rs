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
//!
//! Where the code runs in another process than the linker, its first calls ask that one ([`elsewhere`]).

mod blocked;
mod called;
mod cells;
#[cfg_attr(not(feature = "helpers"), expect(dead_code, reason = "as above"))]
mod elsewhere;
mod id_table;
mod once_call;
mod slot;
mod table;

use std::any::Any;
use std::ffi::c_void;
use std::ops::Range;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;
use uruk_core::sync::atomic::{AtomicBool, Ordering};

pub(crate) use self::blocked::{BlockedSignals, handler_comes, handler_goes};
pub(crate) use self::called::{CalledStub, StubThere};
pub(crate) use self::cells::{Cells, NamedCells};
#[cfg(feature = "helpers")]
pub(crate) use self::elsewhere::{
    CallElsewhere, FoundElsewhere, StubsElsewhere, ask_elsewhere, counted_out_for, find_for, lead_stubs,
};
use self::id_table::TableId;
use self::once_call::OnceCall;
pub(crate) use self::slot::{CountWords, RootAddr, SlotAddr};
use self::slot::{Counting, SlotPlace};
pub(crate) use self::table::StubTable;
use super::unwind;
pub(crate) use super::unwind::functions::note as note_body;
use crate::arch::host::call_on;
use crate::executor::BEFORE_CODE_BYTES;
use crate::memory::StackMapping;

/// Where a stub leads on to.
pub(crate) trait Destination: Any + Send + Sync {
    /// The address of the function, to which `stub` leads from now on; or an address to go on at this time alone, null if there is none.
    fn find(&self, stub: CalledStub) -> Result<ExecutorAddr, ExecutorAddr>;

    /// As many calls were made through `stub` as were to be counted. Perhaps in a handler of a signal: must not wait.
    fn counted_out(&self, stub: CalledStub);

    /// The functions that the code at `function` refers to. `function` was found.
    fn refers_to(&self, function: ExecutorAddr) -> Vec<ExecutorAddr>;
}

/// The data that the cold part of a stub hands to the thunk, with an [`IfuncDescriptor`](super::ifunc::IfuncDescriptor) first. The linker
/// writes it into data beside the stubs.
#[repr(C)]
pub(crate) struct CallThroughDescriptor {
    /// Where the thunk notes its answer: the last field, which is never read. A failed call must not bind the slot.
    ignored_slot: *mut u64,
    /// [`first_call`], or [`counted_call`].
    resolver: ExecutorAddr,
    /// The slot that the stub jumps through.
    slot: *mut u64,
    /// The id of the cells of the stub's unit.
    cells: u64,
    table: *const StubTable,
    /// The function's address.
    stub: u64,
    /// The cold part, to which the slot leads before a call.
    unbound: u64,
    ignored: u64,
}

impl CallThroughDescriptor {
    pub(crate) const BYTES: u64 = size_of::<Self>() as u64;
    pub(crate) const IGNORED_SLOT: u64 = std::mem::offset_of!(Self, ignored_slot) as u64;
    pub(crate) const SLOT: u64 = std::mem::offset_of!(Self, slot) as u64;
    pub(crate) const TABLE: u64 = std::mem::offset_of!(Self, table) as u64;
    pub(crate) const STUB: u64 = std::mem::offset_of!(Self, stub) as u64;
    pub(crate) const UNBOUND: u64 = std::mem::offset_of!(Self, unbound) as u64;
    pub(crate) const IGNORED: u64 = std::mem::offset_of!(Self, ignored) as u64;

    fn table(&self) -> &StubTable {
        // SAFETY: it stands beside the stub that this is of, which is there.
        unsafe { &*self.table }
    }

    /// The stub's number.
    fn number(&self) -> Option<u32> {
        self.table().number(self.stub)
    }

    fn slot(&self) -> SlotAddr {
        let place = match (self.table().root(), self.number()) {
            (Some(root), Some(number)) => SlotPlace::InTable(RootAddr(root as *mut u64), number),
            _ => SlotPlace::Own(self.slot),
        };
        SlotAddr { place, stub: self.stub, counting: None }
    }

    /// Calls `look` with the cell of the stub. Does nothing if the stub's unit has gone.
    fn with_cell<T>(&self, look: impl FnOnce(&dyn Destination) -> T) -> Option<T> {
        let number = self.number()?;
        let cells = cells::find(self.cells)?;
        Some(look(&**cells.get(number as usize)?))
    }

    /// The bytes of one whose slots the linker fills in: of a stub of the unit that has these `cells`. `resolver` is the function that the
    /// thunk calls.
    pub(crate) fn bytes(cells: TableId, resolver: ExecutorAddr) -> [u8; Self::BYTES as usize] {
        let mut bytes = [0; Self::BYTES as usize];
        for (offset, value) in [
            (std::mem::offset_of!(Self, resolver), resolver.value()),
            (std::mem::offset_of!(Self, cells), cells.number()),
        ] {
            bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}

/// The same of a stub whose calls may be counted.
#[repr(C)]
pub(crate) struct CountingDescriptor {
    first: CallThroughDescriptor,
    counted: *mut CountWords,
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
    pub(crate) fn bytes(cells: TableId, resolver: ExecutorAddr) -> [u8; Self::BYTES as usize] {
        let mut bytes = [0; Self::BYTES as usize];
        bytes[..CallThroughDescriptor::BYTES as usize]
            .copy_from_slice(&CallThroughDescriptor::bytes(cells, resolver));
        bytes
    }
}

/// The functions that the thunk calls: of stubs whose calls are not counted, and of those whose calls are.
pub(super) fn resolvers() -> [ExecutorAddr; 2] {
    let (first, counted): (
        extern "C" fn(&CallThroughDescriptor) -> u64,
        extern "C" fn(&CountingDescriptor) -> u64,
    ) = (first_call, counted_call);
    [ExecutorAddr::from_ptr(first as *const ()), ExecutorAddr::from_ptr(counted as *const ())]
}

/// Called by the thunk.
extern "C" fn first_call(descriptor: &CallThroughDescriptor) -> u64 {
    call_first(descriptor, descriptor.slot())
}

/// How many calls are counted again where the process that links cannot be told at once.
const COUNTED_AGAIN: u32 = 1_000;

/// The same of a stub whose calls may be counted: the first call, or the last that was to be counted.
extern "C" fn counted_call(descriptor: &CountingDescriptor) -> u64 {
    let slot = descriptor.slot();
    let Some(body) = slot.counted_body() else { return call_first(&descriptor.first, slot) };
    // SAFETY: the C library's place of this thread.
    let errno = unsafe { *libc::__errno_location() };
    match elsewhere::asked(&descriptor.first) {
        Some((other, call)) if other.counted_out(call) => {}
        Some(_) => slot.count(COUNTED_AGAIN),
        None => _ = descriptor.first.with_cell(|cell| cell.counted_out(CalledStub::Here(slot))),
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    body
}

fn call_first(descriptor: &CallThroughDescriptor, slot: SlotAddr) -> u64 {
    // SAFETY: the C library's place of this thread.
    let errno = unsafe { *libc::__errno_location() };
    let blocked = BlockedSignals::begin();
    let once = OnceCall::save();
    let found = find(descriptor, slot);
    once.restore();
    drop(blocked);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    match found {
        ExecutorAddr::NULL => ExecutorAddr::from_ptr(libc::abort as *const ()).value(),
        address => address.value(),
    }
}

/// Where a call goes on. Null if there is nothing to go on at: it failed, or the caller has a pointer into code that was removed.
fn find(descriptor: &CallThroughDescriptor, slot: SlotAddr) -> ExecutorAddr {
    if let Some((other, call)) = elsewhere::asked(descriptor) {
        return on_another_stack(|| other.find(call, false)).address;
    }
    match descriptor.with_cell(|cell| bind(slot, || cell.find(CalledStub::Here(slot)))) {
        Some(Ok(address) | Err(address)) => address,
        None => ExecutorAddr::NULL,
    }
}

/// Runs `work` as [`on_spare_stack`] does.
fn on_another_stack<T>(work: impl FnOnce() -> T) -> T {
    let (mut work, mut result) = (Some(work), None);
    on_spare_stack(&mut || result = work.take().map(|work| work()));
    result.expect("what runs elsewhere has come back")
}

/// Finds where the stub leads, and has later calls go there.
fn bind<E>(slot: SlotAddr, find: impl FnOnce() -> Result<ExecutorAddr, E>) -> Result<ExecutorAddr, E> {
    let found = on_another_stack(find);
    if let Ok(address) = &found {
        slot.note(*address);
    }
    found
}

/// The address that a stub in code that is kept jumps to. If it was not called yet, `find` finds that first, as its first call would.
/// `None` for all other code.
pub(crate) fn lead<E>(
    stub: ExecutorAddr,
    kept: &impl KeepsCode,
    find: impl FnOnce(&dyn Destination, CalledStub) -> Result<ExecutorAddr, E>,
) -> Option<Result<ExecutorAddr, E>> {
    kept.contains(stub).then_some(())?;
    // SAFETY: linked code is there, and stays (`KeepsCode`).
    let (descriptor, slot) = unsafe { descriptor_of(stub) }?;
    let target = slot.load();
    if target != descriptor.unbound {
        return Some(Ok(ExecutorAddr::new(target)));
    }
    let _blocked = BlockedSignals::begin();
    descriptor.with_cell(|cell| bind(slot, || find(cell, CalledStub::Here(slot))))
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
        let calls = match elsewhere::asked(descriptor) {
            Some((other, call)) => Some(on_another_stack(|| other.find(call, true)).references),
            None => descriptor.with_cell(|cell| {
                let found = bind(slot, || cell.find(CalledStub::Here(slot)));
                found.map_or_else(|_| Vec::new(), |address| cell.refers_to(address))
            }),
        };
        let calls = calls.unwrap_or_default().into_iter();
        let calls: Vec<_> = calls.filter(|called| !seen.contains(called)).collect();
        seen.extend(calls);
        drop(blocked);
    }
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
    let (table, number) = unsafe { table_of(stub) }?;
    Some((number, table.root().map(|root| RootAddr(root as *mut u64))))
}

/// The table of the stub at an address, and the stub's number. `None` for all other code.
///
/// # Safety
/// If linked code is at `stub`, it stays there.
unsafe fn table_of<'a>(stub: ExecutorAddr) -> Option<(&'a StubTable, u32)> {
    let code = unwind::functions::stubs_at(stub)?;
    // SAFETY: the code of stubs begins with their table, and stays as here.
    let table = unsafe { &*ExecutorAddr::new(code + BEFORE_CODE_BYTES).to_ptr::<StubTable>() };
    Some((table, table.number(stub.value())?))
}

/// The descriptor and slot of the stub at an address that has not been called yet. `None` for all other code.
///
/// # Safety
/// If linked code is at `stub`, it stays there.
unsafe fn unbound<'a>(stub: ExecutorAddr) -> Option<(&'a CallThroughDescriptor, SlotAddr)> {
    // SAFETY: as here.
    let (descriptor, slot) = unsafe { descriptor_of(stub) }?;
    (slot.load() == descriptor.unbound).then_some((descriptor, slot))
}

/// The descriptor and slot of the stub at an address. `None` for all other code.
///
/// # Safety
/// As [`unbound`].
unsafe fn descriptor_of<'a>(stub: ExecutorAddr) -> Option<(&'a CallThroughDescriptor, SlotAddr)> {
    // SAFETY: as here; a descriptor stays as long as its stub.
    let (table, descriptor) = unsafe {
        let (table, number) = table_of(stub)?;
        (table, table.descriptor(number) as *const CallThroughDescriptor)
    };
    // SAFETY: the table says which descriptors its stubs have.
    let slot = unsafe {
        if table.descriptor_bytes() == CountingDescriptor::BYTES {
            (*descriptor.cast::<CountingDescriptor>()).slot()
        } else {
            (*descriptor).slot()
        }
    };
    // SAFETY: as above.
    Some((unsafe { &*descriptor }, slot))
}

/// Whether linked code has installed a handler of a signal. Before that, none of its code runs in one.
pub(crate) fn has_handlers() -> bool {
    HAS_HANDLERS.load(Ordering::Relaxed) // see `prepare`
}

static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

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
}

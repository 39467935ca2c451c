//! Variables of libraries that move: below 2 GiB, for code that holds their addresses in 32 bits, or near to the code, for code that reads them
//! directly where libraries may be too far away (`remote/copies.rs`).
//!
//! Natively the program carries a copy of such a variable, and the dynamic linker points every library at it before
//! anything runs. Here the libraries run already. So the contents are copied, and each pointer in a table of a loaded
//! object that holds the variable's address then holds the copy's. Such a pointer is known by its value, so all names
//! of one variable (`environ`, `__environ`) share one copy.
//!
//! The copying misses these, and therefore takes place before the program runs:
//! - a pointer to the variable that is stored elsewhere;
//! - a library that the program loads later: it finds its own variable. Natively it would find the program's;
//! - the executable's own variables, which its code reaches directly: they are refused.
//!
//! A copy stays for as long as the process does, as the libraries that use it.

use std::ptr;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;

use crate::arch::SlotKind;
use crate::memory::{FinalizedAlloc, MemoryManager, SegmentKind, SegmentRequest};
use crate::runtime::loaded::{ImportSlot, store_all};

/// The variables that have moved. Held while one moves, so that none moves twice.
static MOVED: Mutex<Vec<Moved>> = Mutex::new(Vec::new());

struct Moved {
    from: ExecutorAddr,
    to: ExecutorAddr,
    /// None of its own, if the memory stays in any case.
    _memory: Option<FinalizedAlloc>,
}

/// Where a copy is, and its memory, if that goes with it.
type PlacedCopy = (ExecutorAddr, Option<FinalizedAlloc>);

/// Where a variable of the process lies below 2 GiB. It is moved there unless it has been; `may_move` says whether it
/// may be. `None` if it cannot be.
///
/// # Cost
/// As of [`moved_variable`].
pub(crate) fn low_variable(
    memory: &dyn MemoryManager,
    variable: ExecutorAddr,
    may_move: bool,
) -> Option<ExecutorAddr> {
    let place = |content_bytes, align| {
        let request = SegmentRequest { kind: SegmentKind::Data, content_bytes, zero_fill_bytes: 0, align };
        let flight = memory.allocate_low("copies of variables below 2 GiB", &[request]).ok()?;
        let memory = flight.finalize().ok()?;
        Some((memory.address(0), Some(memory)))
    };
    moved_variable(variable, may_move, place)
}

/// Where a variable of the process has moved to. If it has not moved, and `may_move`, `place` gives memory of a size and an alignment for the copy,
/// which is writable and nothing else's. `None` if it cannot move.
///
/// # Cost
/// Two walks over the relocations of all loaded objects for a variable that moves.
pub(crate) fn moved_variable(
    variable: ExecutorAddr,
    may_move: bool,
    place: impl FnOnce(usize, usize) -> Option<PlacedCopy>,
) -> Option<ExecutorAddr> {
    let mut moved = MOVED.lock();
    if let Some(known) = moved.iter().find(|known| known.from == variable) {
        return Some(known.to);
    }
    if !may_move {
        return None;
    }
    let size_bytes = size_in_library(variable)?;
    let (to, memory) = place(size_bytes, 1 << variable.value().trailing_zeros().min(6))?;
    // SAFETY: a loaded library says that the variable has this size, and does not go. The copy's memory has it too, is writable, and no code
    // knows it yet.
    unsafe { ptr::copy_nonoverlapping(variable.to_ptr::<u8>(), to.to_ptr::<u8>(), size_bytes) };
    let of_copy = |slot: &ImportSlot<'_>| {
        let points_there =
            slot.kind != SlotKind::ThreadLocal && slot.load().wrapping_sub(slot.addend) == variable.value();
        points_there.then(|| ptr::with_exposed_provenance_mut(to.value().wrapping_add(slot.addend) as usize))
    };
    if !store_all(of_copy) {
        return None;
    }
    moved.push(Moved { from: variable, to, _memory: memory });
    Some(to)
}

/// The address that counts for what a library has at `address`: that of the copy, if it has moved.
pub(super) fn now_at(address: u64) -> u64 {
    let moved = MOVED.lock();
    moved.iter().find(|known| known.from.value() == address).map_or(address, |known| known.to.value())
}

/// Whether a variable or a table of a loaded object begins at `address`. Its segment does not say so: some linkers put
/// constants beside the code.
///
/// # Cost
/// A walk over the symbols of the object that has the address.
pub(crate) fn is_variable(address: ExecutorAddr) -> bool {
    symbol_at(address).is_some_and(|(_, symbol)| is_object(&symbol))
}

/// The size of the variable of a library that begins at `variable`. `None` for variables of the executable, and for all other things.
fn size_in_library(variable: ExecutorAddr) -> Option<usize> {
    let (base, symbol) = symbol_at(variable)?;
    (is_object(&symbol) && symbol.st_size > 0 && !is_executable(base)).then_some(symbol.st_size as usize)
}

/// Whether `address` is a variable of the executable: its copy of a library's, if a library has one of that name.
pub(super) fn is_executables(address: u64) -> bool {
    symbol_at(ExecutorAddr::new(address))
        .is_some_and(|(base, symbol)| is_executable(base) && is_object(&symbol))
}

fn is_executable(base: u64) -> bool {
    // SAFETY: asking for an entry of the auxiliary vector has no obligation.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
    base == headers & !4095
}

fn is_object(symbol: &libc::Elf64_Sym) -> bool {
    const STT_OBJECT: u8 = 1;
    symbol.st_info & 0xf == STT_OBJECT
}

/// The symbol that begins at `address`, and where the loaded object begins that has it.
fn symbol_at(address: ExecutorAddr) -> Option<(u64, libc::Elf64_Sym)> {
    const RTLD_DL_SYMENT: libc::c_int = 1;
    // SAFETY: a zeroed Dl_info is valid; the call fills it, and the pointer to the symbol, or fails.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let mut symbol: *const libc::Elf64_Sym = ptr::null();
        let known = libc::dladdr1(address.to_ptr(), &raw mut info, (&raw mut symbol).cast(), RTLD_DL_SYMENT);
        let begins_here = known != 0 && !symbol.is_null() && info.dli_saddr.addr() as u64 == address.value();
        begins_here.then(|| (info.dli_fbase.addr() as u64, *symbol))
    }
}

//! Room in the executable's own thread-local block for variables of linked code.
//!
//! Code that compilers make for executables reaches its variables at fixed distances from the thread pointer. Only the executable's block,
//! and those of libraries loaded with it, lie at such distances; so the executable keeps a range of its block free. A variable in that
//! range has one address per thread, whichever way code takes to it: our `__tls_get_addr` knows a module whose offsets count from the
//! thread pointer.
//!
//! ```text
//!  file:    | .tdata ... reserve, all zero ... |     the initial values: new threads start with a copy
//!  thread:  | ....... reserve ......... | TCB        each thread's own; the thread pointer points to the TCB
//! ```
//! When an object is linked, its initial values are written into the executable's, which new threads copy, and into the
//! block of each thread that runs. The latter are known because they came through our `pthread_create`, which also lets a
//! thread that started meanwhile catch up before it runs any program code.
//!
//! A thread that the C library starts for itself, such as that of a timer, is not known. It has the variables of
//! objects that were linked before it was started.
//!
//! **Invariant:** no thread reads or writes a piece of the reserve before the object it belongs to is linked, so writing initial values
//! into the blocks of other threads races with nothing.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;

use rustc_hash::FxHashSet;
use uruk_core::ExecutorAddr;

use super::TlsIndex;
use super::distance::thread_pointer;
use super::registry::FIXED;
use super::reserve_rooms::ReserveRooms;
use crate::executor::NotStatic;
use crate::runtime::forks::{self, LockOrder, RuntimeLock};

/// The size of the reserve, as `export_tls_reserve!` defines it.
pub const RESERVE_BYTES: usize = 32 << 10;

/// The alignment of the reserve, and so the strictest a variable in it may ask for.
pub const RESERVE_ALIGN: usize = 4096;

/// Keeps room in the executable's thread-local block for variables of linked code. For executables on x86-64 only.
///
/// Defines the function `offer_tls_reserve`, which the executable calls before it starts threads or links anything. It
/// says whether the reserve is there.
///
/// # Cost
/// 32 KiB of each thread's stack, and their initialisation.
#[macro_export]
macro_rules! export_tls_reserve {
    () => {
        ::std::arch::global_asm!(
            ".pushsection .tdata.uruk_tls_reserve, \"awT\", @progbits",
            ".p2align 12",
            ".hidden uruk_tls_reserve",
            ".globl uruk_tls_reserve",
            ".type uruk_tls_reserve, @tls_object",
            "uruk_tls_reserve:",
            ".zero {bytes}",
            ".size uruk_tls_reserve, {bytes}",
            ".popsection",
            bytes = const $crate::runtime::tls::RESERVE_BYTES,
        );

        /// Lets linked code use the executable's reserve. The calling thread is the one that will run it first.
        fn offer_tls_reserve() -> bool {
            let here: *mut u8;
            // SAFETY: computes an address; the ABI has the thread pointer stored where it points to.
            unsafe {
                ::std::arch::asm!(
                    "mov {here}, fs:0",
                    "lea {here}, [{here} + uruk_tls_reserve@tpoff]",
                    here = out(reg) here,
                    options(nostack, preserves_flags, readonly),
                );
            }
            // SAFETY: the reserve is the executable's, of that size, and has no other user.
            unsafe { $crate::runtime::tls::offer_reserve(here) }
        }
    };
}

/// Takes [`RESERVE_BYTES`] at `here` in the calling thread's block of the executable, and at the same place in the blocks of
/// all threads, for linked code. `false` if they cannot be used, or there is a reserve already.
///
/// # Safety
/// That range of the block has no other user, on any thread. [`export_tls_reserve!`](crate::export_tls_reserve) sees to that.
///
/// # Concurrency
/// To be called before other threads run program code.
pub unsafe fn offer_reserve(here: *mut u8) -> bool {
    let address = here.addr() as u64;
    let Some(initial) = initial_values(address) else {
        return false;
    };
    // SAFETY: the pages lie in the executable's initial values, and are all of the reserve: no other code writes or protects them.
    let opened = unsafe {
        let pages = ptr::with_exposed_provenance_mut::<c_void>(initial as usize);
        initial.is_multiple_of(RESERVE_ALIGN as u64)
            && libc::mprotect(pages, RESERVE_BYTES, libc::PROT_READ | libc::PROT_WRITE) == 0
    };
    if !opened || RESERVE.lock().is_some() || forks::watch().is_err() {
        return false;
    }
    let mut reserve = RESERVE.lock();
    if reserve.is_some() {
        return false;
    }
    *reserve = Some(Reserve {
        initial,
        distance: address.wrapping_sub(thread_pointer()).cast_signed(),
        rooms: ReserveRooms::new(),
        written: Vec::new(),
        writes: 0,
        threads: FxHashSet::from_iter([thread_pointer()]),
    });
    true
}

/// Held for bookkeeping, and while initial values are copied; never while program code runs.
static RESERVE: RuntimeLock<Option<Reserve>> =
    RuntimeLock::with_change(LockOrder::TlsReserve, None, keep_this_thread);

struct Reserve {
    /// Where the executable's initial values of it are.
    initial: u64,
    /// How far from the thread pointer it starts.
    distance: i64,
    rooms: ReserveRooms,
    /// Which ranges have initial values, each with the number of its writing; the last comes last.
    written: Vec<(u64, Range<usize>)>,
    /// How often initial values have been written.
    writes: u64,
    /// The thread pointers of the threads that run, as far as they are known.
    threads: FxHashSet<u64>,
}

/// A range of the reserve that belongs to an object. Dropping it gives it back.
#[derive(Debug)]
pub struct ReservedTls {
    range: Range<usize>,
    place: TlsIndex,
}

/// Takes room in the reserve. `None` if there is no reserve, or not enough room in it.
///
/// An object that can do without, which is not `required`, gets none of the last half: an object may come that cannot.
///
/// # Concurrency
/// Callable from any thread.
pub fn reserve(total_bytes: usize, align: usize, required: bool) -> Option<ReservedTls> {
    let mut reserve = RESERVE.lock();
    let reserve = reserve.as_mut()?;
    let range = reserve.rooms.take(total_bytes, align, required)?;
    let offset = reserve.distance.wrapping_add_unsigned(range.start as u64).cast_unsigned();
    let place = TlsIndex { module: FIXED, offset };
    Some(ReservedTls { range, place })
}

/// Takes the room that another process, which links for this one, has given an object at `offset` from the thread pointer. `None` if it is not
/// free, or there is no reserve.
#[cfg(feature = "helpers")]
pub(super) fn adopt(offset: u64, total_bytes: usize) -> Option<ReservedTls> {
    let mut reserve = RESERVE.lock();
    let reserve = reserve.as_mut()?;
    let start = usize::try_from(offset.wrapping_sub(reserve.distance.cast_unsigned())).ok()?;
    let range = start..start.checked_add(total_bytes.max(1))?;
    let place = TlsIndex { module: FIXED, offset };
    reserve.rooms.adopt(range.clone()).then_some(ReservedTls { range, place })
}

/// How far from the thread pointer the reserve begins, on every thread. `None` if there is none.
#[cfg(feature = "helpers")]
pub(crate) fn reserve_distance() -> Option<i64> {
    RESERVE.lock().as_ref().map(|reserve| reserve.distance)
}

impl ReservedTls {
    /// Where the range starts.
    pub fn place(&self) -> TlsIndex {
        self.place
    }

    /// Gives every thread, those to come too, the initial values: `image_bytes` at `image`, and zeros behind them.
    ///
    /// The bytes can be read, and no code that uses the variables has run: that is the linker's to see to.
    pub fn initialize(&self, image: ExecutorAddr, image_bytes: usize) {
        let mut reserve = RESERVE.lock();
        let Some(reserve) = reserve.as_mut() else { return };
        let start = self.range.start as u64;
        let len = self.range.len();
        // SAFETY: the linker has the image in its memory. The range is this object's, so that no thread reads or writes it in any block
        // before its code runs.
        unsafe {
            let initial = ptr::with_exposed_provenance_mut::<u8>((reserve.initial + start) as usize);
            let given = image_bytes.min(len);
            ptr::copy_nonoverlapping(image.to_ptr::<u8>(), initial, given);
            initial.add(given).write_bytes(0, len - given);
        }
        reserve.writes += 1;
        reserve.written.push((reserve.writes, self.range.clone()));
        for thread in &reserve.threads {
            // SAFETY: the thread is registered, so its block is there; the rest as above.
            unsafe { reserve.copy_to(*thread, &self.range) };
        }
    }
}

impl Drop for ReservedTls {
    fn drop(&mut self) {
        if let Some(reserve) = RESERVE.lock().as_mut() {
            reserve.rooms.give_back(&self.range);
            reserve.written.retain(|(_, range)| *range != self.range);
        }
    }
}

impl Reserve {
    /// # Safety
    /// `thread` is the thread pointer of a thread that has not ended, and the range is not in use on it.
    unsafe fn copy_to(&self, thread: u64, range: &Range<usize>) {
        let block = thread.wrapping_add_signed(self.distance) + range.start as u64;
        // SAFETY: every thread's block has the reserve at the same distance from its thread pointer.
        unsafe {
            ptr::copy_nonoverlapping(
                ptr::with_exposed_provenance::<u8>((self.initial + range.start as u64) as usize),
                ptr::with_exposed_provenance_mut::<u8>(block as usize),
                range.len(),
            );
        }
    }
}

/// In the child of a fork, where only the thread that forked is left, and of the others not even the stacks.
fn keep_this_thread(reserve: &mut Option<Reserve>) {
    if let Some(reserve) = reserve.as_mut() {
        reserve.threads.clear();
        reserve.threads.insert(thread_pointer());
    }
}

/// How often initial values have been written; `None` without a reserve. The argument for [`thread_starts`].
pub(super) fn writes() -> Option<u64> {
    RESERVE.lock().as_ref().map(|reserve| reserve.writes)
}

/// Gives the calling thread the initial values that were written since `writes`. It did not exist before that, so it has all others. If it
/// `is_known` from now on, later values are written for it too.
pub(super) fn thread_starts(writes: u64, is_known: bool) {
    let mut reserve = RESERVE.lock();
    let Some(reserve) = reserve.as_mut() else { return };
    for (_, range) in reserve.written.iter().rev().take_while(|(number, _)| *number > writes) {
        // SAFETY: the thread is this one, and no program code has run on it.
        unsafe { reserve.copy_to(thread_pointer(), range) };
    }
    if is_known {
        reserve.threads.insert(thread_pointer());
    }
}

/// Forgets the calling thread, whose block is about to go.
pub(super) fn thread_ends() {
    if let Some(reserve) = RESERVE.lock().as_mut() {
        reserve.threads.remove(&thread_pointer());
    }
}

/// Why an object's variables are not in the reserve.
pub(super) fn why_not() -> NotStatic {
    match RESERVE.lock().as_ref() {
        None => NotStatic::NoReserve,
        Some(reserve) => reserve.rooms.why_not(),
    }
}

/// The executable's initial values for the variables at `address` in the calling thread's block, if all of the reserve has some.
fn initial_values(address: u64) -> Option<u64> {
    let mut search = InitialSearch { address, found: None };
    // SAFETY: the callback gets back the pointer to `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

struct InitialSearch {
    address: u64,
    found: Option<u64>,
}

/// Looks at the executable, which comes first, and at nothing else.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, size: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a description of `size` bytes and the pointer given to it.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<InitialSearch>()) };
    if size < size_of::<libc::dl_phdr_info>() {
        return 1;
    }
    // SAFETY: the description's program headers are `dlpi_phnum` valid entries.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let Some(segment) = headers.iter().find(|header| header.p_type == libc::PT_TLS) else { return 1 };
    let offset = search.address.wrapping_sub(info.dlpi_tls_data.addr() as u64);
    if offset.saturating_add(RESERVE_BYTES as u64) <= segment.p_filesz {
        search.found = Some(info.dlpi_addr.wrapping_add(segment.p_vaddr).wrapping_add(offset));
    }
    1
}

#[cfg(all(test, target_arch = "x86_64"))] // as `export_tls_reserve!` is
mod tests {
    use super::*;
    use uruk_core::sync::{Latch, thread};

    crate::export_tls_reserve!();

    /// A thread of the C library's own, which is not known here, stands for one that is on its way.
    #[test]
    fn a_thread_that_started_meanwhile_catches_up() {
        static IMAGE: [u64; 2] = [7, 8];
        let image = ExecutorAddr::from_ptr(IMAGE.as_ptr());
        assert!(offer_tls_reserve());
        let [first, second] = [(); 2].map(|()| reserve(24, 8, true).expect("room"));
        let distance = |reserved: &ReservedTls| reserved.place().offset.cast_signed();
        let words = |distance: i64| {
            let here = thread_pointer().wrapping_add_signed(distance) as usize;
            // SAFETY: the range lies in this thread's block, and only this test uses it.
            unsafe { *ptr::with_exposed_provenance::<[u64; 3]>(here) }
        };
        let distances = [distance(&first), distance(&second)];
        let (started, written) = (Latch::new(), Latch::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let before = writes().expect("there is a reserve");
                started.open();
                written.wait();
                assert_eq!(words(distances[0]), [0; 3], "nobody has seen this thread");
                thread_starts(before, true);
                assert_eq!(words(distances[0]), [7, 8, 0]);
                second.initialize(image, 16);
                assert_eq!(words(distances[1]), [7, 8, 0], "now it is known");
                thread_ends();
            });
            started.wait();
            first.initialize(image, 16);
            written.open();
        });
        assert_eq!(distances.map(words), [[7, 8, 0]; 2], "the thread that offered it is known");
        let place = first.place();
        drop(first);
        assert_eq!(reserve(16, 8, true).expect("its room is free").place(), place);
    }
}

//! The words that a stub jumps through, and by which its calls are counted.

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::note_body;
use crate::arch::CALLS_AT;

/// The word that a stub jumps through.
///
/// Its user holds the stub, or is called through it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotAddr {
    pub(super) place: SlotPlace,
    /// The function's address.
    pub(super) stub: u64,
    /// If calls can be counted.
    pub(super) counting: Option<Counting>,
}

#[cfg(test)]
impl SlotAddr {
    /// No slot: to be neither read nor written.
    pub(crate) fn nowhere() -> Self {
        Self { place: SlotPlace::Own(std::ptr::null_mut()), stub: 0, counting: None }
    }
}

/// Where the word is.
#[derive(Clone, Copy, Debug)]
pub(super) enum SlotPlace {
    Own(*mut u64),
    /// In the table that its group has at the moment.
    InTable(RootAddr, u32),
}

/// The word that the stubs of a group load: the address of the table that they jump through.
///
/// Its user holds the stubs, or is called through one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootAddr(pub(super) *mut u64);

/// How calls through a slot are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting {
    pub(super) counted: *mut CountWords,
    /// The code that counts.
    pub(super) part: u64,
}

/// The words of a counting part: the address that it jumps to, and the number of calls that are left.
#[repr(C)]
pub(crate) struct CountWords {
    body: u64,
    calls: u32,
    _unused: u32,
}

impl CountWords {
    pub(crate) const BYTES: u64 = size_of::<Self>() as u64;
}

const _: () = assert!(std::mem::offset_of!(CountWords, calls) == CALLS_AT as usize);

// SAFETY: every thread reads and writes the word in one piece.
unsafe impl Send for SlotAddr {}

impl SlotAddr {
    fn word(&self) -> &AtomicU64 {
        match self.place {
            // SAFETY: a word of linked data, which stays while the stub is held or called.
            SlotPlace::Own(word) => unsafe { AtomicU64::from_ptr(word) },
            // SAFETY: a table of the group, which has a word for each of its stubs and stays as long as they do.
            SlotPlace::InTable(root, number) => unsafe {
                AtomicU64::from_ptr(root.table().add(number as usize))
            },
        }
    }

    pub(crate) fn load(self) -> u64 {
        // ordering[slot-target]: Acquire. An executor has no lock of the cell, and calls what it finds.
        self.word().load(Ordering::Acquire)
    }

    pub(crate) fn store(self, address: u64) {
        // ordering[slot-target]: Release. Pairs with the Acquire of the stub, which is an instruction (`arch/aarch64/lazy.rs`; all loads on x86-64):
        // the body sees its data, which was complete before the body could be found.
        self.word().store(address, Ordering::Release);
    }

    /// The same, by way of the part that counts, if there is one.
    pub(crate) fn store_counted(self, address: u64, calls: u32) {
        let Some(Counting { counted, part }) = self.counting else { return self.store(address) };
        self.count(calls);
        // ordering[slot-target]: Release. Pairs with the Acquire of the counting part. A thread that read an older value of the slot may find
        // this body. SAFETY: a word of linked data beside the slot.
        unsafe { AtomicU64::from_ptr(&raw mut (*counted).body) }.store(address, Ordering::Release);
        // ordering[counted-body]: Release. Pairs with the Acquire in `counted_body`, and with that of the stub: the counting part, which loads the
        // body, lies behind it.
        self.word().store(part, Ordering::Release);
    }

    /// Has so many calls counted until the count has run out.
    pub(crate) fn count(self, calls: u32) {
        let Some(Counting { counted, .. }) = self.counting else { return };
        // Relaxed: calls count without synchronization, and some may be lost. So may this store, if a thread has just read a count that had run out:
        // then the function's next calls are not counted.
        // SAFETY: a word of linked data beside the slot.
        unsafe { AtomicU32::from_ptr(&raw mut (*counted).calls) }.store(calls, Ordering::Relaxed);
    }

    /// Notes that `body` is this function's, for programs that ask which function they are in.
    pub(crate) fn note(self, body: ExecutorAddr) {
        note_body(body, ExecutorAddr::new(self.stub));
    }

    /// The code beside the stub that counts its calls.
    pub(crate) fn counting_part(self) -> Option<ExecutorAddr> {
        self.counting.map(|counting| ExecutorAddr::new(counting.part))
    }

    /// The body that is counted now.
    pub(super) fn counted_body(self) -> Option<u64> {
        let Counting { counted, part } = self.counting?;
        // ordering[counted-body]: Acquire.
        let is_counted = self.word().load(Ordering::Acquire) == part;
        // ordering[slot-target]: Acquire, as in the counting part.
        // SAFETY: a word of linked data beside the slot.
        is_counted.then(|| unsafe { AtomicU64::from_ptr(&raw mut (*counted).body) }.load(Ordering::Acquire))
    }
}

impl RootAddr {
    fn word(&self) -> &AtomicU64 {
        // SAFETY: a word of linked data, which stays while the stubs are held or called.
        unsafe { AtomicU64::from_ptr(self.0) }
    }

    fn table(self) -> *mut u64 {
        // ordering[group-table]: Acquire. Pairs with the Release in `publish`. Stubs load the table's entry by the table's address, and acquire.
        self.word().load(Ordering::Acquire) as *mut u64
    }

    /// The entries of the table, which is of `len` stubs.
    pub(crate) fn read(self, len: usize) -> Vec<u64> {
        let table = self.table();
        // Relaxed: written under the group's lock, which the caller has.
        // SAFETY: as in `SlotAddr::word`.
        let word = |number| unsafe { AtomicU64::from_ptr(table.add(number)) }.load(Ordering::Relaxed);
        (0..len).map(word).collect()
    }

    /// Has the stubs jump through another table, which stays as long as they do.
    pub(crate) fn publish(self, table: &[AtomicU64]) {
        // ordering[group-table]: Release. Pairs with the Acquire in `table`: a thread that finds the table finds its entries.
        self.word().store(table.as_ptr() as u64, Ordering::Release);
    }
}

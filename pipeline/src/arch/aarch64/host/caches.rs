//! The caches of instructions, which do not see what was written as data.

use std::arch::asm;
use std::ops::Range;

/// Has the processors' caches fetch the code at a range of addresses from what was written there last. The processor that runs this thread
/// fetches anew; others may have fetched before, and need a barrier of their own (`memory/cores.rs`).
///
/// The range can be read.
///
/// # Cost
/// Two instructions for each line of a cache.
///
/// Source: Arm Architecture Reference Manual, "Concurrent modification and execution of instructions"; B2.4.4 in issue J.a.
pub(crate) fn fetch_anew(range: &Range<usize>) {
    let sizes: u64;
    // SAFETY: reads a register, which Linux lets all programs read.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) sizes, options(nostack, preserves_flags, nomem)) };
    // Both are logarithms of a number of words.
    let (data_line, code_line) = (4 << (sizes >> 16 & 15), 4 << (sizes & 15));
    for line in lines(range, data_line) {
        // SAFETY: writes a line of memory that can be read back from the cache of data.
        unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    for line in lines(range, code_line) {
        // SAFETY: forgets a line of the cache of instructions.
        unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// The addresses of the lines of `bytes` that hold a range.
fn lines(range: &Range<usize>, bytes: usize) -> impl Iterator<Item = usize> {
    (range.start & !(bytes - 1)..range.end).step_by(bytes)
}

//! valgrind, which runs translations of the code that it has read.

use std::arch::asm;
use std::ops::Range;

/// `VG_USERREQ__DISCARD_TRANSLATIONS`.
const DISCARD_TRANSLATIONS: u64 = 0x1002;

/// Has valgrind forget its translations of the code at a range of addresses. Where there is no valgrind, five instructions do nothing.
///
/// valgrind notices changes of code by itself where memory is private. Code here is shared memory, written through another view.
///
/// Source: `valgrind.h`, `VALGRIND_DISCARD_TRANSLATIONS`.
pub(crate) fn fetch_anew(range: &Range<usize>) {
    let request = [DISCARD_TRANSLATIONS, range.start as u64, range.len() as u64, 0, 0, 0];
    // SAFETY: the rotations are 128 bits in all, so `rdi` is as before, and the exchange changes nothing. valgrind reads six words at `rax`
    // and answers in `rdx`.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0_u64 => _,
            options(nostack),
        );
    }
}

//! Lazy binding of functions that choose their own implementation (`IFUNC`).
//!
//! The linker makes a PLT entry for such a symbol whose slot first leads to a stub that calls [`lazy_thunk`]. Behind the call stands how far
//! away its [`IfuncDescriptor`] is. The thunk calls the resolver, stores its answer into the slot, and goes on to it as if nothing had been in
//! between: every general register is kept, and vector registers in full width. There are conventions in which any of them has an argument.
//!
//! Threads that race call the resolver more than once and store the same answer.

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::host::{self, uruk_ifunc_lazy_thunk};

/// The data that a stub hands to the thunk. The linker writes it into data of the object.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IfuncDescriptor {
    /// The slot that the PLT entry jumps through.
    pub slot: *mut u64,
    /// The resolver: called with the address of this descriptor, answers the address of the implementation.
    pub resolver: extern "C" fn() -> u64,
}

/// The address of the thunk that binds on the first call.
///
/// The stub calls it, with every register as the caller left it. On x86-64 the distance from there to an [`IfuncDescriptor`]
/// stands where the call would come back, in 32 bits; on AArch64 `x17` has its address.
///
/// # Cost
/// Each passage saves and restores the vector state and runs the resolver; once for each symbol.
pub fn lazy_thunk() -> ExecutorAddr {
    host::prepare();
    ExecutorAddr::from_ptr(uruk_ifunc_lazy_thunk as unsafe extern "C" fn() as *const u8)
}

/// Binds the function now, as a process does before it runs any of its code, rather than on its first call.
///
/// # Safety
/// `descriptor` is the address of an [`IfuncDescriptor`] that a finished link wrote and that is still there, and
/// its resolver can run.
pub unsafe fn bind(descriptor: ExecutorAddr) {
    // SAFETY: the caller's obligation. The slot is a word of its own that calls read in one piece.
    unsafe {
        let descriptor = *descriptor.to_ptr::<IfuncDescriptor>();
        let implementation = (descriptor.resolver)();
        AtomicU64::from_ptr(descriptor.slot).store(implementation, Ordering::Relaxed); // one word, the same from every thread
    }
}

//! This process, where it runs on a processor of this architecture: there it is compiled, as `arch::host`. `runtime` and `memory` take from
//! it code that the language cannot express.
//!
//! Registers, stacks and conventions of calls stand here; why and when they are needed, beside the callers.

mod entry;
mod loaded;
mod program;
mod signal;
mod stack;
mod start;
mod threads;
mod thunk;
mod tls;
mod translations;
mod vectors;

pub(crate) use entry::{
    uruk_enter_function, uruk_enter_handler, uruk_enter_program, uruk_enter_program_and_exit,
};
pub(crate) use loaded::loaded_slot;
pub(crate) use program::jump_with_argument;
pub(crate) use signal::{
    GOES_ON, IS_CALLED_THROUGH_STACK, REGISTERS, RETURN_ADDRESS, STACK_POINTER, registers_of_signal,
};
pub(crate) use stack::call_on;
pub(crate) use start::start_floating_point;
pub(crate) use threads::define_thread_start;
pub(crate) use thunk::uruk_ifunc_lazy_thunk;
pub(crate) use tls::{VARIABLES_LIE_BELOW, define_tls_resolvers, thread_pointer};
pub(crate) use translations::fetch_anew;
pub(crate) use vectors::{prepare, uruk_call_keeping_vectors};

/// The length of a range of memory in which every instruction reaches everything: that of a displacement of 32 bits.
pub(crate) const REACH_BYTES: usize = 2 << 30;

/// Whether processors fetch the instructions that were written where no code lay before. The caches of data and of instructions agree here;
/// old instructions alone may have been fetched already.
pub(crate) const FETCHES_NEW_CODE: bool = true;

/// The file name of the dynamic linker.
pub(crate) const DYNAMIC_LINKER: &std::ffi::CStr = c"ld-linux-x86-64.so.2";

//! The functions behind TLS descriptors.
//!
//! A descriptor is a pair: a function and its argument. Code puts the pair's address into `%rax`, calls the function,
//! and finds the variable's distance from its thread pointer in `%rax`. Every other register stays as it was, vector
//! registers too, so compilers keep values in them over the call.
//!
//! | function | argument | answer |
//! |---|---|---|
//! | `fixed` | the distance | that |
//! | `dynamic` | a [`TlsIndex`](super::TlsIndex)'s address | where `__tls_get_addr` finds it, minus the thread pointer |
//! | `absent` | none | what makes the address null, for weak references to nothing |
//!
//! Source: "Thread-Local Storage Descriptors for IA32 and AMD64/EM64T", section 3.

use uruk_core::ExecutorAddr;

use super::table::tls_get_addr;
use crate::arch::host;
use crate::executor::TlsResolvers;

impl TlsResolvers {
    /// Those of this process.
    pub fn of_process() -> Self {
        host::prepare();
        let address = |function: unsafe extern "C" fn()| ExecutorAddr::from_ptr(function as *const ());
        Self {
            fixed: address(uruk_tls_fixed),
            dynamic: address(uruk_tls_dynamic),
            absent: address(uruk_tls_absent),
        }
    }
}

unsafe extern "C" {
    fn uruk_tls_fixed();
    fn uruk_tls_dynamic();
    fn uruk_tls_absent();
}

host::define_tls_resolvers!(tls_get_addr);

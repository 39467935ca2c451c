//! Frames on this thread's stack, as the unwinder sees them.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_FindEnclosingFunction(address: *mut c_void) -> *mut c_void;
}

const NEXT: c_int = 0;
const STOP: c_int = 4;

/// The function whose frame an address is in. `None` if the unwinder does not get there: a function on the way has no unwind tables.
fn function_around(address: usize) -> Option<usize> {
    struct Walk {
        address: usize,
        /// Where the frame was left that was visited last.
        ip: usize,
        is_found: bool,
    }
    unsafe extern "C" fn visit(context: *mut c_void, data: *mut c_void) -> c_int {
        // SAFETY: it is called by `_Unwind_Backtrace` below, with its context and the pointer to the walk, which has no other user meanwhile.
        unsafe {
            let walk = &mut *data.cast::<Walk>();
            // It is where a frame begins that grows downwards: the lowest address of the frame that is visited.
            walk.is_found = _Unwind_GetCFA(context) > walk.address;
            if walk.is_found {
                return STOP;
            }
            walk.ip = _Unwind_GetIP(context);
        }
        NEXT
    }
    let mut walk = Walk { address, ip: 0, is_found: false };
    // SAFETY: the function is one that takes a walk. The enclosing function of any address can be asked for.
    let function = unsafe {
        _Unwind_Backtrace(visit, (&raw mut walk).cast());
        _Unwind_FindEnclosingFunction(ptr::without_provenance_mut(walk.ip))
    };
    (walk.is_found && !function.is_null()).then(|| function.addr())
}

/// The function that makes calls of the client's.
static CALLER: OnceLock<Option<usize>> = OnceLock::new();

/// Learns by an address in its frame which function makes calls of the client's. It is called by it.
pub(crate) fn learn_caller(address: usize) {
    CALLER.get_or_init(|| function_around(address));
}

/// Whether an address is in a frame of the function that makes calls of the client's, or may be: the unwinder cannot tell.
pub(crate) fn may_be_caller(address: usize) -> bool {
    let Some(caller) = CALLER.get().copied().flatten() else { return true };
    function_around(address).is_none_or(|function| function == caller)
}

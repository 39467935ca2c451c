//! Unwinding through linked code: exceptions and panics find its frames as they find a library's.
//!
//! The unwinder of libgcc asks glibc's `_dl_find_object` which object contains an address. An executable that
//! contains this module exports a function of that name, and the dynamic linker binds libgcc to it: it looks
//! into our own index (`index.rs`) first and passes every other address on. A throw costs the same with one
//! object linked and with a hundred thousand.
//!
//! Where the engine was loaded by `dlopen`, libgcc is already bound to glibc. Then the slots through which
//! the loaded libraries call `_dl_find_object` are redirected (`redirect.rs`), in all that are loaded at that moment, and as a last resort each
//! object's frames are registered with `__register_frame`, which works and makes every throw of the process
//! slower with every object. [`method`] says which it is.
//!
//! **Architecture Invariant:** `_dl_find_object` never allocates, locks or touches a thread-local variable.

pub(super) mod functions;
mod index;
mod redirect;
#[cfg(test)]
mod sample;

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::{fmt, io};

use uruk_core::sync::atomic::{AtomicPtr, Ordering};

use super::forks::{self, LockOrder};
use index::{UnwindEntry, UnwindIndex};

/// Makes the unwinder find `code`'s frames through the sorted table at `eh_frame_hdr`.
///
/// `eh_frame_hdr` is the address of an `.eh_frame_hdr` section, which must stay in place until the registration
/// is dropped. Where [`method`] is [`UnwindMethod::RegisteredFrames`], the `.eh_frame` section it points to has to
/// end with a zero terminator.
///
/// # Concurrency
/// Callable from any thread. Exceptions may be thrown meanwhile; they do not wait.
///
/// # Errors
/// [`UnwindError`] if the range is empty, or if part of it is registered already.
///
/// # Cost
/// About 0.2 µs, however many are registered.
///
/// ORC: `EHFrameRegistrationPlugin`, which registers with `__register_frame` instead.
pub fn register(code: Range<u64>, eh_frame_hdr: u64) -> Result<UnwindRegistration, UnwindError> {
    if code.start >= code.end {
        return Err(UnwindError::Empty { start: code.start, end: code.end });
    }
    forks::watch().map_err(|code| UnwindError::Watch { code })?;
    let method = method();
    forks::hold_over_forks(LockOrder::UnwindIndex, &INDEX);
    INDEX.insert(UnwindEntry { start: code.start, end: code.end, eh_frame_hdr }).map_err(|known| {
        UnwindError::Overlap {
            start: code.start,
            end: code.end,
            known_start: known.start,
            known_end: known.end,
        }
    })?;
    let mut registration = UnwindRegistration { code, frames: 0 };
    if method == UnwindMethod::RegisteredFrames {
        registration.frames = redirect::register_frames(eh_frame_hdr)?;
    }
    Ok(registration)
}

/// The same for stubs of ours, which are known as such from then on.
pub(crate) fn register_stubs(code: Range<u64>, eh_frame_hdr: u64) -> Result<UnwindRegistration, UnwindError> {
    let registration = register(code.clone(), eh_frame_hdr)?;
    functions::note_stubs(code);
    Ok(registration)
}

/// How the unwinder learns about linked code in this process. Decided at the first registration.
///
/// # Cost
/// The first call looks through the symbol tables; later ones are a load.
pub fn method() -> UnwindMethod {
    static METHOD: OnceLock<UnwindMethod> = OnceLock::new();
    *METHOD.get_or_init(|| {
        remember_real();
        // SAFETY: dlsym with a terminated name has no other obligation.
        let bound = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        if is_ours(bound) {
            UnwindMethod::Interposed
        } else if redirect::redirect_imports(c"_dl_find_object", own_function()) > 0 {
            redirect::never_unload(own_function());
            UnwindMethod::Redirected
        } else {
            UnwindMethod::RegisteredFrames
        }
    })
}

/// Whether linked code with frames is at `address`.
pub(super) fn is_linked(address: u64) -> bool {
    INDEX.find(address).is_some()
}

/// Changes the index where no lookup takes place.
#[cfg(test)]
pub(super) fn use_the_lock() {
    forks::hold_over_forks(LockOrder::UnwindIndex, &INDEX);
    // A child may find what another thread of its parent was about to remove.
    let _ = (INDEX.insert(UnwindEntry { start: 16, end: 32, eh_frame_hdr: 0 }), INDEX.remove(16));
}

/// How many objects are registered.
pub fn registered_objects() -> usize {
    INDEX.len()
}

/// How the unwinder learns about linked code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnwindMethod {
    /// The executable exports our `_dl_find_object`, and libgcc calls it.
    Interposed,
    /// The engine is in a library loaded later; libgcc's import was redirected to us.
    Redirected,
    /// `__register_frame` for each object: every throw in the process slows down with their number.
    RegisteredFrames,
}

/// An object known to the unwinder. Dropping it makes the unwinder forget the object.
#[must_use = "dropping the registration undoes it"]
pub struct UnwindRegistration {
    code: Range<u64>,
    /// The `.eh_frame` section given to `__register_frame`, or zero.
    frames: u64,
}

impl Drop for UnwindRegistration {
    fn drop(&mut self) {
        if self.frames != 0 {
            redirect::deregister_frames(self.frames);
        }
        let known = INDEX.remove(self.code.start);
        debug_assert!(known, "a registration is removed once");
        functions::forget(self.code.clone());
    }
}

impl fmt::Debug for UnwindRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnwindRegistration({:#x})", self.code.start)
    }
}

/// Why an object could not be made known to the unwinder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnwindError {
    /// There is no code in the range.
    #[error("cannot register {start:#x}..{end:#x} with the unwinder: the range is empty")]
    Empty {
        /// Where it starts.
        start: u64,
        /// Where it ends.
        end: u64,
    },
    /// Part of the range belongs to another object.
    #[error(
        "cannot register {start:#x}..{end:#x} with the unwinder: it overlaps {known_start:#x}..{known_end:#x}, \
         which is registered"
    )]
    Overlap {
        /// Where the new range starts.
        start: u64,
        /// Where the new range ends.
        end: u64,
        /// Where the known one starts.
        known_start: u64,
        /// Where the known one ends.
        known_end: u64,
    },
    /// The header is not one that can be followed to the frames.
    #[error(
        "the .eh_frame_hdr at {address:#x} has version {version} and pointer encoding {encoding:#04x}; expected 1 and 0x1b"
    )]
    Header {
        /// Where it is.
        address: u64,
        /// Its version byte.
        version: u8,
        /// Its encoding byte.
        encoding: u8,
    },
    /// The system has no room to note what forks have to do.
    #[error("cannot register what has to be done when the process forks: {}", io::Error::from_raw_os_error(*code))]
    Watch {
        /// Its error number.
        code: c_int,
    },
    /// The process has no `__register_frame`.
    #[error("no unwinder in this process: libgcc_s is not loaded")]
    NoUnwinder,
}

static INDEX: UnwindIndex = UnwindIndex::new();

/// glibc's function, and the link map of the object that contains us; null until [`remember_real`] has run.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static OWN_LINK_MAP: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// glibc's `struct dl_find_object` on x86-64.
#[repr(C)]
#[derive(Debug, Default)]
pub struct DlFindObject {
    flags: u64,
    map_start: u64,
    map_end: u64,
    link_map: u64,
    eh_frame: u64,
    reserved: [u64; 7],
}

impl DlFindObject {
    /// The address of the `.eh_frame_hdr`.
    pub(super) fn eh_frame_hdr(&self) -> u64 {
        self.eh_frame
    }

    /// The address of the dynamic linker's record of the file.
    pub(super) fn link_map(&self) -> u64 {
        self.link_map
    }
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int;

/// Takes the place of glibc's function of this name for the whole process, if it is in the executable.
///
/// # Safety
/// `result` points to a `struct dl_find_object` that can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _dl_find_object(pc: *mut c_void, result: *mut DlFindObject) -> c_int {
    // SAFETY: the caller's obligation, passed on.
    unsafe { find_object(pc, result) }
}

/// Answers which object contains `pc`: ours from the index, all others through glibc's function.
///
/// In a shared library the exported name means the first definition in the process, perhaps glibc's function; this function is always ours.
///
/// # Safety
/// `result` points to a `struct dl_find_object` that can be written.
pub(super) unsafe extern "C" fn find_object(pc: *mut c_void, result: *mut DlFindObject) -> c_int {
    if let Some(entry) = INDEX.find(pc.addr() as u64) {
        // Relaxed: the pointer is only passed on; the link map was there before any of our code.
        let link_map = OWN_LINK_MAP.load(Ordering::Relaxed).addr() as u64;
        let found = DlFindObject {
            map_start: entry.start,
            map_end: entry.end,
            // Never null once an object is registered: a caller may follow it, as into a library's.
            link_map,
            eh_frame: entry.eh_frame_hdr,
            ..DlFindObject::default()
        };
        // SAFETY: the caller's obligation.
        unsafe { result.write(found) };
        return 0;
    }
    match real() {
        // SAFETY: the caller's obligation, passed on.
        Some(real) => unsafe { real(pc, result) },
        None => -1,
    }
}

fn own_function() -> *mut c_void {
    find_object as FindObject as *mut c_void
}

/// Whether `function` lies in the executable or library that contains us.
fn is_ours(function: *mut c_void) -> bool {
    let base = |address| {
        // SAFETY: a zeroed Dl_info is valid, and dladdr fills it or fails.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            (libc::dladdr(address, &raw mut info) != 0).then_some(info.dli_fbase)
        }
    };
    base(function).is_some_and(|found| Some(found) == base(own_function()))
}

fn real() -> Option<FindObject> {
    // Relaxed: a function's address, valid since the process started.
    let mut address = REAL.load(Ordering::Relaxed);
    if address.is_null() {
        address = remember_real();
    }
    if address.is_null() {
        return None;
    }
    // SAFETY: the address is that of glibc's `_dl_find_object`, which has this type.
    Some(unsafe { std::mem::transmute::<*mut c_void, FindObject>(address) })
}

/// Finds glibc's function. Runs as a constructor, so that a throw does not have to.
fn remember_real() -> *mut c_void {
    // SAFETY: dlsym with a terminated name has no other obligation.
    let mut address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"_dl_find_object".as_ptr()) };
    if address.is_null() {
        // SAFETY: as above. Without a successor in our own scope the process-wide one is glibc's.
        address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    }
    if address.is_null() || is_ours(address) {
        return ptr::null_mut();
    }
    // SAFETY: the address is that of glibc's `_dl_find_object`, which has this type.
    let real = unsafe { std::mem::transmute::<*mut c_void, FindObject>(address) };
    let mut own = DlFindObject::default();
    // SAFETY: `own` is a `struct dl_find_object`.
    if unsafe { real(own_function(), &raw mut own) } == 0 {
        // Relaxed: see `_dl_find_object`.
        OWN_LINK_MAP.store(ptr::with_exposed_provenance_mut(own.link_map as usize), Ordering::Relaxed);
    }
    // Relaxed: see `real`. Threads that race here store the same value.
    REAL.store(address, Ordering::Relaxed);
    address
}

extern "C" fn constructor() {
    remember_real();
}

#[used]
// SAFETY: `.init_array` holds addresses of functions that are called before `main`; `constructor` needs nothing
// but the dynamic linker, which is ready by then.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[cfg(test)]
mod tests {
    use super::*;
    use sample::Sample;

    #[test]
    fn a_panic_unwinds_through_linked_code() {
        let sample = Sample::link();
        let _registration = register(sample.code(), sample.eh_frame_hdr()).unwrap();
        assert_eq!(sample.throw_through(), "thrown");
    }

    #[test]
    fn registered_frames_serve_as_well() {
        let sample = Sample::link();
        let frames = redirect::register_frames(sample.eh_frame_hdr()).unwrap();
        assert_eq!(sample.throw_through(), "thrown");
        redirect::deregister_frames(frames);
    }
}

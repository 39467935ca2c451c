//! The end of linked code: functions that the code has registered run while all of it is still there.
//!
//! ```text
//!   linked ─▶ Ending ──registers: __cxa_atexit, atexit, on_exit──▶ table
//!               │                 initialised: its finalizers ───▶   │
//!               │                                                    ├─▶ deinitialised: functions of its dylib
//!               │                                                    ├─▶ removed: functions of all code that is removed together
//!               │                                                    ├─▶ the process exits: everything
//!               └── dropped, before the memory goes: the rest ◀──────┘
//! ```
//!
//! A natively linked program and each shared library hand such functions to the C library and name themselves as their owner. Code
//! of ours may go while the process stays, so it has a table of its own (`table.rs`). The C library knows one handler of ours,
//! which runs all that is left when the process exits.
//!
//! Addresses tell which code registers a handler (`owners.rs`): the address of the `__dso_handle` that it names, of which every link has
//! its own; the address of the function; and that of the function's argument. A handler belongs to the code at each of them, and runs
//! before the first of them goes.
//!
//! **Architecture Invariant:** each function runs once, newest first, without a lock. Its runner keeps the code that the function belongs
//! to.

mod owners;
mod table;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Weak;

use uruk_core::sync::Arc;
use uruk_core::{ExecutorAddr, RemovalNumber};

use super::forks::{self, LockOrder, RuntimeLock};
use super::{entry, loaded};
use crate::executor::{ArrayFunction, CodeExtent, CodeNumber, Home};
pub(crate) use owners::{CodeKeeper, KeptCode};
use table::{EndScope, ExitEntry, ExitKey, ExitTable, run_all};

pub(in crate::runtime) use owners::Pin;

/// Held for operations on the table; over a whole `fork`. Never while anything of the table runs.
pub(in crate::runtime) static TABLE: RuntimeLock<ExitTable> =
    RuntimeLock::new(LockOrder::ExitHandlers, ExitTable::new());

/// A piece of linked code that will end. Dropping it runs what is left of its functions and forgets the code: it goes before the
/// memory.
#[must_use = "dropping it ends the code"]
#[derive(Debug)]
pub(crate) struct Ending {
    number: CodeNumber,
}

impl Ending {
    /// Makes code known, before any of it can run.
    ///
    /// # Errors
    /// The system's error number if it has no room for the handlers of forks.
    pub(crate) fn new(extent: CodeExtent) -> Result<Self, c_int> {
        forks::watch()?;
        Ok(Self { number: TABLE.lock().add_code(extent) })
    }

    pub(crate) fn number(&self) -> CodeNumber {
        self.number
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        run(EndScope::Last(self.number), 0);
        let (owner, lost) = TABLE.lock().remove_code(self.number);
        if owner.is_some_and(|owner| owner.is_known_to_library) {
            // SAFETY: no handler names this owner but those for `quick_exit` and `fork`, which are forgotten and not run.
            unsafe { __cxa_finalize(library_key(self.number)) };
        }
        if lost > 0 {
            tracing::warn!(
                handlers = lost,
                "exit handlers of code that other threads ended meanwhile are lost"
            );
        }
    }
}

/// Says what keeps the code in its place, and how many share it: it is to end when the last of them goes.
pub(crate) fn kept_by(code: CodeNumber, keeper: Weak<dyn CodeKeeper>, shares: usize) {
    if let Some(owner) = TABLE.lock().owner_mut(code) {
        (owner.code, owner.shares) = (Some(keeper), shares);
    }
}

/// Notes that a share of the code goes with `removal`.
pub(crate) fn leave(code: CodeNumber, removal: RemovalNumber) {
    TABLE.lock().leave(code, removal);
}

/// Notes that a share of the code goes before anything of it can run.
pub(crate) fn give_up(code: CodeNumber) {
    if let Some(owner) = TABLE.lock().owner_mut(code) {
        owner.shares = owner.shares.saturating_sub(1);
    }
}

/// Runs the functions of all code whose last share goes with `removal`. Later calls find nothing to do.
pub(crate) fn run_of_removal(removal: RemovalNumber) {
    let code = TABLE.lock().take_leaving(removal);
    if !code.is_empty() {
        run(EndScope::Removal(removal, code), 0);
    }
}

/// Keeps `code` in its place, if it is still there.
pub(crate) fn hold(code: CodeNumber) -> Option<KeptCode> {
    TABLE.lock().owner_mut(code)?.hold()
}

/// Adds elements of `.fini_array`s of code whose initializers are about to run. They come after all handlers: last to first, and those of
/// later calls first. A finalizer of code that never goes runs when the process exits.
///
/// # Safety
/// Each can be called as `void (void)` as long as its code is there.
pub(crate) unsafe fn add_finalizers(
    functions: impl IntoIterator<Item = (Option<CodeNumber>, ArrayFunction)>,
) {
    let libraries = loaded::loads();
    let mut table = TABLE.lock();
    let start = table.next_number();
    for (code, function) in functions {
        let call = ExitCall::Finalizer(function.address);
        // Without room for a handler of ours with the C library these run when the code goes, and not at `exit`.
        let _ = add(
            &mut table,
            ExitKey::Finalizer { start, function },
            ExitEntry { call, owners: code.into_iter().collect() },
            libraries,
        );
    }
}

/// Runs the functions that code of these dylibs has registered, and the finalizers of units that were initialised there.
pub(crate) fn run_of_homes(homes: Vec<Home>) {
    run(EndScope::Homes(homes), 0);
}

/// The outcome of a registration by linked code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registration {
    /// It is in the table.
    Kept,
    /// There is no room for it.
    Refused,
    /// It comes from code that is not in the table.
    Unknown,
}

/// A function to be called once.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExitCall {
    /// As `__cxa_atexit` has it.
    Handler { function: ExecutorAddr, argument: usize },
    /// As `on_exit` has it.
    WithStatus { function: ExecutorAddr, argument: usize },
    /// An element of a `.fini_array`.
    Finalizer(ExecutorAddr),
}

impl ExitCall {
    /// # Safety
    /// The function is there, and of the type that the variant says.
    unsafe fn run(self, status: c_int) {
        // SAFETY: the caller's obligation, passed on.
        unsafe {
            match self {
                Self::Handler { function, argument } => entry::call_handler(function, argument, 0),
                Self::WithStatus { function, argument } => {
                    entry::call_handler(function, status as usize, argument)
                }
                Self::Finalizer(function) => entry::call_handler(function, 0, 0),
            }
        }
    }
}

/// Registers `call` for the code at `dso`, at the function, and at its argument, as far as there is code.
///
/// # Safety
/// The call may be made once, at any time until the code goes.
pub(super) unsafe fn register(call: ExitCall, dso: *mut c_void) -> Registration {
    let (ExitCall::Handler { function, argument } | ExitCall::WithStatus { function, argument }) = call
    else {
        return Registration::Unknown;
    };
    let libraries = loaded::loads();
    let mut table = TABLE.lock();
    let owners = table.owners_at([dso.addr() as u64, function.value(), argument as u64]);
    if owners.is_empty() {
        return Registration::Unknown;
    }
    let place = table.next_number();
    match add(&mut table, ExitKey::Handler { place }, ExitEntry { call, owners }, libraries) {
        true => Registration::Kept,
        false => Registration::Refused,
    }
}

/// Adds a function; `libraries` have been loaded so far. `false` if the C library has no room for the handler that calls it at `exit`.
fn add(table: &mut ExitTable, key: ExitKey, entry: ExitEntry, libraries: u64) -> bool {
    // Before it ends the libraries that are loaded by now, which our code may use.
    // SAFETY: the function takes any argument, and may be called as often as is wanted.
    let is_told =
        table.tell_library(libraries, || unsafe { library_on_exit(run_at_exit, ptr::null_mut()) } == 0);
    if is_told {
        table.add(key, entry);
    }
    is_told
}

/// The name by which the C library is to know the owner of a function that it keeps itself, and forgets when the code goes.
pub(super) fn owner_for_library(function: u64, dso: *mut c_void) -> *mut c_void {
    let mut table = TABLE.lock();
    let owners = table.owners_at([function, dso.addr() as u64]);
    let Some(&code) = owners.first() else { return ptr::null_mut() };
    if let Some(owner) = table.owner_mut(code) {
        owner.is_known_to_library = true;
    }
    library_key(code)
}

/// No loaded object has such an address.
fn library_key(code: CodeNumber) -> *mut c_void {
    ptr::without_provenance_mut(code.0 as usize)
}

/// Keeps the code at `dso` and at `function` in place, with everything that it may call. Empty if that code is unknown; `None` if it is
/// being unmapped.
pub(super) fn pin(function: ExecutorAddr, dso: *mut c_void) -> Option<Vec<Arc<Pin>>> {
    let owners = TABLE.lock().owners_at([dso.addr() as u64, function.value()]);
    owners.into_iter().map(pin_of).collect()
}

fn pin_of(code: CodeNumber) -> Option<Arc<Pin>> {
    let (pin, kept) = {
        let mut table = TABLE.lock();
        let owner = table.owner_mut(code)?;
        (owner.pin.upgrade(), owner.hold())
    };
    let kept = kept?;
    // Made without the lock: the held code may go here, if it is removed meanwhile.
    let pin = pin.unwrap_or_else(|| Arc::new(Pin::new(kept)));
    if let Some(owner) = TABLE.lock().owner_mut(code) {
        owner.pin = Arc::downgrade(&pin);
    }
    Some(pin)
}

/// Runs the functions of the scope, newest first, and those that are registered for it meanwhile.
fn run(scope: EndScope, status: c_int) {
    // SAFETY: the code that registered the call allows one call as long as the code is there. `run_all` keeps the code over the call, or
    // its caller is the one that drops the last reference to it.
    run_all(|| TABLE.lock(), scope, |call| unsafe { call.run(status) });
}

/// Runs everything: the process exits.
unsafe extern "C" fn run_at_exit(status: c_int, _: *mut c_void) {
    run(EndScope::Everything, status);
}

unsafe extern "C" {
    #[link_name = "on_exit"]
    fn library_on_exit(function: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    fn __cxa_finalize(dso: *mut c_void);
}

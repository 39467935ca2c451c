//! Handlers that keep the in-process managers consistent when the process forks.
//!
//! ```text
//!            parent                                   child
//!  prepare   lock the registry, then the ranges of every manager
//!  fork      ─────────────────────────────────────▶  one thread, all managers at rest
//!  after     note the fork; unlock                    note the fork; locks made anew; next process number
//! ```
//!
//! Data is private to each side. Code and constants lie in pages that both sides see. Copying them would cost each child time and memory
//! for code that it mostly runs and seldom replaces. So nothing is copied. Instead, **memory that was in use at the fork keeps its bytes on
//! both sides**:
//!
//! - A piece that is given back is withheld, not recycled, until its slab is unused as a whole. Then the slab is unmapped, and the other
//!   side keeps its own mapping of the pages (`arena.rs`).
//! - Memory that was free belongs to the parent, which goes on filling it. The child never reads it, and links into new slabs.
//! - An allocation that was being filled is the parent's to finish. In the child it can only be dropped: writes are discarded and
//!   finalizing is [`MemoryError::Forked`](super::MemoryError::Forked).
//!
//! The price is memory: a process that forks often while code comes and goes keeps up to a slab for each piece of code that stays.
//! [`KindUsage::withheld_bytes`](super::KindUsage::withheld_bytes) counts it.
//!
//! Not covered: `_Fork`, a bare `clone`, and `vfork`, after which nothing of this runs. A child of those may
//! call linked code and `exec`, no more. `fork` from a signal handler waits for ever if it interrupted a manager.
//!
//! # Locks
//! The registry's lock, then the locks of the managers' ranges in the order of the registry. A thread that holds one of the latter never
//! takes the registry's.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::io;
use std::sync::{Arc, OnceLock, Weak};

use uruk_core::sync::{MutexGuard, Process};

use super::MemoryError;
use super::fork_lock::ForkLock;
use super::in_process::Pool;
use super::ranges::Ranges;

type Pools = Vec<Weak<Pool>>;

/// The managers of this process, oldest first. Those that are gone are dropped when the next one comes.
static REGISTRY: ForkLock<Pools> = ForkLock::new(Vec::new());

/// The guards that `prepare` leaves for the handlers after the fork.
static HELD: HeldCell = HeldCell(UnsafeCell::new(None));

/// Sees to it that a fork finds `pool` at rest and that both sides hear of it.
///
/// # Errors
/// [`MemoryError::Watch`] if the system cannot note our handlers.
pub(super) fn watch(pool: &Arc<Pool>) -> Result<(), MemoryError> {
    install().map_err(|code| MemoryError::Watch { source: Arc::new(io::Error::from_raw_os_error(code)) })?;
    let mut registry = REGISTRY.lock();
    registry.retain(|pool| pool.strong_count() > 0);
    registry.push(Arc::downgrade(pool));
    Ok(())
}

/// Has forks call our handlers: before the fork ahead of all that were registered sooner.
///
/// # Errors
/// The system's error number if it cannot note them.
pub(crate) fn install() -> Result<(), c_int> {
    static INSTALLED: OnceLock<c_int> = OnceLock::new();
    let code = *INSTALLED.get_or_init(|| {
        // SAFETY: the handlers take no arguments, do not unwind, and are there as long as this library is: libc
        // forgets them when it is unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(after_in_parent), Some(after_in_child)) }
    });
    if code == 0 { Ok(()) } else { Err(code) }
}

/// All locks, from before a fork to after it.
struct HeldLocks {
    registry: MutexGuard<'static, Pools>,
    /// Guards before the pools they borrow from.
    managers: Vec<(MutexGuard<'static, Ranges>, Arc<Pool>)>,
}

struct HeldCell(UnsafeCell<Option<HeldLocks>>);

// SAFETY: the cell is touched by the handlers alone, which run one after another in the thread that forks; between two
// threads that fork stands the registry's lock, which is held whenever the cell is touched.
unsafe impl Sync for HeldCell {}

extern "C" fn prepare() {
    let registry = REGISTRY.lock();
    let pools = registry.iter().filter_map(Weak::upgrade);
    // SAFETY: the lock lies in the pool, which stays with the guard until that is gone.
    let managers = pools.map(|pool| (unsafe { pool.ranges.lock_for_long() }, pool)).collect();
    // SAFETY: the registry's lock is held.
    unsafe { *HELD.0.get() = Some(HeldLocks { registry, managers }) };
}

extern "C" fn after_in_parent() {
    // SAFETY: `prepare` has left the registry's lock held, in the cell.
    let Some(held) = (unsafe { (*HELD.0.get()).take() }) else { return };
    let mut pools = Vec::with_capacity(held.managers.len());
    for (mut ranges, pool) in held.managers {
        ranges.note_fork_in_parent();
        drop(ranges);
        pools.push(pool);
    }
    drop(held.registry);
    drop(pools); // Perhaps the last to own one: outside of every lock.
}

extern "C" fn after_in_child() {
    Process::note_fork();
    // SAFETY: `prepare` has left the registry's lock held, in the cell.
    let Some(held) = (unsafe { (*HELD.0.get()).take() }) else { return };
    let mut pools = Vec::with_capacity(held.managers.len());
    for (mut ranges, pool) in held.managers {
        ranges.note_fork_in_child();
        // SAFETY: this is the only thread, and the guard is of this lock.
        unsafe { pool.ranges.renew(ranges) };
        pools.push(pool);
    }
    // SAFETY: as above.
    unsafe { REGISTRY.renew(held.registry) };
    drop(pools);
}

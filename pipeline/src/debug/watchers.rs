//! Debuggers and profilers that are told of linked code while the program runs.
//!
//! | lock | it guards | taken |
//! |---|---|---|
//! | `WATCHERS` | gdb's files and perf's | before the table's, or alone |
//! | `TABLE` | which code is where; what gdb does not know yet | last |
//!
//! **Holds.** A piece of code that watchers read is mapped. Its registration leaves the table first. Then it waits for `WATCHERS`, if there are
//! any, and its memory goes after that.

use std::io;

use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicBool, Ordering};

use super::code::NamedCode;
use super::gdb::Gdb;
use super::jitdump::JitDump;
use super::names::TABLE;
use super::perf_map::PerfMap;
use crate::memory::StaticForkLock;

/// The watchers of the process. Forks hold them from the first publication on (`runtime/in_process.rs`).
pub(crate) static WATCHERS: StaticForkLock<Watchers> = StaticForkLock::new(Watchers::new());

/// Whether gdb has something to be told.
static IS_PENDING: AtomicBool = AtomicBool::new(false);

/// So many pieces are handed to gdb at once, even if they are not about to run.
const PENDING_MAX: usize = 4096;

/// The files that a profiler reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PerfFormat {
    /// `/tmp/perf-PID.map`: the names of functions. `perf report` reads it when it runs. It knows no times: where memory was used again,
    /// only the last name counts.
    Map,
    /// `jit-PID.dump` in the directory that the environment names by `JITDUMPDIR`, or else in the current one: names, times, code and
    /// lines. `perf inject --jit` reads it; record with `-k mono`.
    JitDump,
}

pub(crate) struct Watchers {
    gdb: Option<Gdb>,
    perf: Option<Perf>,
}

enum Perf {
    Map(PerfMap),
    Dump(JitDump),
}

/// Has gdb know linked code from here on, or forget it.
///
/// # Concurrency
/// Callable from any thread, at any time: code that is there already is told too, in one file.
///
/// # Cost
/// Nothing as long as it is off. A copy of the debug information of all code otherwise; gdb reads it as soon as it is attached.
pub fn set_debugger(is_on: bool) {
    let mut watchers = WATCHERS.lock();
    if is_on == watchers.gdb.is_some() {
        return;
    }
    let mut table = TABLE.lock();
    table.tells_gdb = is_on;
    table.pending = if is_on { table.all() } else { Vec::new() };
    drop(table);
    watchers.gdb = is_on.then(Gdb::default);
    watchers.settle();
}

/// For people who have attached a debugger to a process: `set language c`, then `call (void)uruk_debugger(1)`. `gdb.rs` refers to it by its name.
#[unsafe(no_mangle)]
extern "C" fn uruk_debugger(is_on: i32) {
    set_debugger(is_on != 0);
}

/// Whether gdb is told of linked code.
pub fn has_debugger() -> bool {
    TABLE.lock().tells_gdb
}

/// Has gdb know all code that was linked so far. To be called before code is run, by those who got its address from the session itself:
/// lookups of the facade, and first calls of lazy functions, do it.
///
/// # Cost
/// A load where there is nothing to tell.
pub fn settle() {
    // Relaxed: a thread that has linked code, or was handed it, sees that there is something to tell.
    if IS_PENDING.load(Ordering::Relaxed) {
        WATCHERS.lock().settle();
    }
}

/// Has perf know linked code from here on, or ends that.
///
/// # Concurrency
/// Callable from any thread, at any time: code that is there already is told too.
///
/// # Errors
/// Those of the system when the file cannot be made. One that cannot be written later has no more records.
pub fn set_perf(format: Option<PerfFormat>) -> io::Result<()> {
    let mut perf = match format {
        None => None,
        Some(PerfFormat::Map) => Some(Perf::Map(PerfMap::create()?)),
        Some(PerfFormat::JitDump) => Some(Perf::Dump(JitDump::create()?)),
    };
    let mut watchers = WATCHERS.lock();
    let mut table = TABLE.lock();
    table.tells_perf = perf.is_some();
    let known = table.all();
    drop(table);
    if let Some(perf) = &mut perf {
        // SAFETY: the pieces were in the table, and their registrations wait for the lock that is held here.
        known.iter().for_each(|piece| unsafe { perf.add(piece) });
    }
    watchers.perf = perf;
    Ok(())
}

/// Code is in the table, of which gdb or perf are to know.
pub(super) fn added(code: &Arc<NamedCode>, tells_perf: bool, pending: usize) {
    if pending > 0 {
        // Relaxed: as in `settle`.
        IS_PENDING.store(true, Ordering::Relaxed);
    }
    if tells_perf && let Some(perf) = &mut WATCHERS.lock().perf {
        // SAFETY: the caller is about to answer with the registration.
        unsafe { perf.add(code) };
    }
    if pending > PENDING_MAX {
        settle();
    }
}

/// Code is in the table no longer, and is about to go.
pub(super) fn removed(code: &Arc<NamedCode>) {
    // Also where there is no gdb: others may read the code under this lock.
    if let Some(gdb) = &mut WATCHERS.lock().gdb {
        // SAFETY: the pieces that gdb knows are in the table, or wait for the lock that is held here. So does this one.
        unsafe { gdb.remove(code) };
    }
}

impl Watchers {
    const fn new() -> Self {
        Self { gdb: None, perf: None }
    }

    fn settle(&mut self) {
        // Relaxed: as in the function of this name.
        IS_PENDING.store(false, Ordering::Relaxed);
        let pending = std::mem::take(&mut TABLE.lock().pending);
        if let Some(gdb) = &mut self.gdb
            && !pending.is_empty()
        {
            // SAFETY: the pieces were in the table, and their registrations wait for the lock that is held here.
            unsafe { gdb.add(pending) };
        }
    }
}

impl Perf {
    /// # Safety
    /// The piece is registered, and stays so until this returns.
    unsafe fn add(&mut self, piece: &NamedCode) {
        match self {
            Self::Map(map) => map.add(piece),
            // SAFETY: the caller's obligation.
            Self::Dump(dump) => unsafe { dump.add(piece) },
        }
    }
}

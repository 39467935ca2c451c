//! [`InProcessExecutor`]: this process as the place where code runs.
//!
//! Everything that the publication of code does to the process is in `publish_here` below, and `InProcess` takes it back.

use std::fmt;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

use super::endings::Ending;
use super::forks::{self, LockOrder};
use super::process::{self, KnownEntry};
use super::tls::{self, ReservedTls, TlsIndex, TlsModule, register_module};
use super::unwind::{self, UnwindError, UnwindRegistration};
use super::{call_through, ifunc, tls::distance_from_thread_pointer};
use crate::arch::Architecture;
use crate::debug::{self, NamedCode};
use crate::executor::{
    Actions, CodeNumber, Executor, HeldTls, NotStatic, PublishError, Published, RuntimeEntries, TlsError,
    TlsImage, TlsPlacement, TlsReservation, TlsResolvers, TlsShape,
};
use crate::memory::{FinalizedAlloc, InFlightAlloc, MemoryManager};

/// This process as a place where linked code runs.
///
/// ORC: `SelfExecutorProcessControl`.
#[doc(alias = "SelfExecutorProcessControl")]
#[derive(Clone)]
pub struct InProcessExecutor {
    memory: Arc<dyn MemoryManager>,
}

impl InProcessExecutor {
    /// Code lies in `memory`, which is of this process.
    pub fn new(memory: Arc<dyn MemoryManager>) -> Self {
        Self { memory }
    }
}

impl Executor for InProcessExecutor {
    fn architecture(&self) -> Architecture {
        Architecture::HOST
    }

    fn memory(&self) -> &dyn MemoryManager {
        &*self.memory
    }

    fn entries(&self) -> RuntimeEntries {
        entries_here()
    }

    fn place_tls(&self, shape: TlsShape) -> Result<TlsReservation, TlsError> {
        let TlsShape { image_bytes, total_bytes, align, needs_static } = shape;
        let (image_bytes, total_bytes, align) = (size(image_bytes), size(total_bytes), size(align));
        // Objects that can do without may define what others reach at a fixed distance, so they go there too while there is room.
        // If there is none for one that cannot, the link fails where it knows the variable.
        let home = match tls::reserve(total_bytes, align, needs_static) {
            Some(reserved) => TlsHome::Reserve(reserved),
            None => TlsHome::Module(register_module(image_bytes, total_bytes, align)?),
        };
        let placement = match &home {
            TlsHome::Module(module) => TlsPlacement { module: module.id(), offset: 0 },
            TlsHome::Reserve(reserved) => reserved.place().into(),
        };
        Ok(TlsReservation::new(placement, Box::new(home)))
    }

    fn tls_placement(&self, descriptor: ExecutorAddr) -> Option<TlsPlacement> {
        tls::variable_of_descriptor(descriptor).map(TlsPlacement::from)
    }

    fn tls_distance(&self, variable: TlsPlacement) -> Result<i64, NotStatic> {
        distance_from_thread_pointer(variable.into())
    }

    fn is_variable(&self, address: ExecutorAddr) -> bool {
        process::is_variable(address)
    }

    fn low_variable(&self, variable: ExecutorAddr, may_move: bool) -> Option<ExecutorAddr> {
        process::low_variable(&*self.memory, variable, may_move)
    }

    fn publish(
        &self,
        memory: InFlightAlloc,
        tls: Option<TlsReservation>,
        actions: Actions,
    ) -> Result<Box<dyn Published>, PublishError> {
        publish_here(memory, tls, actions)
    }
}

/// The functions of this process that linked code calls without naming them.
pub(crate) fn entries_here() -> RuntimeEntries {
    let [first_call, counted_call] = call_through::resolvers();
    let (tls_resolvers, ifunc_thunk) = (TlsResolvers::of_process(), ifunc::lazy_thunk());
    RuntimeEntries { tls_resolvers, ifunc_thunk, first_call, counted_call }
}

/// Makes code known to this process, as [`Executor::publish`] does.
///
/// # Errors
/// As there.
pub(crate) fn publish_here(
    memory: InFlightAlloc,
    tls: Option<TlsReservation>,
    actions: Actions,
) -> Result<Box<dyn Published>, PublishError> {
    let Actions { low_entry, tls: image, unwind, is_stubs, names, end } = actions;
    let finalize = uruk_core::phase!("memory.finalize");
    let memory = uruk_core::in_span(finalize, || memory.finalize())?;
    // Each step that fails drops the ones before it, so they are in the order of `InProcess`.
    let low_entry = low_entry.map(KnownEntry::new).transpose()?;
    if let (Some(tls), Some(image)) = (&tls, image) {
        tls.initialize(image);
    }
    let tls = tls;
    let register = if is_stubs { unwind::register_stubs } else { unwind::register };
    let unwind = unwind.map(|table| register(table.code, table.eh_frame_hdr)).transpose();
    let unwind = unwind.map_err(refused)?;
    let names = names.map(register_names).transpose().map_err(refused)?;
    let ending = end.map(Ending::new).transpose();
    let ending = ending.map_err(|code| refused(UnwindError::Watch { code }))?;
    Ok(Box::new(InProcess {
        ending,
        _names: names,
        _unwind: unwind,
        _tls: tls,
        _low_entry: low_entry,
        memory,
    }))
}

/// Room for thread-local variables where another process has placed them.
///
/// # Errors
/// As of [`tls::adopt_module`] and [`tls::adopt_room`].
#[cfg(feature = "helpers")]
pub(crate) fn adopt_tls(placement: TlsPlacement, image: TlsImage) -> Result<TlsReservation, TlsError> {
    let TlsImage { image_bytes, total_bytes, align, .. } = image;
    let home = match placement.module {
        tls::FIXED => TlsHome::Reserve(tls::adopt_room(placement.into(), size(total_bytes))?),
        number => {
            TlsHome::Module(tls::adopt_module(number, size(image_bytes), size(total_bytes), size(align))?)
        }
    };
    Ok(TlsReservation::new(placement, Box::new(home)))
}

fn register_names(names: NamedCode) -> Result<debug::NameRegistration, UnwindError> {
    forks::watch().map_err(|code| UnwindError::Watch { code })?;
    forks::hold_over_forks(LockOrder::CodeWatchers, &debug::WATCHERS);
    forks::hold_over_forks(LockOrder::CodeNames, &debug::TABLE);
    Ok(debug::register(names))
}

fn refused(error: UnwindError) -> PublishError {
    PublishError::Action(error.into())
}

/// Code of this process. Fields drop in order: first the code comes to its end, then it can no longer be found, then its memory goes.
struct InProcess {
    /// `None` for code that is there until the process ends.
    ending: Option<Ending>,
    _names: Option<debug::NameRegistration>,
    _unwind: Option<UnwindRegistration>,
    _tls: Option<TlsReservation>,
    _low_entry: Option<KnownEntry>,
    memory: FinalizedAlloc,
}

impl Published for InProcess {
    fn number(&self) -> Option<CodeNumber> {
        self.ending.as_ref().map(Ending::number)
    }

    fn address(&self, segment: usize) -> ExecutorAddr {
        self.memory.address(segment)
    }
}

/// The module of an object's variables.
enum TlsHome {
    /// A module of their own, of which each thread gets its copy when it needs one.
    Module(TlsModule),
    /// The executable's module, at the same distance from every thread's pointer.
    Reserve(ReservedTls),
}

impl HeldTls for TlsHome {
    fn initialize(&self, image: TlsImage) {
        match self {
            Self::Module(module) => module.initialize(image.address),
            Self::Reserve(reserved) => reserved.initialize(image.address, size(image.image_bytes)),
        }
    }
}

/// A size that no machine has saturates, and is refused.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl From<TlsIndex> for TlsPlacement {
    fn from(TlsIndex { module, offset }: TlsIndex) -> Self {
        Self { module, offset }
    }
}

impl From<TlsPlacement> for TlsIndex {
    fn from(TlsPlacement { module, offset }: TlsPlacement) -> Self {
        Self { module, offset }
    }
}

impl fmt::Debug for InProcessExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessExecutor").field("memory", &self.memory.usage()).finish()
    }
}

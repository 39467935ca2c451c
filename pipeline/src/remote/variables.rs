//! [`RemoteVariables`]: places for thread-local variables of linked code there, given out here.

use std::ops::Range;

use uruk_core::sync::{Arc, Mutex};

use crate::executor::{HeldTls, NotStatic, TlsError, TlsImage, TlsPlacement, TlsReservation, TlsShape};
use crate::runtime::tls::{FIXED, ModuleNumbers, ReserveRooms};

/// The modules of the executor, and its reserve: room at the same distance from every thread's pointer.
#[derive(Debug)]
pub(super) struct RemoteVariables {
    modules: Arc<ModuleNumbers>,
    reserve: Option<RemoteReserve>,
}

#[derive(Clone, Debug)]
struct RemoteReserve {
    distance: i64,
    rooms: Arc<Mutex<ReserveRooms>>,
}

impl RemoteVariables {
    /// With a reserve, if it begins at a `distance`.
    pub(super) fn new(distance: Option<i64>) -> Self {
        let reserve = distance.map(|distance| RemoteReserve { distance, rooms: Arc::default() });
        Self { modules: Arc::default(), reserve }
    }

    /// Room in the reserve while there is some, or a module.
    ///
    /// # Errors
    /// As of [`ModuleNumbers::take`].
    pub(super) fn place(&self, shape: TlsShape) -> Result<TlsReservation, TlsError> {
        if let Some(reservation) = self.reserve.as_ref().and_then(|reserve| reserve.place(shape)) {
            return Ok(reservation);
        }
        let modules = self.modules.clone();
        let placement = TlsPlacement { module: modules.take()?, offset: 0 };
        Ok(TlsReservation::new(placement, Box::new(RemoteModule { number: placement.module, modules })))
    }

    /// How far from the thread pointer a variable is that was placed here. `None` for one of a library.
    pub(super) fn distance(&self, variable: TlsPlacement) -> Option<Result<i64, NotStatic>> {
        let is_ours = variable.module == FIXED || ModuleNumbers::may_have(variable.module);
        is_ours.then(|| match (variable.module, &self.reserve) {
            (FIXED, _) => Ok(variable.offset.cast_signed()),
            (_, Some(reserve)) => Err(reserve.rooms.lock().why_not()),
            (_, None) => Err(NotStatic::NoReserve),
        })
    }
}

impl RemoteReserve {
    fn place(&self, shape: TlsShape) -> Option<TlsReservation> {
        let TlsShape { total_bytes, align, needs_static, .. } = shape;
        let (total_bytes, align) = (usize::try_from(total_bytes).ok()?, usize::try_from(align).ok()?);
        let range = self.rooms.lock().take(total_bytes, align, needs_static)?;
        let offset = self.distance.wrapping_add_unsigned(range.start as u64).cast_unsigned();
        let room = RemoteRoom { range, rooms: self.rooms.clone() };
        Some(TlsReservation::new(TlsPlacement { module: FIXED, offset }, Box::new(room)))
    }
}

/// The number of a module there.
struct RemoteModule {
    number: u64,
    modules: Arc<ModuleNumbers>,
}

/// A range of the reserve there.
struct RemoteRoom {
    range: Range<usize>,
    rooms: Arc<Mutex<ReserveRooms>>,
}

/// The publication says it.
impl HeldTls for RemoteModule {
    fn initialize(&self, _: TlsImage) {}
}

/// As above.
impl HeldTls for RemoteRoom {
    fn initialize(&self, _: TlsImage) {}
}

impl Drop for RemoteModule {
    fn drop(&mut self) {
        self.modules.give_back(self.number);
    }
}

impl Drop for RemoteRoom {
    fn drop(&mut self) {
        self.rooms.lock().give_back(&self.range);
    }
}

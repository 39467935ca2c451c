//! Which thread-local variable each descriptor in memory stands for.
//!
//! Most code reaches a thread-local variable through its descriptor and needs nothing of this. Code that
//! shares variables of hidden visibility with other objects reaches them by their offset in the common
//! module; it has to know what a descriptor says before that is written.

use rustc_hash::FxHashMap;
use uruk_core::ExecutorAddr;
use uruk_core::sync::{Arc, Mutex};

use crate::executor::{Executor, TlsError, TlsPlacement, TlsReservation};
use crate::link::{Allocated, Link};

/// The descriptors of all objects that are linked, or being linked.
///
/// # Concurrency
/// One lock, held for single map operations.
#[derive(Debug, Default)]
pub(super) struct TlsPlacements {
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    /// With the number of the note that it belongs to.
    by_descriptor: FxHashMap<ExecutorAddr, (TlsPlacement, u64)>,
    last: u64,
}

/// The descriptors of one object, until it goes.
#[derive(Debug)]
pub(super) struct NotedTls {
    number: u64,
    descriptors: Vec<ExecutorAddr>,
    placements: Arc<TlsPlacements>,
}

impl TlsPlacements {
    /// The content of the descriptor at `address`, if it belongs to an object.
    pub(super) fn get(&self, address: ExecutorAddr) -> Option<TlsPlacement> {
        self.noted.lock().by_descriptor.get(&address).map(|(placement, _)| *placement)
    }

    /// Takes room for the object's thread-local variables and notes its descriptors, before another thread can
    /// know their addresses. `None` if it has no such variables.
    ///
    /// # Errors
    /// [`TlsError`] if the place has no room for another module.
    pub(super) fn place(
        self: &Arc<Self>,
        link: &mut Link<Allocated>,
        executor: &dyn Executor,
    ) -> Result<Option<(TlsReservation, NotedTls)>, TlsError> {
        let Some(shape) = link.tls_shape() else { return Ok(None) };
        let reservation = executor.place_tls(shape)?;
        link.place_tls(reservation.placement());
        Ok(Some((reservation, self.note(link.tls_descriptors()))))
    }

    /// Notes the descriptors of one object.
    pub(super) fn note(self: &Arc<Self>, descriptors: Vec<(ExecutorAddr, TlsPlacement)>) -> NotedTls {
        let mut noted = self.noted.lock();
        noted.last += 1;
        let number = noted.last;
        let with_number = |&(address, placement)| (address, (placement, number));
        noted.by_descriptor.extend(descriptors.iter().map(with_number));
        let descriptors = descriptors.into_iter().map(|(address, _)| address).collect();
        NotedTls { number, descriptors, placements: self.clone() }
    }
}

impl Drop for NotedTls {
    fn drop(&mut self) {
        let mut noted = self.placements.noted.lock();
        for address in &self.descriptors {
            // The memory of this object may be another's by now, and so its descriptors.
            if noted.by_descriptor.get(address).is_some_and(|(_, number)| *number == self.number) {
                noted.by_descriptor.remove(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a link that failed went before its descriptors were forgotten. An object that was placed there in between
    /// lost its own: hidden variables of it were not found any more.
    #[test]
    fn an_object_keeps_descriptors_where_those_of_another_lay() {
        let placements = Arc::new(TlsPlacements::default());
        let address = ExecutorAddr::new(0x1000);
        let placement = TlsPlacement { module: 1, offset: 0 };
        let place = || placements.note(vec![(address, placement)]);
        let (failed, linked) = (place(), place());
        drop(failed);
        assert_eq!(placements.get(address), Some(placement));
        drop(linked);
        assert_eq!(placements.get(address), None);
    }
}

//! Which thread-local variable each descriptor in memory stands for.
//!
//! Most code reaches a thread-local variable through its descriptor and needs nothing of this. Code that
//! shares variables of hidden visibility with other objects reaches them by their offset in the common
//! module; it has to know what a descriptor says before that is written.

use rustc_hash::FxHashMap;
use uruk_core::ExecutorAddr;
use uruk_core::sync::{Arc, Mutex};

use super::{Allocated, Link, TlsImage, TlsPlacement};
use crate::runtime::tls::{self, ReservedTls, TlsError, TlsIndex, TlsModule, register_module};

/// The descriptors of all objects that are linked, or being linked.
///
/// # Concurrency
/// One lock, held for single map operations.
#[derive(Debug, Default)]
pub(super) struct TlsPlacements {
    by_descriptor: Mutex<FxHashMap<ExecutorAddr, TlsPlacement>>,
}

/// The thread-local variables of one object, until it goes.
#[derive(Debug)]
pub(super) struct PlacedTls {
    home: Home,
    descriptors: Vec<(ExecutorAddr, TlsPlacement)>,
    placements: Arc<TlsPlacements>,
}

/// The module of an object's variables.
#[derive(Debug)]
enum Home {
    /// A module of their own, of which each thread gets its copy when it needs one.
    Module(TlsModule),
    /// The executable's module, at the same distance from every thread's pointer.
    Reserve(ReservedTls),
}

impl TlsPlacements {
    /// The content of the descriptor at `address`, if it belongs to an object or to a library.
    pub(super) fn get(&self, address: ExecutorAddr) -> Option<TlsPlacement> {
        let own = self.by_descriptor.lock().get(&address).copied();
        own.or_else(|| tls::variable_of_descriptor(address).map(TlsPlacement::from))
    }

    /// Gives the object's thread-local image a number and notes its descriptors, before anybody else can
    /// know their addresses. `None` if it has no such variables.
    ///
    /// # Errors
    /// [`TlsError`] if the process has no room for another module.
    pub(super) fn place(self: &Arc<Self>, link: &mut Link<Allocated>) -> Result<Option<PlacedTls>, TlsError> {
        let Some(image) = link.tls_image() else { return Ok(None) };
        let (image_bytes, total_bytes, align) =
            (size(image.image_bytes), size(image.total_bytes), size(image.align));
        // Objects that can do without may define what others reach at a fixed distance, so they go there too while there is room.
        // If there is none for one that cannot, the link fails where it knows the variable.
        let home = match tls::reserve(total_bytes, align, link.needs_static_tls()) {
            Some(reserved) => Home::Reserve(reserved),
            None => Home::Module(register_module(image_bytes, total_bytes, align)?),
        };
        link.place_tls(match &home {
            Home::Module(module) => TlsPlacement { module: module.id(), offset: 0 },
            Home::Reserve(reserved) => reserved.place().into(),
        });
        Ok(Some(self.note(home, link.tls_descriptors())))
    }

    fn note(self: &Arc<Self>, home: Home, descriptors: Vec<(ExecutorAddr, TlsPlacement)>) -> PlacedTls {
        self.by_descriptor.lock().extend(descriptors.iter().copied());
        PlacedTls { home, descriptors, placements: self.clone() }
    }
}

impl PlacedTls {
    /// Gives the variables their initial values, once these are final and before any code that uses them runs.
    pub(super) fn initialize(&self, image: TlsImage) {
        match &self.home {
            Home::Module(module) => module.initialize(image.address),
            Home::Reserve(reserved) => reserved.initialize(image.address, size(image.image_bytes)),
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

impl Drop for PlacedTls {
    fn drop(&mut self) {
        let mut by_descriptor = self.placements.by_descriptor.lock();
        for (address, placement) in &self.descriptors {
            // Memory of a link that failed may be another object's by now, and so its descriptors. No two have one
            // placement: numbers are never given twice, and the range in the reserve is still ours.
            if by_descriptor.get(address) == Some(placement) {
                by_descriptor.remove(address);
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
        let place = || {
            let module = register_module(8, 8, 8).expect("a slot is free");
            let placement = TlsPlacement { module: module.id(), offset: 0 };
            (placements.note(Home::Module(module), vec![(address, placement)]), placement)
        };
        let (failed, _) = place();
        let (linked, placement) = place();
        drop(failed);
        assert_eq!(placements.get(address), Some(placement));
        drop(linked);
        assert_eq!(placements.get(address), None);
    }
}

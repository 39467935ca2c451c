//! Which thread-local variable each descriptor in memory stands for.
//!
//! Most code reaches a thread-local variable through its descriptor and needs nothing of this. Code that
//! shares variables of hidden visibility with other objects reaches them by their offset in the common
//! module; it has to know what a descriptor says before that is written.

use rustc_hash::FxHashMap;
use uruk_core::ExecutorAddr;
use uruk_core::sync::{Arc, Mutex};

use super::{Allocated, Link, TlsPlacement};
use crate::runtime::tls::{TlsError, TlsModule, register_module};

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
    _module: TlsModule,
    descriptors: Vec<ExecutorAddr>,
    placements: Arc<TlsPlacements>,
}

impl TlsPlacements {
    /// What the descriptor at `address` says, if it belongs to an object.
    pub(super) fn get(&self, address: ExecutorAddr) -> Option<TlsPlacement> {
        self.by_descriptor.lock().get(&address).copied()
    }

    /// Gives the object's thread-local image a number and notes its descriptors, before anybody else can
    /// know their addresses. `None` if it has no such variables.
    ///
    /// # Errors
    /// [`TlsError`] if the process has no room for another module.
    pub(super) fn place(self: &Arc<Self>, link: &mut Link<Allocated>) -> Result<Option<PlacedTls>, TlsError> {
        let Some(image) = link.tls_image() else { return Ok(None) };
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let module = register_module(
            image.address,
            size(image.image_bytes),
            size(image.total_bytes),
            size(image.align),
        )?;
        link.place_tls(TlsPlacement { module: module.id(), offset: 0 });
        let descriptors = link.tls_descriptors();
        self.by_descriptor.lock().extend(descriptors.iter().copied());
        let descriptors = descriptors.into_iter().map(|(address, _)| address).collect();
        Ok(Some(PlacedTls { _module: module, descriptors, placements: self.clone() }))
    }
}

impl Drop for PlacedTls {
    fn drop(&mut self) {
        let mut by_descriptor = self.placements.by_descriptor.lock();
        for address in &self.descriptors {
            by_descriptor.remove(address);
        }
    }
}

//! [`KnownVariables`]: thread-local variables of the executor's libraries, by the addresses of their descriptors.

use rustc_hash::FxHashMap;
use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;

use super::messages::Finding;
use crate::executor::{NotStatic, TlsPlacement};

/// The variables that were found so far. Libraries have few.
#[derive(Debug, Default)]
pub(super) struct KnownVariables(Mutex<FxHashMap<u64, (TlsPlacement, Option<i64>)>>);

impl KnownVariables {
    pub(super) fn note(&self, found: &Finding) {
        if let Some((module, offset, distance)) = found.tls {
            self.0.lock().insert(found.address, (TlsPlacement { module, offset }, distance));
        }
    }

    pub(super) fn placement(&self, descriptor: ExecutorAddr) -> Option<TlsPlacement> {
        self.0.lock().get(&descriptor.value()).map(|(placement, _)| *placement)
    }

    /// # Errors
    /// [`NotStatic`] for a variable that was not found here, or that is at no fixed distance.
    pub(super) fn distance(&self, variable: TlsPlacement) -> Result<i64, NotStatic> {
        let known = self.0.lock();
        let found = known.values().find(|(placement, _)| *placement == variable);
        match found {
            Some((_, distance)) => distance.ok_or(NotStatic::LoadedLater),
            None => Err(NotStatic::NoReserve),
        }
    }
}

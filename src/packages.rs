//! [`Packages`]: the packages of an engine, for redefinitions.

use std::sync::Weak;

use uruk_core::sync::{Arc, Mutex};

use crate::package::Package;

/// The packages that were loaded and are still there.
#[derive(Default)]
pub(crate) struct Packages {
    loaded: Mutex<Vec<Weak<Package>>>,
}

impl Packages {
    pub(crate) fn note(&self, package: &Arc<Package>) {
        let mut loaded = self.loaded.lock();
        loaded.retain(|package| package.strong_count() > 0);
        loaded.push(Arc::downgrade(package));
    }

    pub(crate) fn all(&self) -> Vec<Arc<Package>> {
        self.loaded.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

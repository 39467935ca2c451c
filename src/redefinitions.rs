//! [`Redefinitions`]: the parts of an engine that are told when functions are redefined.

use std::sync::Weak;

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{JitDylib, SymbolName};

/// Is told of redefinitions.
pub(crate) trait Redefinable: Send + Sync {
    /// Functions of a dylib have other bodies from now on.
    fn note_redefined(&self, dylib: &JitDylib, functions: &[SymbolName]);
}

/// Those that are told, as long as they are there.
#[derive(Default)]
pub(crate) struct Redefinitions {
    told: Mutex<Vec<Weak<dyn Redefinable>>>,
}

impl Redefinitions {
    /// Adds one that is told.
    pub(crate) fn tell(&self, redefinable: &Arc<impl Redefinable + 'static>) {
        let redefinable: Arc<dyn Redefinable> = redefinable.clone();
        let mut told = self.told.lock();
        told.retain(|other| other.strong_count() > 0);
        told.push(Arc::downgrade(&redefinable));
    }

    /// Tells all of them. They run without the lock.
    pub(crate) fn note(&self, dylib: &JitDylib, functions: &[SymbolName]) {
        let told: Vec<_> = self.told.lock().iter().filter_map(Weak::upgrade).collect();
        told.iter().for_each(|redefinable| redefinable.note_redefined(dylib, functions));
    }
}

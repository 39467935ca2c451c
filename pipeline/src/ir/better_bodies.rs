//! Bodies of functions that are compiled again, better. Each is a unit that is defined when it is wanted.

use rustc_hash::FxHashMap;
use uruk_core::sync::Arc;
use uruk_core::{
    MaterializationInterface, ResourceTracker, SharedError, SymbolFlags, SymbolName, WeakJitDylib,
    WeakResourceTracker,
};

use super::lazy_body::BodyInModule;
use super::lazy_module::LazyModule;
use crate::tiers::{Improve, Tiers};

/// The functions of a module, and the tracker that owns their better bodies.
pub(super) struct BetterBodies {
    tiers: Tiers,
    module: LazyModule,
    dylib: WeakJitDylib,
    /// The owner, as long as a handle of the tracker exists; afterwards the dylib's own tracker.
    tracker: WeakResourceTracker,
    functions: FxHashMap<SymbolName, u32>,
}

impl BetterBodies {
    pub(super) fn of(tiers: &Tiers, module: &LazyModule, tracker: &ResourceTracker) -> Arc<dyn Improve> {
        let dylib = tracker.dylib();
        let functions = module.functions_on_call();
        let functions = functions.map(|number| (dylib.session().intern(&module.body_of(number)), number));
        Arc::new(Self {
            tiers: tiers.clone(),
            module: module.clone(),
            dylib: dylib.downgrade(),
            tracker: tracker.downgrade(),
            functions: functions.collect(),
        })
    }
}

impl Improve for BetterBodies {
    fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    fn is_improvable(&self, body: &SymbolName) -> bool {
        self.functions.get(body).is_some_and(|&function| self.module.began_below(function))
    }

    fn is_urgent(&self, body: &SymbolName) -> bool {
        self.functions.get(body).is_some_and(|&function| self.module.began_below_for_short(function))
    }

    fn define_better(&self, body: &SymbolName, attempt: u32) -> Result<Option<SymbolName>, SharedError> {
        let (Some(&function), Some(dylib)) = (self.functions.get(body), self.dylib.upgrade()) else {
            return Ok(None);
        };
        let tracker = self.tracker.upgrade().unwrap_or_else(|| dylib.default_tracker());
        let name = dylib.session().intern(&self.module.better_body_of(function, attempt));
        let symbols = [(name.clone(), SymbolFlags::CALLABLE)].into_iter().collect();
        let unit = BodyInModule {
            module: self.module.clone(),
            function,
            attempt,
            interface: MaterializationInterface::new(symbols),
        };
        let defined = dylib.define_with_tracker(Box::new(unit), &tracker);
        defined.map(|()| Some(name)).map_err(|error| Arc::new(error) as SharedError)
    }
}

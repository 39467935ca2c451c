//! One function: which body it has, found when it is called.

use std::panic::{AssertUnwindSafe, catch_unwind};

use uruk_core::sync::Arc;
use uruk_core::{
    ExecutorAddr, JitDylib, JitDylibLookupFlags, LookupError, LookupRequest, LookupResult, LookupSet,
    SearchOrder, SymbolFlags, SymbolName, WeakJitDylib,
};

use super::cell::{Cell, Slot};
use super::{LazyCallError, LazyCallFailure, LazyCallThroughManager};
use crate::link::{HeldCode, LeadsOn};
use crate::runtime::call_through::{Destination, SlotAddr};

/// Where a function is, and what keeps it there: nothing if it is no code of ours.
pub(super) type Found = (ExecutorAddr, Option<HeldCode>);

/// What a stub stands for.
#[derive(Clone)]
pub(super) struct Body {
    pub(super) dylib: WeakJitDylib,
    pub(super) name: SymbolName,
}

pub(super) struct LazyFunction {
    manager: LazyCallThroughManager,
    leads_on: Arc<LeadsOn>,
    /// Of its stub, among those of its unit.
    number: u32,
    cell: Cell<Body, SlotAddr>,
}

impl LazyFunction {
    pub(super) fn new(
        manager: LazyCallThroughManager,
        leads_on: Arc<LeadsOn>,
        number: u32,
        body: Body,
    ) -> Self {
        Self { manager, leads_on, number, cell: Cell::new(body) }
    }

    /// Finds the body on this thread, which compiles it unless somebody has begun.
    fn find_here(&self, body: &Body) -> Result<Found, LazyCallError> {
        let dylib = body.dylib.upgrade().ok_or(LazyCallError::SessionGone)?;
        let session = dylib.session();
        let layer = &self.manager.layer;
        let hold = |address| layer.hold_if_it_may_go(address);
        Ok(find(&dylib, &body.name, |request| session.lookup_here(request), hold)?)
    }

    /// Leads the stub to `body`: at once if it is `ready`, otherwise the next call finds it. What this gives is dropped without a lock.
    pub(super) fn redirect(&self, body: Body, ready: Option<Found>) -> (Body, Vec<HeldCode>) {
        let (address, held) = ready.unzip();
        let keep = |bound| match bound {
            Some(address) => self.leads_on.lead_on_to(self.number, address, held.flatten()),
            None => {
                self.leads_on.lead_nowhere(self.number);
                Vec::from_iter(held.flatten())
            }
        };
        self.cell.redirect(body, address, keep)
    }
}

impl Slot for SlotAddr {
    fn load(&self) -> u64 {
        Self::load(*self)
    }

    fn store(&self, address: u64) {
        Self::store(*self, address);
    }
}

impl Destination for LazyFunction {
    fn refers_to(&self, function: ExecutorAddr) -> Vec<ExecutorAddr> {
        self.manager.layer.references_of(function)
    }

    fn find(&self, slot: SlotAddr) -> Result<ExecutorAddr, ExecutorAddr> {
        let find = |body: &Body| self.find_here(body);
        let keep = |address, held| self.leads_on.lead_on_to(self.number, address, held);
        let found = catch_unwind(AssertUnwindSafe(|| self.cell.bind(&slot, find, keep)));
        found.unwrap_or(Err(LazyCallError::Panicked)).map_err(|error| {
            let body = self.cell.destination();
            (self.manager.on_failure)(&LazyCallFailure { function: &body.name, error })
        })
    }
}

/// Looks a function of `dylib` up and holds its code.
pub(super) fn find(
    dylib: &JitDylib,
    name: &SymbolName,
    look_up: impl Fn(LookupRequest) -> Result<LookupResult, LookupError>,
    hold: impl Fn(ExecutorAddr) -> Option<HeldCode>,
) -> Result<Found, FindError> {
    let order = SearchOrder::from([(dylib.clone(), JitDylibLookupFlags::MatchAllSymbols)]);
    loop {
        let found = look_up(LookupRequest::new(order.clone(), LookupSet::required([name.clone()])))?;
        let definition = found.get(name).zip(found.dependency(name));
        let (definition, token) = definition.ok_or(LookupError::Closed)?;
        if !definition.flags.contains(SymbolFlags::CALLABLE) {
            return Err(FindError::NotCallable);
        }
        let address = definition.address;
        // Removed in between: what is there now is looked up.
        if let Some(held) = dylib.session().while_present(token, || hold(address))? {
            return Ok((address, held));
        }
    }
}

pub(super) enum FindError {
    Lookup(LookupError),
    NotCallable,
}

impl From<LookupError> for FindError {
    fn from(error: LookupError) -> Self {
        Self::Lookup(error)
    }
}

impl From<FindError> for LazyCallError {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Lookup(error) => Self::Lookup(error),
            FindError::NotCallable => Self::NotCallable,
        }
    }
}

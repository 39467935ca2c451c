//! One function: which body it has, found when it is called.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use uruk_core::sync::Arc;
use uruk_core::sync::atomic::Ordering;
use uruk_core::{
    ExecutionSession, ExecutorAddr, JitDylib, JitDylibLookupFlags, LookupError, LookupRequest, LookupResult,
    LookupSet, SearchOrder, SymbolFlags, SymbolName, TaskPriority, WeakJitDylib, WithCauses,
};
use uruk_recorder::{Entry, Kind};

use super::cell::{Cell, JumpWord};
use super::group::{GroupTable, StubGroup};
use super::known::LazyUnit;
use super::promotion::{Improving, Promotion};
use super::{LazyCallError, LazyCallFailure, LazyCallThroughManager};
use crate::debug;
use crate::executor::StubsThere;
use crate::linking::{HeldCode, StubTargets};
use crate::runtime::background::between_forks;
use crate::runtime::call_through::{self, CalledStub, Cells, Destination, NamedCells, StubThere};
use crate::tiers::{CountedOut, Improve, PromotionEnd, PromotionOrder, Tier};

/// A function's address, and the code that is kept there: `None` if it is not linked code.
pub(super) type FoundBody = (ExecutorAddr, Option<HeldCode>);

/// The function that a stub stands for.
#[derive(Clone)]
pub(super) struct BodyName {
    pub(super) dylib: WeakJitDylib,
    pub(super) name: SymbolName,
}

pub(super) struct LazyFunction {
    manager: LazyCallThroughManager,
    targets: Arc<StubTargets>,
    /// Of its stub, among those of its unit.
    number: u32,
    cell: Cell<BodyName, StubSlot>,
    /// If stubs of its unit are led elsewhere together.
    group: Option<Arc<StubGroup>>,
    /// If there are tiers.
    promotion: Option<Arc<Promotion>>,
    unit: Arc<LazyUnit>,
}

impl LazyFunction {
    pub(super) fn new(
        manager: LazyCallThroughManager,
        targets: Arc<StubTargets>,
        number: u32,
        body: BodyName,
        improving: Option<&Arc<Improving>>,
        group: Option<Arc<StubGroup>>,
        unit: Arc<LazyUnit>,
    ) -> Self {
        let promotion = improving.map(|improving| Arc::new(Promotion::new(improving.clone(), number)));
        Self { manager, targets, number, cell: Cell::new(body), group, promotion, unit }
    }

    pub(super) fn group(&self) -> Option<&Arc<StubGroup>> {
        self.group.as_ref()
    }

    /// Has the stub lead to a better body. `cells` are those that it is among.
    pub(super) fn promote(
        &self,
        cells: &Cells,
        improve: &dyn Improve,
        order: PromotionOrder,
    ) -> PromotionEnd {
        let Some((generation, body, slot)) = self.cell.bound() else { return PromotionEnd::Gone };
        // The slot is written, so the stub is held. If it has gone, something else may be there.
        let stubs = slot.stub.code().and_then(|code| self.manager.layer.hold_stubs(code));
        let Some((_held, found)) = stubs else { return PromotionEnd::Gone };
        let is_ours = found.downcast::<NamedCells>().is_ok_and(|found| Arc::ptr_eq(&**found, cells));
        if !is_ours || !improve.is_improvable(&body.name) {
            return PromotionEnd::Gone;
        }
        let PromotionOrder::Attempt { number: attempt, after_failure, uses_pool } = order else {
            self.cell.count_again(generation, None);
            slot.stub.settle();
            return PromotionEnd::Refused;
        };
        let better = catch_unwind(AssertUnwindSafe(|| self.find_better(&body, improve, attempt, uses_pool)));
        match better.unwrap_or(Err(LazyCallError::Panicked)) {
            Ok(Some((address, held))) => {
                slot.stub.note(address);
                let keep = || self.targets.lead_on_to(self.number, address, held);
                let promoted = self.cell.promote(generation, address, keep);
                slot.stub.settle();
                match promoted {
                    Some(_kept) => {
                        improve.note_attempt(&body.name, Ok(()));
                        let (unit, number) = self.known();
                        self.manager.speculator.note_promoted(unit, &unit.functions[number]);
                        let name = || uruk_recorder::write_name(&body.name.readable().to_string());
                        uruk_recorder::note(|| {
                            Entry::new(Kind::Promoted).named(name()).with(Tier::Upper as u64, 0)
                        });
                        PromotionEnd::Promoted
                    }
                    None => PromotionEnd::Gone,
                }
            }
            Ok(None) => PromotionEnd::Gone,
            Err(error) => {
                tracing::debug!(function = %body.name, error = %WithCauses(&error), "not compiled better");
                improve.note_attempt(&body.name, Err(&error));
                self.cell.count_again(generation, after_failure);
                slot.stub.settle();
                PromotionEnd::Failed
            }
        }
    }

    fn find_better(
        &self,
        body: &BodyName,
        improve: &dyn Improve,
        attempt: u32,
        uses_pool: bool,
    ) -> Result<Option<FoundBody>, LazyCallError> {
        let Some(name) = improve.define_better(&body.name, attempt).map_err(LazyCallError::Better)? else {
            return Ok(None);
        };
        let dylib = body.dylib.upgrade().ok_or(LazyCallError::SessionGone)?;
        let look_up = |request| speculative(dylib.session(), request, uses_pool);
        Ok(Some(find(self.hold(), &dylib, &name, look_up)?))
    }

    /// Holds a body until those do who hold the stub. They hold what other stubs beside it lead to, so that a first call need not.
    fn hold(&self) -> impl Fn(ExecutorAddr) -> Option<HeldCode> {
        |address| self.manager.layer.hold_before(address, &self.targets)
    }

    /// Finds the body on this thread, which compiles it unless another thread has begun.
    fn find_here(&self, body: &BodyName) -> Result<FoundBody, LazyCallError> {
        let dylib = body.dylib.upgrade().ok_or(LazyCallError::SessionGone)?;
        let session = dylib.session();
        Ok(find(self.hold(), &dylib, &body.name, |request| session.lookup(request.here()))?)
    }

    /// The function as it was defined: its unit, and its number there.
    pub(super) fn known(&self) -> (&Arc<LazyUnit>, usize) {
        (&self.unit, self.number as usize)
    }

    /// Leads the stub to `body`: at once if it is `ready`, otherwise the next call finds it. Writes the `table` that its group is about to
    /// have, if there is one, and otherwise its slot. The caller drops the result without a lock.
    pub(super) fn redirect(
        &self,
        body: BodyName,
        ready: Option<FoundBody>,
        table: Option<&GroupTable>,
    ) -> (BodyName, Vec<HeldCode>) {
        let (address, held) = ready.unzip();
        let keep = |bound| match bound {
            Some(address) => self.targets.lead_on_to(self.number, address, held.flatten()),
            None => {
                self.targets.lead_nowhere(self.number);
                Vec::from_iter(held.flatten())
            }
        };
        let store = |slot: &StubSlot, address| match table {
            // Relaxed: it is published behind this.
            Some(table) => table[self.number as usize].store(address, Ordering::Relaxed),
            None => slot.store(address),
        };
        self.cell.redirect(body, address, keep, store)
    }
}

/// A stub with its slot, and the group that it is of.
#[derive(Clone)]
struct StubSlot {
    stub: CalledStub,
    group: Option<Arc<StubGroup>>,
}

impl JumpWord for StubSlot {
    fn load(&self) -> u64 {
        self.stub.load()
    }

    fn store(&self, address: u64) {
        self.stub.store(address);
    }

    fn store_counted(&self, address: u64, calls: u32) {
        self.stub.store_counted(address, calls);
    }

    fn while_settled<T>(&self, look: impl FnOnce() -> T) -> T {
        between_forks(|| match &self.group {
            Some(group) => group.while_settled(look),
            None => look(),
        })
    }
}

impl Destination for LazyFunction {
    fn refers_to(&self, function: ExecutorAddr) -> Vec<ExecutorAddr> {
        self.manager.layer.references_of(function)
    }

    fn find(&self, stub: CalledStub) -> Result<ExecutorAddr, ExecutorAddr> {
        let Some(_held) = self.hold_called(&stub) else { return Err(ExecutorAddr::NULL) };
        self.bind(stub).map_err(|failure| (self.manager.on_failure)(&failure))
    }

    fn counted_out(&self, stub: CalledStub) {
        let Some(promotion) = &self.promotion else { return };
        if let CountedOut::Again(calls) = promotion.improving().improve.tiers().counted_out(promotion)
            && let Some(_held) = self.hold_called(&stub)
        {
            stub.count(calls);
            stub.settle();
        }
    }
}

impl LazyFunction {
    /// Holds the code of a stub that is of another process: it is told where that leads as long as the code is there. A caller here does that
    /// itself. `None` if it is no stub of this function.
    fn hold_called(&self, stub: &CalledStub) -> Option<Option<HeldCode>> {
        let CalledStub::There(StubThere { stubs, stub, .. }) = stub else { return Some(None) };
        let layer = &self.manager.layer;
        let is_of_layer = |own: Arc<dyn StubsThere>| std::ptr::addr_eq(Arc::as_ptr(&own), Arc::as_ptr(stubs));
        layer.executor.stubs_there().is_some_and(is_of_layer).then_some(())?;
        let (held, cells) = layer.hold_stubs(*stub)?;
        let cells = cells.downcast::<NamedCells>().ok()?;
        let cell: &dyn Destination = &**cells.get(self.number as usize)?;
        std::ptr::addr_eq(cell, self).then_some(Some(held))
    }

    /// The tier that its body was compiled in.
    fn tier(&self) -> Tier {
        let improving = self.promotion.as_ref().map(|promotion| promotion.improving());
        let body = || self.cell.destination().name;
        match improving {
            Some(improving) if improving.improve.is_improvable(&body()) => Tier::Lower,
            _ => Tier::Upper,
        }
    }

    /// Finds the body and has the slot lead there.
    fn bind(&self, stub: CalledStub) -> Result<ExecutorAddr, LazyCallFailure> {
        let find = |body: &BodyName| self.find_here(body);
        let keep = |address, held| self.targets.lead_on_to(self.number, address, held);
        let improving = self.promotion.as_ref().map(|promotion| promotion.improving());
        let calls = |body: &BodyName| improving.and_then(|improving| improving.calls_of(&body.name));
        let (unit, number) = self.known();
        self.manager.speculator.note_call(&unit.functions[number]);
        let found = catch_unwind(AssertUnwindSafe(|| {
            if let Some(improving) = improving {
                improving.improve.tiers().may_start_thread(self.manager.layer.is_of_process());
            }
            let slot = StubSlot { stub, group: self.group.clone() };
            let bound = self.cell.bind(&slot, find, keep, calls)?;
            self.manager.speculator.note_code(&self.manager.layer, bound);
            self.manager.speculator.note_compiled(unit, &unit.functions[number], || self.tier());
            if let Some(promotion) = &self.promotion {
                promotion.improve_if_urgent(&self.cell.destination().name);
            }
            Ok(bound)
        }));
        let failure = |error| LazyCallFailure { function: self.cell.destination().name, error };
        found.unwrap_or(Err(LazyCallError::Panicked)).map_err(failure)
    }
}

/// The code that a call of the function at `address` would reach, through all stubs on the way. Stubs that were not called yet are led to
/// their functions first, which may compile these, on this thread. It is `address` itself unless that is a stub in code that is `held`.
///
/// The holder of the stubs holds the code too.
///
/// # Errors
/// [`LazyCallFailure`], which goes to no [handler](LazyCallThroughManager::on_failure).
pub fn callee(address: ExecutorAddr, held: &HeldCode) -> Result<ExecutorAddr, LazyCallFailure> {
    let find = |cell: &dyn Destination, stub| {
        let cell: &dyn Any = cell;
        cell.downcast_ref().map_or_else(|| Ok(address), |cell: &LazyFunction| cell.bind(stub))
    };
    let mut callee = address;
    while let Some(next) = call_through::lead(callee, held, find) {
        callee = next?;
    }
    Ok(callee)
}

/// Looks up a body that no caller waits for: by the workers, or on this thread.
pub(super) fn speculative(
    session: &ExecutionSession,
    request: LookupRequest,
    uses_pool: bool,
) -> Result<LookupResult, LookupError> {
    let request = request.at(TaskPriority::Speculative);
    if uses_pool { session.lookup(request) } else { session.lookup(request.here()) }
}

/// Looks a function of `dylib` up and has `hold` hold its code.
pub(super) fn find(
    hold: impl Fn(ExecutorAddr) -> Option<HeldCode>,
    dylib: &JitDylib,
    name: &SymbolName,
    look_up: impl Fn(LookupRequest) -> Result<LookupResult, LookupError>,
) -> Result<FoundBody, FindError> {
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
            debug::settle();
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

/// Takes the locks that a first call takes of its stub, for tests of forks: those of a group that all threads share.
#[cfg(test)]
pub(crate) fn use_the_locks() {
    static GROUP: std::sync::LazyLock<Arc<StubGroup>> = std::sync::LazyLock::new(Arc::default);
    let nowhere = CalledStub::Here(call_through::SlotAddr::nowhere());
    let slot = StubSlot { stub: nowhere, group: Some(GROUP.clone()) };
    slot.while_settled(|| std::hint::black_box(()));
}

//! First calls in a process whose code another process links: that process is asked, and has the stubs lead on.
//!
//! ```text
//!   the process of the code                       the process that links
//!     first call ── StubsElsewhere::find ──────▶    find_for: the cell, and its body
//!       lead_stubs ◀──────── StubsThere::lead ──    under the cell's lock
//!       goes on    ◀────────────────── answer ──
//! ```

use std::sync::OnceLock;

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicU64, Ordering};
use uruk_core::sync::{Arc, Mutex};

use super::called::{CalledStub, StubThere};
use super::{CallThroughDescriptor, RootAddr, cells, descriptor_of, table_of};
use crate::executor::{StubLead, StubTarget, StubsThere};
use crate::runtime::unwind;

/// A stub, as both processes know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallElsewhere {
    /// The id of the cells of the stub's unit, of the process that links.
    pub(crate) cells: u64,
    /// The stub's number among those of its unit.
    pub(crate) number: u32,
    /// The function's address.
    pub(crate) stub: ExecutorAddr,
}

/// The function of a stub, found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundElsewhere {
    /// Where the call goes on. Null if there is nothing to go on at.
    pub(crate) address: ExecutorAddr,
    /// The functions that the code there refers to, if they were asked for.
    pub(crate) references: Vec<ExecutorAddr>,
}

/// The process that links.
pub(crate) trait StubsElsewhere: Send + Sync {
    /// Where the call of a stub goes on. Later calls go there too, unless it failed.
    fn find(&self, call: CallElsewhere, wants_references: bool) -> FoundElsewhere;

    /// As many calls were made as were to be counted. Perhaps in a handler of a signal: must not wait. Says whether the process will know.
    fn counted_out(&self, call: CallElsewhere) -> bool;
}

static ELSEWHERE: OnceLock<Box<dyn StubsElsewhere>> = OnceLock::new();

/// Has first calls of this process ask `other` from now on. The first such process stays.
pub(crate) fn ask_elsewhere(other: Box<dyn StubsElsewhere>) {
    let _ = ELSEWHERE.set(other);
}

/// The process that is asked, if this one links no code, and the stub for it.
pub(super) fn asked(
    descriptor: &CallThroughDescriptor,
) -> Option<(&'static dyn StubsElsewhere, CallElsewhere)> {
    let other = &**ELSEWHERE.get()?;
    let number = descriptor.number()?;
    let stub = ExecutorAddr::new(descriptor.stub);
    Some((other, CallElsewhere { cells: descriptor.cells, number, stub }))
}

/// Has stubs of this process lead on: those of a group at one moment.
///
/// To be called by the thread that forgets their code.
///
/// # Errors
/// The address of the first that is no stub, or of another unit than the first. Those before it may lead on.
pub(crate) fn lead_stubs(leads: &[StubLead]) -> Result<(), ExecutorAddr> {
    let Some(first) = leads.first() else { return Ok(()) };
    // SAFETY: the code of stubs stays until this thread forgets it.
    let (table, _) = unsafe { table_of(first.stub) }.ok_or(first.stub)?;
    let root = table.root().filter(|_| leads.len() > 1).map(|root| RootAddr(root as *mut u64));
    let Some(root) = root else { return leads.iter().try_for_each(lead_stub) };
    let next: Box<[AtomicU64]> = root.read(table.len()).into_iter().map(AtomicU64::new).collect();
    for StubLead { stub, target } in leads {
        let number = table.number(stub.value()).ok_or(*stub)?;
        // SAFETY: as above.
        let (descriptor, slot) = unsafe { descriptor_of(*stub) }.ok_or(*stub)?;
        let address = match *target {
            StubTarget::Body(body) | StubTarget::CountedBody(body, _) => {
                slot.note(body);
                body.value()
            }
            StubTarget::NextCall => descriptor.unbound,
            StubTarget::CountAgain(_) => continue, // The stubs of a group do not count.
        };
        next[number as usize].store(address, Ordering::Relaxed); // published below
    }
    root.publish(&next);
    let mut tables = TABLES.lock();
    tables.retain(|(stub, _)| unwind::functions::stubs_at(*stub).is_some());
    tables.push((first.stub, next));
    Ok(())
}

/// The tables of groups that stubs jump through, or did: a thread may be about to read one, as long as its stubs are there.
static TABLES: Mutex<Vec<(ExecutorAddr, Box<[AtomicU64]>)>> = Mutex::new(Vec::new());

fn lead_stub(StubLead { stub, target }: &StubLead) -> Result<(), ExecutorAddr> {
    // SAFETY: as in `lead_stubs`, whose caller calls this.
    let (descriptor, slot) = unsafe { descriptor_of(*stub) }.ok_or(*stub)?;
    match *target {
        StubTarget::Body(body) => {
            slot.note(body);
            slot.store(body.value());
        }
        StubTarget::CountedBody(body, calls) => {
            slot.note(body);
            slot.store_counted(body.value(), calls);
        }
        StubTarget::NextCall => slot.store(descriptor.unbound),
        StubTarget::CountAgain(calls) => slot.count(calls),
    }
    Ok(())
}

/// Finds the function of a stub that was called where `stubs` are.
pub(crate) fn find_for(
    call: CallElsewhere,
    wants_references: bool,
    stubs: &Arc<dyn StubsThere>,
) -> FoundElsewhere {
    let Some(cells) = cells::find(call.cells) else { return FoundElsewhere::default() };
    let Some(cell) = cells.get(call.number as usize) else { return FoundElsewhere::default() };
    match cell.find(called(call, stubs)) {
        Ok(address) => {
            let references = if wants_references { cell.refers_to(address) } else { Vec::new() };
            FoundElsewhere { address, references }
        }
        Err(address) => FoundElsewhere { address, references: Vec::new() },
    }
}

/// Takes note of a function whose count has run out where `stubs` are.
pub(crate) fn counted_out_for(call: CallElsewhere, stubs: &Arc<dyn StubsThere>) {
    let cells = cells::find(call.cells);
    if let Some(cell) = cells.as_ref().and_then(|cells| cells.get(call.number as usize)) {
        cell.counted_out(called(call, stubs));
    }
}

fn called(call: CallElsewhere, stubs: &Arc<dyn StubsThere>) -> CalledStub {
    CalledStub::There(StubThere { stubs: stubs.clone(), stub: call.stub })
}

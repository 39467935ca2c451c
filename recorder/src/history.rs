//! A history: what the notes of a recording say of each claim and each lookup, gathered for the tables and paths that are made of it.

use std::collections::{BTreeMap, HashMap};

use crate::names::Name;
use crate::note::{Kind, Note, ThreadId};
use crate::reader::{Batch, Reader};
use crate::sums::{EndedPhase, Sums};

/// The number of a claim, a query or another thing of a session: the session's number comes first.
pub type NotedId = (u16, u64);

/// A run, as its notes tell it.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By id.
    pub claims: BTreeMap<NotedId, ClaimHistory>,
    /// By id.
    pub lookups: BTreeMap<NotedId, LookupHistory>,
    /// How often each thing happened. Notes that it counts as lost may be holes in the history.
    pub sums: Sums,
    threads: HashMap<ThreadId, ThreadNow>,
    /// The thread that began with a phase last.
    newest: ThreadId,
}

/// A unit's way from its claim to its end. Times are nanoseconds since the recording began.
#[derive(Clone, Debug, Default)]
pub struct ClaimHistory {
    /// The unit.
    pub unit: String,
    /// When it was claimed, and by which claim; none for a lookup from outside.
    pub claimed: Option<u64>,
    /// The claim that wanted it; 0 is none.
    pub wanted_by: u64,
    /// When a thread began with it.
    pub begun: Option<u64>,
    /// When that thread left it.
    pub ended: Option<u64>,
    /// When it was emitted.
    pub emitted: Option<u64>,
    /// When it failed.
    pub failed: Option<u64>,
    /// How long a thread was in it, without the lookups in which it was blocked.
    pub busy: u64,
    /// How long its thread was blocked in lookups.
    pub blocked: u64,
    /// Own times of the phases that ran for it: without the phases inside them.
    pub phases: BTreeMap<String, u64>,
}

/// A lookup that waited.
#[derive(Clone, Debug, Default)]
pub struct LookupHistory {
    /// The first symbol that it wanted.
    pub symbol: String,
    /// When it began to wait.
    pub lodged: u64,
    /// The claim on whose behalf it asked; 0 is none.
    pub asked_by: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// The claim whose step ended it; 0 is not known.
    pub ended_by: u64,
    /// Whether it ended without an answer.
    pub has_failed: bool,
}

/// The units that a thread is in.
#[derive(Clone, Debug, Default)]
struct ThreadNow {
    /// Units that were begun and not left, the innermost last.
    units: Vec<(NotedId, u64)>,
    blocked_since: Option<u64>,
    /// Phases outside of units; the next claim that resolves or emits here had them.
    unclaimed: Vec<EndedPhase>,
}

impl History {
    /// Reads all that a reader has, and goes on where it was.
    pub fn read(&mut self, reader: &mut Reader) {
        let batch = reader.read();
        self.add(&batch, |name| reader.name(name));
    }

    /// Adds notes. `text` gives the text of a name.
    pub fn add(&mut self, batch: &Batch, text: impl Fn(Name) -> String) {
        self.sums.lost += batch.lost;
        for (thread, note) in &batch.notes {
            self.add_note(*thread, note, &text);
        }
    }

    /// The phase that began last of those that go on, and its unit: what is under way.
    pub fn under_way(&self) -> Option<(&str, &str)> {
        let phase = self.sums.phase_of(self.newest)?;
        let (unit, _) = self.threads.get(&self.newest)?.units.last()?;
        Some((phase, &self.claims.get(unit)?.unit))
    }

    fn add_note(&mut self, thread: ThreadId, note: &Note, text: impl Fn(Name) -> String) {
        let ended = self.sums.add_note(thread, note, &text);
        let (id, time) = ((note.session, note.a), note.time);
        match note.kind {
            Kind::Lodged => {
                let symbol = text(note.name);
                let lookup = LookupHistory { symbol, lodged: time, asked_by: note.b, ..Default::default() };
                self.lookups.entry(id).or_insert(lookup);
            }
            Kind::Completed | Kind::QueryFailed | Kind::Withdrawn => {
                if let Some(lookup) = self.lookups.get_mut(&id) {
                    (lookup.ended, lookup.ended_by) = (Some(time), note.b);
                    lookup.has_failed = note.kind != Kind::Completed;
                }
            }
            Kind::Claimed => {
                let unit = text(note.name);
                let claim =
                    ClaimHistory { unit, claimed: Some(time), wanted_by: note.b, ..Default::default() };
                self.claims.insert(id, claim);
            }
            Kind::Returned => drop(self.claims.remove(&id)),
            Kind::Begun => {
                self.claims.entry(id).or_default().begun = Some(time);
                self.threads.entry(thread).or_default().units.push((id, time));
            }
            Kind::Ended => self.leave_unit(thread, id, time),
            Kind::Blocked => self.threads.entry(thread).or_default().blocked_since = Some(time),
            Kind::Unblocked => self.unblock(thread, time),
            Kind::Resolved => self.attribute(thread, id),
            Kind::Emitted => {
                self.claims.entry(id).or_default().emitted = Some(time);
                self.attribute(thread, id);
            }
            // A row: its claim is the acting one.
            Kind::Failed => {
                if let Some(claim) = self.claims.get_mut(&(note.session, note.b)) {
                    claim.failed.get_or_insert(time);
                }
            }
            Kind::PhaseBegun => self.newest = thread,
            _ => {}
        }
        if let Some(ended) = ended {
            self.add_phase_of(thread, ended);
        }
    }

    fn leave_unit(&mut self, thread: ThreadId, id: NotedId, time: u64) {
        let now = self.threads.entry(thread).or_default();
        let claim = self.claims.entry(id).or_default();
        claim.ended = Some(time);
        // Notes between may be lost: those that were left out have ended.
        while let Some((unit, begun)) = now.units.pop() {
            if unit == id {
                claim.busy = time.saturating_sub(begun).saturating_sub(claim.blocked);
                break;
            }
        }
    }

    fn unblock(&mut self, thread: ThreadId, time: u64) {
        let now = self.threads.entry(thread).or_default();
        if let (Some(since), Some((id, _))) = (now.blocked_since.take(), now.units.last()) {
            let blocked = &mut self.claims.entry(*id).or_default().blocked;
            *blocked = blocked.saturating_add(time.saturating_sub(since));
        }
    }

    fn add_phase_of(&mut self, thread: ThreadId, ended: EndedPhase) {
        let now = self.threads.entry(thread).or_default();
        match now.units.last().copied() {
            Some((id, _)) => self.add_phase(id, &ended),
            None => now.unclaimed.push(ended),
        }
    }

    /// Gives phases that ran outside of units to the claim that they ran for.
    fn attribute(&mut self, thread: ThreadId, id: NotedId) {
        let unclaimed = self.threads.entry(thread).or_default().unclaimed.drain(..).collect::<Vec<_>>();
        unclaimed.iter().for_each(|ended| self.add_phase(id, ended));
    }

    fn add_phase(&mut self, id: NotedId, ended: &EndedPhase) {
        let phases = &mut self.claims.entry(id).or_default().phases;
        let sum = phases.entry(self.sums.text_of(ended.name).to_owned()).or_default();
        *sum = sum.saturating_add(ended.own);
    }
}

impl ClaimHistory {
    /// From the claim until a thread began.
    pub fn queued(&self) -> u64 {
        self.claimed.zip(self.begun).map_or(0, |(claimed, begun)| begun.saturating_sub(claimed))
    }

    /// The work that was done for it: on its thread, or in phases elsewhere if these are more.
    pub fn work(&self) -> u64 {
        self.busy.max(self.phases.values().sum())
    }
}

//! Figures of notes, at the moment of the last note.

use std::collections::{HashMap, HashSet};

use uruk_recorder::{Batch, Kind, Name, Note, Reader, ThreadId};

/// Priorities by their numbers.
pub(crate) const PRIORITIES: [&str; 4] = ["demanded", "lazy", "speculative", "idle"];

/// Where claimed units stand, in the order of their lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    Queued,
    Running,
    /// Left by its thread, for another to emit.
    Waiting,
    Emitted,
    Failed,
    Returned,
}

impl Stand {
    pub(crate) const NAMES: [&'static str; 6] =
        ["queued", "running", "waiting", "emitted", "failed", "returned"];
}

#[derive(Debug)]
struct Claim {
    name: Name,
    priority: usize,
    begun: u64,
    stand: Stand,
}

/// An activity of a thread, inside of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activity {
    pub(crate) name: Name,
    pub(crate) since: u64,
    kind: Kind,
}

impl Activity {
    pub(crate) fn is_unit(&self) -> bool {
        self.kind == Kind::Begun
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.kind == Kind::Blocked
    }
}

/// Figures of a recording.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) now: u64,
    pub(crate) notes: u64,
    pub(crate) lost: u64,
    pub(crate) stands: [u64; 6],
    /// Symbols.
    pub(crate) ready: u64,
    pub(crate) queued: [u64; 4],
    /// Open, answered, failed, withdrawn.
    pub(crate) lookups: [u64; 4],
    pub(crate) blocked: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) promoted: u64,
    /// By owner: its name, and bytes.
    pub(crate) bytes: HashMap<(u16, u64), (Name, u64)>,
    /// The time that was spent on each unit, and how often it was claimed.
    pub(crate) units: HashMap<String, (u64, u64)>,
    /// The activities of each thread, the innermost last.
    pub(crate) threads: HashMap<ThreadId, Vec<Activity>>,
    claims: HashMap<(u16, u64), Claim>,
    open: HashSet<(u16, u64)>,
}

impl Figures {
    /// Takes in what has been read.
    pub(crate) fn take(&mut self, batch: Batch, reader: &Reader) {
        self.lost = self.lost.saturating_add(batch.lost);
        for (thread, note) in batch.notes {
            self.notes += 1;
            self.now = self.now.max(note.time);
            self.note(thread, note, reader);
        }
    }

    fn note(&mut self, thread: ThreadId, note: Note, reader: &Reader) {
        let claim = (note.session, note.a);
        match note.kind {
            Kind::Claimed => {
                let made = Claim { name: note.name, priority: 0, begun: note.time, stand: Stand::Queued };
                self.stands[Stand::Queued as usize] += 1;
                self.queued[0] += 1;
                self.claims.insert(claim, made);
            }
            Kind::Prioritized => self.prioritized(claim, note.b),
            Kind::Begun => {
                self.stands(claim, Stand::Running);
                let name = self.claims.get_mut(&claim).map_or(Name::NONE, |claim| {
                    claim.begun = note.time;
                    claim.name
                });
                self.begin(thread, name, &note);
            }
            Kind::Ended => {
                self.end(thread, Kind::Begun);
                self.ended(claim, &note, reader);
            }
            Kind::Emitted => self.stands(claim, Stand::Emitted),
            Kind::Ready => self.ready += 1,
            Kind::Failed => self.stands((note.session, note.b), Stand::Failed),
            Kind::Returned => self.stands(claim, Stand::Returned),
            // Again when it goes on with the next part of its search.
            Kind::Lodged => self.lookups[0] += u64::from(self.open.insert(claim)),
            Kind::Completed => self.answered(claim, 1),
            Kind::QueryFailed => self.answered(claim, 2),
            Kind::Withdrawn => self.answered(claim, 3),
            Kind::Blocked => {
                self.blocked += 1;
                self.begin(thread, note.name, &note);
            }
            Kind::Unblocked => {
                self.blocked = self.blocked.saturating_sub(1);
                self.end(thread, Kind::Blocked);
            }
            Kind::PhaseBegun => self.begin(thread, note.name, &note),
            Kind::PhaseEnded => self.end(thread, Kind::PhaseBegun),
            Kind::CacheAsked if note.a == 1 => self.hits += 1,
            Kind::CacheAsked => self.misses += 1,
            Kind::Promoted => self.promoted += 1,
            Kind::Bytes => drop(self.bytes.insert(claim, (note.name, note.b))),
            Kind::ThreadNamed => drop(self.threads.entry(thread).or_default()),
            _ => {}
        }
    }

    fn begin(&mut self, thread: ThreadId, name: Name, note: &Note) {
        let activity = Activity { name, since: note.time, kind: note.kind };
        self.threads.entry(thread).or_default().push(activity);
    }

    /// Ends the innermost activity of a kind, and those within it, whose ends were lost.
    fn end(&mut self, thread: ThreadId, kind: Kind) {
        let activities = self.threads.entry(thread).or_default();
        if let Some(at) = activities.iter().rposition(|activity| activity.kind == kind) {
            activities.truncate(at);
        }
    }

    fn stands(&mut self, claim: (u16, u64), stand: Stand) {
        let Some(claim) = self.claims.get_mut(&claim) else { return };
        if claim.stand == stand || claim.stand == Stand::Failed {
            return;
        }
        if claim.stand == Stand::Queued {
            self.queued[claim.priority] -= 1;
        }
        self.stands[claim.stand as usize] -= 1;
        self.stands[stand as usize] += 1;
        claim.stand = stand;
    }

    fn left(&mut self, claim: (u16, u64)) {
        if self.claims.get(&claim).is_some_and(|claim| claim.stand == Stand::Running) {
            self.stands(claim, Stand::Waiting);
        }
    }

    fn prioritized(&mut self, claim: (u16, u64), priority: u64) {
        let Some(claim) = self.claims.get_mut(&claim) else { return };
        // Notes have the most urgent one last.
        let priority = usize::try_from(priority).map_or(0, |priority| 3 - priority.min(3));
        if claim.stand == Stand::Queued {
            self.queued[claim.priority] -= 1;
            self.queued[priority] += 1;
        }
        claim.priority = priority;
    }

    fn ended(&mut self, id: (u16, u64), note: &Note, reader: &Reader) {
        match note.b {
            0 => self.left(id),
            _ => self.stands(id, Stand::Failed),
        }
        let Some(claim) = self.claims.get(&id) else { return };
        let unit = self.units.entry(reader.name(claim.name)).or_default();
        unit.0 += note.time.saturating_sub(claim.begun);
        unit.1 += 1;
    }

    fn answered(&mut self, query: (u16, u64), how: usize) {
        self.lookups[0] -= u64::from(self.open.remove(&query));
        self.lookups[how] += 1;
    }
}

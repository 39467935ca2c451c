//! Sums: how often each thing happened and how long it took, from the notes of a recording. They need no more room for a long run than for a
//! short one, so a reader may come often and see every note before it is overwritten.

use std::collections::{BTreeMap, HashMap};

use crate::names::Name;
use crate::note::{Kind, Note, ThreadId};
use crate::outcome::{CacheEntry, TierEnd};
use crate::reader::{Batch, Reader};

/// Sums over everything that was read.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Units that were claimed.
    pub claimed: u64,
    /// Units whose code and data are in place.
    pub emitted: u64,
    /// Symbols that became Ready.
    pub ready: u64,
    /// Symbols that failed.
    pub failed: u64,
    /// Phases by name. A phase counts when it has ended.
    pub stages: BTreeMap<String, StageSum>,
    /// Passes over IR, by `stage/pass`, if a reader [asked](crate::ask_for) for them.
    pub passes: BTreeMap<String, PassSum>,
    /// The cache's answers.
    pub cache: CacheSums,
    /// Functions by what the tiers did with them: [`TierEnd`] is the index.
    pub tiers: [TierSum; TierEnd::ALL.len()],
    /// The parts that modules were divided into.
    pub parts: u64,
    /// Functions that have come to each step, and of how many: simplified, optimized, compiled. If a reader asked for them.
    pub functions: [(u64, u64); 3],
    /// The time of the newest note, in nanoseconds since the recording began.
    pub end: u64,
    /// Notes that were lost. With them the sums are too small.
    pub lost: u64,
    /// Phases that threads are in, the innermost last.
    threads: HashMap<ThreadId, Vec<OpenPhase>>,
    names: HashMap<Name, String>,
}

/// The figures of one phase. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageSum {
    /// How often it ended.
    pub count: u64,
    /// How long threads were in it.
    pub total: u64,
    /// The same without the phases inside it, so that own times can be added up.
    pub own: u64,
    /// How long it took at most.
    pub max: u64,
}

/// The figures of one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassSum {
    /// How often it ran.
    pub runs: u64,
    /// How long that took, in nanoseconds.
    pub nanos: u64,
}

/// The functions that met one end in the tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierSum {
    /// How many there were.
    pub functions: u64,
    /// How long they took, in nanoseconds.
    pub nanos: u64,
}

/// Questions to a cache, and its answers.
#[derive(Clone, Debug, Default)]
pub struct CacheSums {
    /// Modules whose objects were wanted.
    pub objects: u64,
    /// Those of them that were found.
    pub hits: u64,
    /// Parts and functions whose objects were wanted, of modules whose objects were missing.
    pub parts: u64,
    /// Those of them that were found.
    pub part_hits: u64,
    /// The misses of modules, each module once.
    pub misses: Vec<CacheMiss>,
}

/// An entry that the cache did not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheMiss {
    /// The module.
    pub unit: String,
    /// The kind of the entry.
    pub entry: CacheEntry,
    /// Why there was none.
    pub cause: String,
}

/// A phase that has begun.
#[derive(Clone, Copy, Debug)]
struct OpenPhase {
    name: Name,
    begun: u64,
    /// Time in phases inside it.
    inside: u64,
}

/// A phase that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedPhase {
    pub(crate) name: Name,
    /// Its time without the phases inside it.
    pub(crate) own: u64,
}

impl Sums {
    /// Reads all that a reader has, and goes on where it was.
    pub fn read(&mut self, reader: &mut Reader) {
        let batch = reader.read();
        self.add(&batch, |name| reader.name(name));
    }

    /// Adds notes. `text` gives the text of a name.
    pub fn add(&mut self, batch: &Batch, text: impl Fn(Name) -> String) {
        self.lost += batch.lost;
        for (thread, note) in &batch.notes {
            self.add_note(*thread, note, &text);
        }
    }

    /// The name of the innermost phase that a thread is in.
    pub fn phase_of(&self, thread: ThreadId) -> Option<&str> {
        let open = self.threads.get(&thread)?.last()?;
        Some(self.text_of(open.name))
    }

    /// The text of a phase's name.
    pub(crate) fn text_of(&self, phase: Name) -> &str {
        self.names.get(&phase).map_or("", String::as_str)
    }

    fn text(&mut self, name: Name, text: impl Fn(Name) -> String) -> &str {
        self.names.entry(name).or_insert_with(|| text(name))
    }

    pub(crate) fn add_note(
        &mut self,
        thread: ThreadId,
        note: &Note,
        text: impl Fn(Name) -> String,
    ) -> Option<EndedPhase> {
        self.end = self.end.max(note.time);
        match note.kind {
            Kind::Claimed => self.claimed += 1,
            Kind::Emitted => self.emitted += 1,
            Kind::Ready => self.ready += 1,
            Kind::Failed => self.failed += 1,
            Kind::PhaseBegun => {
                self.text(note.name, text);
                let open = OpenPhase { name: note.name, begun: note.time, inside: 0 };
                self.threads.entry(thread).or_default().push(open);
            }
            Kind::PhaseEnded => return self.end_phase(thread, note, text),
            Kind::Pass => {
                let name = self.text(note.name, text).to_owned();
                let sum = self.passes.entry(name).or_default();
                sum.runs = sum.runs.saturating_add(note.b);
                sum.nanos = sum.nanos.saturating_add(note.a);
            }
            Kind::CacheAsked => self.cache.add(note, text),
            Kind::Tiered => {
                if let Some(sum) = self.tiers.get_mut(usize::try_from(note.a).unwrap_or(usize::MAX)) {
                    (sum.functions, sum.nanos) = (sum.functions + 1, sum.nanos.saturating_add(note.b));
                }
            }
            Kind::Divided => self.parts = self.parts.saturating_add(note.a),
            Kind::Functions => {
                if let Some((done, of)) =
                    self.functions.get_mut(usize::try_from(note.b).unwrap_or(usize::MAX))
                {
                    (*done, *of) = (*done + (note.a & u64::from(u32::MAX)), *of + (note.a >> 32));
                }
            }
            _ => {}
        }
        None
    }

    fn end_phase(
        &mut self,
        thread: ThreadId,
        note: &Note,
        text: impl Fn(Name) -> String,
    ) -> Option<EndedPhase> {
        let open = self.threads.entry(thread).or_default();
        // Notes between may be lost: phases inside that have no end have ended. An end without a beginning says nothing.
        let at = open.iter().rposition(|phase| phase.name == note.name)?;
        open.truncate(at + 1);
        let OpenPhase { name, begun, inside } = open.pop()?;
        let total = note.time.saturating_sub(begun);
        if let Some(around) = open.last_mut() {
            around.inside = around.inside.saturating_add(total);
        }
        let own = total.saturating_sub(inside);
        self.text(name, text);
        let text = &self.names[&name];
        if !self.stages.contains_key(text) {
            self.stages.insert(text.clone(), StageSum::default());
        }
        if let Some(stage) = self.stages.get_mut(text) {
            stage.count += 1;
            (stage.total, stage.own, stage.max) =
                (stage.total.saturating_add(total), stage.own.saturating_add(own), stage.max.max(total));
        }
        Some(EndedPhase { name, own })
    }
}

impl CacheSums {
    fn add(&mut self, note: &Note, text: impl Fn(Name) -> String) {
        let (is_found, Some(entry)) = (note.a == 1, CacheEntry::of_note(note)) else { return };
        match entry {
            CacheEntry::Part => {
                (self.parts, self.part_hits) = (self.parts + 1, self.part_hits + u64::from(is_found));
                return;
            }
            CacheEntry::Object => {
                (self.objects, self.hits) = (self.objects + 1, self.hits + u64::from(is_found));
            }
            CacheEntry::Interface => {}
        }
        if is_found {
            return;
        }
        let cause = text(Name::of_number((note.b >> 32) as u32));
        let miss = CacheMiss { unit: text(note.name), entry, cause };
        // That a module's object is missing says more than that its interface is, which comes first.
        match self.misses.iter_mut().find(|known| known.unit == miss.unit && known.entry != entry) {
            Some(known) => *known = miss,
            None => self.misses.push(miss),
        }
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use crate::{Entry, Script};

    fn sums(script: Script) -> Sums {
        let mut sums = Sums::default();
        sums.read(&mut script.reader());
        sums
    }

    /// ```text
    ///  outer  |---|inner|-|inner|----|   on one thread, and inner alone on another
    /// ```
    #[test]
    fn own_time_leaves_out_the_phases_inside() {
        let mut script = Script::new(64, 2);
        let threads = ["a", "b"].map(|name| script.thread(name));
        let [outer, inner] = ["outer", "inner"].map(|name| script.name(name));
        let begins = [(0, 10, outer), (0, 14, inner), (0, 20, inner), (1, 12, inner)];
        let ends = [(0, 17, inner), (0, 25, inner), (0, 40, outer), (1, 13, inner)];
        let mut notes: Vec<_> = begins.map(|note| (note, Kind::PhaseBegun)).into();
        notes.extend(ends.map(|note| (note, Kind::PhaseEnded)));
        notes.sort_by_key(|((_, time, _), _)| *time);
        for ((thread, time, name), kind) in notes {
            script.note(threads[thread], time, Entry::new(kind).named(name));
        }
        let sums = sums(script);
        assert_eq!(sums.stages["outer"], StageSum { count: 1, total: 30, own: 22, max: 30 });
        assert_eq!(sums.stages["inner"], StageSum { count: 3, total: 9, own: 9, max: 5 });
        assert_eq!(sums.end, 40);
    }

    /// Its end was overwritten, and everything behind it had counted for the phase inside.
    #[test]
    fn a_phase_whose_end_is_lost_ends_with_the_one_around_it() {
        let mut script = Script::new(64, 1);
        let thread = script.thread("a");
        let [outer, inner] = ["outer", "inner"].map(|name| script.name(name));
        let notes =
            [(1, Kind::PhaseBegun, outer), (2, Kind::PhaseBegun, inner), (9, Kind::PhaseEnded, outer)];
        for (time, kind, name) in notes {
            script.note(thread, time, Entry::new(kind).named(name));
        }
        let mut sums = sums(script);
        assert_eq!(sums.stages["outer"].total, 8);
        assert!(!sums.stages.contains_key("inner"));
        assert_eq!(sums.phase_of(thread), None);
        let begun = Note { time: 10, kind: Kind::PhaseBegun, session: 0, name: inner, a: 0, b: 0 };
        sums.add_note(thread, &begun, |_| String::new());
        assert_eq!(sums.phase_of(thread), Some("inner"));
    }

    #[test]
    fn a_module_is_missed_once_and_for_its_object() {
        let mut script = Script::new(64, 1);
        let thread = script.thread("a");
        let [unit, stale] = ["a.ll", "the stored entry is damaged"].map(|name| script.name(name));
        let mut ask = |entry: CacheEntry, found: bool| {
            let entry = entry.entry(found, 2, stale).named(unit);
            script.note(thread, 1, entry);
        };
        ask(CacheEntry::Interface, false);
        ask(CacheEntry::Object, false);
        ask(CacheEntry::Object, true);
        ask(CacheEntry::Part, true);
        let CacheSums { objects, hits, parts, part_hits, misses } = sums(script).cache;
        assert_eq!((objects, hits, parts, part_hits), (2, 1, 1, 1));
        let cause = "the stored entry is damaged".to_owned();
        assert_eq!(misses, [CacheMiss { unit: "a.ll".into(), entry: CacheEntry::Object, cause }]);
    }

    #[test]
    fn passes_functions_and_tiers_are_counted_as_their_notes_say() {
        let mut script = Script::new(64, 1);
        let thread = script.thread("a");
        let licm = script.name("loop/licm");
        for entry in [
            Entry::new(Kind::Pass).named(licm).with(30, 2),
            Entry::new(Kind::Pass).named(licm).with(12, 1),
            Entry::new(Kind::Functions).with(7 << 32, 1),
            Entry::new(Kind::Functions).with(3, 1),
            Entry::new(Kind::Functions).with(3, u64::MAX),
            Entry::new(Kind::Tiered).with(TierEnd::Upper as u64, 5),
            Entry::new(Kind::Tiered).with(u64::MAX, 5),
            Entry::new(Kind::Divided).with(4, 0),
            Entry::new(Kind::Ready).with(1, 0),
        ] {
            script.note(thread, 1, entry);
        }
        let sums = sums(script);
        assert_eq!(sums.passes["loop/licm"], PassSum { runs: 3, nanos: 42 });
        assert_eq!(sums.functions, [(0, 0), (3, 7), (0, 0)]);
        assert_eq!(sums.tiers[TierEnd::Upper as usize], TierSum { functions: 1, nanos: 5 });
        assert_eq!((sums.parts, sums.ready), (4, 1));
    }
}

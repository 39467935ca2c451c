//! The critical path of a lookup: the steps that ended one another, from its end back to its beginning.
//!
//! ```text
//!  lookup:  |<-------------------------------------------------------------------------- lodged .. ended ------>|
//!  path:    | a queued | a works | b queued | b works                 | a goes on  | c works (ends the lookup) |
//! ```
//!
//! A lookup is ended by a step of one claim. That claim worked since it began, or since the last lookup that it asked had its answer. In that case
//! the path goes on with the claim that ended this lookup. Where it began, it had waited in a queue since the claim, and the path
//! goes on with the claim that wanted it. The steps are the lookup's time, without gaps.

use std::collections::{HashMap, HashSet};

use crate::history::{History, LookupHistory, NotedId};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// Nanoseconds since the recording began.
    pub begin: u64,
    /// The same.
    pub end: u64,
    /// The kind of step.
    pub what: PathWork,
    /// The claim of the unit; 0 where none is known.
    pub claim: u64,
    /// The unit; empty where none is known.
    pub unit: String,
}

/// The kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathWork {
    /// A unit was at work.
    Working,
    /// A unit was claimed, and no thread had begun with it.
    Queued,
    /// The notes do not say: they were lost, or a generator was asked.
    Unknown,
}

impl PathStep {
    /// How long it took.
    pub fn nanos(&self) -> u64 {
        self.end - self.begin
    }
}

impl History {
    /// The slowest lookup from outside that has ended.
    pub fn slowest_lookup(&self) -> Option<NotedId> {
        let took = |lookup: &LookupHistory| lookup.ended.map(|ended| ended.saturating_sub(lookup.lodged));
        let from_outside = self.lookups.iter().filter(|(_, lookup)| lookup.asked_by == 0);
        from_outside
            .filter_map(|(id, lookup)| Some((took(lookup)?, id)))
            .max_by_key(|(took, _)| *took)
            .map(|(_, id)| *id)
    }

    /// The critical path of a lookup that has ended, in the order of time. Its steps have no gaps, and take as long as the lookup.
    pub fn critical_path(&self, lookup: NotedId) -> Vec<PathStep> {
        let Some((root, end)) = self.lookups.get(&lookup).and_then(|root| Some((root, root.ended?))) else {
            return Vec::new();
        };
        let asked = self.lookups_by_asker(lookup.0);
        let mut path = Walk { begin: root.lodged, at: end, steps: Vec::new() };
        let mut claim = root.ended_by;
        // A claim may end its own lookup: the path goes on with the same claim, and not with that lookup again.
        let mut walked = HashSet::from([lookup.1]);
        // Each turn goes back in time, or to a claim that wanted another: notes that lie may do neither.
        for _ in 0..=2 * self.claims.len() + self.lookups.len() {
            let id = (lookup.0, claim);
            let Some(history) = self.claims.get(&id).filter(|_| !path.is_whole()) else { break };
            let answered = asked.get(&claim).into_iter().flatten();
            let is_before = |other: &LookupHistory| other.ended.is_some_and(|ended| ended <= path.at);
            let answered = answered.filter(|(id, other)| is_before(other) && !walked.contains(id));
            let last = answered.max_by_key(|(_, other)| other.ended);
            let begun = history.begun.filter(|&begun| begun <= path.at);
            let last = last.filter(|(_, last)| last.ended >= begun);
            let since = last.and_then(|(_, last)| last.ended).or(begun).or(history.claimed);
            path.go_back(since.unwrap_or(path.begin), PathWork::Working, claim, &history.unit);
            claim = match last {
                Some((id, last)) => {
                    walked.insert(*id);
                    last.ended_by
                }
                None => {
                    let claimed = history.claimed.unwrap_or(path.begin);
                    path.go_back(claimed, PathWork::Queued, claim, &history.unit);
                    history.wanted_by
                }
            };
        }
        path.go_back(path.begin, PathWork::Unknown, 0, "");
        path.steps.reverse();
        path.steps
    }

    /// The lookups that have ended, by the claim on whose behalf they were.
    fn lookups_by_asker(&self, session: u16) -> HashMap<u64, Vec<(u64, &LookupHistory)>> {
        let mut asked: HashMap<u64, Vec<_>> = HashMap::new();
        for ((_, id), lookup) in self.lookups.iter().filter(|((of, _), _)| *of == session) {
            asked.entry(lookup.asked_by).or_default().push((*id, lookup));
        }
        asked
    }
}

/// A walk back in time, not beyond the beginning.
struct Walk {
    begin: u64,
    at: u64,
    steps: Vec<PathStep>,
}

impl Walk {
    fn is_whole(&self) -> bool {
        self.at <= self.begin
    }

    fn go_back(&mut self, to: u64, what: PathWork, claim: u64, unit: &str) {
        let to = to.clamp(self.begin.min(self.at), self.at);
        if to == self.at {
            return;
        }
        match self.steps.last_mut() {
            Some(later) if (later.what, later.claim) == (what, claim) => later.begin = to,
            _ => self.steps.push(PathStep { begin: to, end: self.at, what, claim, unit: unit.to_owned() }),
        }
        self.at = to;
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::PathWork::{Queued, Unknown, Working};
    use super::*;
    use crate::{Entry, Kind, Script, ThreadId};

    /// A run that is planted: claims and queries are numbers, units are called after their claim.
    struct Plant {
        script: Script,
        threads: Vec<ThreadId>,
    }

    impl Plant {
        fn new(threads: usize) -> Self {
            let mut script = Script::new(256, threads);
            let threads = (0..threads).map(|number| script.thread(&format!("worker {number}"))).collect();
            Self { script, threads }
        }

        fn note(&mut self, time: u64, thread: usize, kind: Kind, a: u64, b: u64) -> &mut Self {
            let name = match kind {
                Kind::Claimed => self.script.name(&format!("unit {a}")),
                Kind::Lodged => self.script.name(&format!("symbol {a}")),
                _ => crate::Name::NONE,
            };
            let entry = Entry::new(kind).of(1).named(name).with(a, b);
            self.script.note(self.threads[thread], time, entry);
            self
        }

        fn history(self) -> History {
            let mut history = History::default();
            history.read(&mut self.script.reader());
            history
        }
    }

    /// The path of lookup 1: beginning, end, kind and unit of each step.
    fn path(history: &History) -> Vec<(u64, u64, PathWork, String)> {
        let path = history.critical_path((1, 1));
        let root = &history.lookups[&(1, 1)];
        let sum: u64 = path.iter().map(PathStep::nanos).sum();
        assert_eq!(sum, root.ended.unwrap() - root.lodged, "the steps are the time of the lookup: {path:?}");
        path.into_iter().map(|step| (step.begin, step.end, step.what, step.unit)).collect()
    }

    fn step(begin: u64, end: u64, what: PathWork, claim: u64) -> (u64, u64, PathWork, String) {
        (begin, end, what, if claim == 0 { String::new() } else { format!("unit {claim}") })
    }

    /// ```text
    ///  lookup 1 ─ unit 1 ─ lookup 2 ─ unit 2 ─ lookup 3 ─ unit 3; all emitted in the order 3, 2, 1
    /// ```
    #[test]
    fn a_chain_goes_down_and_comes_up_again() {
        use Kind::*;
        let mut plant = Plant::new(2);
        plant.note(10, 0, Claimed, 1, 0).note(11, 0, Lodged, 1, 0).note(15, 1, Begun, 1, 0);
        plant.note(30, 1, Claimed, 2, 1).note(31, 1, Lodged, 2, 1).note(31, 1, Ended, 1, 0);
        plant.note(40, 1, Begun, 2, 0).note(60, 1, Claimed, 3, 2).note(61, 1, Lodged, 3, 2);
        plant.note(62, 1, Ended, 2, 0).note(63, 1, Begun, 3, 0);
        plant.note(100, 1, Emitted, 3, 1).note(100, 1, Completed, 3, 3).note(101, 1, Ended, 3, 0);
        plant.note(110, 1, Emitted, 2, 1).note(110, 1, Completed, 2, 2);
        plant.note(130, 1, Emitted, 1, 1).note(130, 1, Completed, 1, 1);
        let expected = [
            step(11, 15, Queued, 1),
            step(15, 30, Working, 1),
            step(30, 40, Queued, 2),
            step(40, 60, Working, 2),
            step(60, 63, Queued, 3),
            step(63, 100, Working, 3),
            step(100, 110, Working, 2),
            step(110, 130, Working, 1),
        ];
        assert_eq!(path(&plant.history()), expected);
    }

    /// ```text
    ///  unit 1 asks for 2 and 3 at once; 3 takes longer, on another worker
    /// ```
    #[test]
    fn of_a_fan_the_slowest_counts() {
        use Kind::*;
        let mut plant = Plant::new(3);
        plant.note(0, 0, Claimed, 1, 0).note(0, 0, Lodged, 1, 0).note(5, 1, Begun, 1, 0);
        plant.note(20, 1, Claimed, 2, 1).note(20, 1, Claimed, 3, 1).note(20, 1, Lodged, 2, 1);
        plant.note(21, 1, Begun, 2, 0).note(25, 2, Begun, 3, 0);
        plant.note(40, 1, Emitted, 2, 1).note(90, 2, Emitted, 3, 1).note(90, 2, Completed, 2, 3);
        plant.note(95, 2, Emitted, 1, 1).note(95, 2, Completed, 1, 1);
        let expected = [
            step(0, 5, Queued, 1),
            step(5, 20, Working, 1),
            step(20, 25, Queued, 3),
            step(25, 90, Working, 3),
            step(90, 95, Working, 1),
        ];
        assert_eq!(path(&plant.history()), expected);
    }

    /// ```text
    ///  unit 1 is blocked in a lookup on its own thread while another works for it
    /// ```
    #[test]
    fn a_blocked_lookup_leads_to_what_it_waited_for() {
        use Kind::*;
        let mut plant = Plant::new(3);
        plant.note(0, 0, Claimed, 1, 0).note(0, 0, Lodged, 1, 0).note(2, 1, Begun, 1, 0);
        plant.note(10, 1, Claimed, 2, 1).note(10, 1, Lodged, 2, 1).note(10, 1, Blocked, 2, 0);
        plant.note(14, 2, Begun, 2, 0).note(50, 2, Emitted, 2, 1).note(50, 2, Completed, 2, 2);
        plant.note(51, 2, Ended, 2, 0).note(55, 1, Unblocked, 2, 0);
        plant.note(70, 1, Emitted, 1, 1).note(70, 1, Completed, 1, 1).note(72, 1, Ended, 1, 0);
        let history = plant.history();
        let expected = [
            step(0, 2, Queued, 1),
            step(2, 10, Working, 1),
            step(10, 14, Queued, 2),
            step(14, 50, Working, 2),
            step(50, 70, Working, 1),
        ];
        assert_eq!(path(&history), expected);
        let claim = &history.claims[&(1, 1)];
        assert_eq!((claim.queued(), claim.blocked, claim.busy), (2, 45, 70 - 45));
    }

    /// A path stopped at a lookup that the claim itself had ended: a generator had answered on its thread.
    ///
    /// ```text
    ///  unit 1 asks for a symbol that a library has
    /// ```
    #[test]
    fn a_lookup_that_its_own_claim_ended_is_walked_once() {
        use Kind::*;
        let mut plant = Plant::new(2);
        plant.note(0, 0, Claimed, 1, 0).note(0, 0, Lodged, 1, 0).note(5, 1, Begun, 1, 0);
        plant.note(20, 1, Lodged, 2, 1).note(21, 1, Ended, 1, 0).note(30, 1, Completed, 2, 1);
        plant.note(90, 1, Emitted, 1, 1).note(90, 1, Completed, 1, 1);
        assert_eq!(path(&plant.history()), [step(0, 5, Queued, 1), step(5, 90, Working, 1)]);
    }

    /// ```text
    ///  units 1 and 2 need each other's code: 2 is emitted last, and both are Ready then
    /// ```
    #[test]
    fn of_a_cycle_the_last_emission_counts() {
        use Kind::*;
        let mut plant = Plant::new(3);
        plant.note(0, 0, Claimed, 1, 0).note(0, 0, Lodged, 1, 0).note(1, 1, Begun, 1, 0);
        plant.note(10, 1, Claimed, 2, 1).note(10, 1, Lodged, 2, 1).note(12, 2, Begun, 2, 0);
        // Addresses are enough for both.
        plant.note(20, 2, Resolved, 2, 1).note(20, 2, Completed, 2, 2).note(25, 1, Emitted, 1, 1);
        plant.note(80, 2, Emitted, 2, 1).note(80, 2, Ready, 1, 2).note(80, 2, Completed, 1, 2);
        let expected = [
            step(0, 1, Queued, 1),
            step(1, 10, Working, 1),
            step(10, 12, Queued, 2),
            step(12, 80, Working, 2),
        ];
        assert_eq!(path(&plant.history()), expected);
    }

    /// ```text
    ///  one worker; unit 2 stands behind unit 9, which nothing here needs
    /// ```
    #[test]
    fn of_a_starved_pool_the_queue_counts() {
        use Kind::*;
        let mut plant = Plant::new(2);
        plant.note(0, 0, Claimed, 9, 0).note(0, 0, Lodged, 9, 0).note(1, 1, Begun, 9, 0);
        plant.note(5, 0, Claimed, 2, 0).note(5, 0, Lodged, 1, 0);
        plant.note(500, 1, Emitted, 9, 1).note(500, 1, Completed, 9, 9).note(500, 1, Ended, 9, 0);
        plant.note(501, 1, Begun, 2, 0).note(510, 1, Emitted, 2, 1).note(510, 1, Completed, 1, 2);
        let history = plant.history();
        assert_eq!(path(&history), [step(5, 501, Queued, 2), step(501, 510, Working, 2)]);
        assert_eq!(history.slowest_lookup(), Some((1, 1)));
    }

    #[test]
    fn what_the_notes_do_not_say_is_unknown() {
        use Kind::*;
        let mut plant = Plant::new(2);
        plant.note(5, 0, Lodged, 1, 0).note(50, 1, Completed, 1, 7);
        assert_eq!(path(&plant.history()), [step(5, 50, Unknown, 0)]);
        // Claims that wanted each other lead round in a circle.
        let mut plant = Plant::new(2);
        plant.note(5, 0, Lodged, 1, 0).note(40, 0, Claimed, 2, 3).note(40, 0, Claimed, 3, 2);
        plant.note(50, 1, Completed, 1, 2);
        assert_eq!(path(&plant.history()), [step(5, 40, Unknown, 0), step(40, 50, Working, 2)]);
    }

    #[test]
    fn phases_count_for_the_unit_around_them_and_for_the_claim_that_acts_next() {
        use Kind::*;
        let mut plant = Plant::new(1);
        let [outer, inner] = ["ir.compile", "ir.optimize"].map(|name| plant.script.name(name));
        let thread = plant.threads[0];
        let mut phase = |time, kind, name| plant.script.note(thread, time, Entry::new(kind).named(name));
        phase(3, PhaseBegun, outer);
        phase(5, PhaseBegun, inner);
        phase(9, PhaseEnded, inner);
        phase(10, PhaseEnded, outer);
        plant.note(11, 0, Emitted, 4, 1).note(20, 0, Begun, 5, 0);
        plant.script.note(thread, 21, Entry::new(PhaseBegun).named(inner));
        plant.script.note(thread, 25, Entry::new(PhaseEnded).named(inner));
        plant.note(26, 0, Ended, 5, 0);
        let history = plant.history();
        let phases = |claim| history.claims[&(1, claim)].phases.clone().into_iter().collect::<Vec<_>>();
        assert_eq!(phases(4), [("ir.compile".into(), 3), ("ir.optimize".into(), 4)]);
        assert_eq!(phases(5), [("ir.optimize".into(), 4)]);
        assert_eq!((history.claims[&(1, 5)].work(), history.claims[&(1, 4)].work()), (6, 7));
    }
}

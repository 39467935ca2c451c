//! The end of a history: whichever way everything ends, nothing is left in memory.

use proptest::prelude::*;

use super::driver::Harness;
use super::operation::DYLIBS;
use super::world::Broken;

/// How a history ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The session closes.
    Close { cancel: bool },
    /// Everything is removed, one after the other.
    Remove,
    /// Every unit fails, then everything is removed.
    Fail,
}

pub(super) fn end() -> impl Strategy<Value = End> {
    prop_oneof![any::<bool>().prop_map(|cancel| End::Close { cancel }), Just(End::Remove), Just(End::Fail),]
}

impl Harness {
    pub(super) fn finish(&mut self, end: End) {
        self.all_look();
        self.do_chores();
        match end {
            End::Close { cancel } => {
                self.start_closing(cancel);
                self.end();
            }
            End::Remove => (0..DYLIBS).for_each(|slot| self.clear(self.slots[slot])),
            End::Fail => {}
        }
        self.all_go_on();
        self.do_chores();
        // The end of one of these may wake the others.
        while !self.responsibilities.is_empty() || !self.requests.is_empty() || !self.world.queries.is_empty()
        {
            self.give_up();
            self.finish_request(0, &[], false);
            self.do_chores();
            self.withdraw(0);
            self.do_chores();
        }
        (0..DYLIBS).for_each(|slot| self.remove_dylib(self.slots[slot]));
        self.is_empty();
    }

    /// Fails all responsibilities.
    fn give_up(&mut self) {
        while let Some(&duty) = self.responsibilities.keys().next() {
            let is_busy = self.responsibilities[&duty].is_busy;
            let lookup = self.alias_lookups.iter().find(|(_, of)| **of == duty).map(|(query, _)| *query);
            match lookup.filter(|_| is_busy) {
                // A lookup of the sources of aliases is given up first.
                Some(query) => {
                    self.alias_lookups.remove(&query);
                    self.withdraw_one(query);
                }
                None => assert!(!is_busy, "sources are looked up by nobody"),
            }
            self.fail(duty, Broken::Unit);
            self.do_chores();
        }
    }

    fn is_empty(&self) {
        let state = &self.state;
        assert_eq!(
            [
                state.definitions.counts().rows,
                state.definitions.counts().units,
                state.definitions.counts().claims,
                state.lookups.len()
            ],
            [0; 4],
            "rows, units, claims, queries"
        );
        assert_eq!(
            [
                state.definitions.counts().dylibs,
                state.definitions.counts().trackers,
                state.lookups.generators(),
                state.failures.len().0
            ],
            [0; 4],
            "dylibs, trackers, generators, failures"
        );
        assert!(state.forest.is_empty(), "the forest holds nothing");
        assert_eq!(state.definitions.counts().names, 0, "names");
        assert_eq!(state.definitions.counts().records, 0, "records");
        assert_eq!(state.lookups.aliases(), (0, 0), "aliases");
        assert_eq!(state.failures.len().1, 0, "what removed rows had to say");
        assert_eq!(state.waits.len(), (0, 0), "waits");
        assert!(!state.has_work(), "work");
        assert!(self.world.definitions.is_empty() && self.world.duties.is_empty());
    }
}

//! The model: the highest priority with which anybody has needed each symbol since its unit was claimed.

use super::History;
use super::step::NAMES;
use crate::TaskPriority;
use crate::ids::{ClaimId, QueryId};
use crate::protocol::state::definitions::row::RowState;
use crate::protocol::state::rising::RisingPriority;

/// The model's view of a lookup.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: QueryId,
    pub(super) names: Vec<usize>,
    pub(super) by: By,
}

/// How urgent a lookup is.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Saying(TaskPriority),
    Nobody,
    /// As urgent as that name.
    Claim(ClaimId, usize),
}

/// The model's observations, by name.
#[derive(Debug)]
pub(super) struct Highest {
    priorities: [TaskPriority; NAMES],
    /// A lookup has left the priority to the unit.
    as_it_says: [bool; NAMES],
}

impl Default for Highest {
    fn default() -> Self {
        Self { priorities: [TaskPriority::Idle; NAMES], as_it_says: [false; NAMES] }
    }
}

impl History {
    /// None for a symbol that needs no priority: it was never looked up, or it is over.
    fn priority_in_state(&self, name: usize) -> Option<TaskPriority> {
        self.state.priority_of(self.row(name)?).map(RisingPriority::get)
    }

    /// Notes what is needed now.
    pub(super) fn note_needs(&mut self) {
        // A lookup on behalf of a claim that has ended is as urgent as that was.
        for asked in &mut self.asked {
            if let By::Claim(claim, name) = asked.by
                && self.state.definitions.get_claim(claim).is_none()
            {
                asked.by = By::Saying(self.highest.priorities[name]);
            }
        }
        for name in 0..NAMES {
            if self.priority_in_state(name).is_none() {
                (self.highest.priorities[name], self.highest.as_it_says[name]) = (TaskPriority::Idle, false);
            }
        }
        loop {
            let before = self.highest.priorities;
            self.note_lookups();
            self.note_dependences();
            if self.highest.priorities == before {
                return;
            }
        }
    }

    fn note_lookups(&mut self) {
        let state = &self.state;
        let is_live = |asked: &&Asked| state.lookups.query(asked.id).is_some_and(|query| query.is_live());
        for asked in self.asked.iter().filter(is_live) {
            for &name in &asked.names {
                self.highest.as_it_says[name] |= matches!(asked.by, By::Nobody);
                let need = match asked.by {
                    By::Saying(priority) => priority,
                    By::Nobody => self.own[name],
                    By::Claim(_, asker) => self.highest.priorities[asker],
                };
                self.highest.priorities[name] = self.highest.priorities[name].max(need);
            }
        }
    }

    fn note_dependences(&mut self) {
        for (name, dependencies) in self.dependencies.iter().enumerate() {
            let row = self.row(name).map(|row| &self.state.definitions[row].state);
            let waits = matches!(row, Some(RowState::Emitted { .. }));
            for &dependency in dependencies.iter().filter(|_| waits) {
                let need = self.highest.priorities[name];
                self.highest.priorities[dependency] = self.highest.priorities[dependency].max(need);
            }
        }
    }

    /// A unit that says `own` of itself takes the place of another.
    pub(super) fn replaced(&mut self, name: usize, own: TaskPriority, goes_on: bool) {
        self.own[name] = own;
        if goes_on && self.highest.as_it_says[name] {
            self.highest.priorities[name] = self.highest.priorities[name].max(own);
        }
    }

    /// State and model agree, as far as they must.
    pub(super) fn check(&self) {
        self.state.check();
        for name in (0..NAMES).filter(|_| self.is_tame) {
            if let Some(priority) = self.priority_in_state(name) {
                let expected = self.highest.priorities[name];
                assert_eq!(priority, expected, "`{}`", self.names[name]);
                self.check_ticket(name, expected);
            }
        }
    }

    /// A queued unit has a ticket of its priority.
    fn check_ticket(&self, name: usize, expected: TaskPriority) {
        let is_queued = |claim: &ClaimId| !self.begun.contains(claim);
        let claimed = self.claims.iter().find(|claimed| self.name_of(claimed) == name);
        let queued = claimed.filter(|claimed| is_queued(&claimed.claim));
        if let Some(ticketed) = queued.and_then(|queued| queued.ticketed.as_ref()) {
            assert_eq!(ticketed.priority(), expected, "the ticket of `{}`", self.names[name]);
        }
    }
}

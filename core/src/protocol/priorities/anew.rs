//! The model: all priorities, computed from what was asked and what was emitted.

use super::History;
use super::step::NAMES;
use crate::TaskPriority;
use crate::protocol::ids::{ClaimId, QueryId};
use crate::protocol::row::RowState;

/// What the model knows of a lookup.
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
    Claim(ClaimId),
}

impl History {
    /// None for what needs no priority: nobody has looked for it, or it is over.
    pub(super) fn priority_in_state(&self, name: usize) -> Option<TaskPriority> {
        let row = self.row(name)?;
        self.state.rows[row].waiting()?;
        Some(self.state.priority_of(row))
    }

    /// All priorities, computed from nothing.
    fn priorities(&self) -> Vec<TaskPriority> {
        let mut priorities = vec![TaskPriority::Idle; NAMES];
        loop {
            let before = priorities.clone();
            for asked in self.asked.iter().filter(|asked| self.is_live(asked.id)) {
                for &name in &asked.names {
                    let need = match asked.by {
                        By::Saying(priority) => priority,
                        By::Nobody => self.own[name],
                        By::Claim(claim) => {
                            let claimed = self.claims.iter().find(|claimed| claimed.claim == claim);
                            claimed.map_or(TaskPriority::Idle, |claimed| before[self.name_of(claimed)])
                        }
                    };
                    priorities[name] = priorities[name].max(need);
                }
            }
            for (name, dependencies) in self.dependencies.iter().enumerate() {
                let waits = self
                    .row(name)
                    .is_some_and(|row| matches!(self.state.rows[row].state, RowState::Emitted { .. }));
                for &dependency in dependencies.iter().filter(|_| waits) {
                    priorities[dependency] = priorities[dependency].max(before[name]);
                }
            }
            if priorities == before {
                return priorities;
            }
        }
    }

    fn is_live(&self, query: QueryId) -> bool {
        self.state.queries.get(query).is_some_and(|query| query.is_live())
    }

    /// State and model agree, as far as they must.
    pub(super) fn check(&self) {
        self.state.check();
        if self.is_tame {
            let expected = self.priorities();
            for (name, expected) in expected.into_iter().enumerate() {
                if let Some(priority) = self.priority_in_state(name) {
                    assert_eq!(priority, expected, "`{}`", self.names[name]);
                    self.check_ticket(name, expected);
                }
            }
        }
    }

    /// What is queued, and needed, lies there as urgent as it is.
    fn check_ticket(&self, name: usize, expected: TaskPriority) {
        let claimed = self.claims.iter().find(|claimed| self.name_of(claimed) == name);
        let Some(claimed) = claimed.filter(|claimed| !self.begun.contains(&claimed.claim)) else { return };
        let followers = self.state.claims[claimed.claim].followers();
        let ticketed = followers.and_then(|followers| followers.ticketed.as_ref());
        if let Some(ticketed) = ticketed.filter(|_| self.state.is_wanted(claimed.claim)) {
            assert_eq!(ticketed.priority(), expected, "the ticket of `{}`", self.names[name]);
        }
    }
}

//! The steps of a history. Numbers choose the next step, and the thread that takes it.

use crate::rayon::board::Who;

use super::world::{Spare, World};

impl World {
    /// Something happens, or nothing, if there is nothing that it could happen to.
    pub(super) fn step(&mut self) {
        match self.below(11) {
            10 => {
                self.time_passes();
            }
            0 => {
                let count = 1 + self.below(4);
                self.push(count);
            }
            1 if self.spawned > 0 && self.tasks_on_host() < self.board.host_threads => {
                self.spawned -= 1;
                self.on_host.extend(self.board.take_for_ticket().map(|(_, charge)| charge));
            }
            2 if self.spawned > 0 && !self.on_host.is_empty() => {
                self.spawned -= 1;
                let orders = self.board.turn_away();
                self.follow(orders);
            }
            3 if !self.on_host.is_empty() => {
                let charge = self.take_from_host();
                let orders = self.board.ticket_ended(charge, false);
                self.follow(orders);
            }
            4 if !self.on_host.is_empty() => {
                let charge = self.take_from_host();
                self.blocked_on_host.push(charge);
                let orders = self.board.begin_wait(Who::Host, Some(charge));
                if !self.follow(orders) {
                    self.end_wait_on_host();
                }
            }
            5 if !self.blocked_on_host.is_empty() => {
                let index = self.below(self.blocked_on_host.len());
                let last = self.blocked_on_host.len() - 1;
                self.blocked_on_host.swap(index, last);
                self.end_wait_on_host();
            }
            6 => {
                let begins = self.foreign_waits == 0;
                self.foreign_waits = usize::from(begins);
                let orders = match begins {
                    true => self.board.begin_wait(Who::Foreign, None),
                    false => self.board.end_wait(Who::Foreign, None),
                };
                self.follow(orders);
            }
            7 => {
                if let Some(index) = self.spare_in(|spare| spare == Spare::Looks) {
                    self.look(index);
                }
            }
            8 => {
                if let Some(index) = self.spare_in(Spare::runs)
                    && let Spare::Runs(charge) = self.spares[index]
                {
                    let ends = self.below(2) == 0;
                    self.spares[index] = if ends { Spare::Looks } else { Spare::Blocked(charge) };
                    let orders = match ends {
                        true => self.board.spare_ended(charge, false),
                        false => self.board.begin_wait(Who::Spare, Some(charge)),
                    };
                    if !self.follow(orders) && !ends {
                        self.end_wait_of_spare(index, charge);
                    }
                }
            }
            _ => {
                if let Some(index) = self.spare_in(Spare::is_blocked)
                    && let Spare::Blocked(charge) = self.spares[index]
                {
                    self.end_wait_of_spare(index, charge);
                }
            }
        }
    }
}

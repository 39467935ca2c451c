//! The ends of a history: who alone is left takes all that is.

use super::world::{Spare, World};

impl World {
    /// From here on no spare can be had, no task comes, and every wait ends.
    pub(super) fn ends_without_spares(&mut self) {
        self.refuses = 4;
        for _ in 0..10_000 {
            if self.board.waiting() == 0 {
                return;
            }
            if let Some(index) = self.spare_in(|spare| spare == Spare::Looks) {
                self.look(index);
            } else if !self.blocked_on_host.is_empty() {
                self.end_wait_on_host();
            } else if let Some(charge) = self.on_host.pop() {
                let orders = self.board.ticket_ended(charge, false);
                self.follow(orders);
            } else if let Some(index) = self.spare_in(|spare| spare.runs() || spare.is_blocked()) {
                let (Spare::Runs(charge) | Spare::Blocked(charge)) = self.spares[index] else { continue };
                if self.spares[index].is_blocked() {
                    self.end_wait_of_spare(index, charge);
                }
                self.spares[index] = Spare::Looks;
                let orders = self.board.spare_ended(charge, false);
                self.follow(orders);
            } else if self.spawned > 0 {
                self.spawned -= 1;
                self.on_host.extend(self.board.take_for_ticket().map(|(_, charge)| charge));
            } else {
                assert!(self.time_passes(), "nobody comes to it: {:?}", self.board);
            }
            self.check();
        }
        panic!("tasks are left: {:?}", self.board);
    }

    /// From here on the host gives no thread, and no wait ends. Running tasks end; only spares and the clock go on.
    pub(super) fn ends_without_the_host(&mut self) {
        for _ in 0..10_000 {
            if self.board.waiting() == 0 {
                return;
            }
            if let Some(charge) = self.on_host.pop() {
                let orders = self.board.ticket_ended(charge, false);
                self.follow(orders);
            } else if let Some(index) = self.spare_in(Spare::runs)
                && let Spare::Runs(charge) = self.spares[index]
            {
                self.spares[index] = Spare::Looks;
                let orders = self.board.spare_ended(charge, false);
                self.follow(orders);
            } else if let Some(index) = self.spare_in(|spare| spare == Spare::Looks) {
                self.look(index);
            } else {
                assert!(self.time_passes(), "somebody looks at the clock");
            }
            self.check();
        }
        panic!("tasks are left: {:?}", self.board);
    }
}

//! Threads of our own, which take tasks in the place of threads that are blocked.

use uruk_core::sync::{Arc, MutexGuard};

use super::board::{Board, Who};
use super::{PATIENCE, Shared};
use crate::threads::NotStarted;

/// After how many times [`PATIENCE`] without anything to do a spare retires.
const QUIET_MAX: u32 = 10;

impl Shared {
    /// Starts the spare that the board has counted. Says whether anybody is left who could run what is queued.
    pub(super) fn start_spare(self: &Arc<Self>) -> bool {
        let body = {
            let shared = self.clone();
            move |number| {
                shared.serve();
                shared.threads.ended(number);
            }
        };
        let Err(reason) = self.threads.start(body) else { return true };
        let refused = matches!(reason, NotStarted::Refused(_));
        let somebody_left = self.board.lock().start_failed(refused);
        let NotStarted::Refused(error) = reason else { return true };
        tracing::warn!(%error, somebody_left, "the operating system refused to start a spare thread");
        somebody_left
    }

    /// Takes tasks as long as the board permits, and waits in between, until there is nothing left to wait for.
    fn serve(self: &Arc<Self>) {
        let mut board = self.board.lock();
        board.arrived();
        let mut quiet = 0;
        while !board.retires(quiet >= QUIET_MAX) {
            if board.is_permitted() {
                board = self.serve_once(board);
                quiet = 0;
                continue;
            }
            let taken = board.taken();
            let (locked, timed_out) = self.called.wait_timeout(board, PATIENCE);
            board = locked;
            board.arrived();
            if timed_out {
                quiet += 1;
                board.look_at_clock(taken);
            }
        }
    }

    fn serve_once<'a>(self: &'a Arc<Self>, mut board: MutexGuard<'a, Board>) -> MutexGuard<'a, Board> {
        let Some((task, charge, orders)) = board.take_for_spare() else { return board };
        drop(board);
        self.follow(orders);
        let panicked = self.run(task, Who::Spare, charge);
        let orders = self.board.lock().spare_ended(charge, panicked);
        self.follow(orders);
        self.gate.leave();
        let mut board = self.board.lock();
        board.arrived();
        board
    }
}

//! Threads of our own, which take tasks in the place of threads that are blocked.

use std::time::Duration;

use uruk_core::sync::{Arc, MutexGuard};

use super::board::{Board, Watch, Who};
use super::{PATIENCE, Shared};
use crate::threads::NotStarted;
use crate::worker;

/// After how long without anything to do a spare retires.
const QUIET_MAX: Duration = PATIENCE.saturating_mul(10);

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
        worker::tell(|| {
            tracing::warn!(%error, somebody_left, "the operating system refused to start a spare thread");
        });
        somebody_left
    }

    /// Takes tasks as long as the board permits, and waits in between, until there is nothing left to wait for.
    fn serve(self: &Arc<Self>) {
        let mut board = self.board.lock();
        board.arrived();
        let mut watch = Watch::default();
        while !board.retires(watch.quiet >= QUIET_MAX) {
            if board.is_permitted() {
                board = self.serve_once(board);
                watch = Watch::default();
                continue;
            }
            board.begin_watch(&mut watch);
            let (locked, timed_out) = self.called.wait_timeout(board, PATIENCE);
            board = locked;
            board.arrived();
            if timed_out {
                let orders = board.look_at_clock(&mut watch);
                drop(board);
                self.follow(orders);
                board = self.board.lock();
                // It may have called itself.
                board.arrived();
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

//! The board's invariants, checked against the threads around it.

use super::world::{Spare, World};

impl World {
    pub(super) fn check(&mut self) {
        assert!(self.board.call_if_deserted().is_none(), "nobody is left for it: {:?}", self.board);
        let board = &self.board;
        let (looking, asleep) =
            (self.count(|spare| spare == Spare::Looks), self.count(|spare| spare == Spare::Asleep));
        let (waiting, on_host) = (board.startable(), self.tasks_on_host());
        assert_eq!((board.serving, board.idle), (self.count(Spare::runs), looking + asleep));
        assert_eq!((board.tickets, board.honoured), (self.spawned + on_host, on_host));
        assert_eq!(board.counters().read().spares, self.spares.len());
        assert!(board.tickets <= board.host_threads);
        assert!(asleep <= board.host_threads, "{board:?}");
        if self.refuses > 0 {
            // Then the host's threads come to it, once they do not wait.
            let attended = looking + board.serving + self.spawned + self.on_host.len() > 0;
            assert!(attended || waiting == 0, "{board:?}");
            return;
        }
        assert!(waiting == 0 || board.idle + board.serving > 0, "a spare looks at the clock");
        let at_work = self.on_host.len() + board.serving;
        // No spare that could step in at once has to wait for the clock.
        let permitted = waiting > 0 && board.serving < board.permitted();
        assert!(!permitted || looking > 0, "{board:?}");
        // Nothing is held back for ever: only running tasks use up a limit, and they end.
        assert!(at_work > 0 || waiting > 0 || board.waiting() == 0, "{board:?}");
    }
}

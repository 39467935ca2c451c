//! [`Blame`]: whether the job at hand has ended a helper, or another process has.
//!
//! The system does not tell a parent which process sent a signal that ended its child. The parent knows this much:
//!
//! | the helper ended | by |
//! |---|---|
//! | otherwise than by `SIGKILL` | its job |
//! | by `SIGKILL`, and the system has ended processes for lack of memory since the last look | its job: the system takes a process that has much |
//! | by `SIGKILL`, otherwise, and it was confined | another process: a confined one that sends itself this signal is ended by `SIGSYS` |
//! | by `SIGKILL`, otherwise, and it was not confined | either |
//!
//! A limit of processor time that the host has inherited ends a helper by `SIGKILL` too, which looks like another process.

use rustix::process::Signal;

use crate::peer::{PeerError, ProcessEnd};

/// The cause of a helper's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The job: it is not given to another helper.
    Job,
    /// The job or another process. A second helper gets it, and if that ends so too, it was the job.
    Unclear,
    /// Another process: a second helper gets the job, which is not suspected.
    Outside,
}

impl Blame {
    pub(super) fn of(error: &PeerError, is_confined: bool, lacked_memory: impl FnOnce() -> bool) -> Self {
        let PeerError::Ended { end, .. } = error else { return Self::Job };
        if *end != ProcessEnd::Signal(Signal::KILL.as_raw()) || lacked_memory() {
            return Self::Job;
        }
        if is_confined { Self::Outside } else { Self::Unclear }
    }
}

/// How many processes the system has ended for lack of memory, in all groups, as of the last look.
#[derive(Debug)]
pub(super) struct MemoryKills {
    seen: u64,
}

impl MemoryKills {
    /// A first look.
    pub(super) fn new() -> Self {
        Self { seen: counted() }
    }

    /// Looks again: whether there are more.
    pub(super) fn have_grown(&mut self) -> bool {
        let before = std::mem::replace(&mut self.seen, counted());
        self.seen > before
    }
}

/// 0 where the system does not say.
fn counted() -> u64 {
    std::fs::read_to_string("/proc/vmstat").map_or(0, |text| kills_in(&text))
}

fn kills_in(text: &str) -> u64 {
    let number = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_blamed_for_what_it_alone_can_do() {
        let ended =
            |signal| PeerError::Ended { pid: 1, end: ProcessEnd::Signal(signal), said: String::new() };
        let kill = ended(Signal::KILL.as_raw());
        for (is_confined, lacked_memory, blame) in [
            (true, false, Blame::Outside),
            (false, false, Blame::Unclear),
            (true, true, Blame::Job),
            (false, true, Blame::Job),
        ] {
            assert_eq!(Blame::of(&kill, is_confined, || lacked_memory), blame);
            let aborted = ended(Signal::ABORT.as_raw());
            assert_eq!(Blame::of(&aborted, is_confined, || lacked_memory), Blame::Job);
        }
    }

    #[test]
    fn kills_for_lack_of_memory_are_counted() {
        assert_eq!(kills_in("nr_free_pages 12\noom_kill 7\noom_kill_disable 9\n"), 7);
        assert_eq!(kills_in("oom_killer 3\n"), 0);
        assert!(!MemoryKills { seen: u64::MAX }.have_grown());
    }
}

//! How long a process may still take, on a machine that others use as well.
//!
//! A limit in time is met by a process that hangs, and by one that gets no processor. So time counts while the processes of a group do
//! nothing, and otherwise as much of it as they had processors.

use std::fs;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::process::Pid;

/// From one look to the next.
const LOOK_S: u64 = 1;

/// Waits until `process`, which leads a group of its own, has ended, or the group has used its time up. Says whether it has ended.
///
/// # Errors
/// Those of `poll`.
pub(crate) fn wait(process: BorrowedFd<'_>, group: Pid, time_limit: Duration) -> rustix::io::Result<bool> {
    let look = Timespec { tv_sec: LOOK_S.cast_signed(), tv_nsec: 0 };
    let (mut used, mut before) = (Duration::ZERO, Duration::ZERO);
    while used < time_limit {
        if poll(&mut [PollFd::from_borrowed_fd(process, PollFlags::IN)], Some(&look))? > 0 {
            return Ok(true);
        }
        let (ran, is_held_up) = look_at(group);
        let since = ran.saturating_sub(before);
        let whole = Duration::from_secs(LOOK_S);
        used += if is_held_up { since.min(whole) } else { whole };
        before = ran;
    }
    Ok(false)
}

/// How long the processes of a group have run, and whether one of them runs, or waits for a processor or a disk.
fn look_at(group: Pid) -> (Duration, bool) {
    let (mut ticks, mut is_held_up) = (0, false);
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let fields = fields(&stat);
        if fields.get(2).and_then(|text| text.parse().ok()) != Some(group.as_raw_nonzero().get()) {
            continue;
        }
        // Of the process, and of its children that have ended.
        ticks += fields.iter().skip(11).take(4).filter_map(|text| text.parse::<u64>().ok()).sum::<u64>();
        for task in fs::read_dir(process.path().join("task")).into_iter().flatten().flatten() {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            is_held_up |= self::fields(&stat).first().is_some_and(|state| matches!(*state, "R" | "D"));
        }
    }
    // Linux tells programs in hundredths of a second, even where it counts in others.
    (Duration::from_millis(ticks * 10), is_held_up)
}

/// The fields of a `stat` file behind the name, which may contain anything: the state, the parent, the group, and so on.
fn fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(") ").map_or_else(Vec::new, |(_, fields)| fields.split_whitespace().collect())
}

#[cfg(test)]
mod tests {
    use crate::process::{End, Input, run};
    use std::process::Command;
    use std::time::Duration;

    /// One of each kind: what waits for nothing, and what does not stop.
    #[test]
    fn what_hangs_has_its_time_used_up() {
        for script in ["sleep 1000", "while :; do :; done", "(while :; do :; done); true"] {
            let mut command = Command::new("sh");
            let outcome = run(command.args(["-c", script]), &Input::default(), Duration::from_secs(2));
            assert_eq!(outcome.expect("it starts").end, End::TimedOut, "{script}");
        }
    }
}

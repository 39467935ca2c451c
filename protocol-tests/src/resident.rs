//! How much memory this process has. For tests in a binary of their own, one of which runs at a time.

use uruk_core::sync::Mutex;

/// Runs `round` so many times, with its number; the process grows by less than `bytes_max` after the third.
pub fn grows_no_more_after_three(rounds: usize, bytes_max: usize, mut round: impl FnMut(usize)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    assert!(rounds >= 6, "there are three after the third");
    (0..3).for_each(&mut round);
    let level = resident_bytes();
    (3..rounds - 3).for_each(&mut round);
    // A leak shows in each round. Freed memory that the allocator still has comes and goes.
    let least = (rounds - 3..rounds).filter_map(|number| {
        round(number);
        resident_bytes()
    });
    if let (Some(level), Some(now)) = (level, least.min()) {
        let grown = now.saturating_sub(level);
        assert!(grown < bytes_max, "{grown} bytes more than after the third round");
    }
}

/// Memory of this process that is resident, where the system tells.
fn resident_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<usize>().ok()? * 1024)
}

//! Orders instruction fetches between the processors that run threads of this process (`membarrier`).

use rustix::thread::{MembarrierCommand, membarrier};
use uruk_core::sync::atomic::{AtomicU8, Ordering};

/// Whether the kernel grants a `membarrier` command. Asked once; threads that ask at the same time, and a child of a fork, ask again
/// instead of waiting.
pub(crate) struct Granted(AtomicU8);

const UNASKED: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

impl Granted {
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(UNASKED))
    }

    #[inline]
    pub(crate) fn by(&self, register: MembarrierCommand) -> bool {
        // Relaxed: every writer stores the same value.
        match self.0.load(Ordering::Relaxed) {
            UNASKED => self.ask(register),
            answer => answer == YES,
        }
    }

    #[cold]
    fn ask(&self, register: MembarrierCommand) -> bool {
        let is_granted = membarrier(register).is_ok();
        self.0.store(if is_granted { YES } else { NO }, Ordering::Relaxed); // as above
        is_granted
    }
}

/// Has every processor that runs a thread of this process fetch its instructions anew before it goes on: 2 to 4 microseconds.
///
/// Processors see what others have written into code, but may have fetched and decoded the old bytes before. Where pages change hands the
/// kernel's own work does the same; pages of code here are written through another view, and do not change hands.
///
/// Where the system forbids it (a sandbox, Linux before 4.16) nothing is done: x86 promises no more than that such a processor goes on
/// correctly after the next interrupt or system call. AArch64 promises nothing: a thread that runs meanwhile may run what lay there before.
///
/// Source: Intel's manual, volume 3, "Cross-modifying code"; `membarrier(2)`.
pub(super) fn serialize() {
    static GRANTED: Granted = Granted::new();
    if GRANTED.by(MembarrierCommand::RegisterPrivateExpeditedSyncCore) {
        // It was granted, so it cannot fail.
        _ = membarrier(MembarrierCommand::PrivateExpeditedSyncCore);
    }
}

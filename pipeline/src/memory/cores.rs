//! Code memory that is used again: processors must not run what they fetched of the old code.

use std::sync::OnceLock;

use rustix::thread::{MembarrierCommand, membarrier};

/// Has every processor that runs a thread of this process fetch its instructions anew before it goes on: 2 to 4 microseconds.
///
/// Processors see what others have written into code, but may have fetched and decoded the old bytes before. Where pages change hands the
/// kernel's own work does the same; pages of code here are written through another view, and do not change hands.
///
/// Where the system forbids it (a sandbox, Linux before 4.16) nothing is done: x86 promises no more than that such a processor goes on
/// correctly after the next interrupt or system call.
///
/// Source: Intel's manual, volume 3, "Cross-modifying code"; `membarrier(2)`.
pub(super) fn serialize() {
    static GRANTED: OnceLock<bool> = OnceLock::new();
    if *GRANTED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpeditedSyncCore).is_ok()) {
        // It was granted, so it cannot fail.
        _ = membarrier(MembarrierCommand::PrivateExpeditedSyncCore);
    }
}

//! Faults of the executor: the host is told where, before the process ends.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::net::{SendFlags, send};

use super::below::{is_ending, wait_for_report};
use super::messages::FAULT;
use crate::peer::{HEADER_BYTES, empty_header};
use crate::runtime::fatal::tell_faults;

/// The channel. It stays open to the end of the process.
static CHANNEL: OnceLock<OwnedFd> = OnceLock::new();

const BODY_BYTES: usize = 16;

/// Has the host told of faults by a message on `channel`, with the address in the innermost frame of `code`.
pub(super) fn tell_host(channel: OwnedFd, code: Range<u64>) {
    if CHANNEL.set(channel).is_ok() {
        tell_faults(code, tell);
    }
}

/// In a handler of signals: it allocates nothing, and takes no lock. The frame goes in one piece, beside those of other threads.
fn tell(signal: i32, address: u64) {
    let Some(channel) = CHANNEL.get() else { return };
    let mut frame = [0; HEADER_BYTES + BODY_BYTES];
    frame[..HEADER_BYTES].copy_from_slice(&empty_header(FAULT, BODY_BYTES as u32));
    frame[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&i64::from(signal).to_le_bytes());
    frame[HEADER_BYTES + 8..].copy_from_slice(&address.to_le_bytes());
    is_ending();
    // A host that does not read loses the message, and learns of the end all the same.
    if send(channel, &frame, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok() {
        wait_for_report();
    }
}

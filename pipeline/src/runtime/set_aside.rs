//! [`set_aside`]: descriptors of ours, out of the way of a program.

use std::os::fd::OwnedFd;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// Descriptors of ours lie below this number, and as high as is allowed: programs count on low ones.
const NUMBER_END: u64 = 1024;

/// So many have room below the highest number.
const ROOM: u64 = 16;

/// The same descriptor under a high number, which programs do not count on. As it is where there is none.
pub fn set_aside(descriptor: OwnedFd) -> OwnedFd {
    let numbers = getrlimit(Resource::Nofile).current.unwrap_or(NUMBER_END).min(NUMBER_END);
    let lowest = i32::try_from(numbers.saturating_sub(ROOM).max(numbers / 2)).unwrap_or_default();
    fcntl_dupfd_cloexec(&descriptor, lowest).unwrap_or(descriptor)
}

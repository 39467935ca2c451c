//! Another process that works for this one: frames on a socket, and the end of either side.
//!
//! ```text
//!  this process                              the other
//!    PeerProcess::start ── its stdin ──────▶ Channel over its stdin
//!      send, receive until a deadline          send, receive
//!      end of file: how it ended, and the      end of file, or its parent is gone: it ends
//!      last lines of its stderr
//! ```
//!
//! **Never** is a peer trusted: a length, an id or a kind that does not fit is an error, and memory is taken only for bytes that have come.
//! A peer that did not answer properly is killed and reaped: no frame of it is read later.

mod channel;
mod connected;
mod deadline;
mod descriptors;
mod frame;
mod last_words;
mod private;
mod process;

pub(crate) use channel::Wait;
pub use channel::{Channel, ChannelError};
pub(crate) use connected::ConnectedPeer;
pub use deadline::Deadline;
pub use descriptors::{receive_descriptors, send_descriptors};
pub use frame::{FrameError, FrameLimits, FrameReader, HEADER_BYTES, PeerFrame};
pub(crate) use frame::{empty_header, header as frame_header};
pub(crate) use private::keep_descriptors;
pub(crate) use process::at_end_of;
pub use process::{PeerError, PeerProcess, PeerProgram, ProcessEnd, end_with_parent};

pub use crate::runtime::set_aside;

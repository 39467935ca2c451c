//! [`Replies`]: the executor's messages to the host.
//!
//! A thread of its own sends them. It has the channel in a table of descriptors that is not the program's, which may close and replace all that it finds.

use std::io;

use rustix::process::{Signal, getpid, kill_process};
use serde::Serialize;
use uruk_core::sync::{Arc, Condvar, Mutex, thread};

use crate::peer::{Channel, FrameLimits, frame_header, keep_descriptors};
use crate::runtime::tls::SignalsBlocked;

/// So many bytes of messages wait without an allocation.
const ROOM_BYTES: usize = 16 << 10;

/// The messages to the host.
pub(super) struct Replies {
    waiting: Mutex<WaitingReplies>,
    changed: Condvar,
    watch: Box<dyn Fn(u16) + Send + Sync>,
}

struct WaitingReplies {
    /// Whole frames.
    bytes: Vec<u8>,
    /// Whether the thread sends some that have waited.
    are_sent: bool,
    is_closed: bool,
}

impl Replies {
    /// Messages by `channel`. `watch` is called with the kind of each before it is sent.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn new(
        channel: Channel,
        watch: impl Fn(u16) + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        let bytes = Vec::with_capacity(ROOM_BYTES);
        let waiting = WaitingReplies { bytes, are_sent: false, is_closed: false };
        let (waiting, changed) = (Mutex::new(waiting), Condvar::new());
        let replies = Arc::new(Self { waiting, changed, watch: Box::new(watch) });
        let sender = replies.clone();
        let _signals = SignalsBlocked::now(); // The new thread has them blocked from its first moment.
        thread::Builder::new().name("uruk send".to_owned()).spawn(move || sender.send_all(&channel))?;
        Ok(replies)
    }

    /// A message of this kind is taken, or about to be sent.
    pub(super) fn watch(&self, kind: u16) {
        (self.watch)(kind);
    }

    /// Sends a message, and says whether the channel is open. A host that is gone has this process ended by the thread that watches it.
    pub(super) fn send(&self, kind: u16, id: u32, body: &impl Serialize) -> bool {
        let body = postcard::to_stdvec(body).expect("a vector takes everything");
        self.watch(kind);
        let Ok(header) = frame_header(kind, id, &body, &[], FrameLimits::default()) else { return false };
        // A handler of a signal may make a first call, which sends one too.
        let _signals = SignalsBlocked::now();
        let mut waiting = self.waiting.lock();
        waiting.bytes.extend(header);
        waiting.bytes.extend(body);
        let is_open = !waiting.is_closed;
        drop(waiting);
        self.changed.notify_all();
        is_open
    }

    /// Sends a `frame` of this kind if no other thread is about to send one, and there is room. Allocates nothing. Says whether it is sent.
    ///
    /// To be called with signals blocked.
    pub(super) fn send_at_once(&self, kind: u16, frame: &[u8]) -> bool {
        let Some(mut waiting) = self.waiting.try_lock() else { return false };
        if waiting.bytes.capacity() - waiting.bytes.len() < frame.len() {
            return false;
        }
        self.watch(kind);
        waiting.bytes.extend(frame);
        drop(waiting);
        self.changed.notify_all();
        true
    }

    /// Says why this process cannot go on, and ends it.
    pub(super) fn break_off(&self, why: &str) -> ! {
        self.send(super::messages::BROKEN, 0, &why);
        let mut waiting = self.waiting.lock();
        while waiting.are_sent || !waiting.bytes.is_empty() {
            waiting = self.changed.wait(waiting);
        }
        drop(waiting);
        loop {
            // Not by `exit`, which would run destructors beside the program.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }

    /// Sends what waits, as long as the process is there.
    fn send_all(&self, channel: &Channel) {
        keep_descriptors(&[channel.stream()]);
        let mut taken = Vec::with_capacity(ROOM_BYTES);
        let mut waiting = self.waiting.lock();
        loop {
            while waiting.bytes.is_empty() {
                waiting = self.changed.wait(waiting);
            }
            std::mem::swap(&mut waiting.bytes, &mut taken);
            waiting.are_sent = true;
            drop(waiting);
            let is_sent = channel.send_frames(&taken).is_ok();
            taken.clear();
            waiting = self.waiting.lock();
            waiting.are_sent = false;
            waiting.is_closed |= !is_sent;
            self.changed.notify_all();
        }
    }
}

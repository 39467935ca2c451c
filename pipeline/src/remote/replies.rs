//! [`Replies`]: the executor's end of the channel, for messages to the host.

use rustix::process::{Signal, getpid, kill_process};
use serde::Serialize;
use uruk_core::sync::Mutex;

use crate::peer::Channel;
use crate::runtime::tls::SignalsBlocked;

/// The channel to the host.
pub(super) struct Replies {
    channel: Mutex<Channel>,
    watch: Box<dyn Fn(u16) + Send + Sync>,
}

impl Replies {
    /// Messages by `channel`. `watch` is called with the kind of each before it is sent.
    pub(super) fn new(channel: Channel, watch: impl Fn(u16) + Send + Sync + 'static) -> Self {
        Self { channel: Mutex::new(channel), watch: Box::new(watch) }
    }

    /// A message of this kind is taken, or about to be sent.
    pub(super) fn watch(&self, kind: u16) {
        (self.watch)(kind);
    }

    /// Sends a message, and says whether it went. A host that is gone has this process ended by the thread that watches it.
    pub(super) fn send(&self, kind: u16, id: u32, body: &impl Serialize) -> bool {
        let body = postcard::to_stdvec(body).expect("a vector takes everything");
        self.watch(kind);
        // A handler of a signal may make a first call, which sends one too.
        let _signals = SignalsBlocked::now();
        self.channel.lock().send(kind, id, &body, &[]).is_ok()
    }

    /// Sends a `frame` of this kind if no other thread sends one. Allocates nothing. Says whether it was sent.
    ///
    /// To be called with signals blocked.
    pub(super) fn send_at_once(&self, kind: u16, frame: &[u8]) -> bool {
        let Some(channel) = self.channel.try_lock() else { return false };
        self.watch(kind);
        channel.send_at_once(frame)
    }

    /// Says why this process cannot go on, and ends it.
    pub(super) fn break_off(&self, why: &str) -> ! {
        self.send(super::messages::BROKEN, 0, &why);
        loop {
            // Not by `exit`, which would run destructors beside the program.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}

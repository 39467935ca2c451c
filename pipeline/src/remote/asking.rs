//! [`HostStubs`]: first calls of an executor ask the host.

use std::io::Write as _;

use uruk_core::sync::Arc;

use super::answers::AnswerTable;
use super::messages::{COUNTED, FIRST_CALL, StubCall};
use super::replies::Replies;
use crate::debug;
use crate::peer::{HEADER_BYTES, empty_header};
use crate::runtime::call_through::{CallElsewhere, FoundElsewhere, StubsElsewhere};
use crate::runtime::tls::SignalsBlocked;

/// The host, as the stubs of this process know it.
pub(super) struct HostStubs {
    pub(super) replies: Arc<Replies>,
    pub(super) answers: Arc<AnswerTable<FoundElsewhere>>,
    /// The number of the process that the host knows.
    pub(super) owner: u32,
}

impl StubsElsewhere for HostStubs {
    /// A child that the program has forked has no thread that takes messages, and no code that comes by them: its call goes nowhere.
    fn find(&self, call: CallElsewhere, wants_references: bool) -> FoundElsewhere {
        if std::process::id() != self.owner {
            // Nothing is left to do where stderr is closed.
            let _ = writeln!(
                std::io::stderr(),
                "uruk: a function is called for the first time, by a child of the process that runs the code: there is no compiler for it"
            );
            return FoundElsewhere::default();
        }
        let body = StubCall::new(call, wants_references);
        let found = self.answers.ask(|number| self.replies.send(FIRST_CALL, number, &body));
        debug::settle(); // The thread goes on into code that came with the answer.
        found
    }

    fn counted_out(&self, call: CallElsewhere) -> bool {
        if std::process::id() != self.owner {
            return true; // Nothing is compiled better there.
        }
        let mut frame = [0; HEADER_BYTES + StubCall::BYTES];
        frame[..HEADER_BYTES].copy_from_slice(&empty_header(COUNTED, StubCall::BYTES as u32));
        frame[HEADER_BYTES..].copy_from_slice(&StubCall::bytes(call));
        // No handler finds the channel taken beneath it.
        let _signals = SignalsBlocked::now();
        self.replies.send_at_once(COUNTED, &frame)
    }
}

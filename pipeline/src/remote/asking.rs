//! [`HostStubs`], [`HostNames`]: first calls of an executor, and names of its program, ask the host.

use std::io::Write as _;

use uruk_core::sync::Arc;

use super::answers::AnswerTable;
use super::messages::{COUNTED, FIRST_CALL, NAME, StubCall};
use super::program_names::NamedThere;
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
        let found = self.answers.ask(|number| _ = self.replies.send(FIRST_CALL, number, &body));
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

/// The host, as it is asked for names of the program.
pub(super) struct HostNames {
    replies: Arc<Replies>,
    answers: AnswerTable<NamedThere>,
    /// The number of the process that the host knows.
    owner: u32,
}

impl HostNames {
    pub(super) fn new(replies: Arc<Replies>) -> Self {
        Self { replies, answers: AnswerTable::new(), owner: std::process::id() }
    }

    /// The program's definition of a name. A child that the program has forked has no host, and finds none.
    pub(super) fn find(&self, name: &str) -> NamedThere {
        if std::process::id() != self.owner {
            return NamedThere::default();
        }
        let named = self.answers.ask(|number| _ = self.replies.send(NAME, number, &name));
        debug::settle(); // As in `HostStubs::find`.
        named
    }

    /// Hands out an answer of the host. Says whether there was such a question.
    pub(super) fn answer(&self, number: u32, named: NamedThere) -> bool {
        self.answers.answer(number, named)
    }
}

//! First calls of an executor, and names that it asks for, as the host answers them: each on a thread that may compile, beside the one that takes messages.

use uruk_core::sync::Arc;

use super::connection::Connection;
use super::messages::{FIND, FIRST_CALLED, FOUND, FirstCalled, LEAD, LedStub, NAMED};
use crate::executor::{StubLead, StubsThere};
use crate::runtime::call_through::{
    CallElsewhere, FoundElsewhere, counted_out_for, find_for, on_spare_stack,
};
use crate::runtime::tls::SignalsBlocked;

/// A call that the executor tells of.
#[derive(Clone, Debug)]
pub(super) enum CallThere {
    /// A thread there waits for the answer of this number.
    First { number: u32, call: CallElsewhere, wants_references: bool },
    /// The last of those that were to be counted. No thread waits.
    Counted(CallElsewhere),
    /// A thread there waits for the program's definition of a name.
    Named { number: u32, name: String },
}

impl Connection {
    /// Has a thread see to a call. It goes on while the executor is there.
    ///
    /// # Errors
    /// The system's, if it refuses the only thread.
    pub(super) fn take_call(self: &Arc<Self>, call: CallThere) -> std::io::Result<()> {
        if !self.calls.add(call) {
            return Ok(());
        }
        let this = self.clone();
        let answer = move || {
            let _signals = SignalsBlocked::now();
            while let Some(call) = this.calls.take() {
                // A compiler wants more stack than threads have.
                on_spare_stack(&mut || this.see_to(&call));
            }
        };
        let thread = uruk_core::sync::thread::Builder::new().name("uruk first call".to_owned()).spawn(answer);
        match thread {
            Err(error) if !self.calls.refused() => Err(error),
            // One that there is comes to it.
            _ => Ok(()),
        }
    }

    fn see_to(self: &Arc<Self>, call: &CallThere) {
        let stubs: Arc<dyn StubsThere> = self.clone();
        match *call {
            CallThere::Named { number, ref name } => {
                let named = self.named(name);
                let _ = self.send(NAMED, number, &named, &[]); // as below
            }
            CallThere::Counted(call) => counted_out_for(call, &stubs),
            CallThere::First { number, call, wants_references } => {
                let found: FoundElsewhere = find_for(call, wants_references, &stubs);
                // An executor that is gone waits for nothing.
                let _ = self.send(FIRST_CALLED, number, &FirstCalled::from(found), &[]);
            }
        }
    }
}

impl StubsThere for Connection {
    fn lead(&self, leads: &[StubLead]) {
        let leads: Vec<_> = leads.iter().map(LedStub::from).collect();
        // One that is gone has no stubs.
        let _ = self.send_soon(LEAD, 0, &leads);
    }

    /// The answer to any request says that what came before is done.
    fn settle(&self) {
        let names: &[(&str, bool)] = &[];
        let _ = self.ask((FIND, FOUND), &names, Some(self.limit()));
    }
}

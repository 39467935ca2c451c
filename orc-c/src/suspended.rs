//! Lookups that a generator has suspended.

use uruk::core::sync::{Arc, Mutex};
use uruk::core::{DetachedRequest, GenerateRequest, SharedError};

use crate::errors::Problem;
use crate::handles::{self, Handle, Handled};

/// An `LLVMOrcLookupStateRef`. None while the thread that is in the generator blocks.
pub(crate) struct LookupState(Mutex<Option<DetachedRequest>>);

impl Handled for LookupState {
    const KIND: &'static str = "LLVMOrcLookupStateRef";
}

impl LookupState {
    pub(crate) fn give(request: DetachedRequest) -> Handle {
        handles::give(Self(Mutex::new(Some(request))))
    }

    /// Lets a lookup go on, or fails it. Nothing happens if that was done.
    pub(crate) fn finish(state: Handle, outcome: Result<(), SharedError>) -> Result<(), Problem> {
        let request = handles::take::<Self>(state)?.0.lock().take();
        let request = request.ok_or_else(|| Problem::new("the lookup is in use by another call"))?;
        request.attach().finish(outcome);
        Ok(())
    }
}

/// Runs `body`, which blocks this thread, while it is in the generators of these lookups. The session knows meanwhile that this thread is to
/// finish them, so a wait for what one of these generators would make is an error that names the cycle.
pub(crate) fn with_attached<R>(states: &[Handle], body: impl FnOnce() -> R) -> R {
    let attach = |state: &Handle| -> Option<(Arc<LookupState>, GenerateRequest)> {
        let state = handles::get::<LookupState>(*state).ok()?;
        let request = state.0.lock().take()?;
        Some((state, request.attach()))
    };
    let attached: Vec<_> = states.iter().filter_map(attach).collect();
    let result = body();
    for (state, request) in attached {
        *state.0.lock() = Some(request.detach());
    }
    result
}

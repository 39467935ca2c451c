//! From where the body of a function begins to the function's address, where that is another: its stub. And which code is stubs.
//!
//! An unwinder knows functions by where their code begins. A program that asks it which function it is in compares the answer with
//! addresses that it has taken, and those are the stubs'.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;

use uruk_core::ExecutorAddr;

use super::is_linked;
use crate::runtime::forks::{LockOrder, RuntimeLock};

/// Held for map operations.
static STUBS: RuntimeLock<StubAddresses> =
    RuntimeLock::new(LockOrder::Stubs, StubAddresses { of_bodies: BTreeMap::new(), code: BTreeMap::new() });

struct StubAddresses {
    /// The stub of each body that was found for one.
    of_bodies: BTreeMap<u64, ExecutorAddr>,
    /// By its first address: the address behind the last.
    code: BTreeMap<u64, u64>,
}

/// Notes that `stub` is the address of the function whose body begins at `body`, for as long as that is registered.
pub(crate) fn note(body: ExecutorAddr, stub: ExecutorAddr) {
    let mut stubs = STUBS.lock();
    // Under the lock: code that is unregistered later is forgotten later.
    if is_linked(body.value()) {
        stubs.of_bodies.insert(body.value(), stub);
    }
}

/// Notes that this code, which is registered, is stubs, for as long as it is.
pub(super) fn note_stubs(code: Range<u64>) {
    STUBS.lock().code.insert(code.start, code.end);
}

/// The start of the code of stubs of ours around `address`.
pub(in crate::runtime) fn stubs_at(address: ExecutorAddr) -> Option<u64> {
    let stubs = STUBS.lock();
    let (start, end) = stubs.code.range(..=address.value()).next_back()?;
    (address.value() < *end).then_some(*start)
}

/// Forgets what was noted of code that is registered no more.
pub(super) fn forget(code: Range<u64>) {
    let mut stubs = STUBS.lock();
    stubs.code.remove(&code.start);
    while let Some((&body, _)) = stubs.of_bodies.range(code.clone()).next() {
        stubs.of_bodies.remove(&body);
    }
}

/// The function whose code begins at `start`, as its program knows it.
pub(in crate::runtime) fn function_at(start: *mut c_void) -> *mut c_void {
    let stub = STUBS.lock().of_bodies.get(&(start.addr() as u64)).copied();
    // The stubs may be gone while a body is still running.
    stub.filter(|stub| is_linked(stub.value())).map_or(start, ExecutorAddr::to_ptr)
}

#[cfg(test)]
mod tests {
    use super::super::{register, sample::Sample};
    use super::*;

    #[test]
    fn a_body_stands_for_its_stub_while_both_are_there() {
        let (body, stub) = (Sample::link(), Sample::link());
        let begins = |sample: &Sample| ExecutorAddr::new(sample.code().start);
        let asked =
            |sample: &Sample| ExecutorAddr::from_ptr(function_at(begins(sample).to_ptr()).cast_const());
        note(begins(&body), begins(&stub));
        assert_eq!(asked(&body), begins(&body), "it is not registered");
        let [known, leads] =
            [&body, &stub].map(|sample| register(sample.code(), sample.eh_frame_hdr()).expect("it is new"));
        note(begins(&body), begins(&stub));
        assert_eq!((asked(&body), asked(&stub)), (begins(&stub), begins(&stub)));
        drop(leads);
        assert_eq!(asked(&body), begins(&body));
        drop(known);
        assert!(!STUBS.lock().of_bodies.contains_key(&begins(&body).value()));
    }
}

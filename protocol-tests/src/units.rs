//! Units of one kind that many tests need: which park, and which tell that they run.

use std::sync::mpsc;

use uruk_core::{Detached, ExecutionSession, JitDylib, MaterializationResponsibility};

use crate::{TestUnit, exported, finish};

/// Responsibilities that units have parked.
pub type Parked = mpsc::Receiver<Detached<MaterializationResponsibility>>;

/// A unit of exported `symbols` that parks its responsibility in the channel.
pub fn parking_unit(session: &ExecutionSession, name: &str, symbols: &[&str]) -> (TestUnit, Parked) {
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new(name, exported(session, symbols), move |responsibility| {
        // The test may have ended; then the symbols fail, which is as good.
        let _ = send.send(responsibility.detach());
    });
    (unit, parked)
}

/// Defines a [`parking_unit`].
pub fn define_parked(dylib: &JitDylib, name: &str, symbols: &[&str]) -> Parked {
    let (unit, parked) = parking_unit(dylib.session(), name, symbols);
    dylib.define(unit.boxed()).expect("nothing of the name is defined");
    parked
}

/// A unit of exported `symbols` that says when it has begun, and finishes.
pub fn telling_unit(
    session: &ExecutionSession,
    name: &str,
    symbols: &[&str],
) -> (TestUnit, mpsc::Receiver<()>) {
    let (send, begun) = mpsc::channel();
    let unit = TestUnit::new(name, exported(session, symbols), move |responsibility| {
        send.send(()).expect("the test listens");
        finish(responsibility);
    });
    (unit, begun)
}

/// Defines a [`telling_unit`].
pub fn define_telling(dylib: &JitDylib, name: &str, symbols: &[&str]) -> mpsc::Receiver<()> {
    let (unit, begun) = telling_unit(dylib.session(), name, symbols);
    dylib.define(unit.boxed()).expect("nothing of the name is defined");
    begun
}

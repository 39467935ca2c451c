//! Things that trackers hold: resources that note when they are removed, a symbol that materializes in the test's hands.

use std::sync::{Arc, mpsc};

use uruk_core::sync::Mutex;
use uruk_core::{Detached, JitDylib, MaterializationResponsibility, Resource, ResourceTracker};

use crate::{TestUnit, exported};

/// The notes, in order.
pub type Log = Arc<Mutex<Vec<String>>>;

/// Says when it is removed, or that it was merely dropped.
struct Noted {
    name: &'static str,
    log: Log,
    fails: bool,
    removed: bool,
}

impl Resource for Noted {
    fn remove(mut self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.removed = true;
        self.log.lock().push(self.name.into());
        if self.fails { Err(format!("{} sticks", self.name).into()) } else { Ok(()) }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if !self.removed {
            self.log.lock().push(format!("{} dropped", self.name));
        }
    }
}

/// A resource that says in `log` when it is removed, or that it was merely dropped.
pub fn noted(name: &'static str, log: &Log) -> Box<dyn Resource> {
    Box::new(Noted { name, log: log.clone(), fails: false, removed: false })
}

/// The same, but its removal ends in an error.
pub fn sticking(name: &'static str, log: &Log) -> Box<dyn Resource> {
    Box::new(Noted { name, log: log.clone(), fails: true, removed: false })
}

/// A tracker whose one symbol `a` materializes in the test's hands.
pub fn parked_under_a_tracker(
    main: &JitDylib,
) -> (ResourceTracker, mpsc::Receiver<Detached<MaterializationResponsibility>>) {
    let tracker = main.create_tracker();
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("unit", exported(main.session(), &["a"]), move |responsibility| {
        // The test may have ended; then the symbol fails, which is as good.
        let _ = send.send(responsibility.detach());
    });
    main.define_with_tracker(unit.boxed(), &tracker).expect("nothing of the name is defined");
    (tracker, parked)
}

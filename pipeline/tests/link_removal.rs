//! What linked code occupies in the process stays as long as the tracker of its symbols, and goes with that: its memory and its
//! entry for the unwinder. In a binary of its own: what is registered is counted for the whole process.

#[expect(dead_code, reason = "each test binary uses a part of what they share")]
mod link_support;

use std::sync::Arc;

use link_support::*;
use uruk_core::sync::{Mutex, MutexGuard};
use uruk_core::{ExecutionSession, JitDylib, ResourceTracker, SearchOrder};
use uruk_pipeline::layer::ObjectLayer;
use uruk_pipeline::link::ObjectLinkingLayer;
use uruk_pipeline::memory::{InProcessMemoryManager, MemoryManager};
use uruk_pipeline::object::{ObjectBuffer, ObjectMaterializationUnit};
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::unwind;

/// Held by the one test that counts.
static ALONE: Mutex<()> = Mutex::new(());

/// A session whose objects lie in memory of its own.
struct Linking {
    session: ExecutionSession,
    dylib: JitDylib,
    layer: Arc<dyn ObjectLayer>,
    memory: Arc<InProcessMemoryManager>,
    _alone: MutexGuard<'static, ()>,
}

impl Linking {
    fn new() -> Self {
        let alone = ALONE.lock();
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").expect("new");
        let memory = Arc::new(InProcessMemoryManager::new().expect("address space"));
        let layer: Arc<dyn ObjectLayer> =
            Arc::new(ObjectLinkingLayer::new(memory.clone(), Arc::new(Platform::new())));
        Self { session, dylib, layer, memory, _alone: alone }
    }

    /// Defines `name`, a function that answers `value`, with a tracker of its own.
    fn define(&self, name: &str, value: u64) -> ResourceTracker {
        let source =
            format!("static unsigned long value = {value}; unsigned long {name}(void) {{ return value; }}");
        let object = ObjectBuffer::new(name, compile(CC, "c", &source, &["-fPIC", "-funwind-tables"]));
        let unit = ObjectMaterializationUnit::new(&self.session, self.layer.clone(), object);
        let tracker = self.dylib.create_tracker();
        self.dylib.define_with_tracker(Box::new(unit.expect("an object")), &tracker).expect("a new name");
        tracker
    }

    fn find(&self, name: &str) -> Option<extern "C" fn() -> u64> {
        let order = SearchOrder::of(&self.dylib);
        let found = self.session.lookup_symbol(&order, &self.session.intern(name)).ok()?;
        // SAFETY: every function here has this signature, and is called before its tracker is removed.
        Some(unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> u64>(found.address.to_ptr()) })
    }

    /// Allocations, and objects that the unwinder knows.
    fn occupied(&self) -> (u64, usize) {
        (self.memory.usage().allocations, unwind::registered_objects())
    }
}

#[test]
fn code_stays_callable_until_its_tracker_is_removed_and_goes_with_it() {
    let linking = Linking::new();
    let (one, two) = (linking.define("one", 1), linking.define("two", 2));
    assert_eq!(linking.occupied(), (0, 0), "nobody has asked yet");
    let (first, second) = (linking.find("one").expect("linked"), linking.find("two").expect("linked"));
    assert_eq!((first(), second(), linking.occupied()), (1, 2, (2, 2)));
    one.remove().expect("nothing goes wrong");
    assert_eq!((second(), linking.occupied()), (2, (1, 1)));
    assert!(linking.find("one").is_none());
    // What others have joined goes with them.
    let three = linking.define("three", 3);
    let third = linking.find("three").expect("linked");
    two.transfer_to(&three).expect("of one dylib");
    drop(two);
    assert_eq!((second(), third(), linking.occupied()), (2, 3, (2, 2)));
    three.remove().expect("nothing goes wrong");
    assert_eq!(linking.occupied(), (0, 0));
}

#[test]
fn code_goes_with_its_session_closed_or_not() {
    for closes in [true, false] {
        let Linking { session, dylib, layer, memory, _alone } = {
            let linking = Linking::new();
            linking.define("kept", 4);
            assert_eq!(linking.find("kept").expect("linked")(), 4);
            assert_eq!(linking.occupied(), (1, 1));
            linking
        };
        if closes {
            session.close().expect("nothing goes wrong");
            assert_eq!((memory.usage().allocations, unwind::registered_objects()), (0, 0));
        }
        drop((session, dylib, layer));
        assert_eq!((memory.usage().allocations, unwind::registered_objects()), (0, 0));
    }
}

//! Resources that are removed together are told before the first of them goes, by one number.
//!
//! They were removed one by one: what ended with one of them called code that another had just unmapped.

use std::error::Error;
use std::sync::Arc;

use uruk_core::sync::Mutex;
use uruk_core::{ExecutionSession, JitDylib, RemovalNumber, Resource};

type Log = Arc<Mutex<Vec<(&'static str, Step)>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Told(RemovalNumber),
    Removed,
}

struct Noted(&'static str, Log);

impl Resource for Noted {
    fn prepare_removal(&mut self, removal: RemovalNumber) {
        self.1.lock().push((self.0, Step::Told(removal)));
        assert!(self.0 != "panics", "as it is told");
    }

    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.1.lock().push((self.0, Step::Removed));
        Ok(())
    }
}

struct Scene {
    session: ExecutionSession,
    main: JitDylib,
    log: Log,
}

impl Scene {
    fn new() -> Self {
        let session = ExecutionSession::new();
        let main = session.create_jit_dylib("main").expect("a new name");
        Self { session, main, log: Log::default() }
    }

    fn add(&self, dylib: &JitDylib, name: &'static str) {
        dylib.default_tracker().add_resource(Box::new(Noted(name, self.log.clone()))).expect("it is there");
    }

    /// Demands that all of `names` were told by one number, and then all removed, each time in this order. Gives the number.
    fn assert_together(&self, names: &[&'static str]) -> RemovalNumber {
        let log = std::mem::take(&mut *self.log.lock());
        let Some((_, Step::Told(number))) = log.first().copied() else { panic!("{log:?}") };
        let step = |step| names.iter().map(move |name| (*name, step));
        assert_eq!(log, step(Step::Told(number)).chain(step(Step::Removed)).collect::<Vec<_>>());
        number
    }
}

#[test]
fn resources_are_told_before_the_first_of_them_is_removed() {
    let scene = Scene::new();
    for name in ["a", "b", "c"] {
        scene.add(&scene.main, name);
    }
    scene.main.default_tracker().remove().expect("nothing goes wrong");
    let by_tracker = scene.assert_together(&["c", "b", "a"]);
    for name in ["a", "b"] {
        scene.add(&scene.main, name);
    }
    scene.main.clear().expect("nothing goes wrong");
    let by_clear = scene.assert_together(&["b", "a"]);
    assert_ne!(by_tracker, by_clear);
}

#[test]
fn resources_of_all_dylibs_are_told_before_a_session_ends() {
    let scene = Scene::new();
    let other = scene.session.create_jit_dylib("other").expect("a new name");
    for (dylib, name) in [(&scene.main, "a"), (&other, "b"), (&scene.main, "c"), (&other, "d")] {
        scene.add(dylib, name);
    }
    scene.session.close().expect("nothing goes wrong");
    scene.assert_together(&["d", "b", "c", "a"]);
}

#[test]
fn a_resource_that_panics_as_it_is_told_is_removed_with_the_others() {
    let scene = Scene::new();
    for name in ["a", "panics", "b"] {
        scene.add(&scene.main, name);
    }
    let told = scene.main.clear().expect_err("one panics").to_string();
    scene.assert_together(&["b", "panics", "a"]);
    assert!(told.contains("main"), "{told}");
}

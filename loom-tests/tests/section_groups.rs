//! Section groups: objects that share sections wait for one another, while members are removed, refused and fail.
//!
//! ```text
//!  the first that comes                                    remover, or a definer
//!    note the declared objects                               declare ─ define, or be refused: withdraw
//!    ask which of them are defined                           transact: rows go; lookups are told
//!    lock: enter all that are still in no group              the unit is dropped: withdraw
//!    look each of them up
//!      its answer, before the group is linked: it leaves
//! ```
//!
//! The model runs the pipeline's own file and real sessions; objects are numbers here.
//!
//! Proven, in every order with at most three preemptions: an object that has come is linked or fails, and the lookup for it
//! ends; objects that come at one moment are linked together; none is linked twice, and none whose removal was over before the
//! last member came; nothing is left of a group that has ended.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `section_groups::takes_no_answer_for_an_absence`: a question that finds no object changes nothing | `pipeline/src/platform/section_groups.rs` | `a_member_is_removed_while_another_comes` |
//! | `section_groups::withdraws_who_is_expected`: a declaration that is withdrawn takes the member out of its group, unseen | `pipeline/src/platform/section_groups.rs` | `a_member_is_removed_while_another_comes` |
//! | `section_groups::founds_without_a_second_look`: an object enters its group as the group was before it asked the session | `pipeline/src/platform/section_groups.rs` | `members_that_come_at_one_moment_are_linked_together` |
//! | `section_groups::links_what_was_removed`: a member that has come and is removed stays in its group | `pipeline/src/platform/section_groups.rs` | `a_member_is_removed_while_its_group_waits` |
//! | `section_groups::waits_for_who_has_failed`: a question that ends with an error changes nothing | `pipeline/src/platform/section_groups.rs` | `a_member_fails_while_its_group_waits` |
//!
//! The first three need an order of two threads that a test can hardly stage: the step in between makes no call.
//!
//! In no row: `a_member_is_refused_while_another_comes`. A group does not expect an object that was not defined when it was
//! founded. If it did, the step of the first row would take the object out again. So only two weakenings at once make the test fail.
#![cfg(uruk_loom)]

#[path = "../../pipeline/src/platform/section_groups.rs"]
mod section_groups;

use std::error::Error;

use loom_tests::stage::{Stage, model_within};
use section_groups::{Part, SectionGroups};
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{
    Detached, JitDylib, LookupError, LookupRequest, LookupSet, MaterializationInterface,
    MaterializationResponsibility, MaterializationUnit, Resource, ResourceTracker, SymbolName,
};

const PREEMPTIONS: usize = 3;

/// Files of one dylib that share sections.
struct Scene {
    stage: Arc<Stage>,
    groups: Arc<SectionGroups<u32>>,
    /// The objects that were linked together, by place in link order.
    linked: Arc<Mutex<Vec<Vec<u32>>>>,
}

/// A declaration that ends with its unit, or with the tracker of that once it has begun.
struct Declared(SymbolName, Arc<SectionGroups<u32>>);

impl Resource for Declared {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

impl Drop for Declared {
    fn drop(&mut self) {
        self.1.withdraw(&self.0);
    }
}

/// A unit whose object is there as soon as it is asked for, or waits for the model.
struct File {
    declared: Declared,
    order: u32,
    scene: Arc<Scene>,
    parks: Option<Parked>,
    /// Besides its initializer.
    symbol: Option<SymbolName>,
}

type Parked = Arc<Mutex<Option<Detached<MaterializationResponsibility>>>>;

impl MaterializationUnit for File {
    fn name(&self) -> &str {
        "file"
    }

    fn interface(&self) -> MaterializationInterface {
        let symbols = self.symbol.iter().map(|name| (name.clone(), uruk_core::SymbolFlags::EXPORTED));
        MaterializationInterface::new(symbols.collect()).with_initializer(self.declared.0.clone())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Self { declared, order, scene, parks, .. } = *self;
        let _ = responsibility.add_resource(Box::new(declared));
        match parks {
            Some(parked) => *parked.lock() = Some(responsibility.detach()),
            None => scene.arrive(responsibility, order),
        }
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self { stage: Stage::new(), groups: Arc::default(), linked: Arc::default() })
    }

    fn declare(self: &Arc<Self>, order: u32) -> File {
        let initializer = self.stage.session.intern(&format!("file {order}"));
        self.groups.declare(initializer.clone(), order);
        let declared = Declared(initializer, self.groups.clone());
        File { declared, order, scene: self.clone(), parks: None, symbol: None }
    }

    /// Defines a file with a tracker of its own.
    fn define(&self, file: File) -> (SymbolName, ResourceTracker) {
        let (initializer, tracker) = (file.declared.0.clone(), self.stage.dylib.create_tracker());
        self.stage.dylib.define_with_tracker(Box::new(file), &tracker).expect("the name is new");
        (initializer, tracker)
    }

    /// A file that was asked for, and waits for the model.
    fn parked(self: &Arc<Self>, order: u32) -> (SymbolName, Parked) {
        let mut file = self.declare(order);
        let parked = Parked::default();
        file.parks = Some(parked.clone());
        // Its tracker's symbols stay when the last handle goes.
        (self.define(file).0, parked)
    }

    /// Starts the file of a symbol on this thread, and does not wait for it.
    fn begin(&self, initializer: &SymbolName) {
        let wanted = LookupSet::weakly_referenced([initializer.clone()]);
        let request = uruk_core::LookupRequest::new(self.stage.order(), wanted);
        self.stage.session.lookup_async(request, drop);
    }

    /// Waits until a file is Ready.
    fn lookup(&self, initializer: &SymbolName) -> Result<(), LookupError> {
        let wanted = LookupSet::weakly_referenced([initializer.clone()]);
        self.stage.session.lookup(LookupRequest::new(self.stage.order(), wanted)).map(drop)
    }

    fn arrive(&self, responsibility: MaterializationResponsibility, order: u32) {
        let linked = self.linked.clone();
        self.groups.arrive((responsibility, order), move |parts| link(parts, &linked));
    }

    /// The linked groups, once nothing is on its way.
    fn linked(&self) -> Vec<Vec<u32>> {
        assert_eq!(self.groups.unlinked(), 0, "somebody is expected still");
        self.linked.lock().clone()
    }
}

/// Links what is there: each file by itself, for one may be gone.
fn link(parts: Vec<Part<u32>>, linked: &Mutex<Vec<Vec<u32>>>) {
    linked.lock().push(parts.iter().map(|(_, order)| *order).collect());
    for (responsibility, _) in parts {
        // Refused if it was removed; it fails as it is dropped then.
        if let Ok(resolved) = responsibility.notify_resolved(&Default::default()) {
            let _ = resolved.notify_emitted(Vec::new());
        }
    }
}

/// ```text
///  main: lookup(a): a comes ─ b is defined ─ enter ─ look b up          remover: b's tracker goes ─ its unit is dropped
/// ```
#[test]
fn a_member_is_removed_while_another_comes() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let (a, _tracker) = scene.define(scene.declare(0));
        let (_, tracker) = scene.define(scene.declare(1));
        let remover = thread::spawn(move || tracker.remove());
        scene.lookup(&a).expect("nobody removes it");
        remover.join().expect("no panic").expect("there is no resource");
        let linked = scene.linked();
        // A member that is removed as it comes may have left its group, and is refused then.
        let of_a: Vec<_> = linked.iter().filter(|together| together.contains(&0)).collect();
        assert!(matches!(of_a[..], [together] if matches!(together[..], [0] | [0, 1])), "{linked:?}");
    });
}

/// ```text
///  main: lookup(a)                   another: declare b ─ define: refused ─ withdraw
/// ```
#[test]
fn a_member_is_refused_while_another_comes() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let (a, _tracker) = scene.define(scene.declare(0));
        let taken = scene.stage.session.intern("taken");
        scene.stage.define_counted(&[&taken]);
        let definer = thread::spawn({
            let scene = scene.clone();
            move || {
                let mut file = scene.declare(1);
                file.symbol = Some(taken);
                scene.stage.dylib.define(Box::new(file)).map_err(drop)
            }
        });
        scene.lookup(&a).expect("nobody removes it");
        definer.join().expect("no panic").expect_err("there is such a symbol");
        assert_eq!(scene.linked(), [[0]]);
    });
}

/// ```text
///  main: lookup(a)                   another: lookup(b)
/// ```
#[test]
fn members_that_come_at_one_moment_are_linked_together() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let [(a, _of_a), (b, _of_b)] = [0, 1].map(|order| scene.define(scene.declare(order)));
        let other = thread::spawn({
            let scene = scene.clone();
            move || scene.lookup(&b)
        });
        scene.lookup(&a).expect("nobody removes it");
        other.join().expect("no panic").expect("nobody removes it");
        assert_eq!(scene.linked(), [[0, 1]]);
    });
}

/// ```text
///  (a is here, b is at work)         main: b comes                      remover: a's tracker goes
/// ```
#[test]
fn a_member_is_removed_while_its_group_waits() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let (a, tracker) = scene.define(scene.declare(0));
        let (b, parked) = scene.parked(1);
        scene.begin(&a);
        let removed = Arc::new(AtomicBool::new(false));
        let remover = thread::spawn({
            let removed = removed.clone();
            move || {
                tracker.remove().expect("there is no resource");
                // Relaxed: who sees it late only asks for less.
                removed.store(true, Ordering::Relaxed);
            }
        });
        let was_removed = removed.load(Ordering::Relaxed);
        let responsibility = parked.lock().take().expect("the group has asked for it");
        scene.arrive(responsibility.attach(), 1);
        scene.lookup(&b).expect("nobody removes it");
        remover.join().expect("no panic");
        let linked = scene.linked();
        assert!(linked == [[1].to_vec()] || (linked == [[0, 1].to_vec()] && !was_removed), "{linked:?}");
    });
}

/// ```text
///  (b is at work)                    main: lookup(a)                    another: b fails
/// ```
#[test]
fn a_member_fails_while_its_group_waits() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let (a, _tracker) = scene.define(scene.declare(0));
        let (b, parked) = scene.parked(1);
        scene.begin(&b);
        let failing = thread::spawn(move || {
            let responsibility = parked.lock().take();
            drop(responsibility);
        });
        // One that had failed by then is a member too: it is defined still.
        let told = scene.lookup(&a);
        failing.join().expect("no panic");
        assert!(matches!(told, Err(LookupError::Failed(_))), "{told:?}");
        assert_eq!(scene.linked(), Vec::<Vec<u32>>::new());
    });
}

loom_tests::catches_its_weakenings!();
